"""Fetches a ref of a Git server into a bare repository of our own.

No redirect leads to another host, or away from TLS; a credential goes to the host and port of the
URL and nowhere else. No server is believed that known_hosts (ssh) or a certificate (https) does not
vouch for, and nothing of the user's Git configuration can lead elsewhere. Every wait has an end.
"""

import asyncio
import contextlib
import hashlib
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pygit2
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key
from pygit2.enums import ConfigLevel, CredentialType

from reconciler.core.errors import ConfigError, KlutchError, Unfetched
from reconciler.core.secret import Secret, scrub
from reconciler.source import following, git, opening
from reconciler.source.following import GitUrl, Looked, Polled, SourceState
from reconciler.source.signature import Signature, Unverified, VerificationMode, is_id
from reconciler.source.verification import MOST_COMMITS, Incomplete, Verification

_CONNECT: Final = 10.0  # seconds
_SILENCE: Final = 20.0  # seconds
_DEADLINE: Final = 120.0  # seconds for one fetch
_MOST_BYTES: Final = 256 << 20  # of one fetch
_LONGEST: Final = 300.0  # seconds between looks at a server that fails
_SHORTEST: Final = 2.0  # seconds between looks that were asked for
_DEPTHS: Final = (1, 50, MOST_COMMITS + 1)  # of history
_ALL: Final = 0x7FFFFFFF  # what libgit2 takes for all of it
_FETCHED: Final = "refs/remotes/klutchctl/followed"
_EVERYTHING: Final = [f"+refs/{one}/*:refs/remotes/klutchctl/{one}/*" for one in ("heads", "tags")]
_GONE: Final = "It was never pushed, or was pushed away by force: name one that a branch leads to"
_KEY_HINT: Final = "Make one with `ssh-keygen -t ed25519 -N ''`"
_SPACES: Final = ("refs/heads/", "refs/tags/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The files with the repository's credentials, read for each fetch; None without any.

    `token` holds the password of https, `ssh_key` a private key as `ssh_key` reads it, `ca` the
    authorities of the server's certificate, which hold for all servers of the process.
    """

    token: Path | None = None
    ssh_key: Path | None = None
    ca: Path | None = None


class _Absent(ConfigError):
    """The commit is in nothing that the server has given."""


class Remote(Polled):
    """The commit that a ref of a repository on a server points to, or that it is, polled.

    `folder` is where in the repository: "", or with "/" at the end. `cache` is a folder of ours,
    `every` is in seconds; a server that fails is asked less often. `accepted` returns the commit
    that a process before this one accepted last, or "", or raises a KlutchError where that cannot
    be known, or this process's could not be by the next one.
    """

    def __init__(  # noqa: PLR0913 - each is chosen apart from the others
        self,
        url: GitUrl,
        ref: str,
        *,
        folder: str,
        cache: Path,
        keys: Keys,
        every: float,
        verification: Verification | None = None,
        accepted: Callable[[], str] = lambda: "",
    ) -> None:
        self._url, self._ref, self._folder = url, ref, folder
        self._keys = keys
        # Who follows another ref of it has a repository apart: else one moves what the other reads.
        self._store = cache / hashlib.sha256(f"{self._url}\n{ref}".encode()).hexdigest()[:16]
        super().__init__(every)
        self._failures, self._looked_at = 0, -_SHORTEST
        verified = verification is not None and verification.mode is not VerificationMode.OFF
        self._verification = verification if verified else None
        self._accepted_before, self._accepted = accepted, ""
        self.looked = Looked()

    async def look(self, known: str) -> SourceState | None:
        """Return the files of the commit, once it is verified where that is asked for."""
        self._asked.clear()
        self._looked_at = time.monotonic()
        try:
            found = await asyncio.to_thread(self._look, known)
        except Unverified:
            self._failures = 0  # the server does its part
            raise
        except KlutchError:
            self._failures += 1
            raise
        self._failures = 0
        return found

    def read(self) -> SourceState:
        """Return the files of the commit as `look` does, without a loop."""
        found = self._look("")
        assert found is not None  # no commit is ""
        return found

    async def changed(self) -> None:
        """Return when it is time for another look: later after failures, sooner where asked for."""
        pause = min(self._every * 2.0 ** min(self._failures, 32), max(_LONGEST, self._every))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._asked.wait()
                await asyncio.sleep(self._looked_at + _SHORTEST - time.monotonic())

    def _look(self, known: str) -> SourceState | None:
        store = self._prepared()
        _trust(self._keys.ca)
        callbacks = _Callbacks(self._url, self._keys, now=time.monotonic)
        try:
            name, commit = self._pointed_to(store, callbacks)
            if commit == known and self._verification is None:
                self._note(store, commit)
                return None
            # What is in use is verified again: a key may have been taken out of its list.
            commit, signature = self._fetched(store, name, commit, callbacks)
        except (pygit2.GitError, KeyError, ValueError, OSError) as error:
            reason = scrub(opening.reason(error), callbacks.secrets)
            raise Unfetched(reason, where=str(self._url)) from None
        self._accepted = commit
        if commit == known:
            return None
        return SourceState(commit, git.read(self._store, commit, folder=self._folder), signature)

    def _fetched(
        self, store: pygit2.Repository, name: str, commit: str, callbacks: pygit2.RemoteCallbacks
    ) -> tuple[str, Signature | None]:
        """Fetch as much of the history as it takes to verify it, and return where it leads to."""
        if commit == self._accepted and commit in (name, _followed(store)):
            return commit, self._verified(store, name, commit)

        def fetched(refs: list[str], depth: int) -> tuple[str, Signature | None]:
            try:
                store.remotes.create_anonymous(str(self._url)).fetch(
                    refs, callbacks=callbacks, depth=depth
                )
            except pygit2.GitError:
                if refs != [f"+{commit}:{_FETCHED}"]:
                    raise
            found = commit if name == commit else _followed(store)
            if name == commit and commit not in store:
                raise _Absent(f"commit {commit} is not in it", where=str(self._url), hint=_GONE)
            return found, self._verified(store, name, found)

        *first, last = _steps(name)
        for step in first:
            with contextlib.suppress(Incomplete, _Absent):
                return fetched(*step)
        return fetched(*last)

    def _note(self, store: pygit2.Repository, commit: str) -> None:
        self.looked = Looked(commit, git.tree_id(store, commit, self._folder))

    def _verified(self, store: pygit2.Repository, name: str, commit: str) -> Signature | None:
        self._note(store, commit)
        if self._verification is None:
            return None
        target = commit if name == commit else str(store.references[_FETCHED].target)
        tag = None if target == commit else target
        accepted = self._last_accepted(commit)
        return self._verification.check(store, commit, tag=tag, accepted=accepted, ref=name)

    def _last_accepted(self, commit: str) -> str:
        """Return the commit that was accepted before this one, or "". Raises Unverified.

        Where that is unknown, or would be to the next process, no new commit continues a history.
        """
        try:
            before = "" if commit == self._accepted else self._accepted_before()
        except KlutchError as error:
            assert self._verification is not None
            if self._verification.mode is VerificationMode.HISTORY:
                why = f"which one was accepted last is unknown or not kept: {error}"
                raise Unverified(why, revision=commit) from None
            before = ""
        return self._accepted or before

    def _prepared(self) -> pygit2.Repository:
        """Return our bare repository, with all that is wide open by default closed."""
        opening.check_library()
        self._check_host()
        settings = pygit2.settings
        settings.server_connect_timeout = int(_CONNECT * 1_000)
        settings.server_timeout = int(_SILENCE * 1_000)
        # `url.<base>.insteadOf` there would lead to another host.
        for level in (
            ConfigLevel.GLOBAL,
            ConfigLevel.XDG,
            ConfigLevel.SYSTEM,
            ConfigLevel.PROGRAMDATA,
        ):
            settings.search_path[level] = ""
        try:
            self._store.mkdir(parents=True, exist_ok=True, mode=0o700)
            store = pygit2.init_repository(self._store, bare=True)
            store.config["http.followRedirects"] = False
        except (pygit2.GitError, OSError) as error:
            raise ConfigError(
                f"cannot be used: {opening.reason(error)}", where=str(self._store)
            ) from None
        return store

    def _check_host(self) -> None:
        url = self._url
        try:
            found = socket.getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise Unfetched(f"its host is not found: {error.strerror}", where=str(url)) from None
        for *_, address in found:
            if problem := following.host_problem(str(address[0]).partition("%")[0]):
                raise ConfigError(f"cannot be fetched: {problem}", where=str(url))
        hosts = Path(pygit2.settings.homedir or "/nonexistent") / ".ssh" / "known_hosts"
        if url.scheme == "ssh" and not hosts.is_file():
            raise ConfigError(
                "cannot be fetched: nothing vouches for its host key",
                where=str(url),
                hint=f"Put the key, as its operator publishes it, into {hosts}",
            )

    def _pointed_to(
        self, store: pygit2.Repository, callbacks: pygit2.RemoteCallbacks
    ) -> tuple[str, str]:
        """Return the full name of the ref at the server, and the commit or tag it points to.

        A commit is both.
        """
        if is_id(self._ref):
            return self._ref, self._ref
        remote = store.remotes.create_anonymous(str(self._url))
        heads = {head.name: str(head.oid) for head in remote.list_heads(callbacks=callbacks)}
        full = self._ref == "HEAD" or self._ref.startswith(_SPACES)
        names = [self._ref] if full else [space + self._ref for space in _SPACES]
        found = {name: heads[name] for name in names if name and name in heads}
        if not found:
            hint = "Write HEAD, a branch or a tag that is there, or a whole commit id"
            raise ConfigError(f"{self._ref!r} is not in it", where=str(self._url), hint=hint)
        if len(found) > 1:
            hint = f"Write one of {', '.join(found)}"
            raise ConfigError(
                f"{self._ref!r} has several meanings", where=str(self._url), hint=hint
            )
        name = next(iter(found))
        return name, heads.get(f"{name}^{{}}", found[name])


def _steps(name: str) -> list[tuple[list[str], int]]:
    """Return the fetches, and their depths, until enough of the history is here.

    A server gives a commit by its id where it is set up for that. Else some branch leads to it.
    """
    if is_id(name):
        head = ["+HEAD:refs/remotes/klutchctl/HEAD"]
        return [([f"+{name}:{_FETCHED}"], 1), (head, _DEPTHS[1]), (_EVERYTHING, _ALL)]
    return [([f"+{name}:{_FETCHED}"], depth) for depth in _DEPTHS]


def _followed(store: pygit2.Repository) -> str:
    """Return the commit that was fetched last, or ""."""
    found = store.references.get(_FETCHED)
    return "" if found is None else str(found.peel(pygit2.Commit).id)


def ssh_key(path: Path) -> Secret:
    """Return a private key, Ed25519 or ECDSA, without a passphrase. Raises ConfigError.

    With an RSA key, libssh2 1.11.1 writes beyond its memory, so there is no way to the agent
    either: it could use one.
    """
    where = str(path)
    try:
        text = path.read_bytes()
        load = load_ssh_private_key if b"OPENSSH PRIVATE KEY" in text else load_pem_private_key
        key = load(text, None)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=where) from None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(
            "is no private key, or has a passphrase", where=where, hint=_KEY_HINT
        ) from None
    if not isinstance(key, Ed25519PrivateKey | EllipticCurvePrivateKey):
        raise ConfigError("is a key of another kind", where=where, hint=_KEY_HINT)
    return Secret(text.decode("ascii", "replace"))


def _trust(authorities: Path | None) -> None:
    """Believe the certificates of these authorities, too. Raises ConfigError."""
    if authorities is None:
        return
    try:
        ssl.create_default_context(cafile=authorities)  # it says what is wrong with a file
        pygit2.settings.ssl_cert_file = str(authorities)
    except (OSError, pygit2.GitError) as error:
        why = "cannot be read" if isinstance(error, FileNotFoundError) else "has no certificate"
        raise ConfigError(why, where=str(authorities)) from None


class _Callbacks(pygit2.RemoteCallbacks):
    """The callbacks of libgit2 during a fetch. An exception here ends it."""

    def __init__(self, url: GitUrl, keys: Keys, *, now: Callable[[], float]) -> None:
        super().__init__()
        self._url, self._keys, self._now = url, keys, now
        self._end = now() + _DEADLINE
        self._asked = 0
        self.secrets: tuple[str, ...] = ()

    def credentials(
        self, url: str, username_from_url: str | None, allowed_types: CredentialType
    ) -> pygit2.UserPass | pygit2.KeypairFromMemory | pygit2.Username:
        """Give the credential to the host of the URL, once for each fetch."""
        asking = following.git_url(url, where="credentials")
        here = self._url
        if (asking.scheme, asking.host, asking.port) != (here.scheme, here.host, here.port):
            raise self._refused("another host asks for the credential")
        user = self._url.user or "git"
        if allowed_types & CredentialType.USERNAME:
            return pygit2.Username(user)
        self._asked += 1
        if self._asked > 1 + len(_DEPTHS):  # for the list of refs, and each fetch
            raise self._refused("the server does not accept the credential")
        if allowed_types & CredentialType.SSH_KEY:
            if self._keys.ssh_key is None:
                raise self._refused("the server asks for a key, and there is none")
            key = ssh_key(self._keys.ssh_key)
            self.secrets = (key.reveal(),)
            return pygit2.KeypairFromMemory(user, "", key.reveal(), "")
        if allowed_types & CredentialType.USERPASS_PLAINTEXT and self._keys.token is not None:
            return pygit2.UserPass(user, self._token(self._keys.token).reveal())
        raise self._refused("the server asks for a credential, and there is none")

    def certificate_check(self, _certificate: None, valid: bool, host: bytes) -> bool:
        """Believe only certificates of the trust store, or of known_hosts."""
        return valid and host.decode("ascii", "replace").lower() == self._url.host.lower()

    def transfer_progress(self, stats: pygit2.remotes.TransferProgress) -> None:
        """End a fetch that takes too long or brings too much."""
        if self._now() > self._end:
            raise self._refused(f"it has not ended within {_DEADLINE:.0f} s")
        if stats.received_bytes > _MOST_BYTES:
            raise self._refused(f"it brings more than {_MOST_BYTES >> 20} MiB")

    def _token(self, path: Path) -> Secret:
        try:
            token = Secret(path.read_text("utf-8").strip())
        except (OSError, UnicodeDecodeError):
            raise ConfigError("cannot be read", where=str(path)) from None
        self.secrets = (token.reveal(),)
        return token

    def _refused(self, problem: str) -> Unfetched:
        return Unfetched(problem, where=str(self._url))
