"""A plan that a backend has to act on says where none runs."""

from dataclasses import replace

import pytest

from reconciler import api
from reconciler.api.leases import LeaseLook, of_backend
from reconciler.blueprints.objects import build
from reconciler.core import names
from reconciler.core.live import ClusterState, dump_live, parse_live
from reconciler.planning import planner
from tests.support.scenes import ACB, MODES, PLANE, applied, shop
from tests.support.worlds import POSTGRES, World, offering

LEASE = of_backend(PLANE)
STOPPED = LeaseLook("x", "2026-11-21T12:00:00.000000Z", "klutch-bind").manifest()
KNOWN = {
    "it runs, or is not known": ({}, ""),
    "there is none": (
        {LEASE: None},
        "control plane eu: nothing shows that a backend runs: there is no Lease klutch-bind-backend"
        " in klutch-bind or default, and no APIServiceExport; what is to be bound waits for it",
    ),
    "it has stopped": (
        {LEASE: STOPPED},
        "control plane eu: klutch-bind has stopped: Lease klutch-bind/klutch-bind-backend was last"
        " renewed at 2026-11-21T12:00:00Z; what is to be bound waits for it",
    ),
}


def knowing(live, bodies):
    seen = live.control_planes["eu"]
    assert isinstance(seen, ClusterState)
    known = replace(live, control_planes={"eu": replace(seen, bodies={**seen.bodies, **bodies})})
    return parse_live(dump_live(known), "a snapshot")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("bodies", "said"), KNOWN.values(), ids=KNOWN.keys())
def test_what_is_to_be_bound_needs_a_backend(mode, bodies, said):
    here = World(control_plane=offering(POSTGRES), clusters={"shop": []})
    fleet = shop(mode=mode)
    live = here.live(fleet)
    assert LEASE in planner.decide(fleet, live).questions.bodies
    plan = planner.plan(fleet, knowing(live, bodies))
    assert [one for one in plan.warnings if one.startswith("control plane")] == [said] * bool(said)


def test_what_an_apply_has_asked_for_needs_one_still():
    here, fleet = applied(), shop()
    here.remove(PLANE, api.API_SERVICE_EXPORT, POSTGRES)
    (warning,) = planner.plan(fleet, knowing(here.live(fleet), {LEASE: STOPPED})).warnings
    assert "klutch-bind has stopped" in warning


@pytest.mark.parametrize("mode", MODES)
def test_what_is_bound_needs_none(mode):
    here, fleet = applied(mode=mode), shop(mode=mode)
    space = names.app_cluster_binding_space("klutch-fleet", "shop")
    export = build(api.API_SERVICE_EXPORT, POSTGRES, namespace=space)
    here.objects(PLANE).extend([export] if mode == ACB else [])
    live = here.live(fleet)
    assert LEASE not in planner.decide(fleet, live).questions.bodies
    assert planner.plan(fleet, knowing(live, {LEASE: None})).warnings == ()
