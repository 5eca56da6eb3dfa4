"""The konnector in an app cluster, and beside the control plane.

There it has exactly the rights that the backend gives its account, and in the
app cluster those that klutchctl gives one (protocol-konnector.md A.5, A.8, A.9).
"""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from reconciler.api import API_SERVICE_BINDING, CLUSTER_BINDING
from reconciler.blueprints import rbac
from reconciler.blueprints.objects import build
from reconciler.blueprints.rbac import Claimed
from reconciler.core import keys, names
from reconciler.core.manifest import Manifest, annotations_of, finalizers_of, get_text, uid_of
from reconciler.core.refs import CRD, LEASE, SECRET, GroupResource, Ref
from reconciler.kube.connection import Connection
from tests.support import deployed, removal
from tests.support.accounts import may_read, token_of, with_token
from tests.support.bound_scenes import (
    ACCEPTED,
    Managed,
    Scene,
    b64,
    conditions,
    gone,
    has,
    new,
    read,
    says,
    secret,
    served,
    until,
)
from tests.support.deployed import Hearing
from tests.support.eventually import eventually
from tests.support.fault_proxy import FaultProxy
from tests.support.http_faults import answer, on
from tests.support.konnector import in_space, konnector
from tests.support.konnector_ways import a_way, account, content, fronting, put

SOURCE = "shop-kubeconfig"
INVALID = "KubeconfigSecretInvalid"


@dataclass
class Beside:
    """A bound app cluster, and what its konnector asks of both API servers."""

    scene: Managed
    way: Connection
    plane: Hearing
    app: Hearing
    to_app: FaultProxy
    kubeconfig: str  # that leads to the app cluster at first

    def konnector(self):
        return konnector(self.way, in_space(self.scene.space, SOURCE))

    async def claim(self, *claims: Manifest) -> None:
        """Accept claims, as the owner of the binding does."""
        ref = Ref("", API_SERVICE_BINDING, self.scene.space, self.scene.offer.name)
        body: Manifest = {"spec": {"permissionClaims": list(claims)}}
        await self.scene.plane.cluster.merge_patch(ref, body, manager="developer")

    async def renew(self, kubeconfig: str) -> None:
        await put(self.scene.plane, self.scene.namespace, SOURCE, kubeconfig)

    async def instance(self, name: str = "orders"):
        return await read(self.scene.app, self.scene.offer.kind, self.scene.app_namespace, name)

    async def copy(self, name: str = "orders"):
        return await self.scene.read(self.scene.offer.kind, name, self.scene.service_namespace)

    async def in_app(self, name: str):
        return await read(self.scene.app, SECRET, self.scene.app_namespace, name)

    async def create(self, name: str = "orders") -> None:
        scene = self.scene
        made = scene.offer.instance(name, namespace=scene.app_namespace, spec={"size": "1Gi"})
        await new(scene.app, made, scene.offer.kind, manager="developer")


WELL = ("Ready", "Connected", "Heartbeating", "InformersSynced", "SchemaInSync", "SecretValid")


async def all_is_well(reading: Awaitable[Any]) -> bool:
    reported = conditions(await reading)
    assert {name: one["status"] for name, one in reported.items()} == dict.fromkeys(WELL, "True")
    return True


@asynccontextmanager
async def beside(managed: Managed) -> AsyncIterator[Beside]:
    """Let the backend serve an AppClusterBinding, and lead a konnector's ways past listeners."""
    offer, plane = managed.offer, managed.plane
    rules = rbac.minimal(
        [GroupResource(offer.group, "databases")], [Claimed("", "secrets", down=True)]
    )
    async with (
        account(managed.app, rules) as app_token,
        fronting(managed.app) as to_app,
        managed.backend(),
    ):
        app = Hearing(to_app)
        kubeconfig = content(to_app.connection, app_token)
        await managed.make_secret(kubeconfig)
        await managed.apply(offer.resource)
        await until(managed.binding)
        token = await until(lambda: token_of(plane.cluster, managed.space, names.BINDER))
        own = with_token(plane.connection, token)
        await until(lambda: may_read(own, API_SERVICE_BINDING, managed.space))
        await until(lambda: may_read(own, SECRET, managed.space))
        await until(lambda: managed.read(SECRET, SOURCE))
        async with deployed.heard(own) as (way, heard):
            yield Beside(managed, way, heard, app, to_app, kubeconfig)


async def test_a_konnector_beside_the_control_plane_serves_with_the_rights_of_its_account(
    managed: Managed,
) -> None:
    async with beside(managed) as there, there.konnector():
        await until(lambda: all_is_well(managed.binding()))
        await until(lambda: served(managed.app, managed.offer.kind))
        await until(lambda: says(managed.export(), "Ready"))
        found = await managed.read(CLUSTER_BINDING, "cluster")
        assert "ValidVersion" in conditions(found)
        assert "SecretValid" not in conditions(found)
        crd = await read(managed.app, CRD, "", managed.offer.name)
        (owner,) = crd["metadata"]["ownerReferences"]
        assert owner["uid"] == uid_of(await managed.binding())

        await there.create()
        await until(there.copy)
        ref = Ref("", managed.offer.kind, managed.service_namespace, "orders")
        status: Manifest = {"status": {"phase": "Ready"}}
        await managed.plane.cluster.merge_patch(
            ref, status, manager="provider", subresource="status"
        )
        await until(lambda: has(there.instance(), "Ready", "status", "phase"))

        made = secret("orders-creds", managed.service_namespace)
        await managed.plane.cluster.create(made, SECRET, manager="provider")
        assert await there.in_app("orders-creds") is None  # nobody has accepted a claim
        await there.claim(ACCEPTED)
        brought = await until(lambda: there.in_app("orders-creds"))
        assert brought["data"] == {"password": b64("old")}
        await there.claim()

        await removal.remove_manifest(
            managed.app.cluster, managed.offer.kind, await there.instance()
        )
        await until(lambda: gone(there.copy()))
        await until(lambda: gone(there.instance()))
    assert there.plane.refused() == set()
    assert there.app.refused() == set()
    # Statuses of bindings are written where the bindings are.
    assert not [right for right in there.app.used() if right.group == "klutch.anynines.com"]


async def test_the_app_clusters_kubeconfig_is_renewed_without_a_restart(managed: Managed) -> None:
    """And one to another cluster, or one that does not work, changes nothing (H22)."""
    async with (
        beside(managed) as there,
        a_way(managed.app) as (new_way, lists),
        account(managed.plane, rbac.FULL) as elsewhere,
        account(managed.app, rbac.FULL) as renewed,
        there.konnector(),
    ):
        await until(lambda: all_is_well(managed.binding()))
        await until(lambda: served(managed.app, managed.offer.kind))
        await there.create("first")
        await until(lambda: there.copy("first"))
        plane = managed.plane.connection
        for refused in (content(plane, elsewhere), content(plane, "a.b.c")):
            await there.renew(refused)
            await until(lambda: says(managed.binding(), "SecretValid", "False", INVALID))
            await there.renew(there.kubeconfig)
            await until(lambda: all_is_well(managed.binding()))
        await there.create("second")
        await until(lambda: there.copy("second"))

        await there.renew(content(new_way.connection, renewed))
        await until(lambda: all_is_well(managed.binding()))
        there.to_app.add(on(), answer(401))
        await there.create("third")
        await until(lambda: there.copy("third"))
        await eventually(lambda: len(lists.watched) >= 3)
        assert lists.listed == []


async def test_a_kubeconfig_that_was_renewed_while_another_led_is_used(managed: Managed) -> None:
    async with (
        beside(managed) as there,
        a_way(managed.app) as (new_way, _),
        account(managed.app, rbac.FULL) as renewed,
    ):
        lease = await held_by_another(managed)
        settings = replace(in_space(managed.space, SOURCE), leader_election=True)
        async with konnector(there.way, settings):
            await there.renew(content(new_way.connection, renewed))
            await until(lambda: managed_has(managed, content(new_way.connection, renewed)))
            there.to_app.add(on(), answer(401))
            there.to_app.cut()
            await removal.remove_manifest(managed.plane.cluster, LEASE, lease)
            await until(lambda: all_is_well(managed.binding()))


async def held_by_another(managed: Managed) -> Manifest:
    spec: Manifest = {
        "holderIdentity": "another",
        "leaseDurationSeconds": 3600,
        "renewTime": "2026-01-01T00:00:00.000000Z",
    }
    made = build(LEASE, names.KONNECTOR_LEASE, namespace=managed.space, spec=spec)
    return await managed.plane.cluster.create(made, LEASE, manager="another")


async def managed_has(managed: Managed, text: str) -> bool:
    """Return whether the backend has brought the kubeconfig into the space."""
    return get_text(await managed.read(SECRET, SOURCE), "data", "kubeconfig") == b64(text)


async def test_a_claim_goes_up_and_its_status_and_secret_come_down(scene: Scene) -> None:
    async with scene.backend(), konnector(scene.app.connection):
        await scene.bound(ACCEPTED)
        await scene.create_instance(size="1Gi")
        copy = await until(lambda: scene.copy())
        assert copy["spec"] == {"size": "1Gi"}
        uid = uid_of(await scene.instance())
        assert annotations_of(copy) == {keys.BOUND: "true", keys.CLAIM_UID: uid}
        assert finalizers_of(copy) == []
        instance = await scene.instance()
        assert finalizers_of(instance) == [keys.SYNCER]
        await scene.patch_copy({"status": {"phase": "Ready"}}, subresource="status")
        await until(lambda: has(scene.instance(), "Ready", "status", "phase"))
        made = secret("orders-creds", scene.service_namespace)
        await scene.plane.cluster.create(made, SECRET, manager="provider")
        brought = await until(lambda: scene.in_app(SECRET, "orders-creds", scene.app_namespace))
        assert brought["data"] == {"password": b64("old")}
        assert get_text(brought, "metadata", "annotations", keys.RESOURCE_OWNER) == "Provider"
