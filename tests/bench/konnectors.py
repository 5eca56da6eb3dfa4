"""What syncing costs: `konnector` as its own process, beside a bare loop with the same writes.

Between two real API servers without fsync; the space, its rights and its service namespaces are
made by the real backend, which is then out of the way. The load and the operator that answers are
in this process, the two contenders in one of their own each, and they take turns. Both watch both
sides (bare_sync.py), so the ratios are about what a konnector does beside that: it keeps, compares,
decides, and survives.
"""

import asyncio
import base64
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

import aiohttp
import psutil
import uvloop
import yaml

from klutchctl.sandbox import lifecycle
from klutchctl.sandbox.state import Layout
from reconciler.blueprints import objects as spaces
from reconciler.core import names
from reconciler.core.manifest import get_text
from reconciler.core.refs import NAMESPACE, SECRET
from tests.bench import bare_sync
from tests.bench.bare_sync import Orders
from tests.bench.plans import verdict
from tests.bench.servers import sandbox
from tests.bench.sync_load import Load, requests_of
from tests.support import clusters
from tests.support.backend import USUAL
from tests.support.bound_scenes import ACCEPTED, BIND, Scene
from tests.support.clusters import LiveCluster
from tests.support.offers import Offer, define_again, publish_template
from tests.support.raw import http_session

ROUNDS: Final = 2
BURST: Final = 2_000
TRICKLE: Final = 150
PAUSE: Final = 0.05  # seconds between the claims of a trickle
SECRETS: Final = 300
IDLE: Final = 10_000  # objects at a restart
NAMESPACES: Final = 5
CONTENDERS: Final = ("konnector", "bare")
_PAUSE: Final = 1.0
_QUIET: Final = 0.02  # seconds of CPU time that a process takes in a pause, having nothing to do
_OF_CLAIMS: Final = "databases"
_CHANGED: Final = "Changed"

# What is asked for (issue: the konnector, Show)
_THROUGHPUT: Final = 0.75
_REQUESTS: Final = 3.0
_CPU: Final = 2.5  # ms for each object
_LATENCY: Final = 1.3
_BURST_LATENCY: Final = 4.0
_MEMORY: Final = 64.0  # MiB
_MEMORY_EACH: Final = 4.0  # kB
_SECRET_REQUESTS: Final = 2.0
_RESTART: Final = 3.0  # seconds


@dataclass(slots=True)
class Figures:
    """One contender's, each a list over the rounds."""

    up: list[float] = field(default_factory=list)
    down: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    burst: list[float] = field(default_factory=list)  # latencies
    trickle: list[float] = field(default_factory=list)  # latencies
    memory: list[float] = field(default_factory=list)


def main() -> None:
    """Measure a konnector and print it."""
    with (
        tempfile.TemporaryDirectory(prefix="klutchctl-bench-") as folder,
        sandbox(Path(folder), app_clusters=1) as layout,
    ):
        uvloop.run(_measure(layout, Path(folder)))


async def _measure(layout: Layout, folder: Path) -> None:
    state = lifecycle.load(layout)
    assert state is not None
    plane, app = [await clusters.connect(layout, member) for member in state.members]
    async with AsyncExitStack() as stack:
        for live in (plane, app):
            stack.push_async_callback(live.cluster.close)
        sessions = [http_session(live.connection) for live in (app, plane)]
        for session in sessions:
            await stack.enter_async_context(session)
        scene = Scene(plane, app, Offer("bench.example", "Namespaced"), "bench-space", "bench")
        bench = _Bench(scene, folder, sessions)
        await bench.provide()
        await bench.measure()


class _Bench:
    def __init__(
        self, scene: Scene, folder: Path, sessions: Sequence[aiohttp.ClientSession]
    ) -> None:
        self._scene, self._folder, self._sessions = scene, folder, sessions
        kind, namespaces = scene.offer.kind, [f"bench-{number}" for number in range(NAMESPACES)]
        self._orders = Orders(
            app=str(folder / "app.yaml"),
            plane=str(folder / "plane.yaml"),
            path=f"/apis/{kind.api_version}",
            kind=kind.kind,
            plural=kind.plural,
            homes={name: names.service_namespace(scene.space, name) for name in namespaces},
        )
        self._load = Load(self._orders, *sessions)
        self._figures = {name: Figures() for name in CONTENDERS}

    async def provide(self) -> None:
        """Bind the service, and have a service namespace made for each app namespace."""
        scene = self._scene
        for name in (BIND, *self._orders.homes):
            await scene.app.cluster.create(spaces.namespace(name), NAMESPACE, manager="bench")
        await define_again(scene.plane.cluster, scene.offer)
        await publish_template(scene.plane.cluster, scene.offer, namespace="default")
        _write_kubeconfig(scene.app, Path(self._orders.app))
        async with scene.backend(settings=replace(USUAL, service_namespace_quota=0)):
            async with self._konnector():
                await scene.bound(ACCEPTED)
                async with self._load.following():
                    await self._through(_numbered("first", NAMESPACES))
            live = await scene.in_app(SECRET, scene.secret)
        _write_secret_content(get_text(live, "data", "kubeconfig"), Path(self._orders.plane))

    async def measure(self) -> None:
        """Let the contenders take turns, and print what they did."""
        async with self._load.following():
            await self._idle()
            for number in range(ROUNDS):
                for name in CONTENDERS:
                    await self._round(name, number)
            self._report()
            await self._secrets()
            await self._restart()

    async def _idle(self) -> None:
        async with self._konnector() as process:
            await self._through(["idle-0"])
            await _settled(process)
            self._memory = process.memory_info().rss
        _line("memory, idle", f"{self._memory / 2**20:.0f} MiB", self._memory / 2**20, _MEMORY)

    async def _round(self, name: str, number: int) -> None:
        contend = {"konnector": self._konnector, "bare": self._bare}[name]
        figures, stem = self._figures[name], f"{name}-{number}"
        async with contend() as process:
            await self._through([f"{stem}-warm-0"])
            await _settled(process)
            await self._burst(process, figures, _numbered(f"{stem}-burst", BURST))
            await self._trickle(figures, _numbered(f"{stem}-trickle", TRICKLE))
            figures.memory.append(process.memory_info().rss)

    async def _burst(
        self, process: psutil.Process, figures: Figures, claims: Sequence[str]
    ) -> None:
        """Create many claims, which are answered at once; then change the status of all."""
        load, stories = self._load, self._load.stories
        cpu, calls = _cpu(process), await self._calls(_OF_CLAIMS)
        began = time.monotonic()
        await self._through(claims)
        figures.up.append(BURST / (max(stories[one].shown for one in claims) - began))
        figures.burst += [stories[one].latency for one in claims]
        await _settled(process)
        figures.cpu.append((_cpu(process) - cpu) / BURST * 1e3)
        figures.requests.append((await self._calls(_OF_CLAIMS) - calls) / BURST)
        began = time.monotonic()
        await load.tell(claims, _CHANGED)
        await load.until(lambda story: bool(story.shown), claims)
        figures.down.append(BURST / (max(stories[one].shown for one in claims) - began))
        await _settled(process)

    async def _trickle(self, figures: Figures, claims: Sequence[str]) -> None:
        for claim in claims:
            await self._load.make([claim])
            await asyncio.sleep(PAUSE)
        await self._load.until(lambda story: bool(story.shown), claims)
        figures.trickle += [self._load.stories[one].latency for one in claims]

    async def _secrets(self) -> None:
        """Bring credentials down."""
        load, made = self._load, _numbered("credentials", SECRETS)
        async with self._konnector() as process:
            await self._through(["secrets-0"])
            await _settled(process)
            calls, began = await self._calls("secrets"), time.monotonic()
            await load.make_secrets(made)
            await load.seen(lambda: all(one in load.secrets for one in made))
            speed = SECRETS / (max(load.secrets[one] for one in made) - began)
            await _settled(process)
            each = (await self._calls("secrets") - calls) / SECRETS
        print(f"\n{SECRETS} credentials Secrets in a burst: {speed:.0f} a second")
        _line("requests each", f"{each:.2f}", round(each, 2), _SECRET_REQUESTS)

    async def _restart(self) -> None:
        """Start a konnector that finds many objects as they have to be, and one that is new."""
        load = self._load
        await load.fill(_numbered("fill", IDLE - len(load.stories)))
        await load.make(["restart-0"])
        calls, began = await self._calls(_OF_CLAIMS, reads=False), time.monotonic()
        async with self._konnector() as process:
            await load.until(lambda story: bool(story.copied), ["restart-0"])
            seconds = load.stories["restart-0"].copied - began
            await _settled(process)
            cpu, memory = _cpu(process), process.memory_info().rss
            restarted = await self._calls(_OF_CLAIMS, reads=False)
            await load.make(["restart-1"])
            await load.until(lambda story: bool(story.copied), ["restart-1"])
            await _settled(process)
            new = await self._calls(_OF_CLAIMS, reads=False) - restarted - 1  # which made it
        again = restarted - calls - new
        print(f"\nrestart with {IDLE} objects ({cpu:.2f} s of CPU time)")
        _line("start to syncing", f"{seconds:.2f} s", seconds, _RESTART)
        _line("writes but of what is new", str(again), again, 0)
        each = (memory - self._memory) / IDLE / 1e3
        _line("memory, each object", f"{each:.1f} kB", each, _MEMORY_EACH)

    def _report(self) -> None:
        ours, bare = (self._figures[name] for name in CONTENDERS)
        print(f"\nbursts of {BURST} claims, and trickles ({ROUNDS} alternating rounds)")
        print(f"  {'':34}{'konnector':>11}{'bare loop':>11}{'ratio':>8}")
        for what, mine, other in (
            ("up and answered, objects/s", ours.up, bare.up),
            ("status down, objects/s", ours.down, bare.down),
        ):
            ratio = _row(what, statistics.mean(mine), statistics.mean(other))
            print(f"  {'within' if ratio >= _THROUGHPUT else 'BEYOND'} {_THROUGHPUT}")
        each = statistics.mean(ours.requests)
        _row("requests for each object", each, statistics.mean(bare.requests))
        print(f"  {verdict(round(each, 2), _REQUESTS)} {_REQUESTS}")
        each = statistics.mean(ours.cpu)
        _row("CPU for each object, ms", each, statistics.mean(bare.cpu))
        print(f"  {verdict(each, _CPU)} {_CPU}")
        for what, mine, other in (
            ("burst", ours.burst, bare.burst),
            ("trickle", ours.trickle, bare.trickle),
        ):
            for share in (50, 99):
                ratio = _row(
                    f"{what} p{share}, ms", *(1e3 * _quantile(one, share) for one in (mine, other))
                )
                aim = {"burst": _BURST_LATENCY, "trickle": _LATENCY}[what] if share == 50 else None
                print("" if aim is None else f"  {verdict(ratio, aim)} {aim}")
        _row("memory at the end, MiB", ours.memory[-1] / 2**20, bare.memory[-1] / 2**20)
        print()

    async def _through(self, claims: Sequence[str]) -> None:
        """Create claims, and wait until their status is there."""
        await self._load.make(claims)
        await self._load.until(lambda story: bool(story.shown), claims)

    async def _calls(self, resource: str, *, reads: bool = True) -> int:
        """Return how many calls both servers have had about a resource, but the load's."""
        counts = [await requests_of(one, resource, reads=reads) for one in self._sessions]
        return sum(counts) - self._load.sent

    @asynccontextmanager
    async def _konnector(self) -> AsyncIterator[psutil.Process]:
        arguments = [f"--kubeconfig={self._orders.app}", "--probe-address=", "--metrics-address="]
        async with self._process("konnector", *arguments) as (process, _):
            yield process

    @asynccontextmanager
    async def _bare(self) -> AsyncIterator[psutil.Process]:
        orders = json.dumps(asdict(self._orders))
        async with self._process("tests.bench.bare_sync", orders) as (process, said):
            assert (await said.readline()).decode().strip() == bare_sync.READY
            yield process

    @asynccontextmanager
    async def _process(
        self, module: str, *arguments: str
    ) -> AsyncIterator[tuple[psutil.Process, asyncio.StreamReader]]:
        with (self._folder / f"{module}.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, *arguments, stdout=subprocess.PIPE, stderr=log
            )
        try:
            assert process.stdout is not None
            yield psutil.Process(process.pid), process.stdout
        finally:
            process.terminate()
            await process.wait()


def _row(what: str, mine: float, other: float) -> float:
    """Begin a line about both contenders, and return their ratio."""
    form = ".0f" if min(mine, other) >= 100 else ".2f"
    print(f"  {what:34}{mine:11{form}}{other:11{form}}{mine / other:8.2f}", end="")
    return mine / other


def _line(what: str, told: str, figure: float, limit: float) -> None:
    print(f"  {what:34}{told:>11}  {verdict(figure, limit)} {limit:g}")


def _numbered(stem: str, count: int) -> list[str]:
    return [f"{stem}-{number}" for number in range(count)]


def _quantile(figures: Sequence[float], share: int) -> float:
    return statistics.quantiles(figures, n=100)[share - 1]


def _cpu(process: psutil.Process) -> float:
    return sum(process.cpu_times()[:2])


async def _settled(process: psutil.Process) -> None:
    """Return once a process does next to nothing."""
    before = -1.0
    while (now := _cpu(process)) - before > _QUIET:
        before = now
        await asyncio.sleep(_PAUSE)


def _write_secret_content(text: str, file: Path) -> None:
    file.write_bytes(base64.b64decode(text))


def _write_kubeconfig(live: LiveCluster, file: Path) -> None:
    """Write a kubeconfig for programs that cannot be told a context."""
    document = yaml.safe_load(live.kubeconfig.read_text())
    file.write_text(yaml.safe_dump({**document, "current-context": live.context}))
