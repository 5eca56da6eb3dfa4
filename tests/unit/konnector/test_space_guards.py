"""What the guards of a space know of its clusters, and what it notes place by place."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from konnector.mass_loss import decide as mass_loss_decide
from konnector.mass_loss.guard import SpaceGuards
from reconciler.api import API_SERVICE_NAMESPACE, CLUSTER_BINDING
from reconciler.controller.metrics import Metrics
from reconciler.core import keys
from reconciler.core.decision import Patch
from reconciler.core.refs import NAMESPACE, SECRET, ObjectKey
from reconciler.core.times import format_time
from reconciler.kube.cluster import Connectivity
from reconciler.kube.store import Store
from tests.support.space_objects import NOW, SPACE, cluster_binding, live, live_like, mapping

DATABASES = "databases.shop.example"


class Cluster:
    """An API server that has nothing but a namespace of each name, and one ClusterBinding."""

    def __init__(self, name, uid):
        self.name, self.uid, self.binding, self.notes = name, uid, None, {}
        self.connectivity = Connectivity()

    async def get(self, ref, *, metadata_only=False):
        if ref.kind == CLUSTER_BINDING:
            return self.binding
        return live(NAMESPACE, ref.name, metadata={"uid": self.uid, **self.notes})


def cluster(name, uid) -> Any:
    return Cluster(name, uid)


class Seen:
    """A view without a cluster, and what was written to it."""

    def __init__(self, store):
        self.store = store

    def get(self, namespace, name):
        return self.store.get(namespace, name)

    def wrote(self, answer):
        self.store.put(answer)


class World:
    """A space with one mapping, and a Secret that leads there."""

    def __init__(self):
        self.now, self.beats, self.released = NOW, 0, 0
        self.emptied: list[str] = []
        self.app, self.plane = cluster("app-cluster", "app"), cluster("control-plane", "space")
        self.mappings = Store(API_SERVICE_NAMESPACE)
        self.bindings = Store(CLUSTER_BINDING, trim=mass_loss_decide.trimmed)
        self.secrets = [
            live(SECRET, "k", namespace="klutch-bind", metadata=marks(SPACE_UID="space"))
        ]
        self.mappings.put(live_like(mapping("dev"), **marks(APP_CLUSTER_UID="app")))
        self.bindings.put(cluster_binding())
        self.metrics = Metrics()
        clock = SimpleNamespace(now=lambda: self.now, monotonic=lambda: 0.0)
        agent: Any = SimpleNamespace(
            app=self.app,
            clock=clock,
            metrics=self.metrics,
            orphan_grace=None,
            mark="a 1",
            namespaces=Store(NAMESPACE),
        )
        views: Any = SimpleNamespace(
            space=SPACE,
            mappings=self.mappings,
            cluster_bindings=self.bindings,
            recent_cluster_bindings=Seen(self.bindings),
        )
        self.guards = SpaceGuards(
            agent, self.plane, views, secrets=lambda: self.secrets, changed=self.beat,
            released=self.release, emptied=self.emptied.append,
        )  # fmt: skip

    def beat(self):
        self.beats += 1

    def release(self):
        self.released += 1

    def annotate(self, **annotations):
        self.version = getattr(self, "version", 7) + 1
        version = str(self.version)
        live_one = live_like(cluster_binding(), resourceVersion=version, **marks(**annotations))
        self.bindings.put(live_one)

    def report(self):
        (binding,) = self.bindings.all()
        return [one.reason for one in self.guards.report(binding).conditions]

    def orphans(self):
        labels = {"resource": DATABASES}
        return self.metrics.registry.get_sample_value("klutch_orphaned_copies", labels)


def marks(**annotations):
    return {"annotations": {getattr(keys, key): value for key, value in annotations.items()}}


def place(name):
    return ObjectKey("dev", name)


@pytest.fixture
async def world():
    made = World()
    await made.guards.look()
    return made


async def test_orphans_are_counted_reported_and_forgotten_place_by_place(world):
    kind_guard = world.guards.kind_guard(DATABASES)
    assert kind_guard.note(place("a"), orphan=True)
    assert kind_guard.note(place("b"), orphan=True)
    assert not kind_guard.note(place("a"), orphan=True)
    assert (world.orphans(), world.beats, world.report()) == (2, 2, ["Orphaned"])
    assert world.guards.has_orphans("dev")
    assert not world.guards.has_orphans("other")
    kind_guard.note(place("a"))
    assert (world.orphans(), world.emptied) == (1, ["dev"])
    kind_guard.forget()
    assert (world.orphans(), world.report()) == (0, [])


async def test_what_is_held_is_recorded_and_counted(world):
    kind_guard = world.guards.kind_guard(DATABASES)
    kind_guard.note(place("a"), lost=True)
    kind_guard.note(place("b"), deletion="why")
    assert world.report() == ["MassDeletion", "RecreationHeld"]
    for verb in ("create", "delete"):
        held = {"verb": verb}
        assert world.metrics.registry.get_sample_value("klutch_held_writes_total", held) == 1
    kind_guard.note(place("b"))
    assert world.report() == ["RecreationHeld"]


async def test_another_app_cluster_is_a_stranger_until_it_is_confirmed(world):
    assert world.guards.mismatch() == ""
    world.app.uid = "another"
    await world.guards.look_at_app_cluster()
    assert "is not the one whose services" in world.guards.mismatch()
    assert world.report() == ["AppClusterChanged"]
    world.annotate(CONFIRM_APP_CLUSTER="app")
    assert world.guards.mismatch()
    before = world.released
    world.annotate(CONFIRM_APP_CLUSTER="another")
    assert world.guards.mismatch() == ""
    assert world.released == before + 1


async def test_the_space_records_its_app_cluster_too(world):
    world.plane.notes = marks(APP_CLUSTER_UID="app")
    await world.guards.look()
    assert world.guards.mismatch() == ""
    world.plane.notes = marks(APP_CLUSTER_UID="another")
    await world.guards.look()
    assert world.guards.mismatch()


async def test_a_confirmation_is_read_also_where_the_view_is_behind(world):
    fields: Any = {"f:metadata": {"f:annotations": {f"f:{keys.CONFIRM_ORPHANS}": {}}}}
    entry: Any = {"time": format_time(NOW + timedelta(minutes=1)), "fieldsV1": fields}
    world.plane.binding = live_like(
        cluster_binding(), resourceVersion="9", managedFields=[entry],
        **marks(CONFIRM_ORPHANS=DATABASES),
    )  # fmt: skip
    assert not world.guards.terms(DATABASES).confirmation.names(DATABASES)
    world.now += timedelta(minutes=1)
    await world.guards.look_at_confirmations()
    confirmation = world.guards.terms(DATABASES).confirmation
    assert (confirmation.value, confirmation.came) == (DATABASES, world.now)


async def test_a_word_of_a_person_has_all_looked_at_that_waits(world):
    before = world.released
    world.annotate(CONFIRM_MASS_DELETE=format_time(NOW))
    assert (world.released, world.guards.mass_delete_confirmed) == (before + 1, True)
    world.annotate(CONFIRM_MASS_DELETE=format_time(NOW))
    assert world.released == before + 1
    world.now += timedelta(hours=1)
    assert not world.guards.mass_delete_confirmed


async def test_another_space_is_recorded_once_a_person_allows_it(world):
    assert world.guards.records().tasks == ()
    world.plane.uid = "new"
    await world.guards.look()
    assert world.guards.records().tasks == ()
    world.annotate(CONFIRM_RECREATE=format_time(NOW))
    ((patch,),) = (task.steps for task in world.guards.records().tasks)
    assert isinstance(patch, Patch)
    assert "'klutchctl.dev/space-uid': 'new'" in str(patch.body)
    world.secrets = [live(SECRET, "k", namespace="klutch-bind")]
    assert world.guards.records().tasks == ()
