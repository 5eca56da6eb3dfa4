"""A service, a space and an app cluster for one test, and short questions about all of them."""

import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Literal

from bind.settings import Settings
from reconciler import api
from reconciler.blueprints import objects as blueprint
from reconciler.blueprints import objects as spaces
from reconciler.blueprints.objects import UNMARKED, Marks, build
from reconciler.controller.program import Term
from reconciler.controller.tasks import Clock
from reconciler.core import keys, names, refs
from reconciler.core.errors import AlreadyExists, NotServed, Unreachable
from reconciler.core.live import Address
from reconciler.core.manifest import Manifest, annotations_of, get_maps, get_text, ref_of, uid_of
from reconciler.core.secret import Secret
from tests.support import accounts, removal
from tests.support.backend import USUAL, backend
from tests.support.clusters import LiveCluster, Write
from tests.support.eventually import eventually
from tests.support.konnector import beside_control_plane, konnector
from tests.support.offers import CREDENTIALS, Offer, offered
from tests.support.removal import remove_for_good

MANAGER: Final = "klutchctl"
BIND: Final = names.KLUTCH_NAMESPACE
ACCEPTED: Final[Manifest] = {**CREDENTIALS, "state": "Accepted"}


@dataclass
class Scene:
    """A service, and one space for one app cluster, bound in Direct mode by hand."""

    plane: LiveCluster
    app: LiveCluster
    offer: Offer
    space: str
    app_namespace: str

    @property
    def secret(self) -> str:
        return names.kubeconfig_secret(self.space)

    @property
    def service_namespace(self) -> str:
        return f"{self.space}-{self.app_namespace}"

    def backend(
        self, *, settings: Settings = USUAL, clock: Clock | None = None
    ) -> AbstractAsyncContextManager[Term]:
        return backend(self.plane.connection, settings, clock=clock)

    def konnector(self, *, clock: Clock | None = None) -> AbstractAsyncContextManager[Term]:
        return konnector(self.app.connection, clock=clock)

    async def make_space(self) -> None:
        plane, space = self.plane.cluster, self.space
        cluster_binding = spaces.cluster_binding(
            space,
            kubeconfig_name=names.KUBECONFIG,
            spec={"providerPrettyName": "Shop Inc"},
            marks=UNMARKED,
        )
        await plane.create(spaces.namespace(space), refs.NAMESPACE, manager=MANAGER)
        await plane.create(cluster_binding, api.CLUSTER_BINDING, manager=MANAGER)
        account = build(refs.SERVICE_ACCOUNT, names.BINDER, namespace=space)
        await plane.create(account, refs.SERVICE_ACCOUNT, manager=MANAGER)
        token = await self.token()
        await self.make_secret(self.plane, space, names.KUBECONFIG, token=token)
        await self.make_secret(self.app, BIND, self.secret, token=token)

    async def token(self) -> str:
        """Return a token of the space's ServiceAccount."""
        return await accounts.token_of(self.plane.cluster, self.space, names.BINDER)

    async def make_secret(
        self, live: LiveCluster, namespace: str, name: str, *, token: str
    ) -> None:
        connection = self.plane.connection
        to = Address(connection.server, connection.ca or "")
        content = spaces.kubeconfig(to, Secret(token), namespace=self.space)
        made = spaces.kubeconfig_secret(namespace, name, content=content, marks=UNMARKED)
        await live.cluster.create(made, refs.SECRET, manager=MANAGER)

    async def request(self) -> None:
        made = blueprint.export_request(
            self.space, self.offer.resource, parameters={}, marks=UNMARKED
        )
        await self.plane.cluster.create(made, api.API_SERVICE_EXPORT_REQUEST, manager=MANAGER)

    async def bind(self, *claims: Manifest, secret: str = "") -> Manifest:
        """Make the APIServiceBinding; `secret` leads to the space, usually the space's own."""
        made = blueprint.service_binding(
            self.offer.resource,
            namespace=BIND,
            secret=(BIND, secret or self.secret),
            claims=claims,
            marks=Marks(),
        )
        return await self.app.cluster.create(made, api.API_SERVICE_BINDING, manager=MANAGER)

    async def unbind(self) -> None:
        """Delete the binding. The CRD stays, because its owner is in a namespace."""
        await remove(self.app, api.API_SERVICE_BINDING, BIND, self.offer.name)

    async def on_plane(self, kind: refs.Kind, name: str, namespace: str | None = None) -> Any:
        return await read(self.plane, kind, self.space if namespace is None else namespace, name)

    async def in_app(self, kind: refs.Kind, name: str, namespace: str = BIND) -> Any:
        return await read(self.app, kind, namespace, name)

    async def binding(self) -> Any:
        return await self.in_app(api.API_SERVICE_BINDING, self.offer.name)

    async def export(self) -> Any:
        return await self.on_plane(api.API_SERVICE_EXPORT, self.offer.name)

    async def instance(self, name: str = "orders") -> Any:
        return await self.in_app(self.offer.kind, name, self.app_namespace)

    async def copy(self, name: str = "orders") -> Any:
        return await self.on_plane(self.offer.kind, name, self.service_namespace)

    async def is_marked(self, name: str = "orders") -> bool:
        """Return whether both sides of an instance say whose copy it is."""
        claim = await self.instance(name) or {}
        uids = {
            annotations_of(one or {}).get(keys.CLAIM_UID) for one in (claim, await self.copy(name))
        }
        return uids == {uid_of(claim)} and keys.BOUND in annotations_of(claim)

    async def recreate_always(self) -> None:
        """Let a person allow that copies which are lost are made anew."""
        ref = refs.Ref(self.app.name, api.API_SERVICE_BINDING, BIND, self.offer.name)
        note: Manifest = {"metadata": {"annotations": {keys.RECREATE: keys.RECREATE_ALWAYS}}}
        await self.app.cluster.merge_patch(ref, note, manager="operator")

    async def create_instance(self, name: str = "orders", **spec: Any) -> Manifest:
        made = self.offer.instance(name, namespace=self.app_namespace, spec=spec)
        return await new(self.app, made, self.offer.kind, manager="developer")

    async def patch_instance(self, patch: Manifest) -> None:
        ref = refs.Ref(self.app.name, self.offer.kind, self.app_namespace, "orders")
        await self.app.cluster.merge_patch(ref, patch, manager="developer")

    async def patch_copy(self, patch: Manifest, *, subresource: str = "") -> None:
        ref = refs.Ref(self.plane.name, self.offer.kind, self.service_namespace, "orders")
        await self.plane.cluster.merge_patch(
            ref, patch, manager="provider", subresource=subresource
        )

    async def set_policy(self, policy: str) -> None:
        ref = refs.Ref(self.app.name, api.API_SERVICE_BINDING, BIND, self.offer.name)
        notes: Manifest = {"metadata": {"annotations": {keys.DELETION_POLICY: policy}}}
        await self.app.cluster.merge_patch(ref, notes, manager=MANAGER)

    async def own_crd(self, binding: Manifest) -> None:
        owner: Manifest = {
            "apiVersion": api.API_SERVICE_BINDING.api_version,
            "kind": api.API_SERVICE_BINDING.kind,
            "name": self.offer.name,
            "uid": uid_of(binding),
            "controller": True,
        }
        ref = refs.Ref(self.app.name, refs.CRD, "", self.offer.name)
        patch: Manifest = {"metadata": {"ownerReferences": [owner]}}
        await self.app.cluster.merge_patch(ref, patch, manager=MANAGER)

    async def bound(self, *claims: Manifest, within: float = 60.0) -> None:
        """Bind, and wait until all is well but for claims, which some tests make in vain."""
        await self.make_space()
        await self.request()
        await self.bind(*claims)
        await until(lambda: well_but_for_claims(self.binding()), within=within)
        await until(lambda: served(self.app, self.offer.kind), within=within)


@dataclass
class Managed:
    """A service, and an AppClusterBinding `shop` in the test's namespace for one app cluster."""

    plane: LiveCluster
    app: LiveCluster
    offer: Offer
    namespace: str

    @property
    def space(self) -> str:
        return f"klutch-bind-{self.namespace}-shop"

    @property
    def app_namespace(self) -> str:
        return self.namespace.replace("test-", "dev-")

    @property
    def service_namespace(self) -> str:
        return f"{self.space}-{self.app_namespace}"

    def backend(
        self, *, settings: Settings = USUAL, clock: Clock | None = None
    ) -> AbstractAsyncContextManager[Term]:
        return backend(self.plane.connection, settings, clock=clock)

    def konnector(self, *, clock: Clock | None = None) -> AbstractAsyncContextManager[list[Term]]:
        return beside_control_plane(
            self.plane.connection, self.space, "shop-kubeconfig", clock=clock
        )

    async def make_secret(self, content: str | None = None) -> None:
        """Make the Secret with the app cluster's kubeconfig, that of a robot that may do all."""
        connection = self.app.connection
        to = Address(connection.server, connection.ca or "")
        app = self.app.cluster
        token = "x" if content else await accounts.token_for_all(app, self.app_namespace)
        made = spaces.kubeconfig_secret(
            self.namespace,
            "shop-kubeconfig",
            content=spaces.kubeconfig(to, Secret(token)),
            marks=UNMARKED,
        )
        if content is not None:
            made = {**made, "data": {"kubeconfig": b64(content)}}
        await self.plane.cluster.create(made, refs.SECRET, manager=MANAGER)

    async def apply(self, *resources: refs.GroupResource) -> None:
        made = blueprint.app_cluster_binding(
            (self.namespace, "shop"),
            secret=(self.namespace, "shop-kubeconfig"),
            resources=resources,
            konnector={"deploy": False},
            marks=UNMARKED,
        )
        await self.plane.cluster.apply(made, api.APP_CLUSTER_BINDING, manager=MANAGER, force=True)

    async def let_go(self) -> None:
        """Let binding and AppClusterBinding go where no backend and no konnector does."""
        whole = refs.Ref(self.plane.name, api.APP_CLUSTER_BINDING, self.namespace, "shop")
        bound = refs.Ref(self.plane.name, api.API_SERVICE_BINDING, self.space, self.offer.name)
        for ref in (whole, bound):
            await remove_for_good(self.plane, ref)

    async def read(self, kind: refs.Kind, name: str, namespace: str | None = None) -> Any:
        return await read(self.plane, kind, namespace or self.space, name)

    async def itself(self) -> Any:
        return await self.read(api.APP_CLUSTER_BINDING, "shop", self.namespace)

    async def answered(self) -> Any:
        """Return the one request, once it has succeeded."""
        kind = api.API_SERVICE_EXPORT_REQUEST
        found = (await self.plane.cluster.list(kind, namespace=self.space)).items
        assert len(found) == 1
        return found[0] if get_text(found[0], "status", "phase") == "Succeeded" else None

    async def binding(self, offer: Offer | None = None) -> Any:
        return await self.read(api.API_SERVICE_BINDING, (offer or self.offer).name)

    async def export(self, offer: Offer | None = None) -> Any:
        return await self.read(api.API_SERVICE_EXPORT, (offer or self.offer).name)

    async def drains(self, offer: Offer | None = None) -> bool:
        """Return whether the konnector has begun to get time to let go of a binding."""
        return keys.DRAINING in annotations_of(await self.binding(offer))


@contextlib.asynccontextmanager
async def direct_scene(
    control_plane: LiveCluster,
    app_cluster: LiveCluster,
    namespace: str,
    *,
    scope: Literal["Namespaced", "Cluster"] = "Namespaced",
) -> AsyncIterator[Scene]:
    """Publish a service, and name a space that is yet to be made. All of it goes at the end."""
    unique = namespace.removeprefix("test-")
    clusters = (control_plane.cluster, app_cluster.cluster)
    async with offered(*clusters, namespace=namespace, scope=scope) as offer:
        app_namespace = f"dev-{unique}" if offer.kind.namespaced else ""
        scene = Scene(control_plane, app_cluster, offer, f"cluster-{unique}", app_namespace)
        async with at_home(scene):
            yield scene


@contextlib.asynccontextmanager
async def at_home(scene: Scene) -> AsyncIterator[None]:
    """Make what a scene needs in its app cluster; at the end all of it goes, and the space."""
    for name in filter(None, (BIND, scene.app_namespace)):
        with contextlib.suppress(AlreadyExists):
            await scene.app.cluster.create(spaces.namespace(name), refs.NAMESPACE, manager="tests")
    try:
        yield
    finally:
        ref = refs.Ref(scene.app.name, api.API_SERVICE_BINDING, BIND, scene.offer.name)
        with contextlib.suppress(NotServed):  # an old Klutch has it in no namespace
            await remove_for_good(scene.app, ref)
        await remove(scene.app, refs.SECRET, BIND, scene.secret)
        if scene.app_namespace:
            await remove(scene.app, refs.NAMESPACE, "", scene.app_namespace)
            await remove(scene.plane, refs.NAMESPACE, "", scene.service_namespace)
        await remove(scene.plane, refs.NAMESPACE, "", scene.space)


@contextlib.asynccontextmanager
async def managed_scene(
    control_plane: LiveCluster, app_cluster: LiveCluster, namespace: str
) -> AsyncIterator[Managed]:
    async with offered(control_plane.cluster, app_cluster.cluster, namespace=namespace) as offer:
        managed = Managed(control_plane, app_cluster, offer, namespace)
        made = spaces.namespace(managed.app_namespace)
        await app_cluster.cluster.create(made, refs.NAMESPACE, manager="tests")
        try:
            yield managed
        finally:
            await managed.let_go()
            await remove(app_cluster, refs.CLUSTER_ROLE_BINDING, "", managed.app_namespace)
            await remove(app_cluster, refs.NAMESPACE, "", managed.app_namespace)
            for name in (managed.space, managed.service_namespace):
                await remove(control_plane, refs.NAMESPACE, "", name)


async def read(live: LiveCluster, kind: refs.Kind, namespace: str, name: str) -> Any:
    where = namespace if kind.namespaced else ""
    return await live.cluster.get(refs.Ref(live.name, kind, where, name))


async def remove(live: LiveCluster, kind: refs.Kind, namespace: str, name: str) -> None:
    await removal.remove(live.cluster, refs.Ref(live.name, kind, namespace, name))


async def says(reading: Any, condition: str, status: str = "True", reason: str = "") -> bool:
    found = conditions(await reading).get(condition, {})
    return (found.get("status"), found.get("reason", "")) == (status, reason)


async def well_but_for_claims(reading: Any) -> bool:
    reported = conditions(await reading)
    wrong = {name for name, one in reported.items() if one["status"] != "True"}
    return {"InformersSynced", "SchemaInSync"} <= reported.keys() and (
        not wrong or wrong == {"Ready", "PermissionClaimsInSync"}
    )


def conditions(live: Any) -> dict[str, Any]:
    return {get_text(one, "type"): one for one in get_maps(live, "status", "conditions")}


def shown(live: Any) -> list[tuple[str, ...]]:
    """Return the conditions in their order, without message and time."""
    texts = ("type", "status", "severity", "reason")
    found = get_maps(live, "status", "conditions")
    return [tuple(get_text(one, text) for text in texts if text in one) for one in found]


def managers(live: Any) -> set[tuple[str, str, str]]:
    fields = live["metadata"]["managedFields"]
    return {(one["manager"], one["operation"], one.get("subresource", "")) for one in fields}


def concerns(space: str, write: Write) -> bool:
    """Return if a write is about a space: its objects, its service namespaces or its rights."""
    return space in f"{write.namespace} {write.name}"


async def has(reading: Any, value: str, *path: str) -> bool:
    return get_text(await reading, *path) == value


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def secret(name: str, namespace: str, **labels: str) -> Manifest:
    data = {"password": b64("old")}
    return build(
        refs.SECRET,
        name,
        namespace=namespace,
        marks=Marks(labels),
        type="connection.example/v1",
        data=data,
    )


async def served(live: LiveCluster, kind: refs.Kind) -> bool:
    with contextlib.suppress(NotServed, Unreachable):
        await live.cluster.list(kind)
        return True
    return False


async def new(live: LiveCluster, manifest: Manifest, kind: refs.Kind, *, manager: str) -> Manifest:
    """Make an object of a kind that is new itself, by server-side apply.

    Whoever POSTs to a kind younger than two seconds waits two seconds for the answer. A server
    that is short of time may know of a CRD, serve it a moment later, and then turn away what came
    while it took its last changes in.
    """

    async def made() -> Any:
        try:
            return await live.cluster.apply(manifest, kind, manager=manager, force=True)
        except (NotServed, Unreachable) as error:
            raise AssertionError(f"{ref_of(live.name, kind, manifest)}: {error}") from error

    # One call that hangs takes a minute.
    return await eventually(made, within=150)


async def until(probe: Callable[[], Awaitable[Any]], *, within: float = 60.0) -> Any:
    """As `eventually`, for what a test reads without types."""
    return await eventually(probe, within=within)


async def gone(reading: Any) -> bool:
    return await reading is None
