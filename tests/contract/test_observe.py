"""What `observe` sees of real clusters, and what it makes of those that it cannot see."""

import base64
import contextlib
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.api.app_cluster_binding import APP_CLUSTER_BINDING
from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.api.export_request import API_SERVICE_EXPORT_REQUEST
from reconciler.api.export_template import API_SERVICE_EXPORT_TEMPLATE
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.core import keys, livefile, names
from reconciler.core.errors import AlreadyExists
from reconciler.core.kubeconfig_facts import facts_of, service_account_facts_of
from reconciler.core.live import Live, Questions, Seen, Unseen, control_plane_ref_name, instances
from reconciler.core.manifest import (
    Manifest,
    get,
    get_maps,
    get_text,
    name_of,
    namespace_of,
    uid_of,
)
from reconciler.core.refs import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CRD,
    NAMESPACE,
    SECRET,
    SERVICE_ACCOUNT,
    Kind,
    Ref,
)
from reconciler.fleet.values import Access, Fleet, Guards, PruneMode
from reconciler.kube import registry
from reconciler.kube.cluster import Cluster, Listing, Preconditions, Propagation
from reconciler.kube.registry import Reached, Registry, Surroundings
from reconciler.observe import Pace, answer, observe
from tests.support import fleets
from tests.support.clusters import LiveCluster
from tests.support.faulty import FaultyCluster
from tests.support.robots import create_robot, request_token
from tests.support.tcp_proxy import STALLED, TcpProxy
from tests.support.wire_objects import MANAGER, WireObjects

CANARY = "canary-of-a-secret-value"
TOKEN = "eyJhbGciOiJSUzI1NiJ9.canary-of-a-token.c2lnbmF0dXJl"
BIND = names.KLUTCH_NAMESPACE


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def kubeconfig(namespace: str, token: str = TOKEN) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": "https://cp.example:6443/"}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        | {
            "contexts": [
                {"name": "x", "context": {"cluster": "c", "user": "u", "namespace": namespace}}
            ]
        }
    )


@dataclass
class Hand:
    """Writes objects by hand, and takes them away after the test."""

    live: LiveCluster
    made: list[tuple[Ref, str]]

    async def create(self, kind: Kind, name: str, *, namespace: str = "", **more: Any) -> Manifest:
        metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
        manifest = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            **more,
            "metadata": metadata | more.get("metadata", {}),
        }
        manager = more.pop("manager", MANAGER)
        manifest.pop("manager", None)
        created = await self.live.cluster.create(manifest, kind, manager=manager)
        ref = Ref(self.live.cluster.name, kind, namespace, name)
        self.made.append((ref, uid_of(created)))
        return created

    async def clean(self) -> None:
        for ref, uid in reversed(self.made):
            await self.live.cluster.delete(
                ref, preconditions=Preconditions(uid=uid), propagation=Propagation.BACKGROUND
            )


@pytest.fixture
async def on_plane(control_plane: LiveCluster) -> AsyncIterator[Hand]:
    hand = Hand(control_plane, [])
    yield hand
    await hand.clean()


@pytest.fixture
async def in_app(app_cluster: LiveCluster) -> AsyncIterator[Hand]:
    with contextlib.suppress(AlreadyExists):
        await app_cluster.cluster.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": BIND}},
            NAMESPACE,
            manager=MANAGER,
        )
    hand = Hand(app_cluster, [])
    yield hand
    await hand.clean()


@pytest.fixture
def fleet(control_plane: LiveCluster, app_cluster: LiveCluster) -> Fleet:
    plane = replace(fleets.control_plane(), access=Access(context=control_plane.context))
    app = replace(fleets.app_cluster(), access=Access(context=app_cluster.context))
    made = fleets.fleet(control_planes=[plane], clusters=[app])
    return replace(made, name=f"fleet-{uuid.uuid4().hex[:8]}")


def around(*kubeconfigs: Path) -> Surroundings:
    return Surroundings(kubeconfigs=kubeconfigs, environ={})


def context(live: LiveCluster, name: str, **changes: Any) -> bytes:
    """Return a kubeconfig with one context: that of a live cluster, with changes to its entries."""
    document = yaml.safe_load(live.kubeconfig.read_text())
    of = {entry["name"]: entry["context"] for entry in document["contexts"]}[live.context]
    cluster = next(e["cluster"] for e in document["clusters"] if e["name"] == of["cluster"])
    user = next(e["user"] for e in document["users"] if e["name"] == of["user"])
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster | changes.get("cluster", {})}],
            "users": [{"name": name, "user": changes.get("user", user)}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    ).encode()


async def seen_by(fleet: Fleet, *kubeconfigs: Path, pace: Pace | None = None) -> Live:
    async with registry.of(fleet, around(*kubeconfigs)) as clusters:
        return await observe(fleet, clusters, pace=pace or Pace())


def the_plane(live: Live) -> Seen:
    verdict = live.control_planes["eu"]
    assert isinstance(verdict, Seen), verdict
    return verdict


def the_app(live: Live) -> Seen:
    verdict = live.clusters["shop"]
    assert isinstance(verdict, Seen), verdict
    return verdict


def named(objects: Iterable[Manifest], namespace: str) -> dict[str, Manifest]:
    return {name_of(item): item for item in objects if namespace_of(item) == namespace}


async def test_a_bound_cluster_is_seen_on_both_sides(
    fleet: Fleet,
    control_plane: LiveCluster,
    namespace: str,
    on_plane: Hand,
    in_app: Hand,
) -> None:
    wire = WireObjects(control_plane.name, control_plane.cluster, namespace)
    for kind in (CLUSTER_BINDING, API_SERVICE_EXPORT, API_SERVICE_EXPORT_REQUEST):
        await wire.create(kind)
    await on_plane.create(SERVICE_ACCOUNT, names.BINDER, namespace=namespace)
    data = {"kubeconfig": b64(kubeconfig(namespace)), "extra": b64(CANARY)}
    await on_plane.create(SECRET, names.KUBECONFIG, namespace=namespace, data=data)
    await on_plane.create(SECRET, "unrelated", namespace=namespace, data=data)
    copy = f"kubeconfig-{uuid.uuid4().hex[:5]}"
    await in_app.create(SECRET, copy, namespace=BIND, data=data)
    marks = [control_plane.audit.mark(), in_app.live.audit.mark()]

    live = await seen_by(fleet, control_plane.kubeconfig)

    plane, app = the_plane(live), the_app(live)
    system = await control_plane.cluster.get(Ref("", NAMESPACE, "", names.KUBE_SYSTEM))
    assert plane.uid == uid_of(system or {})
    assert plane.address.server == control_plane.connection.server
    assert plane.address.ca == control_plane.connection.ca
    assert plane.unserved == app.unserved == frozenset()
    assert list(named(plane.objects[SECRET], namespace)) == [names.KUBECONFIG]
    assert list(named(plane.objects[SERVICE_ACCOUNT], namespace)) == [names.BINDER]
    assert list(named(plane.objects[CLUSTER_BINDING], namespace)) == ["cluster"]
    export = named(plane.objects[API_SERVICE_EXPORT], namespace)["databases.shop.example"]
    assert "spec" not in export
    assert (export["kind"], export["apiVersion"]) == (
        "APIServiceExport",
        "klutch.anynines.com/v1alpha1",
    )
    request = named(plane.objects[API_SERVICE_EXPORT_REQUEST], namespace)["x"]
    assert get(request, "spec", "resources")
    assert "resourceVersion" not in request["metadata"]  # type: ignore[operator]
    assert {BIND, names.KUBE_SYSTEM} == set(named(app.objects[NAMESPACE], ""))
    assert API_SERVICE_BINDING.resource in named(app.objects[CRD], "")
    assert not app.bindings_cluster_scoped
    here = facts_of(named(plane.objects[SECRET], namespace)[names.KUBECONFIG])
    there = facts_of(named(app.objects[SECRET], BIND)[copy])
    assert here is not None
    assert here == there
    assert (here.server, here.namespace) == ("https://cp.example:6443", namespace)
    shown = repr(live) + livefile.dump(live).decode()
    assert CANARY not in shown
    assert b64(CANARY) not in shown
    assert "canary" not in shown
    assert livefile.parse(livefile.dump(live), "x") == live
    assert control_plane.audit.writes_since(marks[0], namespace=namespace) == []
    assert [w for w in in_app.live.audit.writes_since(marks[1]) if w.verb != "delete"] == []


async def test_our_managed_fields_are_kept_and_others_are_not(
    fleet: Fleet, control_plane: LiveCluster, namespace: str, on_plane: Hand
) -> None:
    spec = {"kubeconfigSecretRef": {"name": "kubeconfig", "key": "kubeconfig"}}
    spec["providerPrettyName"] = "Shop"  # type: ignore[assignment]
    await on_plane.create(CLUSTER_BINDING, "cluster", namespace=namespace, spec=spec)
    stated = {
        "apiVersion": CLUSTER_BINDING.api_version,
        "kind": CLUSTER_BINDING.kind,
        "metadata": {"name": "cluster", "namespace": namespace, "labels": {keys.FLEET: "a"}},
    }
    await control_plane.cluster.apply(stated, CLUSTER_BINDING, manager=keys.MANAGER_CLI, force=True)

    live = await seen_by(fleet, control_plane.kubeconfig)

    binding = named(the_plane(live).objects[CLUSTER_BINDING], namespace)["cluster"]
    entries = get_maps(binding, "metadata", "managedFields")
    assert [get_text(entry, "manager") for entry in entries] == [keys.MANAGER_CLI]
    assert "time" not in entries[0]


async def test_a_secret_of_another_name_is_read_where_a_binding_refers_to_it(
    fleet: Fleet, control_plane: LiveCluster, namespace: str, on_plane: Hand
) -> None:
    far = f"far-{uuid.uuid4().hex[:8]}"
    wire = WireObjects(control_plane.name, control_plane.cluster, namespace)
    await wire.create(
        CLUSTER_BINDING, spec={"kubeconfigSecretRef": {"name": "own", "key": "kubeconfig"}}
    )
    reference = {"name": far, "namespace": namespace, "key": "kubeconfig"}
    await wire.create(APP_CLUSTER_BINDING, name="ours", spec={"kubeconfigSecretRef": reference})
    for secret in ("own", far, "unrelated"):
        await on_plane.create(SECRET, secret, namespace=namespace, data={})
    app = replace(fleet.clusters["shop"], app_cluster_binding=(namespace, "ours"))
    plane = replace(fleet.control_planes["eu"], mode=fleets.Mode.APP_CLUSTER_BINDING)
    fleet = replace(fleet, clusters={"shop": app}, control_planes={"eu": plane})

    live = await seen_by(fleet, control_plane.kubeconfig)

    assert set(named(the_plane(live).objects[SECRET], namespace)) == {"own", far}


async def test_a_filled_service_account_token_has_the_digests_of_its_kubeconfig(
    fleet: Fleet, control_plane: LiveCluster, namespace: str, on_plane: Hand
) -> None:
    data = {"token": b64(TOKEN), "ca.crt": b64("a certificate")}
    await on_plane.create(SERVICE_ACCOUNT, names.BINDER, namespace=namespace)
    await on_plane.create(
        SECRET,
        names.BINDER,
        namespace=namespace,
        type="kubernetes.io/service-account-token",
        metadata={"annotations": {keys.SERVICE_ACCOUNT_NAME: names.BINDER}},
        data=data,
    )
    config = {"kubeconfig": b64(kubeconfig(namespace))}
    await on_plane.create(SECRET, names.KUBECONFIG, namespace=namespace, data=config)

    live = await seen_by(fleet, control_plane.kubeconfig)

    secrets = named(the_plane(live).objects[SECRET], namespace)
    account = service_account_facts_of(secrets[names.BINDER])
    facts = facts_of(secrets[names.KUBECONFIG])
    assert account is not None
    assert facts is not None
    assert account.ca_digest
    # The token controller may have put a token of its own in the place of the one made by hand.
    assert len(account.token_digest) == len(facts.token_digest) == 32


async def test_a_kind_without_a_crd_is_known_to_be_empty(
    fleet: Fleet, app_cluster: LiveCluster
) -> None:
    """The app cluster has only the CRD of bindings: take it for a control plane."""
    plane = replace(fleet.control_planes["eu"], access=Access(context=app_cluster.context))
    fleet = replace(fleet, control_planes={"eu": plane})

    seen = the_plane(await seen_by(fleet, app_cluster.kubeconfig))

    assert seen.unserved == {
        API_SERVICE_EXPORT,
        API_SERVICE_EXPORT_REQUEST,
        API_SERVICE_EXPORT_TEMPLATE,
        APP_CLUSTER_BINDING,
        CLUSTER_BINDING,
    }
    assert all(seen.objects[kind] == () for kind in seen.unserved)


async def test_one_forbidden_kind_makes_a_control_plane_unseen_and_all_behind_it(
    fleet: Fleet, control_plane: LiveCluster, namespace: str, on_plane: Hand, tmp_path: Path
) -> None:
    file = tmp_path / "robot"
    file.write_bytes(await robot(on_plane, namespace, without=("customresourcedefinitions",)))
    plane = replace(fleet.control_planes["eu"], access=Access(context="robot"))
    fleet = replace(fleet, control_planes={"eu": plane})

    live = await seen_by(fleet, file, control_plane.kubeconfig)

    verdict = live.control_planes["eu"]
    assert isinstance(verdict, Unseen)
    assert "list CustomResourceDefinition list" in verdict.reason
    assert "forbidden" in verdict.reason
    assert verdict.remedy == (
        "Grant the user of context/robot: list customresourcedefinitions.apiextensions.k8s.io"
    )
    behind = live.clusters["shop"]
    assert isinstance(behind, Unseen)
    assert behind.reason.startswith("its control plane eu is unseen: list CustomResource")


async def test_the_rights_of_a_plan_are_enough(
    fleet: Fleet, control_plane: LiveCluster, namespace: str, on_plane: Hand, tmp_path: Path
) -> None:
    """A role that names the Secrets suffices: others are never asked for."""
    file = tmp_path / "robot"
    file.write_bytes(await robot(on_plane, namespace))
    plane = replace(fleet.control_planes["eu"], access=Access(context="robot"))
    fleet = replace(fleet, control_planes={"eu": plane}, clusters={})

    live = await seen_by(fleet, file)

    assert the_plane(live).uid


async def robot(hand: Hand, namespace: str, *, without: tuple[str, ...] = ()) -> bytes:
    """Return the kubeconfig of a robot with the rights of a plan, without those to some kinds."""
    name = f"observer-{uuid.uuid4().hex[:8]}"
    secrets = {
        SECRET.plural: ("kubeconfig", "klutch-binder", "own"),
        "serviceaccounts": ("klutch-binder",),
    }
    kinds = (
        *(NAMESPACE, CRD, API_SERVICE_EXPORT, API_SERVICE_EXPORT_REQUEST, CLUSTER_BINDING),
        *(API_SERVICE_EXPORT_TEMPLATE, APP_CLUSTER_BINDING, API_SERVICE_BINDING),
    )
    rules: list[dict[str, Any]] = [
        {"apiGroups": [kind.group], "resources": [kind.plural], "verbs": ["list"]}
        for kind in kinds
        if kind.plural not in without
    ]
    rules += [
        {"apiGroups": [""], "resources": [plural], "verbs": ["list"], "resourceNames": list(of)}
        for plural, of in secrets.items()
    ]
    await create_robot(hand.live.cluster, namespace)
    await hand.create(CLUSTER_ROLE, name, rules=rules)
    group = CLUSTER_ROLE.group
    await hand.create(
        CLUSTER_ROLE_BINDING,
        name,
        roleRef={"apiGroup": group, "kind": "ClusterRole", "name": name},
        subjects=[{"kind": "ServiceAccount", "name": "robot", "namespace": namespace}],
    )
    token = await request_token(hand.live.cluster, namespace, seconds=600)
    return context(hand.live, "robot", user={"token": token})


async def test_a_cluster_that_hangs_is_unseen_and_the_others_are_seen(
    fleet: Fleet, control_plane: LiveCluster, app_cluster: LiveCluster, tmp_path: Path
) -> None:
    async with TcpProxy(app_cluster.connection.server) as line:
        line.let(down=STALLED)
        file = tmp_path / "hanging"
        file.write_bytes(context(app_cluster, "hanging", cluster={"server": line.url}))
        hanging = replace(fleet.clusters["shop"], name="a-first", access=Access(context="hanging"))
        fleet = replace(fleet, clusters={"a-first": hanging, **fleet.clusters})

        live = await seen_by(
            fleet, file, control_plane.kubeconfig, pace=Pace(parallelism=1, timeout=6)
        )

    assert live.clusters["a-first"] == Unseen(
        "not read completely in 6 s: no answer yet to Namespace kube-system",
        "Find out why the API server answers so slowly, or raise --timeout",
    )
    assert the_app(live).uid
    assert the_plane(live).uid


async def test_a_cluster_that_refuses_is_unseen(
    fleet: Fleet, control_plane: LiveCluster, app_cluster: LiveCluster, tmp_path: Path
) -> None:
    async with TcpProxy(app_cluster.connection.server) as line:
        line.refuse()
        file = tmp_path / "refusing"
        file.write_bytes(context(app_cluster, "refusing", cluster={"server": line.url}))
        app = replace(fleet.clusters["shop"], access=Access(context="refusing"))
        fleet = replace(fleet, clusters={"shop": app})

        live = await seen_by(fleet, file, control_plane.kubeconfig)

    verdict = live.clusters["shop"]
    assert isinstance(verdict, Unseen)
    assert verdict.reason.startswith("get Namespace kube-system: no connection")
    assert verdict.remedy == f"Check that {line.url} runs, and that it can be reached from here"
    assert the_plane(live).uid


async def test_a_context_that_does_not_exist_harms_no_other_cluster(
    fleet: Fleet, control_plane: LiveCluster
) -> None:
    lost = replace(fleet.clusters["shop"], name="lost", access=Access(context="nowhere"))
    fleet = replace(fleet, clusters={"lost": lost, **fleet.clusters})

    live = await seen_by(fleet, control_plane.kubeconfig)

    verdict = live.clusters["lost"]
    assert isinstance(verdict, Unseen)
    assert "context/nowhere" in verdict.reason
    assert "does not exist" in verdict.reason
    assert verdict.remedy
    assert the_app(live).uid


async def test_a_suspended_cluster_is_left_alone(fleet: Fleet, control_plane: LiveCluster) -> None:
    asleep = replace(fleet.clusters["shop"], suspended="moving", access=Access(context="nowhere"))
    fleet = replace(fleet, clusters={"shop": asleep})

    live = await seen_by(fleet, control_plane.kubeconfig)

    verdict = live.clusters["shop"]
    assert isinstance(verdict, Unseen)
    assert verdict.reason == "suspended: moving"


class Broken(FaultyCluster):
    """A cluster whose answers make our reader stumble."""

    async def list(self, kind: Kind, **how: Any) -> Listing:
        raise KeyError(CANARY)


class WithOneBroken(Registry):
    async def app_cluster(self, name: str, access: Access, *, control_plane: str) -> Reached:
        reached = await super().app_cluster(name, access, control_plane=control_plane)
        return Reached(Broken(reached.cluster), reached.address) if name == "broken" else reached


async def test_a_defect_in_one_reader_harms_no_other_cluster(
    fleet: Fleet, control_plane: LiveCluster
) -> None:
    broken = replace(fleet.clusters["shop"], name="broken")
    fleet = replace(fleet, clusters={"broken": broken, **fleet.clusters})
    planes = {"eu": fleet.control_planes["eu"].access}

    async with WithOneBroken(planes, around(control_plane.kubeconfig)) as clusters:
        live = await observe(fleet, clusters)

    verdict = live.clusters["broken"]
    assert isinstance(verdict, Unseen)
    assert "KeyError" in verdict.reason
    assert CANARY not in repr(live)
    assert the_app(live).uid


async def test_an_app_cluster_is_reached_by_a_secret_on_its_control_plane(
    fleet: Fleet, control_plane: LiveCluster, app_cluster: LiveCluster, on_plane: Hand
) -> None:
    with contextlib.suppress(AlreadyExists):
        await control_plane.cluster.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": BIND}},
            NAMESPACE,
            manager=MANAGER,
        )
    name = f"access-{uuid.uuid4().hex[:8]}"
    content = base64.b64encode(context(app_cluster, "x")).decode()
    await on_plane.create(SECRET, name, namespace=BIND, data={"config": content})
    by_secret = replace(fleet.clusters["shop"], access=Access(secret=(name, "config")))
    no_key = replace(by_secret, name="no-key", access=Access(secret=(name, "other")))
    absent = replace(by_secret, name="absent", access=Access(secret=("absent", "config")))
    clusters = {one.name: one for one in (by_secret, no_key, absent)}

    live = await seen_by(replace(fleet, clusters=clusters), control_plane.kubeconfig)

    assert the_app(live).address.server == app_cluster.connection.server
    reasons = [v.reason for v in live.clusters.values() if isinstance(v, Unseen)]
    assert [
        f"Secret {BIND}/absent does not exist" in reasons[0],
        "no key 'other'" in reasons[1],
    ] == [
        True,
        True,
    ]


def left(fleet: Fleet, cluster: str, **annotations: str) -> dict[str, Any]:
    labels = {keys.FLEET: fleet.name, keys.CLUSTER: cluster}
    return {"metadata": {"labels": labels, "annotations": annotations}}


async def test_clusters_that_left_are_found_by_our_labels(
    fleet: Fleet, control_plane: LiveCluster, app_cluster: LiveCluster, on_plane: Hand
) -> None:
    access = {keys.ACCESS: f"context/{app_cluster.context}"}
    released = {keys.RELEASED: "2026-06-01T12:00:00Z"}
    spaces = {
        "gone": access,
        "untold": {},
        "garbled": {keys.ACCESS: "ssh://x"},
        "released": access | released,
        "shop": access,
    }
    for cluster, annotations in spaces.items():
        name = f"cluster-{uuid.uuid4().hex[:10]}"
        await on_plane.create(NAMESPACE, name, **left(fleet, cluster, **annotations))

    live = await seen_by(fleet, control_plane.kubeconfig)
    looked_away = replace(fleet, guards=Guards(mode=PruneMode.OFF))

    assert list(live.leaving) == ["garbled", "gone", "untold"]
    gone = live.leaving["gone"]
    assert isinstance(gone, Seen)
    assert gone.uid == the_app(live).uid
    assert CLUSTER_ROLE in gone.objects
    assert "nothing says how to reach it" in getattr(live.leaving["untold"], "reason", "")
    assert "'ssh://x'" in getattr(live.leaving["garbled"], "reason", "")
    assert (await seen_by(looked_away, control_plane.kubeconfig)).leaving == {}


async def test_only_what_is_chosen_is_read(fleet: Fleet, control_plane: LiveCluster) -> None:
    idle = replace(fleet.control_planes["eu"], name="idle", access=Access(context="nowhere"))
    other = replace(fleet.clusters["shop"], name="other", control_plane="idle")
    fleet = replace(
        fleet,
        control_planes={"idle": idle, **fleet.control_planes},
        clusters={"other": other, **fleet.clusters},
    )

    async with registry.of(fleet, around(control_plane.kubeconfig)) as clusters:
        live = await observe(fleet, clusters, only={"shop"})

    assert list(live.control_planes) == ["eu"]
    assert list(live.clusters) == ["shop"]


async def test_a_konnector_that_we_deploy_is_read_with_its_rights(
    fleet: Fleet, control_plane: LiveCluster
) -> None:
    konnector = replace(fleet.clusters["shop"].konnector, deploy=True)
    deployed = replace(fleet.clusters["shop"], konnector=konnector)

    plain = the_app(await seen_by(fleet, control_plane.kubeconfig))
    ours = the_app(
        await seen_by(replace(fleet, clusters={"shop": deployed}), control_plane.kubeconfig)
    )

    rights = {SERVICE_ACCOUNT, CLUSTER_ROLE, CLUSTER_ROLE_BINDING}
    assert not rights & set(plain.objects)
    assert rights <= set(ours.objects)


def databases(group: str, *, served: bool = True) -> Mapping[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v7",
        "served": served,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    plural = {"plural": "databases", "kind": "Database"}
    return {"spec": {"group": group, "names": plural, "scope": "Namespaced", "versions": [version]}}


async def ask(fleet: Fleet, live: LiveCluster, questions: Questions) -> Live:
    async with registry.of(fleet, around(live.kubeconfig)) as clusters:
        return await answer(fleet, await observe(fleet, clusters), clusters, questions)


async def established(cluster: Cluster, kind: Kind) -> None:
    from tests.support.eventually import eventually

    async def is_established() -> bool:
        crd = await cluster.get(Ref(cluster.name, CRD, "", kind.resource))
        conditions = {
            get_text(c, "type"): get_text(c, "status")
            for c in get_maps(crd, "status", "conditions")
        }
        return conditions.get("Established") == "True"

    await eventually(is_established)


async def test_instances_are_counted_in_the_version_that_is_served(
    fleet: Fleet, control_plane: LiveCluster, app_cluster: LiveCluster, in_app: Hand
) -> None:
    group = f"g{uuid.uuid4().hex[:8]}.example"
    kind = Kind(group, "v7", "Database", "databases")
    await in_app.create(CRD, kind.resource, **databases(group))
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
    await in_app.create(CRD, kind.resource, **databases(group, served=False))

    live = await ask(fleet, control_plane, Questions(in_use=frozenset({("shop", kind)})))

    verdict = live.clusters["shop"]
    assert isinstance(verdict, Unseen)
    assert "serves no version" in verdict.reason


async def test_the_body_of_an_export_is_read_where_it_is_asked_for(
    fleet: Fleet, control_plane: LiveCluster, namespace: str
) -> None:
    wire = WireObjects(control_plane.name, control_plane.cluster, namespace)
    claims = [{"resource": "secrets", "version": "v1"}]
    await wire.create(API_SERVICE_EXPORT, spec={"permissionClaims": claims})
    place = control_plane_ref_name("eu")
    body = Ref(place, API_SERVICE_EXPORT, namespace, "databases.shop.example")
    absent = replace(body, name="absent.shop.example")

    live = await ask(fleet, control_plane, Questions(bodies=frozenset({body, absent})))

    bodies = the_plane(live).bodies
    assert bodies[absent] is None
    assert get_text(bodies[body], "spec", "permissionClaims", 0, "resource") == "secrets"
    assert get(bodies[body], "spec", "versions") is None
