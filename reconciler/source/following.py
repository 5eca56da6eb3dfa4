"""Follows a fleet repository: notices a change at once, and reads it only when complete.

A file that is missing while somebody copies, or checks a commit out, must not pass for one that
was taken away (safety.md, B1). Also which Git servers are followed: `git_url` refuses addresses
that have been misused.
"""

import asyncio
import contextlib
import ipaddress
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, Self
from urllib.parse import urlsplit

import watchfiles

from reconciler.core.errors import ConfigError
from reconciler.core.manifest import digest
from reconciler.fleet.files import Snapshot
from reconciler.source import disk
from reconciler.source.signature import Signature

_QUIET: Final = 0.3  # seconds in which nothing may change
_SETTLE_TIMEOUT: Final = 15.0  # seconds for all changes together
_STEP: Final = 50  # milliseconds between two looks for news
_DEBOUNCE: Final = 1_000  # milliseconds after which news are passed on although more come


@dataclass(frozen=True, slots=True)
class SourceState:
    """The files as they are now. `mark` is not "", and another one wherever they differ.

    `signature` made them acceptable; None where none was asked for.
    """

    mark: str
    snapshot: Snapshot
    signature: Signature | None = None


@dataclass(frozen=True, slots=True)
class Looked:
    """The commit that was read last, used or refused, and the Git tree of the fleet's folder.

    Both are ids, "" if unknown. `note` is the reason why no later commit is read, or "".
    """

    revision: str = ""
    tree: str = ""
    note: str = ""


class Source(Protocol):
    """A place that files come from."""

    async def look(self, known: str) -> SourceState | None:
        """Return the files, or None where they are still those with the mark `known`.

        Raises InvalidRepository, ConfigError, Unfetched and HostError where they cannot be read
        whole, and Unverified where signatures do not allow to use them.
        """
        ...

    async def changed(self) -> None:
        """Return when it is time for another look. May be cancelled."""
        ...


class Server(Source, Protocol):
    """A place on a server, which is looked at again and again."""

    looked: Looked

    def look_soon(self) -> None:
        """Let `changed` return soon."""


class Polled:
    """The pause between two looks, which ends when one is asked for."""

    def __init__(self, every: float) -> None:
        self._every, self._asked = every, asyncio.Event()

    async def changed(self) -> None:
        """Return when it is time for another look: after `every` seconds at the latest."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._every):
                await self._asked.wait()

    def look_soon(self) -> None:
        """Let `changed` return at once."""
        self._asked.set()


class Folder(Polled):
    """A fleet in a folder, or that whose first file is `path`. Use as a context manager.

    The kernel reports what is new where it can (inotify and its like); else it is found out
    every `every` seconds. In a Git work tree, files that are committed have to be there: a
    checkout that was cut short looks like one in which they were taken away.
    """

    def __init__(self, path: Path, *, check_owner: bool, every: float) -> None:
        super().__init__(every)
        self._path, self._check_owner = path, check_owner
        self._listening: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._listening = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._listening is not None
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)

    async def look(self, known: str) -> SourceState | None:
        """Return the files once they have been the same for a while."""
        self._asked.clear()
        found = await self._read()
        if found.mark == known:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_TIMEOUT):
                return await self._settled(found)
        raise ConfigError("the files keep changing", where=str(self._path))

    async def _settled(self, found: SourceState) -> SourceState:
        while True:
            await asyncio.sleep(_QUIET)
            again = await self._read()
            if again.mark == found.mark:
                return again
            found = again

    async def _read(self) -> SourceState:
        snapshot = await asyncio.to_thread(
            disk.read_folder, self._path, check_owner=self._check_owner, whole=True
        )
        mark = digest(
            {
                "files": snapshot.digests(snapshot.files),
                "unread": {path: str(problem) for path, problem in snapshot.unread.items()},
                "place": [snapshot.entry, snapshot.folder, snapshot.revision],
            }
        )
        return SourceState(mark, snapshot)

    async def _listen(self) -> None:
        """Note news for as long as the task lives, whatever becomes of the folder."""
        while True:
            # No such folder for now, or no more watches of the kernel: looking goes on anyway.
            with contextlib.suppress(OSError, RuntimeError):
                await self._listen_to(self._path if self._path.is_dir() else self._path.parent)
            await asyncio.sleep(self._every)

    async def _listen_to(self, top: Path) -> None:
        """Note news until the folder is not the same any more."""
        inode = os.stat(top).st_ino
        async for changes in watchfiles.awatch(
            top,
            step=_STEP,
            debounce=_DEBOUNCE,
            rust_timeout=max(int(self._every * 1_000), _STEP),
            yield_on_timeout=True,
        ):
            if changes:
                self.look_soon()
            if os.stat(top).st_ino != inode:
                return


class GitRef(Polled):
    """The commit that a ref of a repository on disk points to, looked at every `every` seconds.

    `path` is a folder or first file in it, as in `git.read_at`.
    """

    def __init__(self, path: Path, ref: str, *, check_owner: bool, every: float) -> None:
        super().__init__(every)
        self._path, self._ref, self._check_owner = path, ref, check_owner

    async def look(self, known: str) -> SourceState | None:
        return await asyncio.to_thread(self._look, known)

    def _look(self, known: str) -> SourceState | None:
        from reconciler.source import git  # takes 80 ms

        commit = git.commit_at(self._path, self._ref, check_owner=self._check_owner)
        if commit == known:
            return None
        return SourceState(commit, git.read_at(self._path, commit, check_owner=self._check_owner))


_PORTS: Final = {"https": 443, "ssh": 22}
_ON_A_SERVER: Final = "Write https://host/path or ssh://git@host/path"
_ON_DISK: Final = (
    "`klutchctl apply --watch FOLDER --ref BRANCH` follows one in a folder, also a bare one"
)
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,253}[A-Za-z0-9])?")
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_PATH: Final = re.compile(r"(/[A-Za-z0-9._~+@%-]+)+/?")
_METADATA: Final = frozenset(
    {ipaddress.ip_address("fd00:ec2::254"), ipaddress.ip_address("100.100.100.200")}
)


@dataclass(frozen=True, slots=True)
class GitUrl:
    """A repository on a server. It holds no password; `user` is "" where none is named.

    As text it is without the user of https, which servers take for a token: https://ghp_...@host.
    """

    scheme: str
    user: str = field(repr=False)
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user and self.scheme == "ssh" else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{user}{host}{port}{self.path}"


def git_url(text: str, *, where: str) -> GitUrl:
    """Read the URL of a repository, or refuse to fetch from it.

    A URL has been a way to run commands (CVE-2026-55797), to smuggle lines into a credential helper
    (CVE-2020-5260) and to reach what only this machine may (SSRF). So little is let through. Raises
    ConfigError, which repeats nothing of it: it may hold a password.
    """
    if not text.isascii() or not text.isprintable() or " " in text:
        raise _refused(where, "it contains spaces, or characters that URLs have not")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _refused(where, "it is no URL") from None
    if parts.scheme == "file" or text.startswith(("/", ".")):
        raise _refused(where, "it is on this machine", _ON_DISK)
    if parts.scheme not in _PORTS:
        raise _refused(where, "it does not begin with https:// or ssh://")
    if parts.password is not None:
        raise _refused(where, "it contains a password, which others on this machine could read")
    if parts.query or parts.fragment or "?" in text or "#" in text:
        raise _refused(where, "it contains a query or fragment")
    if parts.username is not None and not _USER.fullmatch(parts.username):
        raise _refused(where, "its user name is not made of letters, digits, '.', '_' and '-'")
    if not _PATH.fullmatch(parts.path) or ".." in parts.path.split("/"):
        raise _refused(where, "its path is not that of a repository")
    if problem := host_problem(host):
        raise _refused(where, problem)
    return GitUrl(
        parts.scheme, parts.username or "", host, port or _PORTS[parts.scheme], parts.path
    )


def host_problem(host: str) -> str:
    """Return why nothing may be fetched from a host, by its name or address; "" where it may."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "" if _HOST.fullmatch(host) else "its host is no host name"
    if address.version == 6 and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_link_local or address.is_multicast or address in _METADATA:
        return "its host is a metadata address of clouds, or no address of a server"
    return "its host is no address of a server" if address.is_unspecified else ""


def _refused(where: str, problem: str, hint: str = _ON_A_SERVER) -> ConfigError:
    return ConfigError(f"this repository cannot be followed: {problem}", where=where, hint=hint)
