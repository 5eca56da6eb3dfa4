"""How units are as clusters report it: what is read, and what a failed read means."""

from dataclasses import replace
from datetime import timedelta

import pytest

from reconciler.api import API_SERVICE_NAMESPACE, APP_CLUSTER_BINDING
from reconciler.controller.lease import micro
from reconciler.controller.tasks import SystemClock
from reconciler.core import keys, names
from reconciler.core.errors import Unreachable
from reconciler.core.refs import CRD, LEASE, NAMESPACE, Kind, Ref
from reconciler.fleet.values import Mode
from reconciler.health.live_units import Location
from reconciler.health.survey import health_of, survey
from reconciler.health.verdict import State
from reconciler.kube import registry
from tests.support import space_objects
from tests.support.bound_units import ByHand, new_unit
from tests.support.faults import Faults, FaultyClusters, forbidden, on
from tests.support.observing import BIND, around


class Counted:
    """A real cluster that counts its reads, and whose reads of one kind may fail."""

    def __init__(self, cluster, failing: Kind | None = None):
        self._cluster, self._failing = cluster, failing
        self.calls: list[str] = []
        self.name = cluster.name

    def _count(self, verb: str, kind: Kind) -> None:
        self.calls.append(f"{verb} {kind.plural}")
        if kind == self._failing:
            raise Unreachable("it hung up", ref=Ref(self.name, kind, "", ""), verb=verb)

    async def get(self, ref, **more):
        self._count("get", ref.kind)
        return await self._cluster.get(ref, **more)

    async def list(self, kind, **more):
        self._count("list", kind)
        return await self._cluster.list(kind, **more)


@pytest.fixture
def by_hand(namespace, on_plane, in_app):
    return ByHand(namespace, on_plane, in_app)


def asking(by_hand, *units, location=None, plane=None, app=None):
    direct = Location(mode=Mode.DIRECT, space=by_hand.space, secret=by_hand.secret)
    return health_of(
        units,
        location=location or direct,
        control_plane=plane or by_hand.plane.live.cluster,
        app=app or by_hand.app.live.cluster,
        now=SystemClock().now,
    )


async def test_many_units_cost_no_more_lists_than_one(by_hand):
    ready, *others = (new_unit() for _ in range(5))
    await by_hand.cluster_binding()
    await by_hand.beat()
    await by_hand.make_ready(ready)
    plane, app = Counted(by_hand.plane.live.cluster), Counted(by_hand.app.live.cluster)
    found = await asking(by_hand, ready, *others, plane=plane, app=app)
    assert [unit for unit, health in found.items() if health.ready] == [ready]
    assert sorted(plane.calls) == [
        "get clusterbindings",
        "list apiserviceexportrequests",
        "list apiserviceexports",
    ]
    assert app.calls == ["list apiservicebindings", "get customresourcedefinitions"]


async def test_a_read_that_fails_makes_all_unknown_and_says_why(by_hand):
    unit = new_unit()
    failing = Counted(by_hand.plane.live.cluster, APP_CLUSTER_BINDING)
    whole = Location(
        mode=Mode.APP_CLUSTER_BINDING,
        space=by_hand.space,
        secret=(by_hand.space, "kubeconfig"),
        app_cluster_binding=(by_hand.space, "shop"),
    )
    (found,) = (await asking(by_hand, unit, location=whole, plane=failing)).values()
    assert (found.state, found.reason) == (State.UNKNOWN, "NotRead")
    assert "it hung up" in found.message


async def test_a_cluster_without_the_kind_has_no_bindings(by_hand):
    """An app cluster that no konnector has prepared is no failure, and not Ready."""
    unit = new_unit()
    await by_hand.export(unit)

    class Bare(Counted):
        async def list(self, kind, **more):
            nowhere = Kind(f"nowhere.{kind.group}", kind.version, kind.kind, kind.plural)
            return await self._cluster.list(nowhere, **more)

    (found,) = (await asking(by_hand, unit, app=Bare(by_hand.app.live.cluster))).values()
    assert found.reason == "BindingMissing"


async def test_app_cluster_binding_mode_looks_into_the_space(by_hand):
    unit, unlisted = new_unit(), new_unit()
    by_hand.secret = (by_hand.space, "shop-kubeconfig")
    location = Location(
        mode=Mode.APP_CLUSTER_BINDING,
        space=by_hand.space,
        secret=by_hand.secret,
        app_cluster_binding=(by_hand.space, "shop"),
    )
    spec = {
        "kubeconfigSecretRef": {
            "name": "shop-kubeconfig",
            "namespace": by_hand.space,
            "key": "kubeconfig",
        },
        "apiExports": [{"group": unit.group, "resource": unit.resource}],
    }
    await by_hand.plane.create(APP_CLUSTER_BINDING, "shop", namespace=by_hand.space, spec=spec)
    found = await asking(by_hand, unit, unlisted, location=location)
    assert (found[unit].state, found[unit].reason) == (State.PROGRESSING, "ExportPending")
    assert found[unlisted].reason == "NotBound"
    await by_hand.cluster_binding()
    await by_hand.beat()
    await by_hand.make_ready(unit)
    found = await asking(by_hand, unit, location=location)
    assert found[unit].ready, found


async def bound(fleet, on_plane):
    """Make the space of a fleet's app cluster, as an apply does, and return its name."""
    space = names.direct_space(fleet.name, "shop")
    metadata = {
        "labels": {keys.FLEET: fleet.name, keys.CLUSTER: "shop"},
        "annotations": {keys.IDENTITY: names.direct_identity(fleet.name, "shop")},
    }
    await on_plane.create(NAMESPACE, space, metadata=metadata)
    return space


async def test_agents_that_stopped_are_known_by_their_leases(fleet, on_plane, in_app):
    """Long before a heartbeat is too old."""
    space = await bound(fleet, on_plane)
    by_hand = ByHand(space, on_plane, in_app, secret=(BIND, names.kubeconfig_secret(space)))
    await by_hand.cluster_binding()
    await by_hand.beat(timedelta(minutes=2))
    await by_hand.make_ready(next(iter(fleet.units)))

    async def seen():
        async with registry.of(fleet, around(on_plane.live.kubeconfig)) as clusters:
            made = await survey(fleet, clusters, now=SystemClock().now)
        units = [(one.health.state, one.health.reason) for one in made.units]
        return units, [one.reason for one in made.planes]

    assert await seen() == ([(State.READY, "")], [])
    await on_plane.create(NAMESPACE, BIND)
    for hand, name in ((in_app, names.KONNECTOR_LEASE), (on_plane, names.BACKEND_LEASE)):
        renewed = micro(SystemClock().now() - timedelta(seconds=30))
        spec = {"holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": renewed}
        await hand.create(LEASE, name, namespace=BIND, spec=spec)
    assert await seen() == ([(State.UNKNOWN, "KonnectorStopped")], ["BackendStopped"])


async def test_what_was_released_has_a_row_by_the_konnectors_note(fleet, on_plane, in_app):
    """A role of before may not read the note: then there is no row, and no failure."""
    space, gone = await bound(fleet, on_plane), "databases.shop.example"
    await on_plane.create(CRD, gone, spec=space_objects.crd()["spec"])
    notes = {"annotations": {keys.RELEASED_KINDS: f"{gone},unheard.of"}}
    await on_plane.create(API_SERVICE_NAMESPACE, "team-a", namespace=space, metadata=notes, spec={})

    async def units(*faults):
        how = Faults()
        for fault in faults:
            how.add(*fault)
        async with registry.of(fleet, around(on_plane.live.kubeconfig)) as real:
            board = await survey(fleet, FaultyClusters(real, how), now=SystemClock().now)
        return [(one.health.unit.name, one.health.state, one.leaving) for one in board.units]

    fleet = replace(fleet, units={})
    assert await units() == [(gone, State.RELEASED, True)]
    assert await units((on(kind=API_SERVICE_NAMESPACE), forbidden())) == []
