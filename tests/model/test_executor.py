"""What a decision does to a real API server when all goes well, and when parts of it fail."""

from datetime import UTC, datetime, timedelta

import pytest

from reconciler.controller.executor import Executor, Observed
from reconciler.controller.fence import Stopped, WriteFence
from reconciler.core import conditions
from reconciler.core import manifest as m
from reconciler.core.conditions import Cause
from reconciler.core.decision import (
    Apply,
    Create,
    Decision,
    Delete,
    JsonPatch,
    Note,
    Patch,
    Step,
    Task,
    preconditions_of,
    unchanged,
)
from reconciler.core.errors import AlreadyExists, Conflict, Forbidden, Retry, Unreachable
from reconciler.core.refs import CONFIG_MAP, Kind, Ref
from reconciler.kube.requests import Preconditions, Propagation
from tests.support.cues import BEFORE
from tests.support.faults import FaultyCluster, Meanwhile, conflict, forbidden, lost, on

MANAGER = "tests"
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
CLUSTER_BINDING = Kind("klutch.anynines.com", "v1alpha1", "ClusterBinding", "clusterbindings")
FINALIZER = "klutchctl.dev/drain"
FAILED = Cause("Stored", conditions.WARNING, "StoringFailed")
TRUE = {"type": "Stored", "status": "True"}


def config_map(namespace, name, **data):
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


class Scene:
    """An object with a status in a namespace of its own, and executions of decisions about it."""

    def __init__(self, plane, namespace):
        self.real, self.namespace = plane.cluster, namespace
        self.cluster = FaultyCluster(plane.cluster)
        self.faults = self.cluster.faults
        self.ref = Ref(plane.name, CLUSTER_BINDING, namespace, "cluster")
        self.fence = WriteFence()
        self.live, self.recorded, self.docs = {}, [], ""

    async def make(self):
        secret = {"kubeconfigSecretRef": {"name": "kubeconfig", "key": "kubeconfig"}}
        manifest = {
            "apiVersion": CLUSTER_BINDING.api_version,
            "kind": CLUSTER_BINDING.kind,
            "metadata": {"name": "cluster", "namespace": self.namespace},
            "spec": secret | {"providerPrettyName": "tests", "serviceProviderSpec": {}},
        }
        self.live = await self.real.create(manifest, CLUSTER_BINDING, manager=MANAGER)
        return self

    async def execute(self, *tasks, **more):
        more = {"conditions": (conditions.true("Stored"),)} | more
        clusters = {self.real.name: self.cluster}
        executor = Executor(clusters, self.fence, manager=MANAGER, recorder=self, now=lambda: NOW)
        return await executor.execute(Decision(tasks=tasks, **more), Observed(self.ref, self.live))

    def record(self, *event):
        self.recorded.append(event)

    def config_map(self, name):
        return Ref(self.real.name, CONFIG_MAP, self.namespace, name)

    def create(self, name, **data):
        return Create(CONFIG_MAP, config_map(self.namespace, name, **data))

    def finalize(self, *finalizers):
        metadata = preconditions_of(self.live) | {"finalizers": list(finalizers)}
        return Patch(self.ref, {"metadata": metadata})

    async def names(self):
        listing = await self.real.list(CONFIG_MAP, namespace=self.namespace)
        return {m.get_text(one, "metadata", "name") for one in listing.items} - {"kube-root-ca.crt"}

    async def now(self):
        return await self.real.get(self.ref)

    async def reported(self):
        """Return the condition, without its time."""
        for one in m.get_maps(await self.now(), "status", "conditions"):
            if one["type"] == "Stored":
                return {key: text for key, text in one.items() if key != "lastTransitionTime"}
        return None


@pytest.fixture
async def scene(control_plane, namespace):
    return await Scene(control_plane, namespace).make()


async def test_all_that_was_decided_is_done_and_the_status_says_so(scene):
    old = await scene.real.create(config_map(scene.namespace, "old"), CONFIG_MAP, manager=MANAGER)
    delete = Delete(scene.config_map("old"), m.uid_of(old), m.resource_version_of(old))
    note = Note("Stored", "it is stored")
    again = await scene.execute(
        Task((scene.create("a"), scene.create("b"))),
        Task((Apply(CONFIG_MAP, config_map(scene.namespace, "c", x="1")),)),
        Task((delete,)),
        fields={"konnectorVersion": "v1.5.0"},
        notes=(note,),
        again=timedelta(minutes=1),
    )
    assert again == timedelta(minutes=1)
    assert scene.recorded == [(scene.ref, scene.live, note)]
    assert await scene.names() == {"a", "b", "c"}
    live = await scene.now()
    assert m.get_text(live, "status", "konnectorVersion") == "v1.5.0"
    assert await scene.reported() == TRUE
    ready = m.get_maps(live, "status", "conditions")[0]
    assert (ready["type"], ready["status"]) == ("Ready", "True")


async def test_the_second_time_writes_nothing(scene, control_plane):
    await scene.execute(fields={"konnectorVersion": "v1.5.0"})
    scene.live = await scene.now()
    mark = control_plane.audit.mark()
    await scene.execute(fields={"konnectorVersion": "v1.5.0"})
    assert control_plane.audit.writes_since(mark, namespace=scene.namespace) == []


async def test_a_failed_task_is_reported_and_the_others_are_done(scene):
    scene.faults.add(on("create", name="b"), forbidden())
    with pytest.raises(Forbidden, match=r"ConfigMap .*/b"):
        await scene.execute(
            Task((scene.create("a"), scene.create("b"), scene.create("never")), FAILED),
            Task((scene.create("c"),)),
        )
    assert await scene.names() == {"a", "c"}
    message = f"{scene.real.name}: create ConfigMap {scene.namespace}/b: the user may not do this"
    assert await scene.reported() == {
        "type": "Stored",
        "status": "False",
        "severity": "Warning",
        "reason": "StoringFailed",
        "message": message,
    }


async def test_a_failed_task_without_a_cause_leaves_the_conditions_as_decided(scene):
    scene.faults.add(on("create", name="b"), forbidden())
    with pytest.raises(Forbidden):
        await scene.execute(Task((scene.create("b"),)))
    assert await scene.reported() == TRUE


@pytest.mark.parametrize("why", [forbidden, conflict])
@pytest.mark.parametrize("failure", [FAILED, None], ids=["told", "untold"])
async def test_fields_are_reported_only_where_all_was_done(scene, why, failure):
    fields = {"konnectorVersion": "v1.5.0"}
    scene.faults.add(on("create", name="a"), why())
    with pytest.raises((Forbidden, Conflict)):
        await scene.execute(Task((scene.create("a"),), failure), fields=fields)
    assert m.get_text(await scene.now(), "status", "konnectorVersion") == ""
    scene.faults.clear()
    scene.live = await scene.now()
    await scene.execute(Task((scene.create("a"),), failure), fields=fields)
    assert m.get_text(await scene.now(), "status", "konnectorVersion") == "v1.5.0"


async def test_the_first_of_several_errors_is_raised(scene):
    scene.faults.add(on("create", name="a"), lost())
    scene.faults.add(on("create", name="b"), forbidden())
    scene.faults.add(on("patch", subresource="status"), forbidden())
    with pytest.raises(Unreachable, match="/a"):
        await scene.execute(Task((scene.create("a"),)), Task((scene.create("b"),), FAILED))


async def test_a_status_that_cannot_be_written_is_an_error_of_its_own(scene):
    scene.faults.add(on("patch", subresource="status"), forbidden())
    with pytest.raises(Forbidden):
        await scene.execute(Task((scene.create("a"),)))


async def test_a_name_that_is_taken_is_a_conflict_of_which_nothing_is_said(scene):
    await scene.real.create(config_map(scene.namespace, "a", x="theirs"), CONFIG_MAP, manager="x")
    with pytest.raises(AlreadyExists) as caught:
        await scene.execute(Task((scene.create("a", x="ours"),), FAILED))
    assert caught.value.retry is Retry.NOW
    assert await scene.reported() is None
    kept = await scene.real.get(scene.config_map("a"))
    assert m.get_map(kept, "data") == {"x": "theirs"}


async def test_a_conflict_spoils_no_other_condition_and_changes_not_its_own(scene):
    await scene.execute()
    scene.live = await scene.now()
    scene.faults.add(on("create", name="a"), conflict())
    with pytest.raises(Conflict):
        await scene.execute(
            Task((scene.create("a"),), FAILED),
            conditions=(conditions.true(conditions.SECRET_VALID),),
        )
    types = [one["type"] for one in m.get_maps(await scene.now(), "status", "conditions")]
    assert types == ["Ready", "SecretValid", "Stored"]
    assert await scene.reported() == TRUE


async def changed(scene, ref):
    """Let someone else write the object."""
    label = {"metadata": {"labels": {"someone": "else"}}}
    return await scene.real.merge_patch(ref, label, manager="someone")


async def remade(scene, ref):
    """Let someone else delete the object and make another of its name."""
    live = await scene.real.get(ref)
    await scene.real.delete(
        ref, preconditions=Preconditions(m.uid_of(live)), propagation=Propagation.BACKGROUND
    )
    await scene.real.create(config_map(ref.namespace, ref.name), CONFIG_MAP, manager="someone")


@pytest.mark.parametrize("meanwhile", [changed, remade])
@pytest.mark.parametrize("what", ["patch", "delete"])
async def test_what_is_not_as_it_was_seen_is_left_alone(scene, meanwhile, what):
    ref = scene.config_map("a")
    seen = await scene.real.create(config_map(scene.namespace, "a"), CONFIG_MAP, manager=MANAGER)
    await meanwhile(scene, ref)
    before = await scene.real.get(ref)
    step: Step = Delete(ref, m.uid_of(seen), m.resource_version_of(seen))
    if what == "patch":
        step = Patch(ref, {"metadata": preconditions_of(seen), "data": {"x": "ours"}})
    with pytest.raises(Conflict):
        await scene.execute(Task((step,), FAILED))
    assert await scene.real.get(ref) == before
    assert await scene.reported() is None


async def test_a_stale_look_at_the_object_itself_writes_no_status(scene):
    await changed(scene, scene.ref)
    with pytest.raises(Conflict):
        await scene.execute()
    assert await scene.reported() is None


async def test_the_status_follows_a_write_to_the_object_itself(scene):
    await scene.execute(Task((scene.finalize(FINALIZER),)))
    assert m.finalizers_of(await scene.now()) == [FINALIZER]
    assert await scene.reported() == TRUE


async def test_steps_on_the_object_itself_follow_each_other(scene):
    label = {"metadata": preconditions_of(scene.live) | {"labels": {"a": "b"}}}
    pretty = {"op": "add", "path": "/spec/providerPrettyName", "value": "Shop Inc"}
    await scene.execute(
        Task((scene.finalize(FINALIZER),)),
        Task((JsonPatch(scene.ref, (unchanged(scene.live), pretty)),), FAILED),
        Task((Patch(scene.ref, label),), FAILED),
    )
    live = await scene.now()
    assert (m.finalizers_of(live), m.labels_of(live)) == ([FINALIZER], {"a": "b"})
    assert m.get_text(live, "spec", "providerPrettyName") == "Shop Inc"


async def test_what_someone_else_wrote_between_two_steps_is_not_overlooked(scene):
    first = on("patch", name="cluster", subresource="").nth(1)
    scene.faults.add(first, Meanwhile(lambda: changed(scene, scene.ref)), at=BEFORE)
    unconditional = Patch(scene.ref, {"metadata": {"annotations": {"x": "y"}}})
    with pytest.raises(Conflict):
        await scene.execute(Task((unconditional, scene.finalize(FINALIZER)), FAILED))
    assert m.finalizers_of(await scene.now()) == []


async def test_conditions_that_others_wrote_meanwhile_stay(scene):
    theirs = {
        "type": "Heartbeating",
        "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }

    async def reported():
        await scene.real.merge_patch(
            scene.ref, {"status": {"conditions": [theirs]}}, manager="someone", subresource="status"
        )

    first = on("patch", name="cluster", subresource="").nth(1)
    scene.faults.add(first, Meanwhile(reported), at=BEFORE)
    await scene.execute(Task((Patch(scene.ref, {"metadata": {"annotations": {"x": "y"}}}),)))
    types = [one["type"] for one in m.get_maps(await scene.now(), "status", "conditions")]
    assert types == ["Ready", "Heartbeating", "Stored"]


async def test_an_object_whose_last_finalizer_goes_gets_no_status(scene):
    await scene.real.merge_patch(
        scene.ref, {"metadata": {"finalizers": [FINALIZER]}}, manager=MANAGER
    )
    await scene.real.delete(
        scene.ref, preconditions=Preconditions(None), propagation=Propagation.BACKGROUND
    )
    scene.live = await scene.now()
    await scene.execute(Task((scene.finalize(),)))
    assert await scene.now() is None


async def test_an_object_that_is_deleted_by_the_decision_gets_no_status(scene):
    delete = Delete(scene.ref, m.uid_of(scene.live), m.resource_version_of(scene.live))
    await scene.execute(Task((delete,)))
    assert await scene.now() is None


async def test_a_closed_fence_lets_nothing_be_written(scene, control_plane):
    mark = control_plane.audit.mark()
    scene.fence.close("the end")
    with pytest.raises(Stopped, match="the end"):
        await scene.execute(Task((scene.create("a"),), FAILED))
    assert control_plane.audit.writes_since(mark, namespace=scene.namespace) == []


async def test_a_fence_that_closes_on_the_way_ends_it_there(scene):
    class Close:
        async def perform(self, _call):
            scene.fence.close("the end")

    scene.faults.add(on("create", name="a"), Close(), at=BEFORE)
    with pytest.raises(Stopped):
        await scene.execute(
            Task((scene.create("a"), scene.create("b"))), Task((scene.create("c"),))
        )
    assert await scene.names() == {"a"}
    assert await scene.reported() is None
