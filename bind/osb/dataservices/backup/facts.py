"""What a Backup or a Restore says about itself, in the words of each."""

from dataclasses import dataclass, field
from typing import Final

from bind.osb.dataservices import kinds, managed
from bind.osb.dataservices.instance import facts as instances
from reconciler.core import keys, manifest
from reconciler.core.manifest import JSON, Manifest

UNDER_WAY: Final = ("queued", "running")
STATES: Final = (*UNDER_WAY, "done", "failed", "deleted")
_SETTINGS: Final = ("encryption_key", "exclude_from_auto_backup", "credentials_updated_by_user")


@dataclass(frozen=True, slots=True)
class Words:
    """The names under which a kind says the same, and what its jobs are called on the wire."""

    sort: str
    annotation: str
    number: str
    state: str
    triggered: str
    finished: str


_BACKUP: Final = Words("backups", keys.BACKUP_ID, "id", "status", "triggered_at", "finished_at")
_RESTORE: Final = Words(
    "restores", keys.RESTORE_ID, "restoreId", "state", "triggeredAt", "finishedAt"
)


@dataclass(frozen=True, slots=True)
class Seen(managed.Seen):
    """One Backup or Restore.

    `source` is what it is of: a ServiceInstance, or a Backup; `lookup` says why there is not one.
    `named` are the numbers that other objects of the kind have for the same instance.
    """

    source: Manifest | None = field(default=None, repr=False)
    lookup: str = ""
    named: frozenset[int] = frozenset()

    @property
    def is_restore(self) -> bool:
        """Whether it is a Restore."""
        return self.kind == kinds.RESTORE

    @property
    def words(self) -> Words:
        """The words of its kind."""
        return words(self.is_restore)

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
        return number_of(self.live, is_restore=self.is_restore)

    @property
    def state(self) -> str:
        """How far it is."""
        return manifest.get_text(self.at_provider, self.words.state)

    @property
    def after(self) -> int | None:
        """The highest number that was there before; None where nothing was asked yet."""
        return _number(self.annotations.get(keys.OSB_AFTER, ""))

    @property
    def settings(self) -> dict[str, JSON]:
        """How backups of the instance are to be treated, as far as that is said."""
        return {key: self.wanted[key] for key in _SETTINGS if self.wanted.get(key) is not None}

    @property
    def hindrance(self) -> str:
        """Why it cannot begin, "" where it can."""
        if self.source is None:
            return self.lookup
        if not self.is_restore:
            ready = instances.is_ready(self.source)
            return "" if ready else "The service instance is not ready"
        state = manifest.get_text(self.source, "status", "atProvider", "status")
        return "" if state == "done" else f"The backup is {state or 'not there yet'}"

    @property
    def ids(self) -> dict[str, JSON]:
        """What the source says of ids, in words of the kind."""
        at = manifest.get_map(self.source, "status", "atProvider")
        ids: dict[str, JSON] = {"instanceId": manifest.get_text(at, "instanceId")}
        if self.is_restore and self.source is not None:
            ids["backupId"] = number_of(self.source, is_restore=False)
        return ids


def words(is_restore: bool) -> Words:
    """Return the words of a kind."""
    return _RESTORE if is_restore else _BACKUP


def number_of(live: Manifest, *, is_restore: bool) -> int | None:
    """Return the number of a Backup or a Restore at the backup manager."""
    names = words(is_restore)
    held = manifest.get_int(live, "status", "atProvider", names.number)
    if held is not None:
        return held
    return _number(manifest.annotations_of(live).get(names.annotation, ""))


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
