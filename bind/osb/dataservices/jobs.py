"""Decides about a Backup or Restore, and builds calls to a backup manager.

A POST carries no id: so the highest number is written down before it, and after a crash the newer
job that no object names is ours. A restore cannot be undone, and is not begun twice for one object.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, Literal, TypeAlias
from urllib.parse import quote

from bind.osb.dataservices import instances, managed, rules
from bind.osb.dataservices.managed import AVAILABLE, CREATING, DELETING, MISSING, UNAVAILABLE
from reconciler.blueprints.offering.messages import HttpRequest
from reconciler.blueprints.offering.outcomes import Unknown, Unsent, scrub
from reconciler.core import conditions, keys, manifest
from reconciler.core.conditions import Condition
from reconciler.core.decision import Decision, Note, writes
from reconciler.core.documents import object_of
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import Kind
from reconciler.core.secret import Secret
from reconciler.core.times import moment

# What a request is for: the same list is read before a job is made and after a crash.
Purpose: TypeAlias = Literal["mark", "find", "configure", "create", "read", "delete"]
_MOST_MEMORY: Final = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. `value` is its JSON, None where it is none; `problem` are the manager's words."""

    status: int
    value: JSON = field(default=None, repr=False)
    problem: str = ""

    @property
    def jobs(self) -> list[Manifest] | None:
        """The jobs of a list, None where it is none."""
        if self.status != 200 or not isinstance(self.value, list):
            return None
        return [one for one in self.value if isinstance(one, dict)]

    @property
    def number(self) -> int | None:
        """The number of a job that was made, None without one."""
        return manifest.get_int(self.value, "id") if 200 <= self.status < 300 else None


def reply(status: int, body: bytes, secrets: Sequence[Secret]) -> Reply:
    """Read an answer; `secrets` are never repeated."""
    read = object_of(b'{"value":%s}' % (body or b"null"), most_memory=_MOST_MEMORY)
    value = None if read is None else read.get("value")
    words = manifest.get_text(value, "description") or manifest.get_text(value, "error")
    return Reply(status, value, scrub(words, secrets) or f"HTTP {status}, without a reason")


UNDER_WAY: Final = ("queued", "running")
STATES: Final = (*UNDER_WAY, "done", "failed", "deleted")
_SETTINGS: Final = ("encryption_key", "exclude_from_auto_backup", "credentials_updated_by_user")


@dataclass(frozen=True, slots=True)
class _Words:
    """The names of a kind's fields, and of its jobs on the wire."""

    sort: str
    annotation: str
    number: str
    state: str
    triggered: str
    finished: str


_WORDS: Final = {
    managed.BACKUP: _Words(
        "backups", keys.BACKUP_ID, "id", "status", "triggered_at", "finished_at"
    ),
    managed.RESTORE: _Words(
        "restores", keys.RESTORE_ID, "restoreId", "state", "triggeredAt", "finishedAt"
    ),
}


@dataclass(frozen=True, slots=True)
class Seen(managed.Seen):
    """A Backup or Restore.

    `source` is what it is of: a ServiceInstance, or a Backup; `lookup` says why there is not one.
    `named` are the numbers that other objects of the kind have for the same instance; `rest` is how
    long nothing is to be asked, since the last answer.
    """

    source: Manifest | None = field(default=None, repr=False)
    lookup: str = ""
    named: frozenset[int] = frozenset()
    rest: timedelta = timedelta()

    @property
    def is_restore(self) -> bool:
        return self.kind == managed.RESTORE

    @property
    def words(self) -> _Words:
        return _WORDS[self.kind]

    @property
    def instance(self) -> str:
        """The id of the instance, "" where it was not looked for yet."""
        return manifest.get_text(self.at_provider, "instanceId")

    @property
    def backup(self) -> int | None:
        """The number of the backup that is brought back."""
        return manifest.get_int(self.at_provider, "backupId")

    @property
    def number(self) -> int | None:
        """Its number at the backup manager, None where it has none yet."""
        return number_of(self.kind, self.live)

    @property
    def state(self) -> str:
        return manifest.get_text(self.at_provider, self.words.state)

    @property
    def after(self) -> int | None:
        """The highest number that was there before; None where nothing was asked yet."""
        return _number(self.annotations.get(keys.OSB_AFTER, ""))

    @property
    def settings(self) -> dict[str, JSON]:
        """The stated settings of the instance's backups."""
        return {key: self.wanted[key] for key in _SETTINGS if self.wanted.get(key) is not None}

    @property
    def hindrance(self) -> str:
        """Why it cannot begin, "" where it can."""
        if self.source is None:
            return self.lookup
        if not self.is_restore:
            return "" if instances.is_ready(self.source) else "The service instance is not ready"
        state = manifest.get_text(self.source, "status", "atProvider", "status")
        return "" if state == "done" else f"The backup is {state or 'not there yet'}"

    @property
    def ids(self) -> dict[str, JSON]:
        """The ids of the source, in words of the kind."""
        at = manifest.get_map(self.source, "status", "atProvider")
        ids: dict[str, JSON] = {"instanceId": manifest.get_text(at, "instanceId")}
        if self.is_restore and self.source is not None:
            ids["backupId"] = number_of(managed.BACKUP, self.source)
        return ids


def number_of(kind: Kind, live: Manifest) -> int | None:
    """Return the number of a Backup or a Restore at the backup manager."""
    number = manifest.get_int(live, "status", "atProvider", _WORDS[kind].number)
    if number is not None:
        return number
    return _number(manifest.annotations_of(live).get(_WORDS[kind].annotation, ""))


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


_SOONEST: Final = timedelta(seconds=2)
_SLOWEST: Final = timedelta(minutes=1)
_RESTORED: Final = ("Forgotten", "The restored data stays")
Step: TypeAlias = Decision | Purpose
Answer: TypeAlias = Reply | Unsent | Unknown


def request(seen: Seen, purpose: Purpose) -> HttpRequest:
    """Return the request to a backup manager for this."""
    path, sort = f"/instances/{quote(seen.instance, safe='')}", seen.words.sort
    match purpose:
        case "mark" | "find":
            return HttpRequest("GET", f"{path}/{sort}")
        case "configure":
            return HttpRequest("PUT", path, manifest.canonical(seen.settings))
        case "create" if seen.is_restore:
            return HttpRequest("POST", f"{path}/backups/{seen.backup}/restore")
        case "create":
            return HttpRequest("POST", f"{path}/backups")
    return HttpRequest("GET" if purpose == "read" else "DELETE", f"{path}/{sort}/{seen.number}")


def next_step(seen: Seen) -> Step:
    """Return the next question, or the decision without one: an answer counts for a while."""
    step = _next(seen)
    is_due = isinstance(step, Decision) or not seen.rest
    return step if is_due else Decision(again=seen.rest, sums_up=False)


def _next(seen: Seen) -> Step:  # noqa: PLR0911 - a state each
    if (framed := managed.framed(seen)) is not None:
        return framed
    if seen.number is not None:
        if not seen.is_deleting:
            return "read"
        if not seen.is_restore:
            return "delete"
        return "read" if seen.state in ("", *UNDER_WAY) else managed.released(seen, *_RESTORED)
    if seen.is_deleting:
        return managed.released(seen, "Forgotten", "The backup manager gave it no number")
    if seen.after is not None:
        return "find"
    problem = seen.hindrance if managed.may(seen.live, "Create") else managed.NO_CREATE
    if problem:
        return seen.failed(problem, CREATING, again=None)
    if not (managed.has_finalizer(seen.live) and manifest.covers(seen.at_provider, seen.ids)):
        return seen.report(seen.ids, CREATING, step=managed.marked(seen, {}, finalizer=True))
    return "mark"


def answered(  # noqa: PLR0911 - an answer each
    seen: Seen, purpose: Purpose, answer: Answer
) -> Step:
    """Return the decision from an answer: it may be another question."""
    if isinstance(answer, Unsent | Unknown):
        pause = answer.retry_after if isinstance(answer, Unsent) else None
        return _failed(seen, answer.problem, pause)
    if answer.status in (401, 403):
        problem = f"The backup manager does not let us in: {answer.problem}"
        return _failed(seen, problem, rules.DENIED)
    is_done = 200 <= answer.status < 300
    is_gone = answer.status in (404, 410) and answer.value is not None
    match purpose, answer.jobs, answer.number:
        case "read", _, _ if answer.status == 200 and _state(answer) in STATES:
            return _observed(seen, answer.value, _state(answer))
        case "read", _, _ if is_gone:
            return _lost(seen)
        case "delete", _, _ if is_gone or is_done:
            return managed.released(seen, "Deleted", "The backup manager deleted the backup")
        case "mark", list() as found, _:
            return _marked(seen, found)
        case "find", list() as found, _:
            # A newer one that no object names is the one that was asked for before a crash.
            newer = [
                number
                for one in found
                if (number := manifest.get_int(one, "id")) is not None
                and number > (seen.after or 0)
                and number not in seen.named
                and (not seen.is_restore or one.get("backup_id") == seen.backup)
            ]
            further: Purpose = "configure" if seen.settings else "create"
            return _named(seen, min(newer)) if newer else _still(seen, further)
        case "create", _, int() as number:
            return _named(seen, number)
        case "configure", _, _ if is_done:
            return _still(seen, "create")
    stated = () if purpose in ("read", "delete") else (CREATING,)
    return _failed(seen, answer.problem, None, *stated)


def _still(seen: Seen, purpose: Purpose) -> Step:
    """Return the question that follows: "deleted while the list was read" has none."""
    step = _next(seen)
    return purpose if step == "find" else step


def _failed(seen: Seen, problem: str, pause: timedelta | None, *stated: Condition) -> Decision:
    """Return the decision that reports a problem, and looks again after a pause, ever longer."""
    stated = (DELETING,) if seen.is_deleting else stated
    return seen.failed(problem, *stated, again=pause or max(seen.pause(), rules.POLL))


def _state(answer: Reply) -> str:
    return manifest.get_text(answer.value, "status")


def _marked(seen: Seen, found: list[Manifest]) -> Decision:
    """Write down which jobs are not ours."""
    numbers = [number for one in found if (number := manifest.get_int(one, "id")) is not None]
    step = managed.marked(seen, {keys.OSB_AFTER: str(max(numbers, default=0))})
    return replace(writes(step, failure=managed.WRITE_FAILED), again=rules.SOON, sums_up=False)


def _named(seen: Seen, number: int) -> Decision:
    names = seen.words
    at: dict[str, JSON] = {names.number: number, names.state: "queued"}
    step = managed.marked(seen, {names.annotation: str(number)})
    note = Note("Created", f"The backup manager gave it the number {number}")
    return seen.report(at, CREATING, managed.SUCCESS, again=_SOONEST, note=note, step=step)


def _observed(seen: Seen, job: JSON, state: str) -> Decision:
    names = seen.words
    at: dict[str, JSON] = {
        names.number: seen.number,
        names.state: state,
        names.triggered: manifest.get_text(job, "triggered_at") or None,
        names.finished: manifest.get_text(job, "finished_at") or None,
    }
    if not seen.is_restore:
        at["size"] = manifest.get_int(job, "size")
        at["downloadable"] = manifest.get_bool(job, "downloadable")
    if seen.is_deleting:
        return _restore_leaving(seen, at, state)
    again = _poll(seen) if state in UNDER_WAY else rules.RESYNC
    return seen.report(at, _ready(seen, state), managed.SUCCESS, again=again)


def _poll(seen: Seen) -> timedelta:
    """Return when to ask again: the sooner, the shorter a job has been going on."""
    # It is Creating from before its source was ready, and Synced since it has a number.
    synced = conditions.get(seen.live, managed.SYNCED)
    since = None if synced is None else moment(synced.last_transition_time)
    lasted = timedelta() if since is None else seen.now - since
    return min(max(lasted / 2, _SOONEST), _SLOWEST)


def _ready(seen: Seen, state: str) -> Condition:
    name = seen.kind.kind
    match state:
        case "done" if seen.is_restore:
            return replace(AVAILABLE, message="Restore completed successfully")
        case "done":
            return AVAILABLE
        case "failed":
            return replace(UNAVAILABLE, message=f"{name} has failed")
        case "deleted":
            return replace(UNAVAILABLE, message=f"{name} has been deleted")
    return CREATING


def _restore_leaving(seen: Seen, at: dict[str, JSON], state: str) -> Decision:
    if state not in UNDER_WAY:
        return managed.released(seen, *_RESTORED)
    problem = managed.error(f"The restore is still {state}")
    return seen.report(at, DELETING, problem, again=_poll(seen))


def _lost(seen: Seen) -> Decision:
    if seen.is_deleting:
        return managed.released(seen, "Forgotten", "The backup manager does not know it")
    problem = "The backup manager does not know it any more"
    return seen.failed(problem, replace(MISSING, message=problem), again=rules.RESYNC)
