"""What many app namespaces and kinds cost a konnector that has nothing to do.

It watches each kind in each service namespace, because its rights are there. Between two real API
servers; the real backend makes the service namespaces, and is then out of the way.
"""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Final

import uvloop

from reconciler.blueprints import objects as spaces
from reconciler.core.refs import NAMESPACE
from tests.bench.konnectors import cpu_of, line, settled, started, write_kubeconfig
from tests.bench.servers import sandbox, until
from tests.support.backend import USUAL
from tests.support.bound_scenes import ACCEPTED, BIND, Scene
from tests.support.clusters import LiveCluster
from tests.support.offers import Offer, define_again, publish_template

# App namespaces and kinds; the MiB and sockets at rest.
SIZES: Final = ((200, 5, 80.0, 40.0), (1_000, 15, 512.0, 200.0))
CPU: Final = 3.0  # % of a core, at rest
START: Final = 30.0  # seconds
IDLE: Final = 90.0  # seconds, in which idle connections are closed
QUIET: Final = ("--probe-address=", "--metrics-address=")

TOGETHER: Final = 20  # app namespaces


def main() -> None:
    for size in SIZES:
        uvloop.run(_measure(*size))


async def _measure(namespaces: int, kinds: int, memory: float, sockets: float) -> None:
    print(f"\n{namespaces} app namespaces times {kinds} kinds")
    async with sandbox(app_clusters=1) as (folder, (plane, app)):
        path = folder / "app.yaml"
        konnector = partial(started, folder, "konnector", f"--kubeconfig={path}", *QUIET)
        write_kubeconfig(app, path)
        scenes = await _provide(plane, app, kinds)
        backend = scenes[0].backend(settings=replace(USUAL, service_namespace_quota=0))
        async with backend, konnector() as (process, _):
            await scenes[0].bound(ACCEPTED, within=120)
            for one in scenes[1:]:
                await one.request()
                await one.bind(ACCEPTED)
            for first in range(0, namespaces, TOGETHER):
                some = range(first, first + TOGETHER)
                await asyncio.gather(*[_use(scenes[0], f"team-{one}") for one in some])
            await until(partial(_are_copied, scenes[0], namespaces), process)
            await settled(process)
            line("MiB as they came", process.memory_info().rss / 2**20, memory)
        async with konnector() as (process, _):
            await asyncio.sleep(START)
            await settled(process)
            cpu = cpu_of(process)
            await asyncio.sleep(IDLE)
            line("MiB at rest", process.memory_info().rss / 2**20, memory)
            line("sockets", len(process.net_connections("tcp")), sockets)
            line("CPU at rest, %", (cpu_of(process) - cpu) / IDLE * 100, CPU)


async def _provide(plane: LiveCluster, app: LiveCluster, kinds: int) -> list[Scene]:
    offers = [Offer(f"bench{number}.example", "Namespaced") for number in range(kinds)]
    await app.cluster.create(spaces.namespace(BIND), NAMESPACE, manager="bench")
    for offer in offers:
        await define_again(plane.cluster, offer)
        await publish_template(plane.cluster, offer, namespace="default")
    return [Scene(plane, app, offer, "bench-space", "bench") for offer in offers]


async def _use(scene: Scene, name: str) -> None:
    app = scene.app.cluster
    await app.create(spaces.namespace(name), NAMESPACE, manager="bench")
    made = scene.offer.instance("db", namespace=name, spec={"size": "1Gi"})
    await app.create(made, scene.offer.kind, manager="bench")


async def _are_copied(scene: Scene, number: int) -> bool:
    return len((await scene.plane.cluster.list(scene.offer.kind)).items) == number
