"""A FleetStatus on a real kube-apiserver: its CRD, what kubectl shows, its writes, the rights."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from reconciler.api.fleet_status import FLEET_STATUS
from reconciler.blueprints.objects import build
from reconciler.controller.events import EventRecorder, Source
from reconciler.controller.fence import WriteFence
from reconciler.controller.metrics import Metrics
from reconciler.controller.tasks import SystemClock
from reconciler.core import keys
from reconciler.core.errors import Forbidden, Missing
from reconciler.core.manifest import canonical, get_int, get_map, get_text, uid_of
from reconciler.core.refs import EVENT, ROLE, ROLE_BINDING, SERVICE_ACCOUNT, Ref
from reconciler.health.verdict import State
from reconciler.kube.client import KubeCluster
from reconciler.source.signature import Signature, VerificationMode
from reconciler.watch import fleet_state
from reconciler.watch.fleet_status.document import LARGEST, LISTED, status_of
from reconciler.watch.fleet_status.writer import FleetStatusWriter
from reconciler.watch.loop import States
from tests.support.accounts import ROBOT, robot_token, with_token
from tests.support.eventually import eventually
from tests.support.faults import FaultyCluster
from tests.support.fleet_states import COMMIT, at, at_rest, begun, board, cluster, ended, kstatus
from tests.support.raw import get_json, http_session

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
MANAGER = keys.MANAGER_CONTROLLER
# All that a controller needs for its FleetStatus, in its own namespace.
RULES = [
    {"apiGroups": [FLEET_STATUS.group], "resources": ["fleetstatuses"], "verbs": ["get", "create"]},
    {"apiGroups": [FLEET_STATUS.group], "resources": ["fleetstatuses/status"], "verbs": ["patch"]},
    {"apiGroups": [EVENT.group], "resources": ["events"], "verbs": ["create", "patch"]},
]


class Brief(SystemClock):
    """A clock on which every wait is short."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 100)


class Scene:
    def __init__(self, live, cluster, namespace):
        self.plane, self.namespace = live, namespace
        self.cluster = FaultyCluster(cluster)
        self.ref = Ref(cluster.name, FLEET_STATUS, namespace, "acme")
        self.fence, clock = WriteFence(), Brief()
        self.recorder = EventRecorder(
            self.cluster,
            self.fence,
            source=Source("klutchctl.dev/controller", "tests-1"),
            manager=MANAGER,
            clock=clock,
            metrics=Metrics(),
        )
        self.writer = FleetStatusWriter(
            self.cluster, self.ref, fence=self.fence, clock=clock, recorder=self.recorder
        )
        self.states = States(fleet_state.FleetState(name=""))
        self.tasks: list[asyncio.Task[None]] = []

    async def run(self):
        await self.writer.load()
        for work in (self.writer.run(self.states), self.recorder.run()):
            self.tasks.append(asyncio.create_task(work))
        await self.looks(1)

    async def looks(self, number):
        """Wait until the object was read so often from now on."""
        calls = self.cluster.faults.calls
        calls.clear()
        await eventually(lambda: sum(one.verb == "get" for one in calls) >= number)

    async def live(self) -> Any:
        return await self.plane.cluster.get(self.ref)

    async def says(self, **summary):
        """Wait until the status sums up like this."""

        async def found():
            live = await self.live()
            return live if get_map(live, "status", "summary") == summary else None

        return await eventually(found)

    async def end(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
async def scene(control_plane, namespace):
    made = Scene(control_plane, control_plane.cluster, namespace)
    yield made
    await made.end()


AT_REST = {"revision": "a" * 12, "units": "2/2", "waiting": 0}


# The CRD


async def test_discovery(control_plane):
    found = await get_json(control_plane.connection, f"/apis/{FLEET_STATUS.api_version}")
    served = {one["name"]: one for one in found["resources"]}
    assert served.keys() == {"fleetstatuses", "fleetstatuses/status"}
    assert served["fleetstatuses"]["kind"] == FLEET_STATUS.kind
    assert served["fleetstatuses"]["shortNames"] == ["fst"]
    assert served["fleetstatuses"]["namespaced"] is True


# What people see


async def table(scene):
    path = f"/apis/{FLEET_STATUS.api_version}/namespaces/{scene.namespace}/fleetstatuses"
    async with (
        http_session(scene.plane.connection) as session,
        session.get(path, headers=TABLE) as response,
    ):
        return await response.json()


async def test_kubectl_get_fst(scene):
    scene.states.put(at_rest())
    await scene.run()
    await scene.says(**AT_REST)
    shown = await table(scene)
    columns = {one["name"]: one["priority"] for one in shown["columnDefinitions"]}
    assert columns == {
        "Name": 0,
        "Ready": 0,
        "Revision": 0,
        "Units": 0,
        "Waiting": 0,
        "Why": 1,
        "Age": 0,
    }
    (row,) = shown["rows"]
    why = f"revision {'a' * 12}: 2 of 2 units are Ready"
    assert row["cells"][:-1] == ["acme", "True", "a" * 12, "2/2", 0, why]


async def test_the_worst_fleet_fits_and_nothing_of_it_is_lost(scene):
    text = "<\u6f22\U0001f600" * 400
    clusters = [cluster(f"{text}{number}", State.DEGRADED, message=text) for number in range(200)]
    state = ended(at_rest(), text, board=board(*clusters), done=1, why=text)
    signed = Signature(VerificationMode.HEAD, "ssh", text)
    state = replace(state, source=replace(state.source, url=text, ref=text, signature=signed))
    scene.states.put(replace(state, shard=tuple(one.name for one in clusters)))
    await scene.run()
    live = await scene.says(**AT_REST | {"units": "0/200"})
    assert len(canonical(live["status"])) <= LARGEST
    assert len(live["status"]["troubled"]) == LISTED
    expected = status_of(scene.states.now, at(0), accepted=COMMIT, before=live["status"])
    assert live["status"] == expected


async def test_its_conditions_are_those_of_kubernetes(scene):
    """The schema of kstatus' readers: a metav1.Condition has these, and nothing else."""
    scene.states.put(begun())
    await scene.run()
    live = await scene.says(revision="a" * 12, waiting=0)
    assert kstatus(live) == "InProgress"
    scene.states.put(at_rest())
    live = await scene.says(**AT_REST)
    assert kstatus(live) == "Current"
    fields = {"type", "status", "observedGeneration", "lastTransitionTime", "reason", "message"}
    assert [set(one) for one in live["status"]["conditions"]] == [fields] * 4
    assert get_int(live, "metadata", "generation") == live["status"]["observedGeneration"] == 1


# Writes


async def test_a_status_is_never_made_without_its_object(scene):
    body = {
        "apiVersion": FLEET_STATUS.api_version,
        "kind": FLEET_STATUS.kind,
        "metadata": {"name": "acme", "namespace": scene.namespace},
        "status": {"accepted": COMMIT},
    }
    with pytest.raises(Missing):
        await scene.cluster.apply(
            body, FLEET_STATUS, manager=MANAGER, force=True, subresource="status"
        )


# Events and rights


async def events(scene, number):
    async def found():
        listing = await scene.plane.cluster.list(EVENT, namespace=scene.namespace)
        return listing.items if len(listing.items) == number else None

    return await eventually(found)


async def test_rights_of_one_namespace_suffice(scene, control_plane, namespace):
    token = await robot_token(control_plane, namespace)
    subject = {"kind": SERVICE_ACCOUNT.kind, "name": ROBOT, "namespace": namespace}
    to = {"apiGroup": ROLE.group, "kind": ROLE.kind, "name": ROBOT}
    for kind, parts in (
        (ROLE, {"rules": RULES}),
        (ROLE_BINDING, {"roleRef": to, "subjects": [subject]}),
    ):
        one = build(kind, ROBOT, namespace=namespace, **parts)
        await control_plane.cluster.create(one, kind, manager="tests")
    way = with_token(control_plane.connection, token)
    async with KubeCluster(way) as cluster:
        there = Scene(control_plane, cluster, namespace)
        await eventually(lambda: allowed(there))
        await there.run()
        try:
            there.states.put(begun())
            there.states.put(at_rest())
            await there.says(**AT_REST)
            found = await events(there, 2)
        finally:
            await there.end()
    assert {get_text(one, "reason") for one in found} == {"SourceChanged", "Applied"}
    about = get_map(found[0], "regarding")
    live = await there.live()
    assert about == {
        "apiVersion": FLEET_STATUS.api_version,
        "kind": FLEET_STATUS.kind,
        "name": "acme",
        "namespace": namespace,
        "uid": uid_of(live),
    }


async def allowed(scene):
    try:
        await scene.writer.load()
    except Forbidden:
        return False
    return True
