"""What `observe` sees of clusters."""

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reconciler import api
from reconciler.api import leases
from reconciler.apply.waits import SharedListReader
from reconciler.controller.lease import micro
from reconciler.controller.tasks import SystemClock
from reconciler.core import manifest, names, refs
from reconciler.core.errors import NotServed
from reconciler.core.live import (
    ClusterState,
    Live,
    Questions,
    Unavailable,
    control_plane_ref_name,
    dump_live,
    instances,
    parse_live,
)
from reconciler.core.manifest import name_of, namespace_of
from reconciler.core.refs import LEASE, NAMESPACE, Kind, Ref
from reconciler.fleet.values import Access, Fleet, Mode
from reconciler.kube import registry
from reconciler.observe import answer, observe
from tests.support.clusters import LiveCluster
from tests.support.definitions import OPEN, spec_of, version_of
from tests.support.faults import Fail, FaultyCluster, faulty, on
from tests.support.observing import (
    BIND,
    Hand,
    around,
    b64,
    established,
    kubeconfig,
    named,
    seen_by,
    the_app,
    the_plane,
)
from tests.support.wire_objects import WireObjects

CANARY = "canary-of-a-secret-value"


async def test_a_bound_cluster_is_seen_on_both_sides(
    fleet: Fleet, control_plane: LiveCluster, namespace: str, on_plane: Hand, in_app: Hand
) -> None:
    wire = WireObjects(control_plane.name, control_plane.cluster, namespace)
    for kind in (api.CLUSTER_BINDING, api.API_SERVICE_EXPORT, api.API_SERVICE_EXPORT_REQUEST):
        await wire.create(kind)
    await on_plane.create(refs.SERVICE_ACCOUNT, names.BINDER, namespace=namespace)
    data = {"kubeconfig": b64(kubeconfig(namespace)), "extra": b64(CANARY)}
    await on_plane.create(refs.SECRET, names.KUBECONFIG, namespace=namespace, data=data)
    await on_plane.create(refs.SECRET, "unrelated", namespace=namespace, data=data)
    copy = f"kubeconfig-{uuid.uuid4().hex[:5]}"
    await in_app.create(refs.SECRET, copy, namespace=BIND, data=data)
    marks = [control_plane.audit.mark(), in_app.live.audit.mark()]

    live = await seen_by(fleet, control_plane.kubeconfig)

    plane, app = the_plane(live), the_app(live)
    system = await control_plane.cluster.get(refs.Ref("", refs.NAMESPACE, "", names.KUBE_SYSTEM))
    assert plane.uid == manifest.uid_of(system or {})
    assert plane.address.server == control_plane.connection.server
    assert plane.address.ca == control_plane.connection.ca
    assert plane.unserved == app.unserved == frozenset()
    assert list(named(plane.objects[refs.SECRET], namespace)) == [names.KUBECONFIG]
    assert list(named(plane.objects[refs.SERVICE_ACCOUNT], namespace)) == [names.BINDER]
    assert list(named(plane.objects[api.CLUSTER_BINDING], namespace)) == ["cluster"]
    export = named(plane.objects[api.API_SERVICE_EXPORT], namespace)["databases.shop.example"]
    assert "spec" not in export
    assert (export["kind"], export["apiVersion"]) == (
        "APIServiceExport",
        "klutch.anynines.com/v1alpha1",
    )
    request = named(plane.objects[api.API_SERVICE_EXPORT_REQUEST], namespace)["x"]
    assert manifest.get(request, "spec", "resources")
    assert "resourceVersion" not in request["metadata"]  # type: ignore[operator]
    assert {BIND, names.KUBE_SYSTEM} == set(named(app.objects[refs.NAMESPACE], ""))
    assert api.API_SERVICE_BINDING.resource in named(app.objects[refs.CRD], "")
    assert not app.bindings_cluster_scoped
    here = api.kubeconfig_facts_of(named(plane.objects[refs.SECRET], namespace)[names.KUBECONFIG])
    there = api.kubeconfig_facts_of(named(app.objects[refs.SECRET], BIND)[copy])
    assert here is not None
    assert here == there
    assert (here.server, here.namespace) == ("https://cp.example:6443", namespace)
    shown = repr(live) + dump_live(live).decode()
    assert CANARY not in shown
    assert b64(CANARY) not in shown
    assert "canary" not in shown
    assert parse_live(dump_live(live), "x") == live
    assert control_plane.audit.writes_since(marks[0], namespace=namespace) == []
    assert [w for w in in_app.live.audit.writes_since(marks[1]) if w.verb != "delete"] == []


async def test_a_secret_of_another_name_is_read_where_a_binding_refers_to_it(
    fleet: Fleet, control_plane: LiveCluster, namespace: str, on_plane: Hand
) -> None:
    far = f"far-{uuid.uuid4().hex[:8]}"
    wire = WireObjects(control_plane.name, control_plane.cluster, namespace)
    await wire.create(
        api.CLUSTER_BINDING, spec={"kubeconfigSecretRef": {"name": "own", "key": "kubeconfig"}}
    )
    reference = {"name": far, "namespace": namespace, "key": "kubeconfig"}
    await wire.create(api.APP_CLUSTER_BINDING, name="ours", spec={"kubeconfigSecretRef": reference})
    for secret in ("own", far, "unrelated"):
        await on_plane.create(refs.SECRET, secret, namespace=namespace, data={})
    app = replace(fleet.clusters["shop"], app_cluster_binding=(namespace, "ours"))
    plane = replace(fleet.control_planes["eu"], mode=Mode.APP_CLUSTER_BINDING)
    fleet = replace(fleet, clusters={"shop": app}, control_planes={"eu": plane})

    live = await seen_by(fleet, control_plane.kubeconfig)

    assert set(named(the_plane(live).objects[refs.SECRET], namespace)) == {"own", far}


@pytest.mark.parametrize(
    ("mode", "planes"), [(Mode.DIRECT, ["eu"]), (Mode.APP_CLUSTER_BINDING, ["eu", "idle"])]
)
async def test_only_what_is_chosen_is_read(
    fleet: Fleet, control_plane: LiveCluster, mode: Mode, planes: list[str]
) -> None:
    """Where a cluster may be bound on another control plane, and only that tells, it is read."""
    idle = replace(fleet.control_planes["eu"], name="idle", access=Access(context="nowhere"))
    other = replace(fleet.clusters["shop"], name="other", control_plane="idle")
    fleet = replace(
        fleet,
        control_planes={
            name: replace(one, mode=mode)
            for name, one in {"idle": idle, **fleet.control_planes}.items()
        },
        clusters={"other": other, **fleet.clusters},
    )

    live = await seen_by(fleet, control_plane.kubeconfig, only={"shop"})

    assert sorted(live.control_planes) == planes
    assert list(live.clusters) == ["shop"]
    assert isinstance(live.clusters["shop"], ClusterState)


async def test_a_konnector_is_read_where_we_deploy_it_or_where_it_may_install_kinds(
    fleet: Fleet, control_plane: LiveCluster
) -> None:
    konnector = replace(fleet.clusters["shop"].konnector, deploy=True)
    deployed = {"shop": replace(fleet.clusters["shop"], konnector=konnector)}
    unserved = faulty(on("list", kind=api.API_SERVICE_BINDING), Fail(NotServed, ""))

    plain = the_app(await seen_by(fleet, control_plane.kubeconfig))
    before = the_app(await seen_by(fleet, control_plane.kubeconfig, faults=unserved))
    ours = the_app(await seen_by(replace(fleet, clusters=deployed), control_plane.kubeconfig))
    parts = {refs.DEPLOYMENT, refs.SERVICE_ACCOUNT, refs.CLUSTER_ROLE, refs.CLUSTER_ROLE_BINDING}
    assert not parts & set(plain.objects)
    assert parts & set(before.objects) == {refs.DEPLOYMENT}
    assert parts <= set(ours.objects)


def databases(group: str, *, served: bool = True) -> Mapping[str, Any]:
    version = {**version_of(OPEN, "v7"), "served": served}
    return {"spec": spec_of(Kind(group, "v7", "Database", "databases"), [version])}


async def ask(fleet: Fleet, live: LiveCluster, questions: Questions) -> Live:
    async with registry.of(fleet, around(live.kubeconfig)) as clusters:
        return await answer(
            fleet, await observe(fleet, clusters, credentials=True), clusters, questions
        )


async def test_instances_are_counted_in_the_version_that_is_served(
    fleet: Fleet, control_plane: LiveCluster, app_cluster: LiveCluster, in_app: Hand
) -> None:
    group = f"g{uuid.uuid4().hex[:8]}.example"
    kind = refs.Kind(group, "v7", "Database", "databases")
    await in_app.create(refs.CRD, kind.resource, **databases(group))
    await established(app_cluster.cluster, kind)
    for name in ("a", "b", "c"):
        await in_app.create(kind, name, namespace=BIND)
    used, absent = instances(group, "databases"), instances("absent.example", "databases")
    asked = Questions(in_use=frozenset({("shop", used), ("shop", absent), ("unknown", used)}))

    live = await ask(fleet, control_plane, asked)

    assert the_app(live).in_use == {used: 3, absent: 0}


async def test_instances_that_nobody_can_count_are_not_taken_for_none(
    fleet: Fleet, control_plane: LiveCluster, in_app: Hand
) -> None:
    group = f"g{uuid.uuid4().hex[:8]}.example"
    kind = instances(group, "databases")
    await in_app.create(refs.CRD, kind.resource, **databases(group, served=False))

    live = await ask(fleet, control_plane, Questions(in_use=frozenset({("shop", kind)})))

    verdict = live.clusters["shop"]
    assert isinstance(verdict, Unavailable)
    assert "serves no version" in verdict.reason


async def test_the_body_of_an_export_is_read_where_it_is_asked_for(
    fleet: Fleet, control_plane: LiveCluster, namespace: str
) -> None:
    wire = WireObjects(control_plane.name, control_plane.cluster, namespace)
    claims = [{"resource": "secrets", "version": "v1"}]
    await wire.create(api.API_SERVICE_EXPORT, spec={"permissionClaims": claims})
    place = control_plane_ref_name("eu")
    body = refs.Ref(place, api.API_SERVICE_EXPORT, namespace, "databases.shop.example")
    absent = replace(body, name="absent.shop.example")

    live = await ask(fleet, control_plane, Questions(bodies=frozenset({body, absent})))

    bodies = the_plane(live).bodies
    assert bodies[absent] is None
    assert manifest.get_text(bodies[body], "spec", "permissionClaims", 0, "resource") == "secrets"
    assert manifest.get(bodies[body], "spec", "versions") is None


@pytest.mark.parametrize(
    ("ago", "exported", "answered"),
    [
        (timedelta(seconds=3), False, ()),
        (timedelta(seconds=30), False, ("klutch-bind",)),
        (None, False, (None,)),
        (None, True, ()),  # as Klutch's own backend, which has no Lease
    ],
)
async def test_whether_a_backend_runs_is_answered_where_it_does_not(
    fleet: Fleet,
    on_plane: Hand,
    namespace: str,
    ago: timedelta | None,
    exported: bool,
    answered: tuple[Any, ...],
) -> None:
    await on_plane.create(NAMESPACE, BIND)
    if ago is not None:
        spec = {"holderIdentity": "x", "renewTime": micro(SystemClock().now() - ago)}
        await on_plane.create(LEASE, names.BACKEND_LEASE, namespace=BIND, spec=spec)
    if exported:
        wire = WireObjects(on_plane.live.name, on_plane.live.cluster, namespace)
        await wire.create(api.API_SERVICE_EXPORT)
    lease = leases.of_backend(control_plane_ref_name("eu"))

    found = the_plane(await ask(fleet, on_plane.live, Questions(bodies=frozenset({lease})))).bodies
    assert tuple(one and namespace_of(one) for one in found.values()) == answered


# One look at a control plane for many, held against what the cluster says itself


SPACES = ("list-a", "list-b")


@pytest.fixture
async def counted(control_plane, on_plane):
    """Count what a cluster is asked for, which has two namespaces with two Leases each."""
    for space in SPACES:
        await on_plane.create(NAMESPACE, space)
        for name in ("a", "b"):
            await on_plane.create(LEASE, name, namespace=space)
    return FaultyCluster(control_plane.cluster)


def lists(counted):
    return [(call.ref.kind, call.ref.namespace) for call in counted.faults.calls]


@pytest.mark.parametrize("metadata_only", [False, True])
async def test_it_says_what_the_cluster_says(counted, metadata_only):
    reader = SharedListReader(counted)
    for namespace in (*SPACES, "no-such-namespace"):
        seen, said = [
            await one.list(LEASE, namespace=namespace, metadata_only=metadata_only)
            for one in (reader, counted)
        ]
        assert list(seen.items) == list(said.items)
    for name in ("a", "absent"):
        ref = Ref(counted.name, LEASE, SPACES[0], name)
        seen = await reader.get(ref, metadata_only=metadata_only)
        assert seen == await counted.get(ref, metadata_only=metadata_only)


async def test_all_who_ask_cost_one_list_and_see_one_moment(counted, on_plane):
    reader = SharedListReader(counted)
    found = await asyncio.gather(*(reader.list(LEASE, namespace=one) for one in SPACES * 10))
    assert {(namespace_of(one), name_of(one)) for listing in found for one in listing.items} == {
        (space, item) for space in SPACES for item in ("a", "b")
    }
    await on_plane.create(LEASE, "late", namespace=SPACES[0])
    assert await reader.get(Ref(counted.name, LEASE, SPACES[0], "late")) is None
    assert lists(counted) == [(LEASE, "")]


async def test_other_lists_are_the_clusters_own(counted):
    reader = SharedListReader(counted)
    found = await reader.list(
        LEASE, namespace=SPACES[0], fields="metadata.name=a", metadata_only=True
    )
    assert list(map(name_of, found.items)) == ["a"]
    assert lists(counted) == [(LEASE, SPACES[0])]


async def test_a_list_that_fails_fails_for_all_who_asked(counted):
    reader, basket = SharedListReader(counted), Kind("shop.example", "v1", "Basket", "baskets")
    asked = (reader.list(basket, namespace=one) for one in SPACES)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in answers] == [NotServed, NotServed]
