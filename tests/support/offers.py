"""A service of its own for one test: a CRD and a template, and all traces removed at the end."""

import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal
from weakref import WeakKeyDictionary

from reconciler.api import API_SERVICE_EXPORT_TEMPLATE
from reconciler.blueprints.objects import build
from reconciler.core.errors import Missing, NotServed
from reconciler.core.manifest import Manifest, ref_of
from reconciler.core.refs import CRD, GroupResource, Kind, Ref
from reconciler.kube.cluster import Cluster
from reconciler.kube.requests import Preconditions, Propagation
from tests.support.definitions import OPEN, definition
from tests.support.observing import established

_Scope = Literal["Namespaced", "Cluster"]

MANAGER: Final = "provider"
CREDENTIALS: Final[Manifest] = {
    "group": "",
    "resource": "secrets",
    "version": "v1",
    "required": True,
    "selector": {"owner": "Provider"},
}
_SCHEMA: Final[Manifest] = {"type": "object", "properties": {"spec": OPEN, "status": OPEN}}


@dataclass(frozen=True, slots=True)
class Offer:
    """A service in a group that no other test has."""

    group: str
    scope: _Scope

    @property
    def resource(self) -> GroupResource:
        return GroupResource(self.group, "databases")

    @property
    def name(self) -> str:
        """The name of its CRD, export and binding."""
        return self.resource.name

    @property
    def kind(self) -> Kind:
        namespaced = self.scope == "Namespaced"
        return Kind(self.group, "v1", "Database", "databases", namespaced=namespaced)

    def instance(self, name: str, *, namespace: str = "", spec: Manifest) -> Manifest:
        return build(self.kind, name, namespace=namespace, spec=spec)


_SPARES: Final[WeakKeyDictionary[Cluster, dict[_Scope, Offer]]] = WeakKeyDictionary()


@contextlib.asynccontextmanager
async def offered(
    control_plane: Cluster,
    *app_clusters: Cluster,
    namespace: str,
    claims: Sequence[Manifest] = (CREDENTIALS,),
    scope: _Scope = "Namespaced",
    template: bool = True,
) -> AsyncIterator[Offer]:
    """Publish a service on a control plane, its template in `namespace`.

    At the end its CRDs go everywhere, and all instances with them, finalizers or not.
    """
    offer = await _defined(control_plane, scope)
    try:
        if template:
            await publish_template(control_plane, offer, namespace=namespace, claims=claims)
        yield offer
    finally:
        for cluster in (*app_clusters, control_plane):
            await _withdraw(cluster, offer)


async def _defined(control_plane: Cluster, scope: _Scope) -> Offer:
    """Return a service whose CRD has been there for a test or so, but for the first.

    Whoever creates an object of a kind that is younger than two seconds waits two seconds.
    """
    spares = _SPARES.setdefault(control_plane, {})
    offer = spares.pop(scope, None) or await _define(control_plane, scope)
    spares[scope] = await _define(control_plane, scope)
    await established(control_plane, offer.kind)
    return offer


async def _define(control_plane: Cluster, scope: _Scope) -> Offer:
    offer = Offer(f"s{uuid.uuid4().hex[:10]}.example", scope)
    await control_plane.create(definition(offer.kind, _SCHEMA, status=True), CRD, manager=MANAGER)
    return offer


async def define_again(control_plane: Cluster, offer: Offer) -> None:
    await control_plane.create(definition(offer.kind, _SCHEMA, status=True), CRD, manager=MANAGER)
    await established(control_plane, offer.kind)


async def publish_template(
    control_plane: Cluster,
    offer: Offer,
    *,
    namespace: str,
    claims: Sequence[Manifest] = (CREDENTIALS,),
) -> None:
    """Let the backend export a service."""
    spec: Manifest = {"APIServiceSelector": offer.resource.wire, "permissionClaims": list(claims)}
    kind = API_SERVICE_EXPORT_TEMPLATE
    name = f"{offer.resource.plural}-{offer.group.partition('.')[0]}"
    made = build(kind, name, namespace=namespace, spec=spec)
    await control_plane.create(made, kind, manager=MANAGER)


async def _withdraw(cluster: Cluster, offer: Offer) -> None:
    with contextlib.suppress(NotServed):
        for instance in (await cluster.list(offer.kind)).items:
            ref = ref_of(cluster.name, offer.kind, instance)
            with contextlib.suppress(Missing):
                nothing: Manifest = {"metadata": {"finalizers": None}}
                await cluster.merge_patch(ref, nothing, manager=MANAGER)
    await cluster.delete(
        Ref(cluster.name, CRD, "", offer.name),
        preconditions=Preconditions(uid=None),
        propagation=Propagation.ORPHAN,
    )
