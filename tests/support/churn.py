"""An informer under random changes and random faults, and what must be true at the end.

What is done follows from the seed: the writes one after the other, the faults with their times.
How many writes there are, and how they meet the faults, is up to the machine.
"""

import asyncio
import contextlib
import functools
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from reconciler.core import manifest as m
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import CONFIG_MAP, NAMESPACE, Kind, Ref
from reconciler.kube.cluster import Cluster, Reader
from reconciler.kube.informer import Informer
from reconciler.kube.limits import Limits
from reconciler.kube.requests import Preconditions, Propagation
from reconciler.kube.store import Index, Store
from tests.support import removal
from tests.support.cues import Delay
from tests.support.fault_proxy import FaultProxy
from tests.support.http_faults import Body, Cut, Garbage, Reply, answer, gone, on

MANAGER: Final = "tests"
# Of the informer's client, so that it notices within the test what it may notice late in life.
IMPATIENT: Final = Limits(connect_timeout=1, read_timeout=1, deadline=2, qps=1e4, burst=10_000)
SILENCE: Final = 2.0
WATCHES: Final = on("GET", query=r"\bwatch=")
LISTS: Final = on("GET", r"/configmaps$", query=r"^(?!.*\bwatch=)")
_NAMES: Final = 400
_TEAMS: Final = ("red", "green", "blue")
_WRITES_PER_SECOND: Final = 40.0
_SECONDS_BETWEEN_FAULTS: Final = 0.6

Contents: TypeAlias = dict[tuple[str, str], bytes]


INDEXES: Final[dict[str, Index]] = {
    "name": lambda one: [m.name_of(one)],
    "team": lambda one: [m.labels_of(one).get("team", "none")],
}


@contextlib.asynccontextmanager
async def following(informer: Informer) -> AsyncIterator[Informer]:
    """Run an informer for as long as the block lasts. What ends it early comes out."""
    running = asyncio.create_task(informer.run())
    try:
        yield informer
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def seen(store: Store) -> Contents:
    """Return what a store holds, as canonical JSON."""
    return {m.identity_of(one): m.canonical(one) for one in store.all()}


async def truth(cluster: Reader, kind: Kind, namespace: str, *, labels: str = "") -> Contents:
    """Return what an API server holds, as canonical JSON without managed fields."""
    listing = await cluster.list(kind, namespace=namespace, labels=labels)
    return {
        m.identity_of(one): m.canonical(m.drop(one, "metadata", "managedFields"))
        for one in listing.items
    }


@contextlib.asynccontextmanager
async def new_namespace(cluster: Cluster) -> AsyncIterator[str]:
    name = f"churn-f{uuid.uuid4().hex[:11]}"
    manifest: Manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    made = await cluster.create(manifest, NAMESPACE, manager=MANAGER)
    try:
        yield name
    finally:
        await cluster.delete(
            Ref(cluster.name, NAMESPACE, "", name),
            preconditions=Preconditions(uid=m.uid_of(made)),
            propagation=Propagation.BACKGROUND,
        )


# Writes


class Writes:
    """Random writes that fit each other: names come, change, move between teams, go, come again.

    Some names change all the time; others once or twice, so that a lost event is not made up for.
    """

    def __init__(self, rng: random.Random) -> None:
        self._random = rng
        self._there: set[str] = set()
        self.touched: set[str] = set()

    async def make(self, cluster: Cluster, namespace: str, seconds: float) -> None:
        """Write for so long, past all faults; less where the server is slow."""
        began = time.monotonic()
        for number, at in enumerate(_moments(self._random, 1 / _WRITES_PER_SECOND, seconds)):
            now = time.monotonic() - began
            if now > seconds:
                break
            await asyncio.sleep(at - now)
            name = f"item-{int(_NAMES * self._random.random() ** 2)}"
            self.touched.add(name)
            await self._write(cluster, Ref(cluster.name, CONFIG_MAP, namespace, name), number)

    async def _write(self, cluster: Cluster, ref: Ref, number: int) -> None:
        team, ends = self._random.choice(("", *_TEAMS)), self._random.random() < 0.3
        identity = {"name": ref.name, "namespace": ref.namespace}
        data = {"number": str(number), "filling": "é" * (number % 300)}
        body: dict[str, JSON] = {"apiVersion": "v1", "kind": "ConfigMap", "data": data}
        if ref.name not in self._there:
            self._there.add(ref.name)
            created = body | {"metadata": {**identity, "labels": {"team": team} if team else {}}}
            await cluster.create(created, CONFIG_MAP, manager=MANAGER)
        elif ends:
            self._there.discard(ref.name)
            await removal.remove(cluster, ref)
        else:
            changed = body | {"metadata": {**identity, "labels": {"team": team or None}}}
            await cluster.merge_patch(ref, changed, manager=MANAGER)


def _moments(rng: random.Random, between: float, seconds: float) -> Iterator[float]:
    at = rng.expovariate(1 / between)
    while at < seconds:
        yield at
        at += rng.expovariate(1 / between)


# Faults


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that befalls the connection, `at` so many seconds."""

    at: float
    name: str
    place: Body
    seconds: float
    times: int


async def _reset(proxy: FaultProxy, _: Fault) -> None:
    proxy.cut("rst")


async def _goodbye(proxy: FaultProxy, _: Fault) -> None:
    proxy.cut("fin")


@dataclass(frozen=True, slots=True)
class _Down:
    """An effect: until then, connections are cut before anything is answered."""

    until: float

    async def perform(self, reply: Reply, /) -> bool:
        down = time.monotonic() < self.until
        if down:
            reply.cut("rst")
        return down


async def _outage(proxy: FaultProxy, fault: Fault) -> None:
    proxy.add(on("GET"), _Down(time.monotonic() + fault.seconds))
    proxy.cut("fin")


async def _truncated_watch(proxy: FaultProxy, fault: Fault) -> None:
    proxy.add(WATCHES.nth(1), Cut("fin"), at=fault.place)
    proxy.cut("rst")


async def _truncated_list(proxy: FaultProxy, fault: Fault) -> None:
    proxy.add(LISTS.first(fault.times), Cut("rst"), at=Body(octets=fault.place.octets))
    await _too_old(proxy, fault)


async def _too_old(proxy: FaultProxy, fault: Fault) -> None:
    await _outage(proxy, fault)
    await asyncio.sleep(fault.seconds)
    proxy.add(WATCHES.first(fault.times), gone(), at=Body(lines=fault.place.lines % 2))


async def _refused(proxy: FaultProxy, fault: Fault) -> None:
    code = (410, 429, 500, 503)[fault.place.lines % 4]
    proxy.add(on("GET").first(fault.times), answer(code))
    proxy.cut("rst")


async def _garbage(proxy: FaultProxy, fault: Fault) -> None:
    proxy.add(on("GET").first(fault.times), Garbage())
    proxy.cut("rst")


async def _late(proxy: FaultProxy, fault: Fault) -> None:
    proxy.add(on("GET").first(fault.times), Delay(fault.seconds))
    proxy.cut("fin")


async def _hanging(proxy: FaultProxy, fault: Fault) -> None:
    proxy.add(on("GET").nth(1), Delay(IMPATIENT.deadline + 1))
    proxy.cut("rst")


async def _silent(proxy: FaultProxy, fault: Fault) -> None:
    proxy.add(WATCHES.nth(1), Delay(SILENCE + 1), at=fault.place)
    proxy.cut("rst")


FAULTS: Final[dict[str, Callable[[FaultProxy, Fault], Awaitable[None]]]] = {
    "reset": _reset,
    "goodbye": _goodbye,
    "outage": _outage,
    "truncated watch": _truncated_watch,
    "truncated list": _truncated_list,
    "too old": _too_old,
    "refused": _refused,
    "garbage": _garbage,
    "late": _late,
    "hanging": _hanging,
    "silent": _silent,
}


def faults(rng: random.Random, seconds: float) -> Iterator[Fault]:
    """Yield faults of all sorts, in random order."""
    for at in _moments(rng, _SECONDS_BETWEEN_FAULTS, seconds):
        yield Fault(
            at,
            rng.choice(list(FAULTS)),
            Body(lines=rng.randrange(8), octets=rng.randrange(60)),
            rng.uniform(0.05, 0.6),
            rng.randint(1, 2),
        )


async def break_things(proxy: FaultProxy, planned: Sequence[Fault]) -> None:
    """Let the faults happen at their times, and leave the connection well."""
    began = time.monotonic()
    for fault in planned:
        await asyncio.sleep(began + fault.at - time.monotonic())
        await FAULTS[fault.name](proxy, fault)
    proxy.rules.clear()


# Consumers


@dataclass
class Consumer:
    """Does what a controller does: notes what it is woken for, and reads it some time later."""

    store: Store
    pending: set[tuple[str, str]] = field(default_factory=set)
    last: dict[tuple[str, str], list[bytes]] = field(default_factory=dict)
    most: int = 0  # pending at once
    versions: dict[str, int] = field(default_factory=dict)
    backwards: list[str] = field(default_factory=list)  # names that went back in time

    def __post_init__(self) -> None:
        for index in INDEXES:
            self.store.subscribe(index, functools.partial(self._enqueue, index))

    def _enqueue(self, index: str, value: str) -> None:
        self.pending.add((index, value))
        self.most = max(self.most, len(self.pending))
        for manifest in self.store.by("name", value) if index == "name" else ():
            version = int(m.resource_version_of(manifest))
            if version <= self.versions.get(value, 0):
                self.backwards.append(value)
            self.versions[value] = version

    async def run(self) -> None:
        """Read one thing after the other, slower than they change."""
        while True:
            await asyncio.sleep(1.5 / _WRITES_PER_SECOND)
            self.read_one()

    def read_one(self) -> None:
        if self.pending:
            key = self.pending.pop()
            self.last[key] = self.now(*key)

    def read_all(self) -> None:
        while self.pending:
            self.read_one()

    def now(self, index: str, value: str) -> list[bytes]:
        return [m.canonical(one) for one in self.store.by(index, value)]
