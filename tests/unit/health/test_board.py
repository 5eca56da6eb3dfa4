"""What `status` shows of a fleet, out of what was seen of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from reconciler import api
from reconciler.api.leases import Stopped, Stops
from reconciler.core import keys, names
from reconciler.core.live import Unavailable
from reconciler.core.manifest import put
from reconciler.core.refs import NAMESPACE, SECRET
from reconciler.core.times import format_time
from reconciler.health.board import board, view_of
from reconciler.health.survey import ahead_of_all
from reconciler.health.verdict import State
from reconciler.watch.fleet_state import remembering
from tests.support.scenes import (
    SEARCH,
    applied,
    binding,
    change,
    cluster,
    fleet,
    foreign_binding,
    plane,
    secret_leading_to,
    space_of,
)
from tests.support.worlds import POSTGRES

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
PLANE = "control-plane/eu"
CONDITIONS = [
    {"type": kind, "status": "True", "lastTransitionTime": "2026-11-20T00:00:00Z"}
    for kind in ("SecretValid", "Connected", "Heartbeating")
]
CRD = {"status": {"conditions": [{"type": "Established", "status": "True"}]}}
FLEET = fleet(plane(), cluster(), binding())
EMPTY = fleet(plane(), cluster())


def beating(here, ago=timedelta(minutes=1)):
    time = format_time(NOW - ago)
    change(here, PLANE, api.CLUSTER_BINDING, "cluster", time, "status", "lastHeartbeatTime")


def healthy(mode="Direct"):
    """Return a world in which a konnector has done its work."""
    here = applied(mode=mode)
    where = "shop" if mode == "Direct" else PLANE
    change(here, where, api.API_SERVICE_BINDING, POSTGRES, CONDITIONS, "status", "conditions")
    if mode == "Direct":
        beating(here)
    return here


def shown(here, of=FLEET, crds=None, only=None, **more):
    view = view_of(of, here.live(of), only=only)
    read = {name: dict.fromkeys(units.awaited(), CRD) for name, units in view.clusters.items()}
    return board(view, read if crds is None else crds, now=NOW, **more)


def states(made):
    return [(str(one.health.unit), one.health.state, one.health.reason) for one in made.units]


UNIT = f"shop/{POSTGRES}"


def test_a_fleet_that_is_fine():
    made = shown(healthy())
    (of,) = made.clusters
    assert (of.name, of.control_plane, of.state) == ("shop", "eu", None)
    (one,) = of.units
    assert (one.binding, one.leaving) == ("postgresqlinstances", False)
    assert states(made) == [(UNIT, State.READY, "")]
    assert made.unread == ()


def test_agents_that_stopped():
    """A konnector's end is that of its units; a backend's stands with its control plane."""
    at = NOW - timedelta(seconds=30)
    made = shown(healthy(), stops=Stops({"shop": Stopped(at)}, {"eu": at}))
    assert states(made) == [(UNIT, State.UNKNOWN, "KonnectorStopped")]
    (plane,) = made.planes
    assert (plane.name, plane.state, plane.since) == ("eu", State.DEGRADED, at)
    assert "Lease klutch-bind-backend since 2026-11-21T11:59:30Z" in plane.message
    assert shown(healthy()).planes == ()


GONE = "searches.anynines.com"


def test_a_released_unit_has_a_row_where_its_copies_were_kept():
    made = shown(healthy(), released={"shop": {GONE, POSTGRES, "of.nobody", "?"}})
    assert states(made) == [(UNIT, State.READY, ""), (f"shop/{GONE}", State.RELEASED, "Released")]
    (_, gone) = made.units
    assert (gone.leaving, gone.binding) == (True, "")
    assert "sync has stopped" in gone.health.message


def test_only_what_is_otherwise_fine_asks_for_its_crd():
    here = healthy()
    assert view_of(FLEET, here.live(FLEET)).clusters["shop"].awaited() == {POSTGRES}
    here.remove(PLANE, api.API_SERVICE_EXPORT, POSTGRES)
    assert view_of(FLEET, here.live(FLEET)).clusters["shop"].awaited() == frozenset()


def test_a_crd_that_is_not_there():
    assert states(shown(healthy(), crds={"shop": {POSTGRES: None}})) == [
        (UNIT, State.DEGRADED, "CrdMissing")
    ]


def test_a_cluster_whose_crds_could_not_be_read_is_unknown_and_unread():
    made = shown(healthy(), crds={"shop": Unavailable("it hung up", "look")})
    assert states(made) == [(UNIT, State.UNKNOWN, "NotRead")]
    assert [(one.name, one.reason, one.remedy) for one in made.unread] == [
        ("shop", "it hung up", "look")
    ]


def test_an_unread_cluster_shows_when_its_konnector_last_spoke():
    here = healthy()
    here.unseen.add("shop")
    made = shown(here)
    assert states(made) == [(UNIT, State.UNKNOWN, "NotRead")]
    (one,) = made.units
    assert one.health.since == NOW - timedelta(minutes=1)
    assert "no answer in time" in one.health.message
    assert "2026-11-21T11:59:00Z" in one.health.message
    assert [one.name for one in made.unread] == ["shop"]


def test_an_unread_control_plane_makes_what_is_behind_it_unknown():
    here = healthy()
    here.unseen.add("eu")
    made = shown(here)
    assert states(made) == [(UNIT, State.UNKNOWN, "NotRead")]
    assert [one.name for one in made.unread] == [PLANE]
    assert next(made.units).health.since is None


def test_a_suspended_cluster_is_left_alone_and_not_missed():
    asleep = fleet(plane(), cluster(more=", suspend: {reason: moving}"), binding())
    here = healthy()
    here.unseen.add("shop")
    made = shown(here, asleep)
    assert states(made) == [(UNIT, State.SUSPENDED, "Suspended")]
    assert made.clusters[0].message == "moving"
    assert made.unread == ()


def test_a_cluster_that_a_plan_would_hold_back_says_why():
    here = healthy()
    other = fleet(
        plane(), cluster(more=", identity: 6f1c9c0e-5a4e-4c1a-9a7e-2f0b2d1f9f11"), binding()
    )
    made = shown(here, other)
    assert states(made) == [(UNIT, State.DEGRADED, "HeldBack")]
    assert "identity" in next(made.units).health.message


def test_a_unit_that_left_the_files_is_shown_as_leaving():
    (one,) = shown(healthy(), EMPTY).units
    assert (one.leaving, one.binding, one.health.state) == (True, "", State.READY)


def test_a_cluster_that_left_the_files_is_shown_with_its_units():
    made = shown(healthy(), fleet(plane()))
    (of,) = made.clusters
    assert (of.name, of.control_plane) == ("shop", "eu")
    assert [(one.leaving, one.health.state) for one in of.units] == [(True, State.READY)]


def test_a_tenant_releases_no_cluster_by_what_it_writes():
    here = applied(mode="AppClusterBinding")
    live = here.remove(PLANE, api.APP_CLUSTER_BINDING, "shop")
    for field, value in {"labels": keys.CLUSTER, "annotations": keys.RELEASED}.items():
        live = put(live, "cafe", "metadata", field, value)
    here.control_plane.append(put(live, "tenant-ns", "metadata", "namespace"))
    wanted = fleet(plane(mode="AppClusterBinding"), cluster())
    assert [one.name for one in shown(here, of=wanted).clusters] == ["shop"]


def test_a_released_cluster_says_since_when():
    here = healthy()
    here.remove("shop", api.API_SERVICE_BINDING, POSTGRES)
    here.remove(PLANE, api.API_SERVICE_EXPORT, POSTGRES)
    space = space_of(here)
    released = "2026-11-01T00:00:00Z"
    change(here, PLANE, NAMESPACE, space, released, "metadata", "annotations", keys.RELEASED)
    (of,) = shown(here, fleet(plane())).clusters
    assert (of.name, of.state, of.units) == ("shop", State.RELEASED, ())
    assert of.since == datetime(2026, 11, 1, tzinfo=UTC)


def test_a_cluster_that_came_back_shows_its_units_again():
    here = healthy()
    released = "2026-11-01T00:00:00Z"
    change(
        here, PLANE, NAMESPACE, space_of(here), released, "metadata", "annotations", keys.RELEASED
    )
    assert states(shown(here)) == [(UNIT, State.READY, "")]


def test_a_binding_may_keep_another_secret_only_where_that_leads_to_the_space_as_well():
    both = (binding(), binding("searches"))
    here = applied(*both)
    beating(here)
    for name in (POSTGRES, SEARCH):
        change(here, "shop", api.API_SERVICE_BINDING, name, CONDITIONS, "status", "conditions")
    path, space = ("spec", "kubeconfigSecretRef", "name"), space_of(here)
    change(here, "shop", api.API_SERVICE_BINDING, SEARCH, "second", *path)
    here.objects("shop").append(secret_leading_to(space, space, "second"))
    of = fleet(plane(), cluster(), *both)
    assert {state for _, state, _ in states(shown(here, of))} == {State.READY}
    here.remove("shop", SECRET, "second")
    here.objects("shop").append(secret_leading_to(space, "another", "second"))
    assert states(shown(here, of)) == [
        (UNIT, State.READY, ""),
        (f"shop/{SEARCH}", State.DEGRADED, "OtherSecret"),
    ]


def test_a_foreign_binding_is_nobodys_unit():
    here = healthy()
    here.objects("shop").append(foreign_binding("other.example"))
    assert [unit for unit, _, _ in states(shown(here))] == [UNIT]


def test_only_the_clusters_that_are_asked_for():
    two = fleet(plane(), cluster(), cluster("store"), binding(clusters="shop, store"))
    here = healthy()
    here.clusters["store"] = []
    assert {one.name for one in shown(here, two).clusters} == {"shop", "store"}
    made = shown(here, two, only={"shop"})
    assert [one.name for one in made.clusters] == ["shop"]
    assert made.unread == ()


def test_app_cluster_binding_mode_looks_at_the_control_plane():
    of = fleet(plane(mode="AppClusterBinding"), cluster(), binding())
    here = healthy("AppClusterBinding")
    assert states(shown(here, of)) == [(UNIT, State.DEGRADED, "ExportPending")]
    space = names.app_cluster_binding_space("klutch-fleet", "shop")
    for kind, name, status in (
        (api.API_SERVICE_EXPORT, POSTGRES, {}),
        (api.CLUSTER_BINDING, "cluster", {"lastHeartbeatTime": format_time(NOW)}),
    ):
        metadata = {"name": name, "namespace": space}
        typed = {"apiVersion": kind.api_version, "kind": kind.kind}
        here.control_plane.append({**typed, "metadata": metadata, "status": status})
    assert states(shown(here, of)) == [(UNIT, State.READY, "")]
    change(here, PLANE, api.APP_CLUSTER_BINDING, "shop", [], "spec", "apiExports")
    here.remove(PLANE, api.API_SERVICE_EXPORT, POSTGRES)
    assert states(shown(here, of)) == [(UNIT, State.DEGRADED, "ExportMissing")]


def test_the_order_does_not_depend_on_how_things_were_found():
    first = fleet(plane(), cluster("b"), cluster("a"), binding(clusters="b, a"))
    second = fleet(plane(), cluster("a"), cluster("b"), binding(clusters="a, b"))
    here = healthy()
    here.clusters = {"b": [], "a": []}
    assert [one.name for one in shown(here, first).clusters] == ["a", "b"]
    assert shown(here, first).clusters == shown(here, second).clusters


def later(minutes):
    return NOW + timedelta(minutes=minutes)


MEMORY = {"it was Ready": (healthy, State.READY), "it was Degraded": (applied, State.DEGRADED)}


@pytest.mark.parametrize(("world", "last"), MEMORY.values(), ids=MEMORY.keys())
def test_what_is_not_read_any_more_keeps_its_last_known_state_and_time(world, last):
    here = world()
    before = shown(here)
    here.unseen.add("shop")
    after = remembering(before, shown(here))
    (one,) = after.units
    assert (one.health.state, one.health.last_known) == (State.UNKNOWN, last)
    assert one.health.since == before.time
    again = remembering(after, shown(here))
    assert next(again.units).health == one.health
    here.unseen.clear()
    assert remembering(again, shown(here)) == shown(here)


@pytest.mark.parametrize("unread", ["shop", "eu"])
@pytest.mark.parametrize("of", [EMPTY, fleet(plane())], ids=["its unit left", "it left"])
def test_what_leaves_is_not_gone_because_nobody_can_see_it(of, unread):
    here = healthy()
    before = shown(here, of)
    here.unseen.add(unread)
    after = remembering(before, shown(here, of))
    (one,) = after.units
    assert (one.leaving, one.health.state, one.health.reason) == (True, State.UNKNOWN, "NotRead")
    assert (one.health.last_known, one.health.since) == (State.READY, before.time)
    assert one.health.message
    again = remembering(after, shown(here, of))
    assert again.clusters == after.clusters
    here.unseen.clear()
    assert remembering(again, shown(here, of)) == shown(here, of)
    here.remove("shop", api.API_SERVICE_BINDING, POSTGRES)
    here.remove(PLANE, api.API_SERVICE_EXPORT, POSTGRES)
    here.remove(PLANE, api.API_SERVICE_EXPORT_REQUEST, POSTGRES)
    assert list(remembering(again, shown(here, of)).units) == []


def test_an_old_heartbeat_keeps_its_own_memory():
    here = healthy()
    before = shown(here)
    beating(here, timedelta(hours=1))
    (one,) = remembering(before, shown(here)).units
    assert (one.health.state, one.health.last_known) == (State.UNKNOWN, State.READY)
    assert one.health.since == NOW - timedelta(hours=1)


def test_looks_show_when_something_went_missing():
    here = healthy()
    before = shown(here)
    here.remove(PLANE, api.API_SERVICE_EXPORT, POSTGRES)
    alone = shown(here)
    (one,) = remembering(before, replace(alone, time=later(1))).units
    assert (one.health.state, one.health.exact) == (State.DEGRADED, False)
    assert one.health.since == before.time
    assert one.health.since > next(alone.units).health.since
    second = remembering(before, replace(alone, time=later(1)))
    third = remembering(second, replace(alone, time=later(2)))
    assert next(third.units).health.since == before.time


def test_an_outage_does_not_make_what_is_missing_younger():
    here = healthy()
    here.remove(PLANE, api.API_SERVICE_EXPORT, POSTGRES)
    before = shown(here)
    since = next(before.units).health.since
    here.unseen.add("eu")
    away = remembering(before, replace(shown(here), time=later(1)))
    here.unseen.clear()
    back = remembering(away, replace(shown(here), time=later(2)))
    assert next(back.units).health.since == since


def test_what_went_missing_in_an_outage_was_there_before_it():
    here = healthy()
    before = shown(here)
    here.unseen.add("eu")
    away = remembering(before, replace(shown(here), time=later(1)))
    here.unseen.clear()
    here.remove(PLANE, api.API_SERVICE_EXPORT, POSTGRES)
    back = remembering(away, replace(shown(here), time=later(2)))
    assert next(back.units).health.since == before.time


def test_an_unreadable_release_time_is_no_time():
    here = healthy()
    here.remove("shop", api.API_SERVICE_BINDING, POSTGRES)
    here.remove(PLANE, api.API_SERVICE_EXPORT, POSTGRES)
    live = here.remove(PLANE, NAMESPACE, space_of(here))
    here.control_plane.append(put(live, "once", "metadata", "annotations", keys.RELEASED))
    (of,) = shown(here, fleet(plane())).clusters
    assert (of.state, of.since) == (State.RELEASED, None)


@pytest.mark.parametrize(
    ("clocks", "ahead"),
    [([], 0), ([7200.5, 7201], 7200.5), ([-70, -90], -70), ([59, 80], 0), ([7200, -1], 0)],
)
def test_a_clock_is_ours_that_is_wrong_if_no_cluster_agrees(clocks, ahead):
    assert ahead_of_all(clocks) == ahead
