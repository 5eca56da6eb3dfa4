"""Decides about one ProviderConfig: the next look, and its status."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from bind.osb.dataservices.managed import PROVIDER_CONFIG
from reconciler.blueprints.offering.messages import HttpRequest, ReadCatalogue, http_request
from reconciler.core import keys, manifest
from reconciler.core.decision import Decision, Note, finalized, unfinalized, writes
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.times import format_time, moment

_WELL: Final = timedelta(minutes=3)  # until the next look
_AILING: Final = timedelta(seconds=30)
_ENDPOINT: Final = "/instances"  # as brokers of the original have
Step: TypeAlias = Decision | HttpRequest


@dataclass(frozen=True, slots=True)
class Seen:
    """A ProviderConfig, and the number of its users."""

    cluster: str
    live: Manifest = field(repr=False)
    now: datetime
    users: int = 0

    @property
    def health(self) -> Manifest:
        """The result of the last look."""
        return manifest.get_map(self.live, "status", "health")

    @property
    def endpoint(self) -> str:
        """The path that is asked for, "" for that of the original, else for the catalogue."""
        stated = manifest.get_text(self.live, "spec", "healthCheckEndpoint").lstrip("/")
        return f"/{stated}" if stated else ""


def next_step(seen: Seen) -> Step:
    """Return the request that is due, or the decision without any."""
    if manifest.is_deleting(seen.live):
        return _leaving(seen)
    if (patch := finalized(seen.cluster, PROVIDER_CONFIG, seen.live, keys.IN_USE)) is not None:
        return writes(patch)
    if (left := _left(seen)) > timedelta():
        return Decision(fields={"users": seen.users}, again=left)
    return HttpRequest("HEAD", seen.endpoint or _ENDPOINT)


def _leaving(seen: Seen) -> Decision:
    """Keep a config that is used: else those objects could never be deleted."""
    if seen.users:
        return Decision(fields={"users": seen.users}, again=_AILING)
    return writes(unfinalized(seen.cluster, PROVIDER_CONFIG, seen.live, keys.IN_USE))


def _left(seen: Seen) -> timedelta:
    """Return the time until the next look, by the status alone, of whichever program."""
    last = moment(manifest.get_text(seen.health, "lastCheckTime"))
    if last is None:
        return timedelta()
    well = manifest.get_bool(seen.health, "lastStatus")
    return min(last - seen.now, timedelta()) + (_WELL if well else _AILING)


def answered(seen: Seen, request: HttpRequest, status: int, problem: str) -> Step:
    """Return the decision from an answer; `problem` is why there is none (status 0)."""
    if 200 <= status < 300:
        return result(seen, "")
    catalogue = http_request(ReadCatalogue(), api_version="2.17")
    unknown = status in (404, 405) and not seen.endpoint
    is_backup_manager = manifest.get_text(seen.live, "spec", "serviceType") == "backupmanager"
    if unknown and request != catalogue and not is_backup_manager:
        return catalogue
    return result(seen, problem or f"HTTP {status}")


def result(seen: Seen, problem: str) -> Decision:
    """Return the status after a look."""
    before, well = seen.health, not problem
    fields: dict[str, JSON] = {
        "health": {
            "lastCheckTime": format_time(seen.now),
            "lastStatus": well,
            "lastMessage": problem or "Available",
        },
        "users": seen.users,
    }
    decision = Decision(fields=fields, again=_WELL if well else _AILING)
    if before.get("lastStatus") is well:
        return decision
    note = Note("CheckSuccess", "It answers") if well else Note("CheckFailure", problem, "Warning")
    return replace(decision, notes=(note,))
