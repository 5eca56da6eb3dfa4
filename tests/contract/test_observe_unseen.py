"""What `observe` makes of clusters that it cannot see, or that nobody names any more."""

import base64
import contextlib
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from reconciler.api.bindings import API_SERVICE_BINDING, APP_CLUSTER_BINDING, CLUSTER_BINDING
from reconciler.api.exports import (
    API_SERVICE_EXPORT,
    API_SERVICE_EXPORT_REQUEST,
    API_SERVICE_EXPORT_TEMPLATE,
)
from reconciler.core import keys
from reconciler.core.errors import AlreadyExists
from reconciler.core.live import ClusterState, Unavailable
from reconciler.core.refs import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CRD,
    NAMESPACE,
    SECRET,
    Kind,
)
from reconciler.fleet.values import Access, Fleet, Guards, PruneMode
from reconciler.kube.cluster import Listing
from reconciler.kube.registry import Reached, Registry
from reconciler.observe import Pace, observe
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.faulty import FaultyCluster
from tests.support.konnector_ways import may_read, with_token
from tests.support.observing import (
    BIND,
    Hand,
    around,
    context,
    seen_by,
    the_app,
    the_plane,
)
from tests.support.robots import create_robot, request_token
from tests.support.tcp_proxy import STALLED, TcpProxy
from tests.support.wire_objects import MANAGER

CANARY = "canary-in-an-error"


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
    assert isinstance(verdict, Unavailable)
    assert "list CustomResourceDefinition list" in verdict.reason
    assert "forbidden" in verdict.reason
    assert verdict.remedy == (
        "Grant the user of context/robot: list customresourcedefinitions.apiextensions.k8s.io"
    )
    behind = live.clusters["shop"]
    assert isinstance(behind, Unavailable)
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
    way = with_token(hand.live.connection, token)
    await eventually(lambda: may_read(way, NAMESPACE))
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
            fleet, file, control_plane.kubeconfig, pace=Pace(parallelism=1, timeout=12)
        )

    assert live.clusters["a-first"] == Unavailable(
        "not read completely in 12 s: no answer yet to Namespace kube-system",
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
    assert isinstance(verdict, Unavailable)
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
    assert isinstance(verdict, Unavailable)
    assert "context/nowhere" in verdict.reason
    assert "does not exist" in verdict.reason
    assert verdict.remedy
    assert the_app(live).uid


async def test_a_suspended_cluster_is_left_alone(fleet: Fleet, control_plane: LiveCluster) -> None:
    asleep = replace(fleet.clusters["shop"], suspended="moving", access=Access(context="nowhere"))
    fleet = replace(fleet, clusters={"shop": asleep})

    live = await seen_by(fleet, control_plane.kubeconfig)

    verdict = live.clusters["shop"]
    assert isinstance(verdict, Unavailable)
    assert verdict.reason == "suspended: moving"


class Broken(FaultyCluster):
    """A cluster whose answers make our reader stumble."""

    async def list(self, kind: Kind, **how: Any) -> Listing:
        raise KeyError(CANARY)


class WithOneBroken(Registry):
    async def app_cluster(self, name: str, access: Access, *, control_plane: str) -> Reached:
        reached = await super().app_cluster(name, access, control_plane=control_plane)
        if name != "broken":
            return reached
        return Reached(Broken(reached.cluster), reached.address)


async def test_a_defect_in_one_reader_harms_no_other_cluster(
    fleet: Fleet, control_plane: LiveCluster
) -> None:
    broken = replace(fleet.clusters["shop"], name="broken")
    fleet = replace(fleet, clusters={"broken": broken, **fleet.clusters})
    planes = {"eu": fleet.control_planes["eu"].access}

    async with WithOneBroken(planes, around(control_plane.kubeconfig)) as clusters:
        live = await observe(fleet, clusters, credentials=True)

    verdict = live.clusters["broken"]
    assert isinstance(verdict, Unavailable)
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
    reasons = [v.reason for v in live.clusters.values() if isinstance(v, Unavailable)]
    assert f"Secret {BIND}/absent does not exist" in reasons[0]
    assert f'Secret {BIND}/{name} is missing "other" string key' in reasons[1]


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
    assert isinstance(gone, ClusterState)
    assert gone.uid == the_app(live).uid
    assert CLUSTER_ROLE in gone.objects
    assert "nothing says how to reach it" in getattr(live.leaving["untold"], "reason", "")
    assert "'ssh://x'" in getattr(live.leaving["garbled"], "reason", "")
    assert (await seen_by(looked_away, control_plane.kubeconfig)).leaving == {}
