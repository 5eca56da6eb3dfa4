"""From a fault to the sentence about it, in seconds, on real API servers with the real programs.

A table: a row is a fault, a column is where people look.
"""

import asyncio
import contextlib
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from klutchctl.sandbox.servers import Program
from klutchctl.sandbox.state import Layout, Role
from reconciler.blueprints.objects import build
from reconciler.core import names
from reconciler.core.errors import ClusterError, NotServed
from reconciler.core.manifest import get_maps, get_text
from reconciler.core.refs import (
    ADMISSION_POLICY,
    ADMISSION_POLICY_BINDING,
    EVENT,
    NAMESPACE,
    SERVICE_ACCOUNT,
    Ref,
)
from tests.support import clusters, removal
from tests.support import programs as machines
from tests.support.apply_runs import mode, scene
from tests.support.applying import Scene
from tests.support.bound_scenes import new
from tests.support.clusters import LiveCluster
from tests.support.controllers import Repository, Running, controller, files
from tests.support.eventually import eventually
from tests.support.observing import context
from tests.support.replicas import BACKEND, Replica, replicas
from tests.support.tcp_proxy import STALLED, TcpProxy
from tests.support.web import fetch

__all__ = ["files", "mode", "scene"]

pytestmark = [pytest.mark.timeout(600), pytest.mark.soak]

KONNECTOR: Final = (sys.executable, "-m", "konnector")
BIND: Final = names.KLUTCH_NAMESPACE
CLOCK: Final = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
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
    files: Repository
    another: Callable[[tuple[str, ...]], Awaitable[Replica]]
    claimed_at: float = 0.0

    async def claim(self) -> str:
        """Return the reasons of Events about a claim that was made after the fault."""
        events = (await self.scene.app.cluster.list(EVENT, namespace=self.late)).items
        return " ".join(f"{one.get('reason')}: {one.get('note')}" for one in events)

    async def binding(self) -> str:
        found = get_maps(await self.scene.at(self.scene.binding) or {}, "status", "conditions")
        bad = [one for one in found if one.get("status") != "True"]
        return " ".join(f"{get_text(one, 'reason')}: {get_text(one, 'message')}" for one in bad)

    async def status(self) -> str:
        return await self.run("status")

    async def run(self, command: str) -> str:
        done = await machines.klutchctl_beside(
            *("--kubeconfig", str(self.scene.kubeconfig), command, str(self.scene.fleet.folder))
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


Fault = Callable[["World"], AbstractAsyncContextManager[None]]


def signalled(program: str, number: signal.Signals) -> Fault:
    @asynccontextmanager
    async def fault(world: World) -> AsyncIterator[None]:
        getattr(world, program).send(number)
        if program == "backend":
            await developer_claims(world)
        yield

    return fault


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


def app_cluster_killed(world: World) -> Any:
    return world.without(Role.APP_CLUSTER, Program.API_SERVER)


@asynccontextmanager
async def both_killed(world: World) -> AsyncIterator[None]:
    async with plane_killed(world), app_cluster_killed(world):
        yield


@asynccontextmanager
async def etcd_full(world: World) -> AsyncIterator[None]:
    """It takes no more writes, as at its quota; the sandbox has one for all clusters."""
    layout = Layout(world.scene.plane.kubeconfig.parent)
    await asyncio.to_thread(clusters.alarm, layout, "ACTIVATE")
    try:
        yield
    finally:
        await asyncio.to_thread(clusters.alarm, layout, "DEACTIVATE")


@asynccontextmanager
async def controller_disk_full(world: World) -> AsyncIterator[None]:
    resource.prlimit(world.controller.process.pid, resource.RLIMIT_FSIZE, (0, 0))
    (world.scene.fleet.folder / "README.md").write_text("A commit more.\n")
    world.files.push()
    yield


REFUSING: Final = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: tests-freeze}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: [UPDATE]}
    excludeResourceRules:
    - {apiGroups: [coordination.k8s.io], apiVersions: ["*"], resources: [leases], operations: ["*"]}
  validations: [{expression: "false", message: "the cluster is frozen"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: tests-freeze}
spec: {policyName: tests-freeze, validationActions: [Deny]}
"""


@asynccontextmanager
async def updates_refused(world: World) -> AsyncIterator[None]:
    """A policy of the app cluster lets nothing be changed but Leases."""
    app, at = world.scene.app, replace(world.scene.binding, cluster=world.scene.app.name)

    async def frozen() -> bool:
        try:
            note: Any = {"metadata": {"annotations": {"tests": str(time.monotonic())}}}
            await app.cluster.merge_patch(at, note, manager="operator")
        except ClusterError as error:
            return "frozen" in str(error)
        return False

    async def thawed() -> bool:
        return not await frozen()

    policy, binding = yaml.safe_load_all(REFUSING)
    try:
        await app.cluster.create(policy, ADMISSION_POLICY, manager="operator")
        await app.cluster.create(binding, ADMISSION_POLICY_BINDING, manager="operator")
        await eventually(frozen)
        await developer_claims(world)
        yield
    finally:
        for kind in (ADMISSION_POLICY_BINDING, ADMISSION_POLICY):
            await removal.remove(app.cluster, Ref(app.name, kind, "", "tests-freeze"))
        await eventually(thawed)


SILENT: Final = (
    ("konnector", "", "KonnectorStopped"),
    ("backend", "No service namespace yet", "klutch-bind has not renewed"),
)
CUT, REFUSED, AWAY = "ControlPlaneUnreachable", "Unauthorized", "no connection"
# What is read where, in the order of BOUNDS: all that stands between `&`; "": nobody can know.
TABLE: Final[dict[str, tuple[Fault, str, str, str, str, str]]] = {
    **{
        f"{program} {number.name}": (
            *(signalled(program, number), first, ""),
            *(f"exit code 9 & {said}", said, said),
        )
        for program, first, said in SILENT
        for number in (signal.SIGKILL, signal.SIGSTOP)
    },
    # It may heal: it is Progressing for two minutes.
    "the link cut": (link_cut, "has not answered", CUT, CUT, CUT, CUT),
    "the token revoked": (
        *(token_revoked, REFUSED, REFUSED, f"exit code 9 & {REFUSED}", REFUSED, REFUSED),
    ),
    # FleetStatus and the Lease of the controller go with it.
    "the control plane killed": (
        *(plane_killed, "has not answered", CUT, f"exit code 1 & {AWAY}", "", ""),
    ),
    # It is the only one: of two, the exit code is 5 (tests/contract/test_status.py).
    "the app cluster killed": (
        *(app_cluster_killed, "", ""),
        *(f"exit code 1 & {AWAY}", f"NotRead & {AWAY}", f"NotRead & {AWAY}"),
    ),
    "the app cluster refuses updates": (
        *(updates_refused, "SyncDenied & frozen", ""),
        *("exit code 9 & BindingNotWritten & frozen", "BindingNotWritten", "BindingNotWritten"),
    ),
    # Nothing can be written, not even a Lease.
    "etcd full": (etcd_full, "", "", "exit code 9 & not renewed its Lease & takes writes", "", ""),
    "the sandbox's disk full": (
        *(lambda world: world.without(Role.CONTROL_PLANE, Program.ETCD), "", ""),
        *("exit code 1 & no answer yet", "", ""),
    ),
    "the controller's disk full": (
        *(controller_disk_full, "", "", ""),
        *("cannot be fetched & File too large", "cannot be fetched & File too large"),
    ),
    "both killed": (both_killed, "", "", f"exit code 1 & {AWAY}", "", ""),
}


@asynccontextmanager
async def lived_in(
    scene: Scene, files: Repository, folder: Path, without: Callable[[Role, Program], Any]
) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:

        async def process(live: LiveCluster, command: tuple[str, ...]) -> Replica:
            home = folder / f"{live.name}-{len(command)}"
            home.mkdir()
            (home / "kubeconfig").write_bytes(context(live, "here"))
            way = replicas(live, BIND, home, command=command, kubeconfig=home / "kubeconfig")
            return await (await stack.enter_async_context(way)).start()

        link = await stack.enter_async_context(TcpProxy(scene.plane.connection.server))
        scene.fleet.plane = f", endpoint: {link.url!r}"
        files.push()
        backend = await process(scene.plane, BACKEND)
        konnector = await process(scene.app, KONNECTOR)
        more = ("--poll", "5", "--interval", "600", "--board", "127.0.0.1:0")
        running = await stack.enter_async_context(controller(scene, files, *more))
        another = partial(process, scene.app)
        world = World(scene, konnector, backend, running, link, without, files, another)
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


async def seconds(world: World, began: float, where: str, words: list[str]) -> float | str:
    """Return the seconds until all words can be read, or what was read last."""
    look, said = getattr(world, where), ""
    since = world.claimed_at if where == "claim" else began
    while (asked := time.monotonic()) < since + BOUNDS[where] + 15:
        said = await look()
        if all(word in said for word in words):
            return asked - since
        await asyncio.sleep(0.5)
    return said


@pytest.mark.parametrize("case", TABLE)
async def test_a_fault_is_said_in_time(
    scene: Scene,
    files: Repository,
    tmp_path: Path,
    without: Callable[[Role, Program], Any],
    case: str,
) -> None:
    fault, *row = TABLE[case]
    words = {where: text.split(" & ") for where, text in zip(BOUNDS, row, strict=True) if text}
    async with lived_in(scene, files, tmp_path, without) as world:
        began = time.monotonic()
        async with fault(world):
            looks = (seconds(world, began, *one) for one in words.items())
            found = dict(zip(words, await asyncio.gather(*looks), strict=True))
        print(case, found)
        late = [took for at, took in found.items() if isinstance(took, str) or took > BOUNDS[at]]
        assert not late


# The certificates of a sandbox begin an hour ago: before, no konnector believes them.
@pytest.mark.skipif(not CLOCK.exists(), reason="needs libfaketime")
@pytest.mark.parametrize(("off", "said"), [("+2h", "s ahead of ours"), ("-50m", "s behind ours")])
async def test_a_wrong_clock_of_a_konnector_harms_nothing_and_doctor_names_it(
    scene: Scene,
    files: Repository,
    tmp_path: Path,
    without: Callable[[Role, Program], Any],
    off: str,
    said: str,
) -> None:
    """It dates by the clock of the control plane, but for its Lease."""
    async with lived_in(scene, files, tmp_path, without) as world:
        world.konnector.send(signal.SIGTERM)
        await world.konnector.ended()
        wrong = (f"LD_PRELOAD={CLOCK}", f"FAKETIME={off}", "FAKETIME_DONT_FAKE_MONOTONIC=1")
        await world.another(("env", *wrong, *KONNECTOR))
        await developer_claims(world)
        plane, kind = world.scene.plane, world.scene.offer.kind
        copy = Ref(plane.name, kind, f"{world.scene.space}-{world.late}", "orders")
        await eventually(lambda: plane.cluster.get(copy), within=30)

        async def is_named() -> bool:
            return said in await world.run("doctor")

        await eventually(is_named, within=60)
        assert "exit code 0" in await world.status()
