"""What syncing costs: `konnector` as its own process, beside a bare loop with the same writes.

Between two real API servers without fsync; the space, its rights and its service namespaces are
made by the real backend, which is then out of the way. The load and the operator that answers are
in this process, the contenders in one of their own each, and they take turns. All watch both
sides (bare_sync.py), so the ratios are about what a konnector does beside that: it keeps, compares,
decides, and survives. A burst is there at once, and the bare loop has as many objects in flight as
serve it best. Single figures say little on a shared machine: the ratio is the median of those of
the rounds, and is beyond an aim if all of its 90 % interval is.

With `KLUTCH_BENCH_BEFORE=FOLDER`, another tree's konnector takes its turns beside them.
"""

import asyncio
import base64
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import aiohttp
import psutil
import uvloop
import yaml

from reconciler.blueprints import objects as spaces
from reconciler.core import names
from reconciler.core.manifest import get_text
from reconciler.core.refs import NAMESPACE, SECRET
from tests.bench import bare_sync
from tests.bench.bare_sync import Orders
from tests.bench.plans import verdict
from tests.bench.servers import sandbox
from tests.bench.sync_load import Load, requests_of
from tests.support.backend import USUAL
from tests.support.bound_scenes import ACCEPTED, BIND, Scene
from tests.support.clusters import LiveCluster
from tests.support.offers import Offer, define_again, publish_template
from tests.support.raw import http_session

ROUNDS: Final = 7
BURST: Final = 1_000
IN_FLIGHT: Final = (8, 16, 32, 64, 128)  # the best of them serves the bare loop
TRICKLE: Final = 150
PAUSE: Final = 0.05  # seconds between the claims of a trickle
SECRETS: Final = 300
IDLE: Final = 10_000  # objects at a restart
NAMESPACES: Final = 5
BEFORE: Final = os.environ.get("KLUTCH_BENCH_BEFORE", "")
OTHERS: Final = ("bare", "before") if BEFORE else ("bare",)
_PAUSE: Final = 1.0
_QUIET: Final = 0.02  # seconds of CPU time that a process takes in a pause, having nothing to do
_OF_CLAIMS: Final = "databases"

# What is asked for: of the bare loop's figures, and at all.
_REQUESTS: Final = "requests for each object"
_CPU: Final = "CPU for each object, ms"
_AIMS: Final = {
    "up and answered, objects/s": 0.85,
    "status down, objects/s": 0.95,
    "burst p50, ms": 1.5,
    "burst p99, ms": 2.0,
    "trickle p50, ms": 1.5,
    "trickle p99, ms": 2.0,
    _REQUESTS: 4 / 3,
    _CPU: 1.5,
    "memory at the end, MiB": 2.0,
}
_RATES: Final = tuple(_AIMS)[:2]  # which are better if they are more
_WORSE: Final = 1.05  # than the tree before
_MEMORY: Final = 64.0  # MiB
_MEMORY_EACH: Final = 4.0  # kB
_SECRET_REQUESTS: Final = 2.0
_RESTART: Final = 3.0  # seconds

Figures = defaultdict[str, list[float]]  # by what, each of the rounds


def main() -> None:
    for part in (_Bench.restart, _Bench.measure):
        uvloop.run(_measure(part))


async def _measure(part: Callable[["_Bench"], Awaitable[None]]) -> None:
    async with (
        sandbox(app_clusters=1) as (folder, (plane, app)),
        http_session(app.connection) as here,
        http_session(plane.connection) as there,
    ):
        sessions = [here, there]
        scene = Scene(plane, app, Offer("bench.example", "Namespaced"), "bench-space", "bench")
        bench = _Bench(scene, folder, sessions)
        await bench.provide()
        async with bench.load.following():
            await part(bench)


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
        self.load = Load(self._orders, *sessions)
        self._figures = {name: Figures(list) for name in ("konnector", *OTHERS)}

    async def provide(self) -> None:
        """Bind the service, and have a service namespace made for each app namespace."""
        scene = self._scene
        for name in (BIND, *self._orders.homes):
            await scene.app.cluster.create(spaces.namespace(name), NAMESPACE, manager="bench")
        await define_again(scene.plane.cluster, scene.offer)
        await publish_template(scene.plane.cluster, scene.offer, namespace="default")
        write_kubeconfig(scene.app, Path(self._orders.app))
        async with scene.backend(settings=replace(USUAL, service_namespace_quota=0)):
            async with self._konnector():
                await scene.bound(ACCEPTED)
                async with self.load.following():
                    await self._through(_numbered("first", NAMESPACES))
            live = await scene.in_app(SECRET, scene.secret)
        content = base64.b64decode(get_text(live, "data", "kubeconfig"))
        await asyncio.to_thread(Path(self._orders.plane).write_bytes, content)

    async def measure(self) -> None:
        """Let the contenders take turns, and print what they did."""
        await self._choose_in_flight()
        for number in range(ROUNDS):
            for name in self._figures:
                await self._round(name, number)
        self._report()
        await self._secrets()

    async def _choose_in_flight(self) -> None:
        """Let the bare loop have as many objects in flight as serve it best."""
        rates = {}
        for in_flight in IN_FLIGHT:
            self._orders = replace(self._orders, in_flight=in_flight)
            async with self._bare() as process:
                figures = Figures(list)
                await self._burst(process, figures, _numbered(f"flight{in_flight}-burst", BURST))
            rates[in_flight] = figures["up and answered, objects/s"][0]
        best = max(rates, key=lambda one: rates[one])
        self._orders = replace(self._orders, in_flight=best)
        print(f"bare loop, objects in flight: {best} of {[*IN_FLIGHT]}")

    async def _round(self, name: str, number: int) -> None:
        figures, stem = self._figures[name], f"{name}-{number}"
        async with self._bare() if name == "bare" else self._konnector(name) as process:
            await self._through([f"{stem}-warm-0"])
            await settled(process)
            await self._burst(process, figures, _numbered(f"{stem}-burst", BURST))
            await self._trickle(figures, _numbered(f"{stem}-trickle", TRICKLE))
            figures["memory at the end, MiB"].append(process.memory_info().rss / 2**20)

    async def _burst(
        self, process: psutil.Process, figures: Figures, claims: Sequence[str]
    ) -> None:
        """Create many claims, which are answered at once; then change the status of all."""
        load, stories = self.load, self.load.stories
        cpu, calls = cpu_of(process), await self._calls(_OF_CLAIMS)
        began = time.monotonic()
        await self._through(claims)
        last = max(stories[one].shown for one in claims) - began
        figures["up and answered, objects/s"].append(BURST / last)
        self._latencies(figures, "burst", claims)
        await settled(process)
        figures[_CPU].append((cpu_of(process) - cpu) / BURST * 1e3)
        figures[_REQUESTS].append((await self._calls(_OF_CLAIMS) - calls) / BURST)
        began = time.monotonic()
        await load.report(claims, "Changed")
        await load.until(lambda story: bool(story.shown), claims)
        last = max(stories[one].shown for one in claims) - began
        figures["status down, objects/s"].append(BURST / last)
        await settled(process)

    async def _trickle(self, figures: Figures, claims: Sequence[str]) -> None:
        for claim in claims:
            await self.load.make([claim])
            await asyncio.sleep(PAUSE)
        await self.load.until(lambda story: bool(story.shown), claims)
        self._latencies(figures, "trickle", claims)

    def _latencies(self, figures: Figures, what: str, claims: Sequence[str]) -> None:
        latencies = [self.load.stories[one].latency * 1e3 for one in claims]
        for share in (50, 99):
            each = statistics.quantiles(latencies, n=100)[share - 1]
            figures[f"{what} p{share}, ms"].append(each)

    async def _secrets(self) -> None:
        load, made = self.load, _numbered("credentials", SECRETS)
        async with self._konnector() as process:
            await self._through(["secrets-0"])
            await settled(process)
            calls, began = await self._calls("secrets"), time.monotonic()
            await load.make_secrets(made)
            await load.seen(lambda: all(one in load.secrets for one in made))
            speed = SECRETS / (max(load.secrets[one] for one in made) - began)
            await settled(process)
            each = (await self._calls("secrets") - calls) / SECRETS
        print(f"\n{SECRETS} credentials Secrets in a burst: {speed:.0f} a second")
        line("requests each", round(each, 2), _SECRET_REQUESTS)

    async def restart(self) -> None:
        """Start a konnector that finds many objects as they have to be, and one that is new."""
        load = self.load
        async with self._konnector() as process:
            await self._through(["idle-0"])
            await settled(process)
            idle = process.memory_info().rss
        line("memory, idle, MiB", idle / 2**20, _MEMORY)
        await load.fill(_numbered("fill", IDLE - len(load.stories)))
        await load.make(["restart-0"])
        calls, began = await self._calls(_OF_CLAIMS, reads=False), time.monotonic()
        async with self._konnector() as process:
            await load.until(lambda story: bool(story.copied), ["restart-0"])
            seconds = load.stories["restart-0"].copied - began
            await settled(process)
            cpu, memory = cpu_of(process), process.memory_info().rss
            restarted = await self._calls(_OF_CLAIMS, reads=False)
            await load.make(["restart-1"])
            await load.until(lambda story: bool(story.copied), ["restart-1"])
            await settled(process)
            new = await self._calls(_OF_CLAIMS, reads=False) - restarted - 1  # which made it
        again = restarted - calls - new
        print(f"\nrestart with {IDLE} objects ({cpu:.2f} s of CPU time)")
        line("start to syncing, s", seconds, _RESTART)
        line("writes but of what is new", again, 0)
        each = (memory - idle) / IDLE / 1e3
        line("memory, each object, kB", each, _MEMORY_EACH)

    def _report(self) -> None:
        print(f"\nbursts of {BURST} claims, and trickles: medians of {ROUNDS} rounds")
        for name in OTHERS:
            print(f"  {'':34}{'konnector':>11}{name:>11}  ratio, 90 % of it")
            for what, aim in _AIMS.items():
                mine, other = (self._figures[one][what] for one in ("konnector", name))
                as_before = 1 / _WORSE if what in _RATES else _WORSE
                _row(what, mine, other, as_before if name == "before" else aim)

    async def _through(self, claims: Sequence[str]) -> None:
        """Create claims, and wait until their status is there."""
        await self.load.make(claims)
        await self.load.until(lambda story: bool(story.shown), claims)

    async def _calls(self, resource: str, *, reads: bool = True) -> int:
        """Return how many calls both servers have had about a resource, but the load's."""
        counts = [await requests_of(one, resource, reads=reads) for one in self._sessions]
        return sum(counts) - self.load.sent

    @asynccontextmanager
    async def _konnector(self, name: str = "konnector") -> AsyncIterator[psutil.Process]:
        arguments = [f"--kubeconfig={self._orders.app}", "--probe-address=", "--metrics-address="]
        tree = BEFORE if name == "before" else None
        async with started(self._folder, "konnector", *arguments, tree=tree) as (process, _):
            yield process

    @asynccontextmanager
    async def _bare(self) -> AsyncIterator[psutil.Process]:
        orders, before = json.dumps(asdict(self._orders)), set(self.load.stories)
        async with started(self._folder, "tests.bench.bare_sync", orders) as (process, said):
            assert (await said.readline()).decode().strip() == bare_sync.READY
            yield process
        # A konnector migrates pairs without uids at a pace of its own, for minutes.
        await self.load.stamp(self.load.stories.keys() - before)


@asynccontextmanager
async def started(
    folder: Path, module: str, *arguments: str, tree: str | None = None
) -> AsyncIterator[tuple[psutil.Process, asyncio.StreamReader]]:
    """Run a module as its own process; yield that, and its standard output."""
    with (folder / f"{module}.log").open("ab") as log:
        command = (sys.executable, "-m", module, *arguments)
        process = await asyncio.create_subprocess_exec(
            *command, stdout=subprocess.PIPE, stderr=log, cwd=tree
        )
    try:
        assert process.stdout is not None
        yield psutil.Process(process.pid), process.stdout
    finally:
        process.terminate()
        await process.wait()


def _row(what: str, mine: Sequence[float], other: Sequence[float], aim: float) -> None:
    """Print a line about two contenders: medians, and of the ratio its 90 % interval."""
    ratios = [one / two for one, two in zip(mine, other, strict=True)]
    chance = random.Random(0)
    samples = (chance.choices(ratios, k=len(ratios)) for _ in range(1000))
    low, *_, high = statistics.quantiles(map(statistics.median, samples), n=20)
    ratio, figures = statistics.median(ratios), map(statistics.median, (mine, other))
    one, two = (f"{each:11.{0 if each >= 100 else 2}f}" for each in figures)
    is_within = high >= aim if what in _RATES else low <= aim
    said = f"{'within' if is_within else 'BEYOND'} {aim:.2f}"
    print(f"  {what:34}{one}{two}{ratio:7.2f}, {low:.2f} to {high:.2f}  {said}")


def line(what: str, figure: float, limit: float) -> None:
    print(f"  {what:34}{figure:11.2f}  {verdict(figure, limit)} {limit:g}")


def _numbered(stem: str, count: int) -> list[str]:
    return [f"{stem}-{number}" for number in range(count)]


def cpu_of(process: psutil.Process) -> float:
    return sum(process.cpu_times()[:2])


async def settled(process: psutil.Process) -> None:
    before = -1.0
    while (now := cpu_of(process)) - before > _QUIET:
        before = now
        await asyncio.sleep(_PAUSE)


def write_kubeconfig(live: LiveCluster, file: Path) -> None:
    """Write a kubeconfig for programs that cannot be told a context."""
    document = yaml.safe_load(live.kubeconfig.read_text())
    file.write_text(yaml.safe_dump({**document, "current-context": live.context}))
