"""A backup manager on loopback, as a9s Data Services have one beside each broker.

    with managing(lambda instance: instance in broker.inventory.instances) as manager:
        manager.faults.add("create-backup", osb_faults.hangs(processed=True), times=1)

Its numbers grow, across all instances, as those of the real one do: a POST carries no id.
"""

import base64
import contextlib
import itertools
import json
import re
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from tests.support.osb_faults import Faults
from tests.support.osb_server import LoopbackServer, running
from tests.support.osb_wire import Members, Said, failure, said

_TIME: Final = "2026-01-01T00:00:00.000Z"
_SETTABLE: Final = {"encryption_key", "exclude_from_auto_backup", "credentials_updated_by_user"}
_I: Final = r"/instances/(?P<instance>[^/]+)"
_ROUTES: Final = {
    "health": ("HEAD", r"/instances"),
    "configure": ("PUT", _I),
    "list-backups": ("GET", _I + r"/backups"),
    "create-backup": ("POST", _I + r"/backups"),
    "backup": ("GET", _I + r"/backups/(?P<number>\d+)"),
    "delete-backup": ("DELETE", _I + r"/backups/(?P<number>\d+)"),
    "create-restore": ("POST", _I + r"/backups/(?P<number>\d+)/restore"),
    "list-restores": ("GET", _I + r"/restores"),
    "restore": ("GET", _I + r"/restores/(?P<number>\d+)"),
}


@dataclass(slots=True)
class Job:
    """A backup or a restore; `left` are the words of its status that are still to come."""

    instance: str
    members: Members
    left: list[str]

    def shown(self) -> Members:
        """Return what is said of it, and let it go on."""
        shown = dict(self.members)
        if self.left:
            self.members["status"] = self.left.pop(0)
            if not self.left:
                self.members["finished_at"] = _TIME
        return shown


@dataclass(frozen=True, slots=True)
class Line:
    """A request to the backup manager, and the status that answered it."""

    name: str
    method: str
    path: str
    instance: str
    status: int


class BackupManager(LoopbackServer):
    """Backups and restores by their numbers, and what was asked.

    `knows` says of which instances backups can be made.
    """

    def __init__(self, knows: Callable[[str], bool]) -> None:
        super().__init__()
        self.user, self.password = "manager", secrets.token_urlsafe(12)
        self.knows = knows
        self.backups: dict[int, Job] = {}
        self.restores: dict[int, Job] = {}
        self.settings: dict[str, Members] = {}  # by instance, as PUT
        self.journal: list[Line] = []
        self.violations: list[str] = []
        self.faults = Faults()
        self._numbers = {"backups": itertools.count(101), "restores": itertools.count(7)}
        self._lock = threading.RLock()

    def of(self, instance: str) -> list[int]:
        return [number for number, job in list(self.backups.items()) if job.instance == instance]

    def count(self, *names: str) -> int:
        return sum(line.name in names for line in list(self.journal))

    @contextlib.asynccontextmanager
    async def exchanged(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> AsyncIterator[Said]:
        path = target.partition("?")[0]
        for name, (stated, pattern) in _ROUTES.items():
            match = re.fullmatch(pattern, path)
            if match and method == stated:
                with self._lock:
                    reply = self._reply(name, match, headers, body)
                    instance = match.groupdict().get("instance", "")
                    self.journal.append(Line(name, method, path, instance, reply.status))
                yield reply
                return
        self.violations.append(f"{method} {path}: there is no such thing")
        yield failure(404, "NotFound", "there is no such thing")

    def _reply(
        self, name: str, match: re.Match[str], headers: Mapping[str, str], body: bytes
    ) -> Said:
        pair = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        if headers.get("Authorization", "") != f"Basic {pair}":
            return failure(401, "Unauthorized", "who are you?")
        fault = self.faults.due(name)
        if fault is None:
            return self._done(name, match, headers, body)
        if fault.processed:
            self._done(name, match, headers, body)
        return fault.said

    def _done(
        self, name: str, match: re.Match[str], headers: Mapping[str, str], body: bytes
    ) -> Said:
        if name == "health":
            return said(200)
        instance = match["instance"]
        if not self.knows(instance):
            return failure(404, "NotFound", "there is no such instance")
        if "number" in match.groupdict():
            return self._job(name, instance, int(match["number"]))
        if name == "configure":
            return self._configure(instance, headers, body)
        if name == "create-backup":
            return self._create(instance)
        jobs = self.backups if name == "list-backups" else self.restores
        shown = [dict(one.members) for one in jobs.values() if one.instance == instance]
        return Said(200, json.dumps(shown).encode())

    def _configure(self, instance: str, headers: Mapping[str, str], body: bytes) -> Said:
        stated: Any = json.loads(body or b"null")
        if not isinstance(stated, dict) or not stated or not stated.keys() <= _SETTABLE:
            self.violations.append(f"PUT of {instance}: not what can be set")
            return failure(400, "BadRequest", "at least one property must be set")
        if not headers.get("Content-Type", "").startswith("application/json"):
            self.violations.append(f"PUT of {instance}: no Content-Type")
        self.settings[instance] = {**self.settings.get(instance, {}), **stated}
        return said(200, {"message": "instance updated"})

    def _create(self, instance: str) -> Said:
        number = next(self._numbers["backups"])
        members = {
            "id": number,
            "size": 4096,
            "status": "queued",
            "triggered_at": _TIME,
            "finished_at": None,
            "downloadable": False,
        }
        self.backups[number] = Job(instance, members, ["running", "done"])
        return said(201, {"id": number, "message": "job to backup is queued"})

    def _job(self, name: str, instance: str, number: int) -> Said:
        job = (self.restores if name == "restore" else self.backups).get(number)
        if job is None or job.instance != instance:
            return failure(404, "NotFound", "there is no such job")
        match name:
            case "backup" | "restore":
                return said(200, job.shown())
            case "delete-backup" if job.members["status"] == "running":
                return failure(423, "Locked", "the backup is running")
            case "delete-backup":
                del self.backups[number]
                return said(200, {"message": "backup was deleted"})
        return self._restore(instance, number, job)

    def _restore(self, instance: str, number: int, backup: Job) -> Said:
        if backup.members["status"] != "done":
            return failure(422, "NotRestorable", "the backup is not done")
        others = [one for one in self.restores.values() if one.instance == instance]
        if any(one.members["status"] in ("queued", "running") for one in others):
            return failure(409, "InProgress", "another restore is in progress")
        restore = next(self._numbers["restores"])
        members = {
            "id": restore,
            "backup_id": number,
            "status": "queued",
            "triggered_at": _TIME,
            "finished_at": None,
        }
        self.restores[restore] = Job(instance, members, ["running", "done"])
        return said(202, {"id": restore})


def managing(knows: Callable[[str], bool] = bool) -> AbstractContextManager[BackupManager]:
    """Run a backup manager for these instances."""
    return running(BackupManager(knows))
