"""Clients, catalogues and turns of the brokers and backup managers of ProviderConfigs.

A client lasts until its ProviderConfig or a Secret changes; they are read again each minute, and at
once after refused credentials.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from weakref import WeakValueDictionary

from bind.osb.dataservices import jobs
from bind.osb.dataservices.connection import decoded
from bind.osb.settings import Settings
from reconciler.api.osb import NEWEST_API, BrokerSpec
from reconciler.blueprints.offering.catalogue import Catalogue
from reconciler.blueprints.offering.messages import (
    Call,
    HttpRequest,
    OriginatingIdentity,
    is_mutating,
)
from reconciler.blueprints.offering.outcomes import Done, Outcome, Unknown, Unsent
from reconciler.broker.client import BrokerAddress, BrokerClient, Observe, address_of
from reconciler.broker.gate import Gate, KeptCatalogue
from reconciler.controller.fence import Stopped, WriteFence
from reconciler.controller.tasks import Clock
from reconciler.core import keys, manifest
from reconciler.core.errors import ClusterError, ConfigError
from reconciler.core.manifest import Manifest
from reconciler.core.refs import SECRET, Ref
from reconciler.kube.cluster import Reader
from reconciler.kube.turns import NOBODY, Party, current_party

_REQUEST: Final = timedelta(seconds=60)
_READ_AGAIN: Final = 60.0  # seconds after which a Secret may have changed
_CATALOGUE: Final = 300.0
_MOST_ACTIVE: Final = 8  # calls to one server, on their way or waiting for their turn
_TRIED: Final = 30.0  # seconds between two looks at one that fails
_SERVED: Final = ("None", "Secret")


class Server:
    """A broker or backup manager."""

    def __init__(self, client: BrokerClient, gate: Gate, clock: Clock, fence: WriteFence) -> None:
        self.client, self._gate, self._clock, self._fence = client, gate, clock, fence
        self._catalogue = KeptCatalogue(gate, now=clock.monotonic)
        self._tried_at = float("-inf")
        self._reading = asyncio.Lock()
        self._active, self._ended = 0, False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def confirmed(self) -> bool:
        """Whether its catalogue was read in the last minute."""
        return self._catalogue.is_fresh

    @property
    def is_full(self) -> bool:
        """Whether so many calls are on their way that another would only wait, with its worker."""
        knows_nothing = self.latest is None and self._reading.locked()
        return self._active >= _MOST_ACTIVE or knows_nothing

    @property
    def latest(self) -> Catalogue | None:
        return self._catalogue.latest

    async def catalogue(self, *, within: float = _CATALOGUE) -> Catalogue | None:
        """Return its catalogue, read again if it is old; the last good one if that fails."""
        if self._catalogue.age < within or (self._reading.locked() and self.latest is not None):
            return self.latest
        async with self._reading, self._turn(NOBODY):
            if self._catalogue.age >= within and self._may_read(within):
                self._tried_at = self._clock.monotonic()
                await self._catalogue.read(self.client)
        return self.latest

    def _may_read(self, within: float) -> bool:
        """Return whether the catalogue is asked for, which may just have failed."""
        since = self._clock.monotonic() - self._tried_at
        return not self._gate.pause and (since >= _TRIED or not within)

    @property
    def problem(self) -> str:
        """Why the catalogue could not be read, "" where it was."""
        problem = self._catalogue.problem
        return f"The broker's catalogue cannot be read: {problem}" if problem else ""

    async def end(self) -> None:
        """Let no further call begin, and return once those that are on their way have ended."""
        self._ended = True
        await self._idle.wait()

    @asynccontextmanager
    async def _turn(self, party: Party) -> AsyncIterator[None]:
        """Wait for a turn. Raises Stopped where this process ends."""
        self._active += 1
        self._idle.clear()
        try:
            async with self._gate.turn(party):
                if self._ended:
                    raise Stopped("this process ends")
                yield
        finally:
            self._active -= 1
            if not self._active:
                self._idle.set()

    async def call(
        self, call: Call, *, space: str, identity: OriginatingIdentity | None
    ) -> Outcome:
        """Return what a call came to. Raises Stopped where nothing may be changed any more."""
        async with self._turn(current_party()):
            if closed := self._gate.closed:
                return Unsent(closed)
            outcome = await self._sent(call, identity)
            self._gate.record(outcome, space=space)
        if self._gate.doubted:
            await self.catalogue(within=0.0)
        return outcome

    async def _sent(self, call: Call, identity: OriginatingIdentity | None) -> Outcome:
        if not is_mutating(call):
            return await self.client.call(call, identity=identity)
        return await self._fence.write(lambda: self.client.call(call, identity=identity))

    async def ask(
        self, request: HttpRequest, *, space: str, probes: bool = False
    ) -> jobs.Reply | Unsent | Unknown:
        """Return the answer to another request; one that `probes` is made whatever failed before.

        Raises Stopped as `call` does.
        """
        async with self._turn(current_party()):
            closed = "" if probes else self._gate.closed
            if closed:
                return Unsent(closed)
            if request.method in ("GET", "HEAD"):
                answer = await self.client.send(request)
            else:
                answer = await self._fence.write(lambda: self.client.send(request))
            if isinstance(answer, Unsent | Unknown):
                self._gate.record(answer, space=space)
                return answer
            self._gate.record(Done(), space=space)
            return jobs.reply(answer.status, answer.body, self.client.secrets)


@dataclass(slots=True)
class _Held:
    """A server, and of what it was made."""

    stated: str
    digest: str
    read_at: float
    server: Server
    stack: contextlib.AsyncExitStack = field(repr=False)


class Brokers:
    """The servers of all ProviderConfigs; a worker, because clients end with it."""

    def __init__(
        self,
        cluster: Reader,
        settings: Settings,
        *,
        clock: Clock,
        fence: WriteFence,
        observer: Callable[[str], Observe] | None = None,
    ) -> None:
        self._cluster, self._settings, self._observer = cluster, settings, observer
        self._clock, self._fence = clock, fence
        self._held: dict[str, _Held] = {}
        self._replaced: list[_Held] = []
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """End once all calls have ended."""
        self._stop.set()

    async def run(self) -> None:
        """Keep the connections until `stop`."""
        try:
            await self._stop.wait()
        finally:
            for one in [*self._held.values(), *self._replaced]:
                await one.server.end()
                await one.stack.aclose()

    def turn(self, instance: str) -> asyncio.Lock:
        """Return what only one holds who changes an instance; its bindings change it too."""
        return _lock(self._turns, instance)

    async def reach(self, config: Manifest) -> Server | str:
        """Return the server behind a ProviderConfig, or why it cannot be asked."""
        name = manifest.name_of(config)
        stated = manifest.digest([manifest.get_map(config, "spec"), _version(config)])
        async with _lock(self._opening, name):
            held = self._held.get(name)
            now = self._clock.monotonic()
            if held and held.stated == stated and now - held.read_at < _READ_AGAIN:
                return held.server
            try:
                address = await self._address(config)
            except (ConfigError, ClusterError) as error:
                return str(error)
            if held and held.stated == stated and held.digest == address.digest:
                held.read_at = now
                return held.server
            return await self._opened(name, stated, address)

    async def _opened(self, name: str, stated: str, address: BrokerAddress) -> Server | str:
        stack = contextlib.AsyncExitStack()
        # A ServiceBroker may have the same name.
        observe = None if self._observer is None else self._observer(f"dataservices/{name}")
        client = self._settings.client(address, timeout=_REQUEST, observe=observe)
        try:
            await stack.enter_async_context(client)
        except ConfigError as error:
            return str(error)
        server = Server(client, Gate(now=self._clock.monotonic), self._clock, self._fence)
        before = self._held.get(name)
        self._held[name] = _Held(stated, address.digest, self._clock.monotonic(), server, stack)
        if before is not None:
            self._replaced.append(before)  # some call may still begin there
        return server

    async def _address(self, config: Manifest) -> BrokerAddress:
        """Return where the server is. Raises ConfigError and ClusterErrors."""
        name = manifest.name_of(config)
        where = f"ProviderConfig {name}"
        spec = manifest.get_map(config, "spec")
        stated: dict[str, str] = {}
        source = manifest.get_text(spec, "providerCredentials", "source")
        if source not in _SERVED:
            raise ConfigError(f"credentials of source {source} are not served", where=where)
        if source == "Secret":
            for key in ("username", "password"):
                ref = manifest.get_map(spec, "providerCredentials", key, "secretRef")
                stated[key] = (await self._text(ref, where)).strip()
        if ref := manifest.get_map(spec, "tls", "caBundleSecretRef"):
            stated["ca.crt"] = await self._text({"key": "ca.crt", **ref}, where)
        if manifest.get_text(spec, "tls", "overrideServerName"):
            raise ConfigError("tls.overrideServerName is not served", where=where)
        return address_of(
            BrokerSpec(
                name,
                url=manifest.get_text(spec, "url"),
                secret=where,
                api_version=_version(config),
                insecure=manifest.get_bool(spec, "tls", "insecureSkipVerify"),
            ),
            {"stringData": stated},
        )

    async def _text(self, ref: Manifest, where: str) -> str:
        names = [manifest.get_text(ref, part) for part in ("namespace", "name", "key")]
        if not all(names):
            raise ConfigError("it names no key of a Secret for its credentials", where=where)
        namespace, name, key = names
        secret = await self._cluster.get(Ref(self._cluster.name, SECRET, namespace, name))
        if secret is None:
            raise ConfigError(f"its Secret {namespace}/{name} is not there", where=where)
        found = decoded(manifest.get_text_map(secret, "data").get(key, ""))
        if not found:
            raise ConfigError(f"its Secret {namespace}/{name} has no text {key}", where=where)
        return found


def _version(config: Manifest) -> str:
    return manifest.annotations_of(config).get(keys.OSB_API_VERSION, NEWEST_API)


def _lock(locks: WeakValueDictionary[str, asyncio.Lock], name: str) -> asyncio.Lock:
    lock = locks.get(name)
    if lock is None:
        lock = locks[name] = asyncio.Lock()
    return lock
