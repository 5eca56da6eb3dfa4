"""Serves webhooks at `POST /hooks/NAME`: a name, a provider, and the file of the secret."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from klutchctl.web.hooks import decide
from reconciler.controller.tasks import Clock
from reconciler.core.addresses import is_loopback_name
from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.files import LastGood, read_secret
from reconciler.tls import TlsFiles
from reconciler.web import standard_webhooks
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
_NAME: Final = re.compile("[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_OPTION: Final = "--hook"
_HINT: Final = "Make one with `openssl rand -hex 32`"


@dataclass(frozen=True, slots=True)
class Hook:
    """A webhook, received at /hooks/NAME."""

    name: str
    provider: decide.Provider
    file: Path


def secret_reader(hook: Hook) -> Callable[[], Secret | None]:
    """Return a function that reads the secret from its file again.

    There is none while the file cannot be used: an old secret may have been taken away because
    others know it. What is wrong is logged once. Polls go on meanwhile.
    """

    def read() -> Secret | None:
        try:
            return secret_of(hook)
        except ConfigError as error:
            fields = {"hook": hook.name, "reason": error.message}
            _log.warning("a webhook is refused: its secret cannot be used", extra=fields)
            return None

    return LastGood((hook.file,), read, time.monotonic, lambda _: None, every=0.0).current


def parse_hook(text: str) -> Hook:
    """Return the hook that `NAME=PROVIDER:SECRETFILE` describes.

    Raises ConfigError, also for a secret that cannot be used. The text is not quoted: a person may
    have put the secret itself there.
    """
    name, equals, rest = text.partition("=")
    provider, colon, file = rest.partition(":")
    if not equals or not colon or not file:
        raise ConfigError("this is not NAME=PROVIDER:SECRETFILE", where=_OPTION)
    if not _NAME.fullmatch(name):
        message = "NAME is not made of a-z, 0-9 and inner dashes, 40 of them at most"
        raise ConfigError(message, where=_OPTION)
    if provider not in {*decide.Provider}:
        raise ConfigError(
            f"PROVIDER is not one of {', '.join(decide.Provider)}", where=f"{_OPTION} {name}"
        )
    hook = Hook(name, decide.Provider(provider), Path(file))
    secret_of(hook)
    return hook


def parse_hooks(texts: Iterable[str]) -> tuple[Hook, ...]:
    """Return the hooks of all options. Raises ConfigError, also for a name that comes twice."""
    hooks: dict[str, Hook] = {}
    for hook in map(parse_hook, texts):
        if hook.name in hooks:
            raise ConfigError("this name is there twice", where=f"{_OPTION} {hook.name}")
        hooks[hook.name] = hook
    return tuple(hooks.values())


def secret_of(hook: Hook) -> Secret:
    """Return the secret of a hook. Raises ConfigError."""
    where = f"{_OPTION} {hook.name}"
    secret = read_secret(hook.file, where)
    try:
        signs = hook.provider in (decide.Provider.GITLAB, decide.Provider.GENERIC)
        key = standard_webhooks.key_of(secret) if signs else secret.reveal().encode()
    except ValueError as error:
        raise ConfigError(f"{hook.file}: {error}", where=where) from None
    if fault := standard_webhooks.length_fault(key):
        raise ConfigError(f"{hook.file} {fault}", where=where, hint=_HINT)
    return secret


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
