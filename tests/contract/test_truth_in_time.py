"""From a fault to the sentence about it, in seconds, on real API servers with the real programs.

A table: a row is a fault, a column is where people look. None: nobody there can know.
"""

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from klutchctl.sandbox.servers import Program
from klutchctl.sandbox.state import Role
from reconciler.blueprints.objects import build
from reconciler.core import names
from reconciler.core.errors import NotServed
from reconciler.core.manifest import get_maps, get_text
from reconciler.core.refs import EVENT, NAMESPACE, SERVICE_ACCOUNT, Ref
from tests.support import programs as machines
from tests.support import removal
from tests.support.apply_runs import mode, scene
from tests.support.applying import Scene
from tests.support.bound_scenes import new
from tests.support.clusters import LiveCluster
from tests.support.controllers import SELDOM, Repository, Running, controller, files
from tests.support.eventually import eventually
from tests.support.observing import context
from tests.support.replicas import BACKEND, Replica, replicas
from tests.support.tcp_proxy import STALLED, TcpProxy
from tests.support.web import fetch

__all__ = ["files", "mode", "scene"]

pytestmark = [pytest.mark.timeout(600), pytest.mark.soak]

KONNECTOR: Final = (sys.executable, "-m", "konnector")
BIND: Final = names.KLUTCH_NAMESPACE
# Seconds from the fault to the sentence; of `status`, to the run that has it: the next one after
# others reported, or after a Lease expired.
BOUNDS: Final = {"claim": 15.0, "binding": 20.0, "status": 30.0, "fleet": 45.0, "board": 45.0}


@dataclass
class World:
    """A fleet that is Ready, and the programs that keep it."""

    scene: Scene
    konnector: Replica
    backend: Replica
    controller: Running
    link: TcpProxy
    without: Callable[[Role, Program], Any]
    claimed_at: float = 0.0

    async def claim(self) -> str:
        """Return the reasons of Events about a claim that was made after the fault."""
        events = (await self.scene.app.cluster.list(EVENT, namespace=self.late)).items
        return " ".join(f"{one.get('reason')}: {one.get('note')}" for one in events)

    async def binding(self) -> str:
        bound = await self.scene.at(self.scene.binding) or {}
        found = get_maps(bound, "status", "conditions")
        bad = [one for one in found if one.get("status") != "True"]
        return " ".join(f"{get_text(one, 'reason')}: {get_text(one, 'message')}" for one in bad)

    async def status(self) -> str:
        done = await machines.klutchctl_beside(
            *("--kubeconfig", str(self.scene.kubeconfig), "status", str(self.scene.fleet.folder))
        )
        return f"exit code {done.returncode} {done.stdout} {done.stderr}"

    async def fleet(self) -> str:
        return str((await self.controller.status()).get("status", ""))

    async def board(self) -> str:
        where = await self.controller.where("the board is served")
        return (await asyncio.to_thread(fetch, f"{where}/status.json"))[1]

    @property
    def late(self) -> str:
        return f"{self.scene.app_namespace}-late"


async def developer_claims(world: World) -> None:
    """Make a claim in a new Namespace, as a developer does who knows of nothing."""
    app, offer = world.scene.app, world.scene.offer
    await app.cluster.create(build(NAMESPACE, world.late), NAMESPACE, manager="developer")
    made = offer.instance("orders", namespace=world.late, spec={"size": 1})
    await new(app, made, offer.kind, manager="developer")
    world.claimed_at = time.monotonic()


@asynccontextmanager
async def konnector_killed(world: World) -> AsyncIterator[None]:
    world.konnector.send(signal.SIGKILL)
    yield


@asynccontextmanager
async def konnector_stopped(world: World) -> AsyncIterator[None]:
    world.konnector.send(signal.SIGSTOP)
    yield


@asynccontextmanager
async def backend_killed(world: World) -> AsyncIterator[None]:
    world.backend.send(signal.SIGKILL)
    await developer_claims(world)
    yield


@asynccontextmanager
async def backend_stopped(world: World) -> AsyncIterator[None]:
    world.backend.send(signal.SIGSTOP)
    await developer_claims(world)
    yield


@asynccontextmanager
async def link_cut(world: World) -> AsyncIterator[None]:
    """No octet passes between konnector and control plane, and no end of a connection either."""
    world.link.let(up=STALLED, down=STALLED)
    await developer_claims(world)
    yield


@asynccontextmanager
async def token_revoked(world: World) -> AsyncIterator[None]:
    plane = world.scene.plane
    ref = Ref(plane.name, SERVICE_ACCOUNT, world.scene.space, names.BINDER)
    await removal.remove(plane.cluster, ref)
    await eventually(world.binding)  # API servers believe a token for 10 s more
    await developer_claims(world)
    yield


@asynccontextmanager
async def plane_killed(world: World) -> AsyncIterator[None]:
    async with world.without(Role.CONTROL_PLANE, Program.API_SERVER):
        await developer_claims(world)
        yield


@asynccontextmanager
async def app_cluster_killed(world: World) -> AsyncIterator[None]:
    async with world.without(Role.APP_CLUSTER, Program.API_SERVER):
        yield


@asynccontextmanager
async def both_killed(world: World) -> AsyncIterator[None]:
    async with plane_killed(world), app_cluster_killed(world):
        yield


_STOPPED: Final = {
    "status": ("exit code 9", "KonnectorStopped"),
    "fleet": ("KonnectorStopped",),
    "board": ("KonnectorStopped",),
}
_SILENT: Final = {
    "claim": ("No service namespace yet",),
    "status": ("exit code 9", "klutch-bind has not renewed"),
    "fleet": ("klutch-bind has not renewed",),
    "board": ("klutch-bind has not renewed",),
}
_UNREACHABLE: Final = ("ControlPlaneUnreachable",)
# What is read where, by faults: all of these words.
TABLE: Final[dict[Callable[[World], Any], dict[str, tuple[str, ...]]]] = {
    konnector_killed: _STOPPED,
    konnector_stopped: _STOPPED,
    backend_killed: _SILENT,
    backend_stopped: _SILENT,
    # It may heal: it is Progressing for two minutes.
    link_cut: {
        "claim": ("has not answered",),
        "binding": _UNREACHABLE,
        "status": _UNREACHABLE,
        "fleet": _UNREACHABLE,
        "board": _UNREACHABLE,
    },
    token_revoked: {
        "claim": ("Unauthorized",),
        "binding": ("Unauthorized",),
        "status": ("exit code 9", "Unauthorized"),
        "fleet": ("Unauthorized",),
        "board": ("Unauthorized",),
    },
    # FleetStatus and the Lease of the controller go with it.
    plane_killed: {
        "claim": ("has not answered",),
        "binding": _UNREACHABLE,
        "status": ("exit code 1", "no connection"),
    },
    # It is the only one: of two, the exit code is 5 (tests/contract/test_status.py).
    app_cluster_killed: {
        "status": ("exit code 1", "no connection"),
        "fleet": ("NotRead", "no connection"),
        "board": ("NotRead", "no connection"),
    },
    both_killed: {"status": ("exit code 1", "no connection")},
}


@asynccontextmanager
async def lived_in(
    scene: Scene, files: Repository, folder: Path, without: Callable[[Role, Program], Any]
) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:

        async def process(live: LiveCluster, command: tuple[str, ...]) -> Replica:
            home = folder / live.name
            home.mkdir()
            (home / "kubeconfig").write_bytes(context(live, "here"))
            way = replicas(live, BIND, home, command=command, kubeconfig=home / "kubeconfig")
            return await (await stack.enter_async_context(way)).start()

        link = await stack.enter_async_context(TcpProxy(scene.plane.connection.server))
        scene.fleet.plane = f", endpoint: {link.url!r}"
        files.push()
        backend = await process(scene.plane, BACKEND)
        konnector = await process(scene.app, KONNECTOR)
        more = (*SELDOM, "--board", "127.0.0.1:0")
        running = await stack.enter_async_context(controller(scene, files, *more))
        world = World(scene, konnector, backend, running, link, without)
        late = Ref(scene.app.name, NAMESPACE, "", world.late)
        stack.push_async_callback(removal.remove, scene.app.cluster, late)
        stack.push_async_callback(let_go, world)

        async def ready() -> bool:
            assert "exit code 0" in (said := await world.status()), said
            found = await running.condition("Ready")
            assert found.get("status") == "True", found
            return True

        await eventually(
            ready, within=240
        )  # the Leases of processes that were killed run out first
        yield world


async def let_go(world: World) -> None:
    """Let claims go whose konnector is dead."""
    ref = Ref(world.scene.app.name, world.scene.offer.kind, world.late, "orders")
    with contextlib.suppress(NotServed):
        await removal.remove_for_good(world.scene.app, ref)


async def seconds(world: World, began: float, where: str, words: tuple[str, ...]) -> float | str:
    """Return the seconds until all words can be read, or what was read last."""
    look, said = getattr(world, where), ""
    since = world.claimed_at if where == "claim" else began
    while (asked := time.monotonic()) < since + BOUNDS[where] + 15:
        said = await look()
        if all(word in said for word in words):
            return asked - since
        await asyncio.sleep(0.5)
    return said


@pytest.mark.parametrize("fault", TABLE, ids=lambda fault: fault.__name__)
async def test_a_fault_is_said_in_time(
    scene: Scene,
    files: Repository,
    tmp_path: Path,
    without: Callable[[Role, Program], Any],
    fault: Callable[[World], Any],
) -> None:
    async with lived_in(scene, files, tmp_path, without) as world:
        began = time.monotonic()
        async with fault(world):
            looks = (seconds(world, began, *one) for one in TABLE[fault].items())
            found = dict(zip(TABLE[fault], await asyncio.gather(*looks), strict=True))
        print(fault.__name__, found)
        late = [
            took
            for where, took in found.items()
            if not isinstance(took, float) or took > BOUNDS[where]
        ]
        assert not late
