"""What a guardian counts, remembers and forgets, between one look and the next (mapping.md 10)."""

from datetime import timedelta
from typing import Any

import pytest

from konnector.decisions.guard import AGAIN, APP_NAMESPACES, LATELY
from konnector.guardian import PENDING, Guardian
from konnector.homes import APP_NAMESPACE, app_namespace
from konnector.provider_views import NAME
from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.api.service_namespace import API_SERVICE_NAMESPACE
from reconciler.core import keys
from reconciler.core.decision import Patch
from reconciler.core.durations import format_time
from reconciler.core.manifest import name_of
from reconciler.core.refs import NAMESPACE, SECRET, ObjectKey
from reconciler.kube.store import Store
from reconciler.loop.meters import Meters
from tests.support.space_objects import NOW, SPACE, cluster_binding, live, live_like, mapping

DATABASES = "databases.shop.example"


class Cluster:
    """An API server that has nothing but a namespace of each name, with this uid."""

    def __init__(self, name, uid):
        self.name, self.uid = name, uid

    async def get(self, ref, *, metadata_only=False):
        return live(NAMESPACE, ref.name, metadata={"uid": self.uid})


def cluster(name, uid) -> Any:
    return Cluster(name, uid)


class Kind:
    """A synced kind: its copies and claims, by name, in the app namespace `dev`."""

    def __init__(self, number):
        self.claims = {f"db{one}" for one in range(number)}
        self.copies = set(self.claims)
        self.pending, self.read, self.woken = False, True, 0

    def orphans(self, besides):
        gone = {place.name for place in besides} - self.copies
        return len(self.copies - self.claims) + len(gone), len(self.copies | gone)

    def bereft(self, besides):
        again = {place.name for place in besides}
        return len(self.claims - self.copies | again), len(self.claims)

    def copies_in(self, namespace):
        return [place(one) for one in sorted(self.copies)] if namespace == "dev" else []

    def wake_everything(self):
        self.woken += 1


class World:
    """A space with one mapping, and a Secret that leads there."""

    def __init__(self):
        self.now, self.beats = NOW, 0
        self.app, self.plane = cluster("app-cluster", "app"), cluster("control-plane", "space")
        self.mappings = Store(API_SERVICE_NAMESPACE, {APP_NAMESPACE: app_namespace})
        self.bindings = Store(CLUSTER_BINDING, {NAME: lambda one: (name_of(one),)})
        self.secrets = [
            live(SECRET, "k", namespace="klutch-bind", metadata=marks(SPACE_UID="space"))
        ]
        self.mappings.put(live_like(mapping("dev"), **marks(APP_CLUSTER_UID="app")))
        self.bindings.put(cluster_binding())
        self.meters = Meters()
        self.guardian = Guardian(
            self.app, self.plane, SPACE, mappings=self.mappings, cluster_bindings=self.bindings,
            secrets=lambda: self.secrets, now=lambda: self.now, meters=self.meters,
            changed=self.beat,
        )  # fmt: skip

    def beat(self):
        self.beats += 1

    def annotate(self, **annotations):
        live_one = live_like(cluster_binding(), resourceVersion="8", **marks(**annotations))
        self.bindings.put(live_one)

    def told(self):
        (binding,) = self.bindings.all()
        return self.guardian.told(binding)


def marks(**annotations):
    return {"annotations": {getattr(keys, key): value for key, value in annotations.items()}}


def place(name):
    return ObjectKey("dev", name)


def test_what_is_bound_and_never_synced_holds_nothing_back_for_ever(world):
    kind, _ = guarded(world, 3)
    mappings = Kind(1)
    world.guardian.over(APP_NAMESPACES, mappings).enter()
    mappings.pending = True
    assert world.guardian.pending, "more may come to light at first"
    world.now += timedelta(seconds=151)
    assert not world.guardian.pending
    kind.pending = True
    assert world.guardian.pending, "what is synced was not all read"


@pytest.fixture
async def world():
    made = World()
    await made.guardian.look()
    return made


def guarded(world, number):
    kind = Kind(number)
    ward = world.guardian.over(DATABASES, kind)
    ward.enter()
    return kind, ward


def lose(kind, ward, name):
    """Lose a claim, and its copy too if that is let through."""
    kind.claims.discard(name)
    why = ward.deletes_held(place(name))
    if not why:
        kind.copies.discard(name)
    return bool(why)


async def test_a_loss_that_drips_in_is_held_from_the_sixth_on_and_stays_so(world):
    kind, ward = guarded(world, 8)
    assert [lose(kind, ward, f"db{one}") for one in range(7)] == [False] * 5 + [True] * 2
    assert world.meters.registry.get_sample_value(
        "klutch_held_writes_total", {"verb": "delete"}
    ) == pytest.approx(2)
    for _ in range(5):
        world.now += LATELY
        assert ward.deletes_held(place("db5"))
    world.now += LATELY
    kind.claims |= {"db5", "db6"}
    assert world.told().conditions == ()


async def test_what_goes_now_and_then_is_never_much(world):
    kind, ward = guarded(world, 20)
    for one in range(20):
        assert not lose(kind, ward, f"db{one}")
        world.now += LATELY / 4


async def test_the_same_copy_asked_about_again_counts_once(world):
    kind, ward = guarded(world, 6)
    kind.claims -= {"db0", "db1"}
    for _ in range(9):
        assert not ward.deletes_held(place("db0"))
        assert not ward.deletes_held(place("db1"))


async def test_copies_that_vanish_one_by_one_are_made_again_up_to_the_sixth(world):
    kind, ward = guarded(world, 8)
    held = []
    for one in range(7):
        kind.copies.discard(f"db{one}")
        held.append(bool(ward.creates_held(place(f"db{one}"))))
        if not held[-1]:
            kind.copies.add(f"db{one}")
    assert held == [False] * 5 + [True] * 2


async def test_it_is_told_when_a_guard_closes_and_looked_at_again_until_it_opens(world):
    kind, ward = guarded(world, 8)
    kind.claims.clear()
    before = world.beats
    assert ward.deletes_held(place("db0"))
    assert world.beats == before + 1
    decision = world.told()
    assert [one.reason for one in decision.conditions] == ["MassDeleteHeld"]
    assert decision.again == AGAIN


async def test_an_app_cluster_that_was_not_read_lost_nothing_that_can_be_told(world):
    kind, ward = guarded(world, 8)
    kind.read = False
    kind.claims.clear()
    assert world.told().conditions == ()
    assert ward.deletes_held(place("db0"))
    kind.read = True
    assert [one.reason for one in world.told().conditions] == ["MassDeleteHeld"]


async def test_a_word_of_a_person_opens_it_and_wakes_what_waits(world):
    kind, ward = guarded(world, 8)
    kind.claims.clear()
    assert ward.deletes_held(place("db0"))
    world.annotate(CONFIRM_MASS_DELETE=format_time(NOW))
    assert kind.woken == 1
    assert [lose(kind, ward, f"db{one}") for one in range(8)] == [False] * 8
    world.annotate(CONFIRM_MASS_DELETE=format_time(NOW))
    assert kind.woken == 1


async def test_a_guard_opens_again_once_all_that_was_lost_is_gone(world):
    kind, ward = guarded(world, 20)
    held = [lose(kind, ward, f"db{one}") for one in range(12)]
    assert held == [False] * 10 + [True] * 2
    world.annotate(CONFIRM_MASS_DELETE=format_time(world.now))
    assert [lose(kind, ward, f"db{one}") for one in (10, 11)] == [False] * 2
    world.now += timedelta(hours=1)
    assert world.told().conditions == ()
    assert not lose(kind, ward, "db12")


async def test_another_app_cluster_is_noticed_before_the_next_delete(world):
    kind, ward = guarded(world, 8)
    kind.claims.discard("db0")
    assert not await ward.deletes_still_held(place("db0"))
    world.app.uid = "another"
    assert "is not the one whose services" in await ward.deletes_still_held(place("db0"))
    assert ward.deletion_held()


async def test_whatever_lies_behind_an_app_namespace_holds_it(world):
    kind, _ = guarded(world, 8)
    assert world.guardian.held_with("dev") == ""
    kind.pending = True
    assert world.guardian.held_with("other") == PENDING
    kind.pending = False
    kind.claims.clear()
    assert "databases" in world.guardian.held_with("dev")
    assert world.guardian.held_with("other") == ""


async def test_what_left_counts_no_more(world):
    kind = Kind(8)
    leave = world.guardian.over(DATABASES, kind).enter()
    kind.claims.clear()
    assert world.told().conditions
    leave()
    assert not world.told().conditions
    assert world.guardian.held_with("dev") == ""


async def test_mappings_of_another_app_cluster_are_seen_as_they_come(world):
    kind, ward = guarded(world, 8)
    kind.claims.discard("db0")
    assert not ward.deletes_held(place("db0"))
    world.mappings.put(live_like(mapping("prod"), **marks(APP_CLUSTER_UID="another")))
    assert ward.deletes_held(place("db0"))


async def test_another_space_is_recorded_once_a_person_allows_it(world):
    assert world.guardian.records().tasks == ()
    world.plane.uid = "new"
    await world.guardian.look()
    assert world.guardian.records().tasks == ()
    world.annotate(CONFIRM_RECREATE=format_time(NOW))
    ((patch,),) = (task.steps for task in world.guardian.records().tasks)
    assert isinstance(patch, Patch)
    assert "'klutchctl.dev/space-uid': 'new'" in str(patch.body)
    world.secrets = [live(SECRET, "k", namespace="klutch-bind")]
    assert world.guardian.records().tasks == ()


async def test_a_word_is_good_for_an_hour(world):
    kind, ward = guarded(world, 8)
    kind.claims.clear()
    world.annotate(CONFIRM_MASS_DELETE=format_time(NOW))
    assert not ward.deletes_held(place("db0"))
    world.now += timedelta(hours=1)
    assert ward.deletes_held(place("db1"))
