"""Where the files come from that are followed: a folder, a ref of a repository, or a server's."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from klutchctl.settings import Settings
from reconciler.core.errors import ConfigError
from reconciler.source import following
from reconciler.source.following import Folder, GitRef, GitUrl, Source

if TYPE_CHECKING:
    from reconciler.source.remote import Remote
    from reconciler.source.verification import Verification

_TOKEN_FILE: Final = "KLUTCHCTL_GIT_TOKEN_FILE"
_SSH_KEY_FILE: Final = "KLUTCHCTL_GIT_SSH_KEY_FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What is followed, and how often it is looked at, in seconds.

    `path` is a folder on disk; with `ref`, of a Git repository there, or, with `url`, of one on a
    server.
    """

    path: Path
    url: GitUrl | None
    ref: str | None
    poll: float


def git_url(text: str | None) -> GitUrl | None:
    """Return the URL of --git. Raises typer.BadParameter."""
    try:
        return None if text is None else following.git_url(text, where="--git")
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


def remote(
    options: Followed,
    settings: Settings,
    *,
    verification: "Verification | None" = None,
    accepted: Callable[[], str] = lambda: "",
) -> "Remote":
    """Return the source on a server; its URL is given. Raises HostError."""
    from reconciler.source.remote import Keys, Remote

    inside = options.path.as_posix().strip("/")
    named = {name: settings.environ.get(name) for name in (_TOKEN_FILE, _SSH_KEY_FILE)}
    token, ssh_key = (Path(path) if path else None for path in named.values())
    assert options.url is not None
    return Remote(
        options.url,
        options.ref or "HEAD",
        folder="" if inside in ("", ".") else f"{inside}/",
        cache=settings.cache_home / "klutchctl" / "git",
        keys=Keys(token=token, ssh_key=ssh_key),
        every=options.poll,
        verification=verification,
        accepted=accepted,
    )


@asynccontextmanager
async def followed(options: Followed, settings: Settings) -> AsyncIterator[Source]:
    """Yield the source that the options name: a server's, a ref's, or the folder itself."""
    owner = settings.git_owner_check
    if options.url is not None:
        yield remote(options, settings)
        return
    if options.ref is not None:
        yield GitRef(options.path, options.ref, check_owner=owner, every=options.poll)
        return
    async with Folder(options.path, check_owner=owner, every=options.poll) as folder:
        yield folder
