"""What a service broker's claims cost: `klutch-osb` as its own process, on a real API server.

1,000 instances with a binding each, until all are Ready: how many calls the broker has for an
object, as it counts them itself; how many writes the API server has; CPU time and memory. Then what
a second start does, where all is right; and an hour of idleness, 60 times as fast. The broker is a
stand-in in this process with the catalogue of the example, which PostgreSQL would hold back.
"""

import asyncio
import subprocess
import sys
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import yaml

from klutchctl.sandbox import manifests
from reconciler.api.osb import SERVICE_BROKER
from reconciler.blueprints.objects import build
from reconciler.core import conditions
from reconciler.core.manifest import JSON, Manifest, put
from reconciler.core.refs import NAMESPACE, SECRET, Kind
from reconciler.kube import crds
from reconciler.kube.client import KubeCluster
from reconciler.kube.limits import Limits
from tests.bench.plans import verdict
from tests.bench.servers import sandbox, until, writes_of
from tests.demo.developer import DATABASE_BINDING, DATABASE_INSTANCE
from tests.support.clusters import LiveCluster
from tests.support.osb_script import ServedBroker, scripted

INSTANCES: Final = 1_000
NAMESPACES: Final = 20
HURRY: Final = 60  # an hour takes a minute
_HOUR: Final = 3600.0 / HURRY
_SHORT: Final[Manifest] = {"catalog": "5s", "resync": "10s"}  # 5 and 10 minutes, in a hurry
_EXAMPLE: Final = Path(__file__).parents[2] / "fleet-example" / "services" / "osb"
_KINDS: Final = (DATABASE_INSTANCE, DATABASE_BINDING)
_BROKERS: Final = "klutch-osb"
_SETTLING: Final = 20.0
_AGENT: Final = "klutch-osb"
_EVERYTHING: Final = Limits(qps=100_000, burst=100_000, concurrency=64)
_MUTATING: Final = ("provision", "update", "deprovision", "bind", "unbind")


def main() -> None:
    """Measure klutch-osb and print it."""
    catalogue = {"services": _saved("catalog.json")["services"]}
    with scripted(catalogue) as broker:
        asyncio.run(_measure(broker))


async def _measure(broker: ServedBroker) -> None:
    async with (
        sandbox(audit=True) as (folder, (live,)),
        KubeCluster(live.connection, limits=_EVERYTHING, agent="bench") as cluster,
    ):
        bench = _Bench(cluster, live, folder, broker)
        await bench.provide()
        print(f"\n{INSTANCES} instances of a service broker, and a binding of each")
        await bench.claim()
        await bench.start_again()


class _Bench:
    def __init__(
        self, cluster: KubeCluster, live: LiveCluster, folder: Path, broker: ServedBroker
    ) -> None:
        self._cluster, self._live, self._folder = cluster, live, folder
        self._broker = broker

    async def provide(self) -> None:
        files = sorted((_EXAMPLE / "crds").glob("*.yaml"))
        definitions = [yaml.safe_load(file.read_text()) for file in files]
        await manifests.install_all(self._cluster, [*crds.load(*crds.BROKERS), *definitions])
        await self._apply(NAMESPACE, build(NAMESPACE, _BROKERS))
        for number in range(NAMESPACES):
            await self._apply(NAMESPACE, build(NAMESPACE, f"team-{number}"))
        broker = self._broker
        way = {"url": broker.url, "username": broker.user, "password": broker.password}
        data: JSON = {key: b64encode(text.encode()).decode() for key, text in way.items()}
        secret = build(SECRET, "acme-broker", namespace=_BROKERS, data=data)
        await self._apply(SECRET, secret)
        # As it is without `timing`: the usual pauses.
        await self._apply(SERVICE_BROKER, put(_saved("broker.yaml"), {}, "spec", "timing"))

    async def claim(self) -> None:
        """Measure from the first claim until all are Ready."""
        with self._program() as process:
            await until(self._has_catalogue, process)
            mark, began = self._live.audit.mark(), time.monotonic()
            cpu, memory = _cpu(process), process.memory_info().rss
            async with asyncio.TaskGroup() as group:
                for number in range(INSTANCES):
                    group.create_task(self._claim_one(number))
            await until(self._is_ready, process)
            seconds = time.monotonic() - began
            await asyncio.sleep(_SETTLING)
            used, grown = _cpu(process) - cpu, process.memory_info().rss
        writes, objects = writes_of(self._live, _AGENT, mark), len(_KINDS) * INSTANCES
        print(f"  {'all Ready':34}{seconds:8.1f} s, {objects / seconds:.0f} objects a second")
        print(f"  {'CPU for each object':34}{used / objects * 1e3:8.2f} ms")
        print(
            f"  {'memory':34}{grown / 2**20:8.0f} MiB, {(grown - memory) / objects / 1e3:.1f}"
            " kB for each object"
        )
        each = self._broker.count(*_MUTATING) / objects
        print(f"  {'changing calls for each object':34}{each:8.2f} {verdict(each, 1)} 1")
        _table(self._calls(0), objects)
        print(f"  {'writes for each object':34}{len(writes) / objects:8.2f}")
        _table(Counter(f"{verb} {resource}" for verb, resource in writes), objects)
        print(
            f"  {'breaches of the API':34}{len(self._broker.violations):8}"
            f" {verdict(len(self._broker.violations), 0)}"
        )

    async def start_again(self) -> None:
        """Measure what a start does where all is right, and then an hour of idleness."""
        broker = put(_saved("broker.yaml"), _SHORT, "spec", "timing")
        await self._apply(SERVICE_BROKER, broker)
        with self._program() as process:
            mark, met = self._live.audit.mark(), len(self._broker.journal)
            await asyncio.sleep(_SETTLING)
            started, cpu = len(writes_of(self._live, _AGENT, mark)), _cpu(process)
            calls = self._calls(met)
            print(
                f"  {'writes of a second start':34}{started:8} {verdict(started, 0)},"
                f" {cpu:.2f} s of CPU time"
            )
            print(
                f"  {'changing calls of a second start':34}{sum(calls[one] for one in _MUTATING):8}"
            )
            _table(calls, 1)
            mark, met, cpu = self._live.audit.mark(), len(self._broker.journal), _cpu(process)
            await asyncio.sleep(_HOUR)
            idle, used = len(writes_of(self._live, _AGENT, mark)), _cpu(process) - cpu
            calls = self._calls(met)
        print(
            f"  {'writes of an idle hour':34}{idle:8} {verdict(idle, 0)}, {used:.2f} s of CPU time"
        )
        _table(calls, 1)

    async def _claim_one(self, number: int) -> None:
        name, namespace = f"db-{number}", f"team-{number % NAMESPACES}"
        instance = build(DATABASE_INSTANCE, name, namespace=namespace, spec={"plan": "small"})
        await self._cluster.create(instance, DATABASE_INSTANCE, manager="bench")
        binding = build(DATABASE_BINDING, name, namespace=namespace, spec={"instanceRef": name})
        await self._cluster.create(binding, DATABASE_BINDING, manager="bench")

    async def _has_catalogue(self) -> bool:
        return self._broker.count("catalogue") > 0

    async def _is_ready(self) -> bool:
        for kind in _KINDS:
            listing = await self._cluster.list(kind)
            said = (conditions.get(one, "Ready", conditions.TRUE) for one in listing.items)
            if sum(one is not None for one in said) < INSTANCES:
                return False
        return True

    def _calls(self, met: int) -> Counter[str]:
        """Return what the broker was asked after so many calls."""
        return Counter[str](entry.verb for entry in self._broker.journal[met:])

    async def _apply(self, kind: Kind, manifest: Manifest) -> None:
        await self._cluster.apply(manifest, kind, manager="bench", force=True)

    @contextmanager
    def _program(self) -> Iterator[psutil.Process]:
        with (self._folder / "klutch-osb.log").open("a") as log:
            command = [
                *(sys.executable, "-m", "bind.osb"),
                f"--kubeconfig={self._live.kubeconfig}",
                f"--context={self._live.context}",
                f"--namespace={_BROKERS}",
                *("--allow-loopback", "--allow-plain-http"),
                *("--metrics-address=", "--probe-address="),
            ]
            with subprocess.Popen(command, stderr=log) as process:
                try:
                    yield psutil.Process(process.pid)
                finally:
                    process.terminate()


def _saved(name: str) -> dict[str, JSON]:
    """Return a file of the example, YAML or JSON."""
    found: dict[str, JSON] = yaml.safe_load((_EXAMPLE / name).read_text())
    return found


def _table(counts: Counter[str], objects: int) -> None:
    for what, count in sorted(counts.items()):
        print(f"    {what:36}{count:8}" + (f"{count / objects:8.2f}" if objects > 1 else ""))


def _cpu(process: psutil.Process) -> float:
    return sum(process.cpu_times()[:2])
