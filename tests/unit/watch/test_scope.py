"""Which app clusters a change of the files concerns."""

from dataclasses import replace

import pytest

from reconciler.core.problems import Origin
from reconciler.fleet.values import Access, DeletionPolicy, Guards, Konnector, UnitKey
from reconciler.watch.agenda import concerned, union
from tests.support import fleets

BEFORE = fleets.fleet(
    control_planes=[fleets.control_plane()],
    clusters=[fleets.app_cluster("shop"), fleets.app_cluster("cafe")],
    units=[fleets.unit("shop"), fleets.unit("cafe")],
)


def with_cluster(**more):
    return with_clusters(replace(BEFORE.clusters["shop"], **more))


def with_clusters(*clusters):
    return replace(BEFORE, clusters={**BEFORE.clusters, **{one.name: one for one in clusters}})


def with_unit(**more):
    key = UnitKey("shop", *fleets.DATABASES)
    return replace(BEFORE, units={**BEFORE.units, key: replace(BEFORE.units[key], **more)})


def without_unit():
    return replace(BEFORE, units={k: u for k, u in BEFORE.units.items() if k.cluster != "shop"})


def without_cluster():
    clusters = {name: one for name, one in BEFORE.clusters.items() if name != "cafe"}
    return replace(BEFORE, clusters=clusters)


ELSEWHERE = Origin("other.yaml", 7, 1)
MOVED = replace(fleets.claim(), origin=ELSEWHERE)
CONCERNED = {
    "nothing but a comment": (BEFORE, frozenset()),
    "a unit that only moved in its file": (
        with_unit(origin=ELSEWHERE, claims=(MOVED,)),
        frozenset(),
    ),
    "a document that only moved": (with_cluster(origin=ELSEWHERE), frozenset()),
    "a unit": (with_unit(deletion_policy=DeletionPolicy.BLOCK), {"shop"}),
    "a claim of a unit": (with_unit(claims=()), {"shop"}),
    "a unit that left": (without_unit(), {"shop"}),
    "the konnector of a cluster": (with_cluster(konnector=Konnector(deploy=True)), {"shop"}),
    "labels of a cluster": (with_cluster(labels={"env": "prod"}), {"shop"}),
    "a new cluster may be another one's twin": (with_clusters(fleets.app_cluster("new")), None),
    "a cluster that left may have a new name": (without_cluster(), None),
    "the way to a cluster": (with_cluster(access=Access(context="other")), None),
    "the identity of a cluster": (with_cluster(identity="1"), None),
    "a cluster that is left alone": (with_cluster(suspended="moving"), None),
    "guards": (replace(BEFORE, guards=Guards(max_deletes=1)), None),
    "the name of the fleet": (replace(BEFORE, name="other"), None),
    "a control plane": (
        replace(BEFORE, control_planes={"eu": fleets.control_plane(endpoint="https://x:1")}),
        None,
    ),
}


@pytest.mark.parametrize(("after", "want"), CONCERNED.values(), ids=CONCERNED.keys())
def test_which_clusters_a_change_concerns(after, want):
    assert concerned(BEFORE, replace(after, digest="other")) == want
    assert concerned(replace(after, digest="other"), BEFORE) == want


def test_the_same_files_concern_nobody():
    assert concerned(BEFORE, with_unit(claims=())) == frozenset()


UNIONS = {
    "some and others": (frozenset("a"), frozenset("b"), frozenset("ab")),
    "everything and some": (None, frozenset("b"), None),
    "some and everything": (frozenset("a"), None, None),
}


@pytest.mark.parametrize(("one", "other", "want"), UNIONS.values(), ids=UNIONS.keys())
def test_union(one, other, want):
    assert union(one, other) == want
