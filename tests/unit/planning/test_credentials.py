"""What a plan says of credentials that it may not read (trust.md T2)."""

import pytest

from reconciler import api
from reconciler.apply import approval
from reconciler.core import keys, names
from reconciler.core.manifest import Manifest, annotations_of, drop, name_of, put
from reconciler.core.refs import SECRET
from reconciler.planning.changes import Action
from reconciler.planning.objects import before_digest
from reconciler.reports.partial_plans import drift
from tests.support import scenes
from tests.support.scenes import MODES, acting, applied, change, plane, shop
from tests.support.worlds import ADDRESS, POSTGRES, World, offering

LOOKED_AT = "apply compares its credentials"


def both(here, fleet):
    """Return the plan of who may read no Secret, and that of who may."""
    here.blind = True
    blind = here.plan(fleet)
    here.blind = False
    return blind, here.plan(fleet)


def unnoted(here):
    path = ("metadata", "annotations", keys.CREDENTIAL)
    here.control_plane[:] = [drop(one, *path) for one in here.control_plane]


def adopted_nowhere(here):
    """Let all be as `kubectl bind` makes it: without a mark of ours."""
    for objects in (here.control_plane, *here.clusters.values()):
        for index, one in enumerate(objects):
            bare = drop(drop(one, "metadata", "labels"), "metadata", "managedFields")
            objects[index] = drop(bare, "metadata", "annotations")


def done(approved, fresh):
    found = approval.match(approved, fresh)
    return [one.status.value for one in found.refused], found.lines


@pytest.mark.parametrize("mode", MODES)
def test_what_is_not_noted_is_left_to_apply_which_notes_it(mode):
    here = applied(mode=mode)
    unnoted(here)
    blind, seeing = both(here, shop(mode=mode))
    assert [one.undecided for one in acting(blind)] == [True]
    assert all(LOOKED_AT in one.reason for one in blind.changes if one.unit)
    assert [one.only_notes for one in acting(seeing)] == [True]
    assert drift(seeing).changes == tuple(
        one for one in seeing.changes if one.action is Action.NOOP
    )
    refused, lines = done(blind, seeing)
    assert refused == ["unchanged"]
    assert [one.only_notes for one in lines["shop"]] == [True]


@pytest.mark.parametrize("mode", MODES)
def test_a_plan_of_a_new_cluster_is_the_same_to_both(mode):
    here = World(control_plane=offering(POSTGRES), clusters={"shop": []})
    blind, seeing = both(here, shop(mode=mode))
    assert blind.changes == seeing.changes
    refused, lines = done(blind, seeing)
    assert refused == []
    assert len(lines["shop"]) == len(acting(seeing))


def test_what_apply_finds_in_a_take_over_beside_marks_is_stale():
    here = applied()
    adopted_nowhere(here)
    blind, _ = both(here, shop())
    here.control_plane[:] = [
        one for one in here.control_plane if one["kind"] not in ("Secret", "ClusterBinding")
    ]
    here.clusters["shop"] = []
    refused, lines = done(blind, here.plan(shop()))
    assert "stale" in refused
    assert lines == {}


def test_a_cluster_that_is_bound_and_reports_the_uid_of_a_former_one_is_blocked_by_apply():
    here = applied()
    mine = here.clusters.pop("shop")
    here.clusters["store"] = [one for one in mine if one["kind"] != "Secret"]
    here.uids["store"] = "uid-shop"
    blind, seeing = both(
        here, scenes.fleet(plane(), scenes.cluster("store"), scenes.binding(clusters="store"))
    )
    assert all(one.undecided for one in blind.changes)
    assert {one.action for one in seeing.changes} == {Action.BLOCKED}
    refused, lines = done(blind, seeing)
    assert set(refused) == {"stale"}
    assert lines == {}


SPACE = names.direct_space("acme", "shop")
COPY = names.kubeconfig_secret(SPACE)
NEW = api.token_digest("a new one")
TOKEN = ("data", names.KUBECONFIG, "token")


def renewed(*places, silent=True):
    """Return a world whose konnector is `silent`, with another token in the Secrets at `places`.

    The ClusterBinding tells of it, as after an apply that wrote the source.
    """
    here = applied()
    here.silent |= {SPACE} if silent else set()
    for cluster, name in places:
        change(here, cluster, SECRET, name, NEW, *TOKEN)
    change(here, SOURCE[0], SECRET, names.BINDER, NEW, "data", "token")
    noted = [one for one in here.clusters["shop"] if one["kind"] == "APIServiceBinding"]
    here.note()
    for one in noted:  # no apply wrote the other
        change(
            here, "shop", api.API_SERVICE_BINDING, name_of(one), annotations_of(one), *ANNOTATIONS
        )
    return here


ANNOTATIONS = ("metadata", "annotations")
SOURCE = ("control-plane/eu", names.KUBECONFIG)


@pytest.mark.parametrize("silent", [True, False], ids=["silent", "alive"])
def test_a_plan_without_secrets_sees_that_no_konnector_brought_a_new_token_along(silent):
    here = renewed(SOURCE, silent=silent)
    blind, seeing = both(here, shop())
    for plan in (blind, seeing):
        (line,) = acting(plan)
        assert (line.action, line.ref.name) == (Action.UPDATE, COPY)
        assert [one.path for one in line.fields] == ["/data/kubeconfig/token"]
    refused, lines = done(blind, seeing)
    assert refused == []
    assert [one.ref.name for one in lines["shop"]] == [COPY]
    here.apply(seeing)
    assert [acting(plan) for plan in both(here, shop())] == [[], []]
    assert done(blind, here.plan(shop())) == (["unchanged"], {"shop": []})


def test_what_a_konnector_brought_along_by_itself_is_noted_for_each_binding():
    bound = (scenes.binding(), scenes.binding("searches"))
    here = applied(*bound)
    copy = next(one for one in here.clusters["shop"] if name_of(one) == COPY)
    taken = put(put(copy, "kubeconfig-taken", "metadata", "name"), "uid-taken", "metadata", "uid")
    here.clusters["shop"].append(taken)
    reference = ("spec", "kubeconfigSecretRef", "name")
    searches = "searches.anynines.com"
    change(here, "shop", api.API_SERVICE_BINDING, searches, name_of(taken), *reference)
    here.note()
    # A new token, which the konnector mirrors: what is noted on bindings is that of before.
    noted = [one for one in here.clusters["shop"] if one["kind"] == "APIServiceBinding"]
    for cluster, name in (SOURCE, ("shop", COPY), ("shop", name_of(taken))):
        change(here, cluster, SECRET, name, NEW, *TOKEN)
    change(here, SOURCE[0], SECRET, names.BINDER, NEW, "data", "token")
    here.note()
    for one in noted:
        change(
            here, "shop", api.API_SERVICE_BINDING, name_of(one), annotations_of(one), *ANNOTATIONS
        )
    blind, seeing = both(here, shop(*bound))
    assert [one.ref.name for one in acting(blind)] == [COPY]
    (line,) = acting(seeing)
    assert line.only_notes
    assert [step.ref.name for step in line.steps] == [POSTGRES, searches]
    assert done(blind, seeing)[0] == ["unchanged"]


def test_what_a_konnector_brought_along_before_it_died_is_noted_by_the_apply_of_such_a_plan():
    blind, seeing = both(renewed(SOURCE, ("shop", COPY)), shop())
    assert [one.ref.name for one in acting(blind)] == [COPY]
    assert [one.only_notes for one in acting(seeing)] == [True]
    refused, lines = done(blind, seeing)
    assert refused == ["unchanged"]
    assert [[step.ref.kind for step in one.steps] for one in lines["shop"]] == [
        [api.API_SERVICE_BINDING]
    ]


ELSEWHERE = api.credential_note(
    api.KubeconfigFacts("https://elsewhere:1", "ca", "", "elsewhere", api.token_digest("x")), "uid"
)


def tenants(kind, namespace, secret):
    """Return what a tenant may write, with a note about a Secret that is not theirs."""
    metadata = {"name": "a", "namespace": namespace, "annotations": {keys.CREDENTIAL: ELSEWHERE}}
    reference = {"namespace": secret[0], "name": secret[1], "key": names.KUBECONFIG}
    typed = {"apiVersion": kind.api_version, "kind": kind.kind}
    return {**typed, "metadata": metadata, "spec": {"kubeconfigSecretRef": reference}}


BESIDE = ("klutch-fleet", names.app_cluster_kubeconfig_secret("shop"))
FORGED = {
    "in an app namespace": (
        "Direct",
        "shop",
        tenants(api.API_SERVICE_BINDING, "team-a", (names.KLUTCH_NAMESPACE, COPY)),
    ),
    "in a binding space": (
        "AppClusterBinding",
        "control-plane/eu",
        tenants(api.API_SERVICE_BINDING, "klutch-bind-team-a-x", BESIDE),
    ),
    "of an AppClusterBinding of theirs": (
        "AppClusterBinding",
        "control-plane/eu",
        tenants(api.APP_CLUSTER_BINDING, "team-a", BESIDE),
    ),
}


@pytest.mark.parametrize("noted", [True, False], ids=["what is noted", "what is not"])
@pytest.mark.parametrize(("mode", "cluster", "forged"), FORGED.values(), ids=FORGED)
def test_no_tenant_notes_what_a_secret_of_others_is(mode, cluster, forged, noted):
    here = applied(mode=mode)
    here.silent.add(SPACE)
    if not noted:
        unnoted(here)
        path = ("metadata", "annotations", keys.CREDENTIAL)
        here.clusters["shop"][:] = [drop(one, *path) for one in here.clusters["shop"]]
    fleet = shop(mode=mode, more=f", endpoint: {ADDRESS.server!r}")
    blind, _ = both(here, fleet)
    assert [one.undecided for one in acting(blind)] == ([] if noted else [True])
    here.objects(cluster).append(forged)
    assert both(here, fleet)[0].changes == blind.changes


def test_a_first_annotation_of_somebody_else_is_no_change_of_what_we_compare():
    """A note comes between the plan and its line about the same binding."""
    stated: Manifest = {"metadata": {"name": "a", "annotations": {keys.PARAMETERS: "x"}}}
    bare: Manifest = {"metadata": {"name": "a", "uid": "1"}}
    noted = put(bare, "note", "metadata", "annotations", keys.CREDENTIAL)
    ours = put(bare, "y", "metadata", "annotations", keys.PARAMETERS)
    known = before_digest(bare, stated)
    assert before_digest(noted, stated) == known != before_digest(ours, stated)
    assert known == "2478842d2c3d7aec"  # as plans have it that were saved before there were notes


def test_a_plan_of_who_may_read_nothing_names_a_renaming():
    here = applied()
    here.clusters["store"], here.uids["store"] = here.clusters.pop("shop"), "uid-shop"
    wanted = scenes.fleet(plane(), scenes.cluster("store"), scenes.binding(clusters="store"))
    blind, seeing = both(here, wanted)
    assert {one.action for one in blind.changes} == {Action.ADOPT}
    assert all("it was called shop" in one.reason for one in blind.changes)
    assert all("its cluster was called shop" in one.reason for one in acting(seeing))
