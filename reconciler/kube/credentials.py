"""Gets our credentials for each request: fresh, and fetched once for all callers."""

import asyncio
import base64
import errno
import logging
import math
import os
import stat
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol, assert_never

from reconciler.core.errors import ConfigError, KlutchError
from reconciler.core.secret import Secret
from reconciler.kube.connection import (
    BasicAuth,
    CertificateAndHeader,
    ClientCertificate,
    Connection,
    ExecPlugin,
    NoCredential,
    Token,
    TokenFile,
)
from reconciler.kube.kubeconfig import entries, exec_plugin
from reconciler.kube.kubeconfig.exec_plugin import Issued

log = logging.getLogger(__name__)

# Half of the shortest time between the kubelet's new token and the old one's end (client-go).
_FILE_SECONDS: Final = 60.0
_FILE_BYTES: Final = 1 << 20
_RETRY_SECONDS: Final = 5.0
# How long before its end a credential of a plug-in is renewed: a tenth of its life, at most this.
_EARLY_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Auth:
    """The credentials of a request. `authorization` is the whole header value."""

    authorization: Secret | None = None
    certificate: ClientCertificate | None = None


class CredentialSource(Protocol):
    """Gives credentials for one API server. Within one event loop.

    Both methods raise ConfigError where a credential cannot be had (a file that cannot be
    read, a plug-in that fails); its sentence names the file or the command, and no secret.
    """

    async def current(self) -> Auth:
        """Return the header to send now. Does not suspend while the last answer is fresh."""
        ...

    async def renew(self, stale: Auth) -> Auth:
        """Return the header to send after a 401 to `stale`: equal to it if none is newer."""
        ...


@dataclass(frozen=True, slots=True)
class Clock:
    """`monotonic` in seconds, for ages; `now` in UTC, for times that others wrote."""

    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


SYSTEM_CLOCK: Final = Clock()


def credential_source(
    connection: Connection,
    *,
    clock: Clock = SYSTEM_CLOCK,
    environ: Mapping[str, str] = os.environ,
    terminal: bool = False,
) -> CredentialSource:
    """Return the source for a connection's credential. Touches no file and runs nothing yet.

    `environ` is what plug-ins inherit; `terminal`: they may ask a person at standard input.
    """
    credential = connection.credential
    certificate: ClientCertificate | None = None
    if isinstance(credential, CertificateAndHeader):
        certificate = credential.certificate
        credential = credential.header
    match credential:
        case TokenFile(path=path):
            return _Renewable(
                lambda: _read_token(path, certificate), clock=clock, cluster=connection.name
            )
        case ExecPlugin():
            plugin = credential  # a name that cannot change under the function

            async def issue() -> _Fetched:
                issued = await exec_plugin.run(
                    plugin, connection, environ=environ, terminal=terminal
                )
                return _of_plugin(issued, clock.now())

            return _Renewable(issue, clock=clock, cluster=connection.name)
        case NoCredential():
            return _Static(Auth())
        case ClientCertificate():
            return _Static(Auth(certificate=credential))
        case Token(token=token):
            return _Static(Auth(_bearer(token.reveal()), certificate))
        case BasicAuth():
            return _Static(Auth(_basic(credential), certificate))
        case _:
            assert_never(credential)


@dataclass(frozen=True, slots=True)
class _Fetched:
    """A credential, and for how many seconds it is fresh, and at least usable."""

    auth: Auth
    fresh_for: float
    usable_for: float


class _Static:
    """A credential that only another Connection can replace."""

    def __init__(self, auth: Auth) -> None:
        self._auth = auth

    async def current(self) -> Auth:
        return self._auth

    async def renew(self, stale: Auth) -> Auth:
        return self._auth


class _Renewable:
    """A credential that is fetched, kept while fresh, and fetched once however many ask."""

    def __init__(
        self, fetch: Callable[[], Awaitable[_Fetched]], *, clock: Clock, cluster: str
    ) -> None:
        self._fetch = fetch
        self._monotonic = clock.monotonic
        self._cluster = cluster
        self._auth = Auth()
        self._fresh_until = self._usable_until = -math.inf
        self._flight: _Flight | None = None

    async def current(self) -> Auth:
        if self._monotonic() < self._fresh_until:
            return self._auth
        try:
            return await self._fetched()
        except KlutchError as error:
            if self._monotonic() >= self._usable_until:
                raise
            fields = {"cluster": self._cluster, "reason": str(error)}
            log.warning("the credential cannot be renewed and stays in use", extra=fields)
            self._fresh_until = min(self._monotonic() + _RETRY_SECONDS, self._usable_until)
            return self._auth

    async def renew(self, stale: Auth) -> Auth:
        if self._auth == stale:
            self._fresh_until = self._usable_until = -math.inf  # the server refuses it
        return await self.current()

    async def _fetched(self) -> Auth:
        if self._flight is None:
            self._flight = _Flight(asyncio.ensure_future(self._fly()))
        flight = self._flight
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                # Everybody gave up. Whoever comes next must not join what is being cancelled.
                self._flight = None
                flight.task.cancel()

    async def _fly(self) -> Auth:
        flight = self._flight
        try:
            fetched = await self._fetch()
        finally:
            if self._flight is flight:
                self._flight = None
        now = self._monotonic()
        self._auth = fetched.auth
        self._fresh_until = now + fetched.fresh_for
        self._usable_until = now + fetched.usable_for
        return fetched.auth


@dataclass(slots=True)
class _Flight:
    """A fetch under way, and how many wait for it."""

    task: asyncio.Future[Auth]
    waiting: int = 0


def _bytes_of(path: Path) -> bytes:
    """Read a regular file: opening a pipe would wait for its writer for ever."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    with path.open("rb") as file:
        content = file.read(_FILE_BYTES + 1)
    if len(content) > _FILE_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return content


async def _read_token(path: Path, certificate: ClientCertificate | None) -> _Fetched:
    """Read a token file. One that cannot be read later on leaves the last token in use."""
    problem: str
    try:
        token = (await asyncio.to_thread(_bytes_of, path)).decode("latin-1").strip()
        problem = entries.token_fault(token)
    except OSError as error:
        problem = f"cannot be read: {error.strerror or 'unreadable'}"
    if problem:
        where = entries.shown_path(path)
        raise ConfigError(f"the token file {problem}", where=where)
    return _Fetched(Auth(_bearer(token), certificate), _FILE_SECONDS, math.inf)


def _of_plugin(issued: Issued, now: datetime) -> _Fetched:
    authorization = None if issued.token is None else _bearer(issued.token.reveal())
    auth = Auth(authorization, issued.certificate)
    if issued.expires is None:
        return _Fetched(auth, math.inf, math.inf)
    life = (issued.expires - now).total_seconds()
    return _Fetched(auth, life - min(_EARLY_SECONDS, life / 10), life)


def _bearer(token: str) -> Secret:
    return Secret(f"Bearer {token}")


def _basic(credential: BasicAuth) -> Secret:
    pair = f"{credential.username}:{credential.password.reveal()}".encode()
    return Secret(f"Basic {base64.b64encode(pair).decode()}")
