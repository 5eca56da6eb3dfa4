"""What `observe` makes of clusters that it cannot see, leaves alone, or sees in part."""

import base64
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from reconciler import api
from reconciler.core import keys, names
from reconciler.core.errors import NotServed
from reconciler.core.live import ClusterState, Live, Unavailable
from reconciler.core.manifest import name_of, namespace_of
from reconciler.core.refs import CLUSTER_ROLE, CRD, NAMESPACE, SECRET, SERVICE_ACCOUNT, Kind
from reconciler.fleet.values import Access, Fleet, Mode
from reconciler.observe import Pace
from reconciler.planning import planner
from tests.support import fleets, observing
from tests.support.clusters import LiveCluster
from tests.support.cues import Cue, Gate
from tests.support.faults import Effect, Fail, Faults, forbidden, on, unreachable
from tests.support.observing import Hand
from tests.support.wire_objects import WireObjects

CANARY = "canary-in-an-error"
OF_CONTROL_PLANES = {
    api.API_SERVICE_EXPORT,
    api.API_SERVICE_EXPORT_REQUEST,
    api.API_SERVICE_EXPORT_TEMPLATE,
    api.APP_CLUSTER_BINDING,
    api.CLUSTER_BINDING,
}


async def test_a_kind_without_a_crd_is_known_to_be_empty(
    fleet: Fleet, app_cluster: LiveCluster
) -> None:
    """The app cluster has only the CRD of bindings: take it for a control plane."""
    plane = replace(fleet.control_planes["eu"], access=Access(context=app_cluster.context))
    seen = observing.the_plane(
        await observing.seen_by(
            replace(fleet, control_planes={"eu": plane}), app_cluster.kubeconfig
        )
    )
    assert seen.unserved == OF_CONTROL_PLANES
    assert all(seen.objects[kind] == () for kind in seen.unserved)


async def test_a_kind_of_kubernetes_that_is_not_served_is_never_taken_for_empty(
    fleet: Fleet, control_plane: LiveCluster
) -> None:
    faults = Faults()
    faults.add(on("list", cluster="shop", kind=SECRET), Fail(NotServed, "not served", 404))
    live = await observing.seen_by(fleet, control_plane.kubeconfig, faults=faults)
    assert isinstance(live.clusters["shop"], Unavailable)


# What happens at a first read, and the verdict: a sentence, and a remedy.
class Defect:
    async def perform(self, _call: object) -> None:
        raise KeyError(CANARY)


UNSEEN = {
    "it hangs": (
        Gate(),
        "not read completely in 12 s: no answer yet to Namespace kube-system",
        "Find out why the API server answers so slowly, or raise --timeout",
    ),
    "it refuses": (
        unreachable(),
        "get Namespace kube-system: no connection",
        "Check that https://app-1.example:6443 runs, and the way to it: DNS, proxy, certificate",
    ),
    "a defect in its reader": (
        Defect(),
        "unexpected KeyError at tests.",
        "Report it with this line; the other clusters are not affected",
    ),
}


@pytest.mark.parametrize(("effect", "reason", "remedy"), UNSEEN.values(), ids=UNSEEN)
async def test_a_cluster_that_is_not_seen_harms_no_other(
    fleet: Fleet, control_plane: LiveCluster, effect: Effect, reason: str, remedy: str
) -> None:
    first = replace(fleet.clusters["shop"], name="a-first")
    fleet = replace(fleet, clusters={"a-first": first, **fleet.clusters})
    faults = Faults()
    faults.add(on(cluster="a-first", name="kube-system"), effect)
    live = await observing.seen_by(
        fleet, control_plane.kubeconfig, faults=faults, pace=Pace(parallelism=1, timeout=12)
    )
    verdict = live.clusters["a-first"]
    assert isinstance(verdict, Unavailable)
    assert (verdict.reason[: len(reason)], verdict.remedy) == (reason, remedy)
    assert CANARY not in repr(live)
    assert observing.the_app(live).uid
    assert observing.the_plane(live).uid


UNREAD: dict[str, tuple[dict[str, Any], str]] = {
    "no such context": ({"access": Access(context="nowhere")}, "does not exist"),
    "suspended": ({"suspended": "moving", "access": Access(context="nowhere")}, "suspended: mov"),
}


@pytest.mark.parametrize(("changes", "reason"), UNREAD.values(), ids=UNREAD)
async def test_a_cluster_that_is_not_read_harms_no_other(
    fleet: Fleet, control_plane: LiveCluster, changes: dict[str, Any], reason: str
) -> None:
    unread = replace(fleet.clusters["shop"], name="unread", **changes)
    fleet = replace(fleet, clusters={"unread": unread, **fleet.clusters})
    live = await observing.seen_by(fleet, control_plane.kubeconfig)
    verdict = live.clusters["unread"]
    assert isinstance(verdict, Unavailable)
    assert reason in verdict.reason
    assert verdict.remedy
    assert observing.the_app(live).uid


async def test_an_app_cluster_is_reached_by_a_secret_on_its_control_plane(
    fleet: Fleet, control_plane: LiveCluster, app_cluster: LiveCluster, on_plane: Hand
) -> None:
    await on_plane.create(NAMESPACE, observing.BIND)
    content = base64.b64encode(observing.context(app_cluster, "x")).decode()
    await on_plane.create(SECRET, "access", namespace=observing.BIND, data={"config": content})
    by_secret = replace(fleet.clusters["shop"], access=Access(secret=("access", "config")))
    no_key = replace(by_secret, name="no-key", access=Access(secret=("access", "other")))
    absent = replace(by_secret, name="absent", access=Access(secret=("absent", "config")))
    clusters = {one.name: one for one in (by_secret, no_key, absent)}

    live = await observing.seen_by(replace(fleet, clusters=clusters), control_plane.kubeconfig)

    assert observing.the_app(live).address.server == app_cluster.connection.server
    reasons = [v.reason for v in live.clusters.values() if isinstance(v, Unavailable)]
    assert f"Secret {observing.BIND}/absent does not exist" in reasons[0]
    assert f'Secret {observing.BIND}/access is missing "other" string key' in reasons[1]


async def test_clusters_that_left_are_read_where_something_says_how(
    fleet: Fleet, control_plane: LiveCluster, app_cluster: LiveCluster, on_plane: Hand
) -> None:
    ways = {"gone": {keys.ACCESS: f"context/{app_cluster.context}"}, "untold": {}}
    for cluster, annotations in ways.items():
        labels = {keys.FLEET: fleet.name, keys.CLUSTER: cluster}
        metadata = {"labels": labels, "annotations": annotations}
        await on_plane.create(NAMESPACE, f"space-{cluster}", metadata=metadata)
    live = await observing.seen_by(fleet, control_plane.kubeconfig)
    gone, untold = live.leaving["gone"], live.leaving["untold"]
    assert isinstance(gone, ClusterState)
    assert gone.uid == observing.the_app(live).uid
    assert CLUSTER_ROLE in gone.objects
    assert "no note names its kubeconfig" in getattr(untold, "reason", "")


# The part of a control plane that concerns one app cluster

OF_SPACES = (
    api.API_SERVICE_EXPORT,
    api.API_SERVICE_EXPORT_REQUEST,
    api.CLUSTER_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
)
EXTRA = "another-secret"


@dataclass
class Neighbours:
    """A fleet of one cluster whose space has a neighbour on the control plane."""

    fleet: Fleet
    plane: LiveCluster
    own: str
    next: str

    async def look(self, faults: Faults | None = None, *, in_part: bool = True) -> Live:
        way = self.plane.kubeconfig
        return await observing.seen_by(
            self.fleet, way, faults=faults, only={"shop"}, in_part=in_part
        )


@pytest.fixture
async def neighbours(fleet: Fleet, on_plane: Hand, in_app: Hand, namespace: str) -> Neighbours:
    own, beside = f"{namespace}-own", f"{namespace}-next"
    for space, cluster in ((own, "shop"), (beside, "cafe")):
        labels = {keys.FLEET: fleet.name, keys.CLUSTER: cluster}
        await on_plane.create(NAMESPACE, space, metadata={"labels": labels})
        wire = WireObjects(on_plane.live.name, on_plane.live.cluster, space)
        reference = {"kubeconfigSecretRef": {"name": EXTRA, "key": "kubeconfig"}}
        for kind, spec in ((api.CLUSTER_BINDING, reference), *((one, {}) for one in OF_SPACES[:2])):
            await wire.create(kind, spec=spec)
        data = {"kubeconfig": observing.b64(observing.kubeconfig(space))}
        for secret in (EXTRA, names.BINDER, "unrelated"):
            await on_plane.create(SECRET, secret, namespace=space, data=data)
        await on_plane.create(SERVICE_ACCOUNT, names.BINDER, namespace=space)
    cafe = replace(fleet.clusters["shop"], name="cafe")
    both = replace(fleet, clusters={**fleet.clusters, "cafe": cafe}, units={})
    return Neighbours(both, on_plane.live, own, beside)


def spaces_of(live: Live, kind: Kind) -> set[str]:
    return {namespace_of(one) for one in observing.the_plane(live).objects[kind]}


async def test_only_the_space_is_read_and_the_plan_is_the_same(neighbours: Neighbours) -> None:
    whole, part = await neighbours.look(in_part=False), await neighbours.look()
    for kind in OF_SPACES:
        assert {neighbours.own, neighbours.next} <= spaces_of(whole, kind), kind
        assert spaces_of(part, kind) == {neighbours.own}, kind
    assert observing.the_plane(part).silent == {neighbours.own}
    assert observing.the_plane(part).uid == observing.the_plane(whole).uid
    assert set(map(name_of, observing.the_plane(part).objects[SECRET])) == {EXTRA, names.BINDER}
    assert part.clusters == whole.clusters
    found = planner.decide(neighbours.fleet, part, only={"shop"})
    assert found == planner.decide(neighbours.fleet, whole, only={"shop"})
    assert found.plan.changes


def of_others(neighbours: Neighbours) -> Iterator[Cue[Any]]:
    for kind in OF_SPACES:
        for elsewhere in ("", neighbours.next):
            yield on("list", cluster="control-plane/eu", kind=kind, namespace=elsewhere)


async def test_what_concerns_others_is_not_asked_for(neighbours: Neighbours) -> None:
    faults = Faults()
    for cue in of_others(neighbours):
        faults.add(cue, forbidden())
    assert observing.the_plane(await neighbours.look(faults)).uid
    whole = await neighbours.look(faults, in_part=False)
    assert isinstance(whole.control_planes["eu"], Unavailable)


FIRST = (NAMESPACE, api.APP_CLUSTER_BINDING, api.API_SERVICE_BINDING, CRD)


@pytest.mark.parametrize("kind", [*FIRST, *OF_SPACES], ids=lambda kind: kind.kind)
@pytest.mark.parametrize("in_part", [True, False], ids=["in part", "whole"])
async def test_a_read_that_fails_makes_all_of_it_unseen(
    neighbours: Neighbours, kind: Kind, in_part: bool
) -> None:
    faults = Faults()
    faults.add(on("list", cluster="control-plane/eu", kind=kind), forbidden())
    live = await neighbours.look(faults, in_part=in_part)
    verdict, behind = live.control_planes["eu"], live.clusters["shop"]
    assert isinstance(verdict, Unavailable)
    assert f": list {kind.resource};" in verdict.remedy
    assert isinstance(behind, Unavailable)
    assert behind.reason.startswith("its control plane eu is unseen: list ")


async def test_a_cluster_that_was_not_read_costs_its_control_plane_nothing(
    neighbours: Neighbours,
) -> None:
    faults = Faults()
    faults.add(on("list", cluster="shop", kind=SECRET, namespace=observing.BIND), forbidden())
    live = await neighbours.look(faults)
    assert spaces_of(live, api.API_SERVICE_EXPORT) == {neighbours.own}
    assert isinstance(live.clusters["shop"], Unavailable)


async def test_in_mode_app_cluster_binding_all_is_read(neighbours: Neighbours) -> None:
    plane = replace(neighbours.fleet.control_planes["eu"], mode=Mode.APP_CLUSTER_BINDING)
    units = {one.key: one for one in [fleets.unit()]}
    neighbours.fleet = replace(neighbours.fleet, control_planes={"eu": plane}, units=units)
    assert neighbours.next in spaces_of(await neighbours.look(), api.API_SERVICE_EXPORT)
