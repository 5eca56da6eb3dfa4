"""Serves webhooks at `POST /hooks/NAME`."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeAlias

from klutchctl.web.hooks import decide
from klutchctl.web.hooks.hook import Hook, secret_reader
from reconciler.controller.tasks import Clock
from reconciler.core.addresses import is_loopback_name
from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.tls import TlsFiles
from reconciler.web.connections import Limits
from reconciler.web.requests import Request, RequestRefused, Response, Router, plain
from reconciler.web.serve import Listening, served

_log = logging.getLogger(__name__)
Counted: TypeAlias = Callable[[str, str], None]  # the name of a hook, "" for none; a result

_PREFIX: Final = "/hooks/"
# Bodies are read before they are proven, so what strangers can make this server hold is
# `connections` x `body`.
_LIMITS: Final = Limits(
    body=1024 * 1024,
    head_time=5.0,
    body_time=5.0,
    answer_time=5.0,
    connections=64,
    rate=10.0,
    burst=10,
)
_RESULTS: Final = {401: "unauthorized", 413: "too_large", 429: "limited"}
# What a request for a hook that does not exist is checked against, so that it takes as long.
_NOBODY: Final = Secret("of a hook that does not exist")
REMEMBERED: Final = 10_000


class Deliveries:
    """Remembers the last deliveries, the newest `REMEMBERED` of all hooks."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], None] = {}

    def is_new(self, hook: str, delivery: str) -> bool:
        """Remember a delivery; return False for one that is remembered already."""
        key = hook, delivery
        if key in self._seen:
            return False
        self._seen[key] = None
        if len(self._seen) > REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return True


class _Receiver:
    """Answers webhooks, and counts them."""

    def __init__(
        self, hooks: Sequence[Hook], look: Callable[[], None], *, clock: Clock, counted: Counted
    ) -> None:
        self._hooks = {hook.name: (hook, secret_reader(hook)) for hook in hooks}
        self._look, self._clock, self._counted = look, clock, counted
        self._deliveries = Deliveries()

    async def receive(self, request: Request) -> Response:
        """Answer one. Raises RequestRefused."""
        name = request.parts["name"]
        verdict = await self._verdict(name, request)
        match verdict:
            case decide.Refused(status):
                raise RequestRefused(status, "unauthorized")
            case decide.Accepted(delivery) if self._deliveries.is_new(name, delivery):
                self._counted(name, "accepted")
                _log.info("a webhook triggers a fetch of the source", extra={"hook": name})
                self._look()
            case decide.Accepted():
                self._counted(name, "replayed")
        return Response(202, b"accepted\n")

    def refusal(self, request: Request, status: int, sentence: str) -> Response:
        """Count a refusal, under the name of a hook that exists, and return it."""
        name = request.path.removeprefix(_PREFIX)
        self._counted(name if name in self._hooks else "", _RESULTS.get(status, "refused"))
        return plain(request, status, sentence)

    async def _verdict(self, name: str, request: Request) -> decide.Verdict:
        hook, secret_of = self._hooks.get(name, (None, None))
        secret = secret_of() if secret_of is not None else None
        provider = hook.provider if hook is not None else decide.Provider.GITHUB
        # Of the largest body it takes milliseconds, which the work on a fleet does not wait for.
        verdict = await asyncio.to_thread(
            decide.decide,
            provider,
            request.headers,
            request.body,
            secret or _NOBODY,
            self._clock.now(),
        )
        return verdict if secret is not None else decide.UNPROVEN


@asynccontextmanager
async def serving(
    address: tuple[str, int],
    tls: TlsFiles | None,
    hooks: Sequence[Hook],
    look: Callable[[], None],
    *,
    clock: Clock,
    counted: Counted,
) -> AsyncIterator[tuple[str, int]]:
    """Receive webhooks for as long as the block lasts, and yield where.

    `look` is called for each new delivery; the source keeps its looks apart. `counted` gets each
    request: accepted, replayed, unauthorized, too_large, limited (10 a second for a client)
    or refused. Raises HostError.
    """
    receiver = _Receiver(hooks, look, clock=clock, counted=counted)
    router = Router({f"{_PREFIX}{{name}}": {"POST": receiver.receive}})
    listening = Listening(address, tls, limits=_LIMITS)
    async with served(
        listening, router, clock=clock.monotonic, refusal_page=receiver.refusal
    ) as where:
        yield where


def tls_of(
    host: str, certificate: Path | None, key: Path | None, *, plain_http: bool = False
) -> TlsFiles | None:
    """Return the files of a certificate, None for HTTP without TLS. Raises ConfigError.

    That is for this machine, or for a proxy in front with `plain_http`: GitLab's secret token is
    in each request.
    """
    if certificate is not None and key is not None:
        return TlsFiles(certificate, key)
    if certificate is not None or key is not None:
        raise ConfigError("--hooks-tls-cert and --hooks-tls-key belong together", where="--hooks")
    if plain_http or is_loopback_name(host):
        return None
    hint = (
        "Give --hooks-tls-cert and --hooks-tls-key, or --hooks-plain-http where a proxy in front "
        "ends TLS"
    )
    raise ConfigError("there is no TLS on the way from other machines", where="--hooks", hint=hint)
