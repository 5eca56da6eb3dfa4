"""Requests to a backup manager as values, and what its answers hold.

Its API is REST with numbers for backups and restores: a POST carries no id of ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias
from urllib.parse import quote

from reconciler.blueprints.offering.messages import HttpRequest
from reconciler.blueprints.offering.wording import scrub
from reconciler.core import manifest
from reconciler.core.documents import object_of
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.secret import Secret

Purpose: TypeAlias = Literal["mark", "find", "configure", "create", "read", "delete"]
_MOST_MEMORY: Final = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, and what for: the same list is read before a job is made and after a crash."""

    purpose: Purpose
    request: HttpRequest


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
        """The number of a job that was made, None where it says none."""
        return manifest.get_int(self.value, "id") if 200 <= self.status < 300 else None


def reply(status: int, body: bytes, secrets: Sequence[Secret]) -> Reply:
    """Read an answer; `secrets` are never repeated."""
    read = object_of(b'{"value":%s}' % (body or b"null"), most_memory=_MOST_MEMORY)
    value = None if read is None else read.get("value")
    words = manifest.get_text(value, "description") or manifest.get_text(value, "error")
    return Reply(status, value, scrub(words, secrets) or f"HTTP {status}, without a word")


def jobs(purpose: Purpose, instance: str, sort: str) -> Ask:
    """Return the question for all backups or restores (`sort`) of an instance."""
    return Ask(purpose, HttpRequest("GET", f"{_of(instance)}/{sort}"))


def settings(instance: str, wanted: Manifest) -> Ask:
    """Return the request to treat backups of an instance so."""
    return Ask("configure", HttpRequest("PUT", _of(instance), manifest.canonical(wanted)))


def backup(instance: str) -> Ask:
    """Return the request to make a backup."""
    return Ask("create", HttpRequest("POST", f"{_of(instance)}/backups"))


def restore(instance: str, number: int) -> Ask:
    """Return the request to bring a backup back."""
    return Ask("create", HttpRequest("POST", f"{_of(instance)}/backups/{number}/restore"))


def job(instance: str, sort: str, number: int) -> Ask:
    """Return the question for a job."""
    return Ask("read", HttpRequest("GET", f"{_of(instance)}/{sort}/{number}"))


def deletion(instance: str, number: int) -> Ask:
    """Return the request to delete a backup."""
    return Ask("delete", HttpRequest("DELETE", f"{_of(instance)}/backups/{number}"))


def _of(instance: str) -> str:
    return f"/instances/{quote(instance, safe='')}"
