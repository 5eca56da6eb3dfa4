"""Opens the source of files that a controller follows, and selects its control planes.

They are a folder, a ref of a repository, or a server's. The part is its fleet or its shard, and
nothing while it is suspended.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from klutchctl.options import Place, checked, folder_of
from klutchctl.settings import Settings
from reconciler.core.errors import InvalidRepository, Problem
from reconciler.fleet import load
from reconciler.fleet.values import Fleet
from reconciler.source import following
from reconciler.source.following import Folder, GitRef, GitUrl, Server, Source

if TYPE_CHECKING:
    from reconciler.kube.connection import Connection
    from reconciler.source.flux import FluxName
    from reconciler.source.remote import Remote
    from reconciler.source.verification import Verification

_TOKEN_FILE: Final = "KLUTCHCTL_GIT_TOKEN_FILE"
_SSH_KEY_FILE: Final = "KLUTCHCTL_GIT_SSH_KEY_FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A followed source, and the seconds between two looks at it.

    `path` is a folder on disk; with `ref`, of a Git repository there, or, with `url`, of one on a
    server, whose certificate is from the authorities in `ca`, or from those of the system. With
    `flux` it is a folder in what Flux serves; `flux_verifies`: and has verified.
    """

    path: Path
    url: GitUrl | None
    ref: str | None
    poll: float
    ca: Path | None = None
    flux: "FluxName | None" = None
    flux_verifies: bool = False

    @property
    def place(self) -> tuple[str, str]:
        """Return the address of the followed source on a server, and the ref there or ""."""
        return (str(self.url), self.ref or "HEAD") if self.flux is None else (str(self.flux), "")


def of_place(place: Place, *, poll: float) -> Followed:
    """Return the source to follow in a place. Raises typer.BadParameter."""
    if place.oci is not None or place.artifact is not None:
        raise typer.BadParameter("an archive never changes: --oci and --artifact are read once")
    parse = partial(following.git_url, where="--git")
    url = None if place.git is None else checked(parse, place.git)
    return Followed(path=place.path, url=url, ref=place.ref, poll=poll, ca=place.git_ca)


def of_flux(text: str, place: Place, *, poll: float, verified: bool) -> Followed:
    """Return the source of Flux to follow. Raises typer.BadParameter."""
    from reconciler.source import flux

    if not place.is_here or place.ref is not None:
        raise typer.BadParameter("--flux-source names the files: leave out --git and --ref")
    name = checked(partial(flux.flux_name, where="--flux-source"), text)
    return Followed(
        path=place.path, url=None, ref=None, poll=poll, flux=name, flux_verifies=verified
    )


@asynccontextmanager
async def server(
    options: Followed,
    settings: Settings,
    home: "Connection",
    *,
    verification: "Verification",
    accepted: Callable[[], str] = lambda: "",
) -> AsyncIterator[Server]:
    """Yield the source on a server; `home` leads to the cluster of Flux. Raises HostError."""
    if options.flux is None:
        yield remote(options, settings, verification=verification, accepted=accepted)
        return
    from reconciler.kube.client import KubeCluster
    from reconciler.source.flux import FluxSource

    async with KubeCluster(home) as cluster:
        yield FluxSource(
            cluster,
            options.flux,
            folder=folder_of(options.path),
            every=options.poll,
            verified=options.flux_verifies,
        )


def remote(
    options: Followed,
    settings: Settings,
    *,
    verification: "Verification | None" = None,
    accepted: Callable[[], str] = lambda: "",
    cache: Path | None = None,
) -> "Remote":
    """Return the source on a server; its URL is given. `cache`: else one that stays.

    Raises HostError.
    """
    from reconciler.source.remote import Keys, Remote

    named = {name: settings.environ.get(name) for name in (_TOKEN_FILE, _SSH_KEY_FILE)}
    token, ssh_key = (Path(path) if path else None for path in named.values())
    assert options.url is not None
    return Remote(
        options.url,
        options.ref or "HEAD",
        folder=folder_of(options.path),
        cache=cache or settings.cache_home / "klutchctl" / "git",
        keys=Keys(token=token, ssh_key=ssh_key, ca=options.ca),
        every=options.poll,
        verification=verification,
        accepted=accepted,
    )


@asynccontextmanager
async def followed(
    options: Followed, settings: Settings, verification: "Verification | None" = None
) -> AsyncIterator[Source]:
    """Yield the source that the options name: a server's, a ref's, or the folder itself."""
    owner = settings.git_owner_check
    if options.url is not None:
        yield remote(options, settings, verification=verification)
        return
    if options.ref is not None:
        yield GitRef(options.path, options.ref, check_owner=owner, every=options.poll)
        return
    async with Folder(options.path, check_owner=owner, every=options.poll) as folder:
        yield folder


class Shape:
    """Makes the fleet that is kept of the one in the files; the same one while nothing changes.

    `suspended` returns why it is suspended from outside the files, or "".
    """

    def __init__(
        self, name: str, shard: tuple[str, ...], suspended: Callable[[], str] = lambda: ""
    ) -> None:
        self._name, self._shard, self._suspended = name, shard, suspended
        self._made: tuple[Fleet, str, Fleet] | None = None

    def __call__(self, fleet: Fleet) -> Fleet:
        """Return the kept part of a fleet. Raises ConfigError for another fleet or shard."""
        reason = self._suspended()
        if self._made is None or self._made[0] is not fleet or self._made[1] != reason:
            self._made = fleet, reason, self._shaped(fleet, reason)
        return self._made[2]

    def _shaped(self, fleet: Fleet, reason: str) -> Fleet:
        if self._name and fleet.name != self._name:
            # What clusters hold of that one would be taken for its own (trust.md T13).
            message = f"the Fleet is {fleet.name}, and this controller keeps {self._name}"
            hint = "Start a controller for it, or name it as before"
            problem = Problem(fleet.origin, "fleet-renamed", message, hint)
            raise InvalidRepository([problem], revision=fleet.revision)
        if self._shard:
            fleet = load.shard(fleet, self._shard)
        if reason and fleet.suspended is None:
            fleet = load.suspended(fleet, reason)
        return fleet
