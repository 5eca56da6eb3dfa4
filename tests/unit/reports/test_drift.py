"""Which lines of a plan are repairs, and which are new, leave, or are not ours yet."""

import pytest

from reconciler import api
from reconciler.core.refs import NAMESPACE, SECRET
from reconciler.planning import planfile
from reconciler.planning.changes import Action
from reconciler.reports.partial_plans import drift
from tests.support import scenes
from tests.support.worlds import POSTGRES, World, crd, offering

IN_SYNC = scenes.shop()


def found(here, wanted=IN_SYNC):
    """(action, kind) of all lines of a drift that say something."""
    return [
        (one.action.value, one.ref.kind.kind)
        for one in drift(here.plan(wanted)).changes
        if one.action is not Action.NOOP
    ]


def edited():
    here = scenes.applied()
    claims = [{"group": "", "resource": "secrets", "version": "v1", "state": "Accepted"}]
    scenes.change(
        here, "shop", api.API_SERVICE_BINDING, POSTGRES, claims, "spec", "permissionClaims"
    )
    return here


def unlabelled():
    """A world in which nobody knows that we made it."""
    here = edited()
    for where in (scenes.PLANE, "shop"):
        for one in list(here.objects(where)):
            here.objects(where).remove(one)
            metadata = {k: v for k, v in one["metadata"].items() if k != "labels"}
            here.objects(where).append({**one, "metadata": metadata})
    return here


def without(kind, name, where="shop"):
    here = scenes.applied()
    here.remove(where, kind, name(here) if callable(name) else name)
    return here


def without_export(*, request):
    here = without(api.API_SERVICE_EXPORT, POSTGRES, scenes.PLANE)
    if not request:
        here.remove(scenes.PLANE, api.API_SERVICE_EXPORT_REQUEST, POSTGRES)
    return here


def gone():
    """A unit of which nothing is left."""
    here = without_export(request=False)
    here.remove("shop", api.API_SERVICE_BINDING, POSTGRES)
    return here


REPAIRS = {
    "nothing differs": (scenes.applied, []),
    "a field of ours was changed": (edited, [("update", "APIServiceBinding")]),
    "a binding was lost": (
        lambda: without(api.API_SERVICE_BINDING, POSTGRES),
        [("create", "APIServiceBinding")],
    ),
    "export and request were lost": (
        lambda: without_export(request=False),
        [("create", "APIServiceExportRequest")],
    ),
    "the way to the control plane was lost": (
        lambda: without(SECRET, scenes.consumer_secret),
        [("create", "Secret")],
    ),
    "what a space needs was lost": (
        lambda: without(api.CLUSTER_BINDING, "cluster", scenes.PLANE),
        [("create", "ClusterBinding")],
    ),
    "a unit of which nothing is left is as a new one": (gone, []),
    "a space that was lost is not made again": (
        lambda: without(NAMESPACE, scenes.space_of, scenes.PLANE),
        [("blocked", "Namespace"), ("blocked", POSTGRES)],
    ),
    "what is not ours yet differs": (unlabelled, []),
}


@pytest.mark.parametrize(("make", "lines"), REPAIRS.values(), ids=REPAIRS.keys())
def test_what_is_a_repair(make, lines):
    assert found(make()) == lines


def test_what_is_new_or_leaves_is_none():
    here = scenes.applied()
    searches = scenes.binding("searches")
    assert found(here, scenes.shop(scenes.binding(), searches)) == []
    assert found(here, scenes.fleet(scenes.plane(), scenes.cluster(), searches)) == []
    assert found(here, scenes.fleet(scenes.plane())) == []
    block = scenes.applied(scenes.binding(more=", deletionPolicy: Block"))
    assert Action.BLOCKED in {
        one.action for one in block.plan(scenes.fleet(scenes.plane(), scenes.cluster())).changes
    }
    assert found(block, scenes.fleet(scenes.plane(), scenes.cluster())) == []


def test_a_konnector_that_is_deployed_from_now_on_is_new():
    konnector = ", konnector: {deploy: true, image: example.com/konnector:1}"
    here, wanted = (
        scenes.applied(),
        scenes.fleet(scenes.plane(), scenes.cluster(more=konnector), scenes.binding()),
    )
    assert found(here, wanted) == []
    here.apply(here.plan(wanted))
    assert found(here, wanted) == []
    for kind in ("ServiceAccount", "Deployment"):
        lost = [o for o in here.clusters["shop"] if o["kind"] == kind]
        here.clusters["shop"] = [o for o in here.clusters["shop"] if o not in lost]
        assert ("create", kind) in found(here, wanted)


def test_an_object_that_cannot_be_changed_is_replaced():
    here = scenes.applied()
    here.clusters["shop"].append(crd(POSTGRES))
    way = {"namespace": "elsewhere", "name": scenes.consumer_secret(here), "key": "kubeconfig"}
    scenes.change(
        here, "shop", api.API_SERVICE_BINDING, POSTGRES, way, "spec", "kubeconfigSecretRef"
    )
    repairs = drift(here.plan(IN_SYNC))
    (replaced,) = [one for one in repairs.changes if one.action is Action.REPLACE]
    assert replaced.ref.kind == api.API_SERVICE_BINDING
    # Nobody has counted its instances, so a guard holds it: that belongs to the repair.
    assert replaced.held == ("in-use",)
    assert [one.guard for one in repairs.held] == ["in-use"]


def test_a_budget_that_is_tripped_by_what_leaves_is_no_part_of_it():
    here = scenes.applied(scenes.binding(), scenes.binding("searches"))
    here.apply(here.plan(scenes.shop(scenes.binding(), scenes.binding("searches"))))
    made = here.plan(scenes.shop(scenes.binding(), prune="mode: report"))
    assert [one.guard for one in made.held] == ["report"]
    assert drift(made).held == ()


def test_what_widens_a_claim_only_where_it_is_repaired():
    claim = ", claims: [{resource: secrets, version: v1, owner: Provider}]"
    offered = [{"group": "", "resource": "secrets", "version": "v1", "selector": {}}]
    here = World(control_plane=offering(POSTGRES, claims=offered), clusters={"shop": []})
    wanted = scenes.shop(scenes.binding(more=claim))
    here.apply(here.plan(wanted))
    scenes.change(here, "shop", api.API_SERVICE_BINDING, POSTGRES, [], "spec", "permissionClaims")
    assert [one.claim for one in drift(here.plan(wanted)).widened] == ["secrets"]
    scenes.change(here, "shop", api.API_SERVICE_BINDING, POSTGRES, None, "metadata", "labels")
    assert drift(here.plan(wanted)).widened == ()


@pytest.mark.parametrize("mode", scenes.MODES)
def test_what_was_not_read_or_is_blocked_stays_unknown(mode):
    here, wanted = scenes.applied(mode=mode), scenes.shop(mode=mode)
    here.unseen.add("shop")
    assert [one.action for one in drift(here.plan(wanted)).changes] == [Action.UNKNOWN]
    here.unseen.clear()
    here.uids["shop"] = "another"
    made = drift(here.plan(wanted))
    assert {one.action for one in made.changes} == {Action.BLOCKED}
    assert [one.guard for one in made.held] == ["identity"]


def test_in_mode_app_cluster_binding():
    mode = "AppClusterBinding"
    here, wanted = scenes.applied(mode=mode), scenes.shop(mode=mode)
    assert found(here, wanted) == []
    scenes.change(here, scenes.PLANE, api.APP_CLUSTER_BINDING, "shop", [], "spec", "apiExports")
    assert found(here, wanted) == [("update", "AppClusterBinding")]
    scenes.change(here, scenes.PLANE, api.APP_CLUSTER_BINDING, "shop", None, "metadata", "labels")
    assert found(here, wanted) == []


def test_it_has_an_id_of_its_own_and_can_be_saved():
    whole = edited().plan(scenes.shop(scenes.binding(), scenes.binding("searches")))
    repairs = drift(whole)
    assert repairs.id not in ("", whole.id)
    assert repairs.warnings == ()
    assert planfile.parse(planfile.dump(repairs), "x").id == repairs.id
    assert drift(repairs) == repairs
