"""What the backend decides, carried out on a real kube-apiserver until nothing is left to do."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pytest

from bind.cluster_binding import decide as cluster_binding_decide
from bind.export import decide as export_decide
from bind.export import requests
from bind.service_namespace import decide as service_namespace_decide
from reconciler.api.bindings import CLUSTER_BINDING
from reconciler.api.exports import (
    API_SERVICE_EXPORT,
    API_SERVICE_EXPORT_REQUEST,
    API_SERVICE_EXPORT_TEMPLATE,
    API_SERVICE_NAMESPACE,
    by_resource,
    offered_resource,
)
from reconciler.blueprints import objects
from reconciler.blueprints import space as spaces_of
from reconciler.blueprints.export import Scope, Terms
from reconciler.blueprints.objects import UNMARKED, build
from reconciler.controller.clock import SystemClock
from reconciler.controller.executor import Executor, Observed
from reconciler.controller.fence import WriteFence
from reconciler.core import names
from reconciler.core.decision import Decision, status_patch
from reconciler.core.manifest import Manifest, get, get_text, name_of
from reconciler.core.refs import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CRD,
    NAMESPACE,
    ROLE_BINDING,
    Kind,
    Ref,
)
from reconciler.kube.cluster import Cluster
from reconciler.kube.requests import Preconditions, Propagation
from tests.support.offers import CREDENTIALS, Offer, offered

MANAGER: Final = "klutch-bind"
GRACE: Final = timedelta(minutes=10)
CONFIG: Final[Manifest] = {"resource": "configmaps", "version": "v1"}
OTHER_ROLE: Final = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "x"}
Look = Callable[[], Awaitable[tuple[Ref, Manifest, Decision]]]


@dataclass
class Space:
    """A binding space that is served by deciding and doing, without any watch."""

    cluster: Cluster
    name: str
    offer: Offer
    scope: Scope = "Namespaced"

    def ref(self, kind: Kind, name: str, *, inside: bool = True) -> Ref:
        return Ref(self.cluster.name, kind, self.name if inside else "", name)

    async def get(self, kind: Kind, name: str, *, inside: bool = True) -> Any:
        return await self.cluster.get(self.ref(kind, name, inside=inside))

    async def make(self, manifest: Manifest, kind: Kind) -> None:
        await self.cluster.create(manifest, kind, manager="tests")

    async def change(self, kind: Kind, name: str, body: Manifest, *, inside: bool = True) -> None:
        await self.cluster.merge_patch(self.ref(kind, name, inside=inside), body, manager="tests")

    async def templates(self) -> Sequence[Manifest]:
        found = (await self.cluster.list(API_SERVICE_EXPORT_TEMPLATE)).items
        return [one for one in found if offered_resource(one).name == self.offer.name]

    async def request(self) -> tuple[Ref, Manifest, Decision]:
        kind, name = API_SERVICE_EXPORT_REQUEST, self.offer.name
        crd = await self.get(CRD, name, inside=False)
        made = await self.get(API_SERVICE_EXPORT, name)
        template = next(iter(by_resource(await self.templates()).values()), None)
        seen = requests.Seen(
            self.cluster.name,
            await self.get(kind, name),
            crds={name: crd} if crd else {},
            exports={name: made} if made else {},
            templates={name: template} if template else {},
        )
        decision = requests.decide(seen, terms=Terms(self.scope), now=SystemClock().now())
        return self.ref(kind, name), seen.request, decision

    async def export(self) -> tuple[Ref, Manifest, Decision]:
        seen = export_decide.Seen(
            self.cluster.name,
            await self.get(API_SERVICE_EXPORT, self.offer.name),
            crd=await self.get(CRD, self.offer.name, inside=False),
            template=next(iter(by_resource(await self.templates()).values()), None),
        )
        decision = export_decide.decide(
            seen, isolation="Prefixed", grace=GRACE, now=SystemClock().now()
        )
        return self.ref(API_SERVICE_EXPORT, self.offer.name), seen.export, decision

    async def binding(self) -> tuple[Ref, Manifest, Decision]:
        kind, role = CLUSTER_BINDING, names.space_cluster_role(self.name)
        seen = cluster_binding_decide.Seen(
            self.cluster.name,
            await self.get(kind, names.CLUSTER_BINDING),
            space=await self.get(NAMESPACE, self.name, inside=False),
            exports=(await self.cluster.list(API_SERVICE_EXPORT, namespace=self.name)).items,
            role_binding=await self.get(ROLE_BINDING, names.BINDER),
            cluster_role=await self.get(CLUSTER_ROLE, role, inside=False),
            cluster_role_binding=await self.get(CLUSTER_ROLE_BINDING, role, inside=False),
        )
        decision = cluster_binding_decide.decide(seen, scope=self.scope, now=SystemClock().now())
        return self.ref(kind, names.CLUSTER_BINDING), seen.binding, decision

    async def app_namespace(self) -> tuple[Ref, Manifest, Decision]:
        home = service_namespace_decide.Home(self.name, "dev")
        rights = Ref(self.cluster.name, ROLE_BINDING, home.target, names.BINDER)
        seen = service_namespace_decide.Seen(
            self.cluster.name,
            home,
            mapping=await self.get(API_SERVICE_NAMESPACE, home.name),
            space=await self.get(NAMESPACE, self.name, inside=False),
            namespace=await self.get(NAMESPACE, home.target, inside=False),
            role_binding=await self.cluster.get(rights),
            removal=service_namespace_decide.Removal(
                mapping=await self.get(API_SERVICE_NAMESPACE, home.name),
                crd=await self.get(CRD, API_SERVICE_NAMESPACE.resource, inside=False),
                contents=service_namespace_decide.Contents(released=False),
            ),
            witnessed=True,
        )
        decision = service_namespace_decide.decide(seen, scope=self.scope, now=SystemClock().now())
        if seen.mapping is not None:
            return self.ref(API_SERVICE_NAMESPACE, home.name), seen.mapping, decision
        live = seen.namespace or {"metadata": {"name": home.target}}
        return self.ref(NAMESPACE, home.target, inside=False), live, decision

    def record(self, *event: object) -> None:
        """Record no Event."""

    async def settle(self, look: Look) -> int:
        """Decide and do until nothing is left; return in how many rounds something was done."""
        for done in range(6):
            ref, live, decision = await look()
            told = status_patch(live, ref, decision, failed=[], now=SystemClock().now())
            if not decision.tasks and told is None:
                return done
            clusters = {self.cluster.name: self.cluster}
            executor = Executor(
                clusters,
                WriteFence(),
                manager=MANAGER,
                recorder=self,
                now=SystemClock().now,
            )
            await executor.execute(decision, Observed(ref, live))
        raise AssertionError(f"never done: {decision}")


@pytest.fixture
async def served(control_plane, namespace) -> AsyncIterator[Space]:
    cluster = control_plane.cluster
    async with offered(cluster, namespace=namespace) as offer:
        space = Space(cluster, namespace, offer)
        yield space
        await delete(space, NAMESPACE, names.service_namespace(namespace, "dev"), inside=False)
        for kind in (CLUSTER_ROLE, CLUSTER_ROLE_BINDING):
            await delete(space, kind, names.space_cluster_role(namespace), inside=False)


async def delete(space: Space, kind: Kind, name: str, *, inside: bool = True) -> None:
    await space.cluster.delete(
        space.ref(kind, name, inside=inside),
        preconditions=Preconditions(uid=None),
        propagation=Propagation.BACKGROUND,
    )


async def exported(space: Space) -> None:
    resource = space.offer.resource
    wish = objects.export_request(space.name, resource, parameters={}, marks=UNMARKED)
    await space.make(wish, API_SERVICE_EXPORT_REQUEST)
    await space.settle(space.request)


async def test_a_request_is_answered_when_its_export_is_there(served):
    await exported(served)
    request = await served.get(API_SERVICE_EXPORT_REQUEST, served.offer.name)
    assert get_text(request, "status", "phase") == "Succeeded"
    assert await served.settle(served.request) == 0
    assert await served.settle(served.export) == 1  # its condition
    assert await served.settle(served.export) == 0


async def test_an_export_follows_all_that_changes_in_its_crd_and_template(served):
    await exported(served)
    crd, name = served.offer.name, served.offer.name
    await served.change(CRD, crd, {"spec": {"names": {"shortNames": ["db"]}}}, inside=False)
    assert await served.settle(served.export) == 1
    assert get(await served.get(API_SERVICE_EXPORT, name), "spec", "names", "shortNames") == ["db"]

    v1 = (await served.get(CRD, crd, inside=False))["spec"]["versions"][0]
    versions = [{**v1, "storage": False}, {**v1, "name": "v2", "served": False}]
    more: Manifest = {"names": {"shortNames": None}, "versions": versions}
    await served.change(CRD, crd, {"spec": more}, inside=False)
    assert await served.settle(served.export) == 1
    spec = (await served.get(API_SERVICE_EXPORT, name))["spec"]
    assert "shortNames" not in spec["names"]
    assert [(one["name"], one["storage"]) for one in spec["versions"]] == [("v1", True)]

    (template,) = await served.templates()
    for claims in ([CREDENTIALS, CONFIG], [CONFIG], [], [CREDENTIALS]):
        body: Manifest = {"spec": {"permissionClaims": claims}}
        await served.change(API_SERVICE_EXPORT_TEMPLATE, name_of(template), body)
        assert await served.settle(served.export) == 1
        spec = (await served.get(API_SERVICE_EXPORT, name))["spec"]
        held = [one["resource"] for one in spec.get("permissionClaims", [])]
        assert held == [one["resource"] for one in claims]
    assert await served.settle(served.export) == 0


async def test_rights_are_made_kept_and_taken(served):
    await exported(served)
    made = spaces_of.cluster_binding(
        served.name,
        kubeconfig_name="kubeconfig",
        spec={"providerPrettyName": "Shop Inc"},
        marks=UNMARKED,
    )
    await served.make(made, CLUSTER_BINDING)
    role = names.space_cluster_role(served.name)
    served.scope = "Cluster"
    assert await served.settle(served.binding) == 1
    assert await served.get(CLUSTER_ROLE_BINDING, role, inside=False)
    rules = (await served.get(CLUSTER_ROLE, role, inside=False))["rules"]
    resources = [one["resources"] for one in rules]
    assert resources == [["secrets"], ["databases"]]

    served.scope = "Namespaced"
    assert await served.settle(served.binding) == 1
    assert await served.get(CLUSTER_ROLE_BINDING, role, inside=False) is None

    await served.change(CLUSTER_ROLE, role, {"rules": rules[:1]}, inside=False)
    await served.change(ROLE_BINDING, names.BINDER, {"subjects": None})
    assert await served.settle(served.binding) == 1
    assert get(await served.get(CLUSTER_ROLE, role, inside=False), "rules") == rules
    held = await served.get(ROLE_BINDING, names.BINDER)
    assert [one["namespace"] for one in held["subjects"]] == [served.name]

    await delete(served, ROLE_BINDING, names.BINDER)
    await served.make({**strip(held), "roleRef": OTHER_ROLE}, ROLE_BINDING)
    assert await served.settle(served.binding) == 1
    assert get(await served.get(ROLE_BINDING, names.BINDER), "roleRef", "name") == names.BINDER
    assert await served.settle(served.binding) == 0


def strip(live: Manifest) -> Manifest:
    return {**live, "metadata": {key: get(live, "metadata", key) for key in ("name", "namespace")}}


async def test_a_service_namespace_is_made_told_and_ended(served):
    target = names.service_namespace(served.name, "dev")
    made = build(API_SERVICE_NAMESPACE, "dev", namespace=served.name)
    await served.make(made, API_SERVICE_NAMESPACE)
    assert await served.settle(served.app_namespace) == 2  # its status comes after the rest
    mapping = await served.get(API_SERVICE_NAMESPACE, "dev")
    assert get_text(mapping, "status", "namespace") == target
    rights = Ref(served.cluster.name, ROLE_BINDING, target, names.BINDER)
    held = await served.cluster.get(rights)
    assert get(held, "roleRef", "name") == names.space_cluster_role(served.name)

    await delete(served, API_SERVICE_NAMESPACE, "dev")
    await served.settle(served.app_namespace)
    gone = await served.get(NAMESPACE, target, inside=False)
    assert gone is None or get_text(gone, "metadata", "deletionTimestamp")


async def test_a_namespace_of_somebody_else_stays_theirs(served):
    target = names.service_namespace(served.name, "dev")
    await served.make(spaces_of.namespace(target), NAMESPACE)
    made = build(API_SERVICE_NAMESPACE, "dev", namespace=served.name)
    await served.make(made, API_SERVICE_NAMESPACE)
    assert await served.settle(served.app_namespace) == 0
    await delete(served, API_SERVICE_NAMESPACE, "dev")
    assert await served.settle(served.app_namespace) == 0
    kept = await served.get(NAMESPACE, target, inside=False)
    assert not get_text(kept, "metadata", "deletionTimestamp")
