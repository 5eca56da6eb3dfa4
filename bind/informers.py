"""Informers of the backend's control plane, one of each kind, and their indexes.

Each index answers one question of a controller, "what concerns this key?", from either end: what
changed leads to keys, and a key finds its objects."""

from collections.abc import Iterable
from typing import Final

from bind import bounds
from bind.export.decide import resources
from bind.rbac_changes import granted
from bind.service_namespace.facts import key_of
from reconciler import api
from reconciler.blueprints import rbac
from reconciler.controller.manager import Bodies, ClusterInformers
from reconciler.core import field_set, keys, manifest, names, refs
from reconciler.core.manifest import Manifest
from reconciler.core.refs import GroupResource, Kind, ObjectKey
from reconciler.kube.cluster import Cluster
from reconciler.kube.informer import OPTIONAL
from reconciler.kube.limits import OF_CLAIMS
from reconciler.kube.store import Store, without_managed_fields
from reconciler.kube.turns import Party

# Names of indexes. Where a value is a place, it is an ObjectKey.
NAME: Final = "name"
SPACE: Final = "space"  # the namespace of an object, or of the object that it describes
RESOURCE: Final = "plural.group"
WANTED: Final = "the place of an export"
GRANTED: Final = "plural.group, exported or claimed"
MAPPED: Final = "the place of an APIServiceNamespace"
TARGET: Final = "service namespace"
SOURCE: Final = "the place of the kubeconfig Secret"
OWNER: Final = "the place of an AppClusterBinding"
DEFINITION: Final = "the CompositeResourceDefinition of a CRD"
SUBJECT: Final = "the owner of a space that somebody who signed in made"


class Informers(ClusterInformers):
    """The views, by kind; those for AppClusterBindings only in control-plane mode.

    Of CRDs, of which there may be hundreds of large ones, and of Secrets only metadata are held; of
    what app clusters write, what is read (`bounds`).
    `deployments_served` is False for a control plane without apps/v1, such as a workspace of kcp,
    and `quotas` where none are made. Templates of `template_namespace` alone count, with "" of all.
    Only a front door (`door`) finds spaces by their owners.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        control_plane_mode: bool,
        deployments_served: bool = True,
        quotas: bool = True,
        template_namespace: str = "",
        door: bool = False,
    ) -> None:
        super().__init__(cluster)
        self.deployments_served = deployments_served
        self._control_plane_mode = control_plane_mode
        self._serve_spaces(template_namespace, door=door)
        self._serve_rights(quotas=quotas)
        self._serve_app_cluster_bindings()

    def _serve_spaces(self, template_namespace: str, *, door: bool) -> None:
        self.cluster_bindings = self._view(
            api.CLUSTER_BINDING, {SPACE: _space}, trim=bounds.trimmed_cluster_binding
        )
        self.exports = self._view(
            api.API_SERVICE_EXPORT,
            {SPACE: _space, NAME: _name, GRANTED: granted},
            trim=bounds.trimmed_export,
        )
        self.requests = self._view(
            api.API_SERVICE_EXPORT_REQUEST,
            {
                SPACE: _space,
                RESOURCE: resources,
                WANTED: lambda one: [
                    ObjectKey(manifest.namespace_of(one), resource) for resource in resources(one)
                ],
            },
            trim=bounds.trimmed_request,
        )
        self.templates = self._view(
            api.API_SERVICE_EXPORT_TEMPLATE,
            {RESOURCE: lambda template: [index_key(api.offered_resource(template))]},
            namespace=template_namespace,
        )
        self.service_namespaces = self._view(
            api.API_SERVICE_NAMESPACE,
            {SPACE: _space, TARGET: _targets},
            trim=bounds.trimmed_service_namespace,
        )
        of_crd = {NAME: _name, DEFINITION: _definitions}
        self.crds = self._view(refs.CRD, of_crd, metadata_only=True)
        self.definitions = self._view(
            refs.COMPOSITE_DEFINITION, {NAME: _name}, metadata_only=True, optional=OPTIONAL
        )
        self._crds = Bodies(self.cluster, self.crds)
        of_namespaces = {
            NAME: _name,
            MAPPED: _mapping_keys,
            SPACE: lambda one: [key.namespace for key in _mapping_keys(one)],
        }
        self.namespaces = self._view(
            refs.NAMESPACE,
            of_namespaces | ({SUBJECT: _subject} if door else {}),
            trim=trimmed_namespace,
        )

    def _serve_rights(self, *, quotas: bool) -> None:
        of_role = {NAME: _name, SPACE: _space_of_role}
        self.cluster_roles = self._view(refs.CLUSTER_ROLE, of_role)
        self.cluster_role_bindings = self._view(refs.CLUSTER_ROLE_BINDING, of_role)
        self.role_bindings = self._named(refs.ROLE_BINDING, names.BINDER)
        self.accounts = self._named(refs.SERVICE_ACCOUNT, names.BINDER)
        self.quotas = self._named(refs.RESOURCE_QUOTA, names.QUOTA, served=quotas)

    def _serve_app_cluster_bindings(self) -> None:
        served = self._control_plane_mode
        self.app_cluster_bindings = self._view(
            api.APP_CLUSTER_BINDING,
            {
                SPACE: lambda one: [names.app_cluster_binding_space(*manifest.identity_of(one))],
                SOURCE: _source,
                RESOURCE: _bound,
            },
            served=served,
            budget=OF_CLAIMS,
        )
        self.bindings = self._view(
            api.API_SERVICE_BINDING,
            {SPACE: _space, OWNER: _owner},
            trim=bounds.trimmed_binding,
            served=served,
            budget=OF_CLAIMS,
        )
        self.secrets = self._view(
            refs.SECRET,
            {SPACE: _space},
            metadata_only=True,
            trim=bounds.trimmed_marks,
            served=served,
        )
        self.deployments = self._view(
            refs.DEPLOYMENT,
            {SPACE: _space},
            labels=f"{keys.APP}={keys.APP_KONNECTOR}",
            served=served and self.deployments_served,
        )
        connector = names.CONTROL_PLANE_CONNECTOR
        enclosed = served and self.deployments_served
        self.network_policies = self._named(refs.NETWORK_POLICY, names.KONNECTOR, served=enclosed)
        self.limit_ranges = self._named(refs.LIMIT_RANGE, names.KONNECTOR, served=enclosed)
        self.roles = self._named(refs.ROLE, connector, served=served)
        self.connector_bindings = self._named(refs.ROLE_BINDING, connector, served=served)

    def party(self, space: str) -> Party:
        """Return for whom work in a space is done, as far as the views know."""
        binding = self.cluster_bindings.get(space, names.CLUSTER_BINDING)
        return party_of(space, self.namespaces.get("", space), binding)

    def template(self, resource: str) -> Manifest | None:
        return next(iter(api.by_resource(self.templates.by(RESOURCE, resource)).values()), None)

    def listed(self, space: str) -> frozenset[str] | None:
        """Return the resources (`plural.group`) that the AppClusterBinding of a space lists.

        None where it never had one; one that goes, or is gone, lists nothing. Whose the space is
        tells the ClusterBinding, which no konnector may write. Without control-plane mode nobody
        knows of AppClusterBindings.
        """
        if not self._control_plane_mode:
            return None
        for one in self.cluster_bindings.by(SPACE, space):
            for owner in _owner(one):
                live = self.app_cluster_bindings.get(*owner)
                return frozenset(
                    _bound(live) if live is not None and not manifest.is_deleting(live) else ()
                )
        return None

    def bound_at_door(self, space: str) -> frozenset[str] | None:
        """Return the resources that were bound in a space at the front door.

        None where that is not noted: in spaces of fleets, of AppClusterBindings and of the
        original. Of a Namespace that is not seen yet nobody can tell, so it has nothing so far.
        """
        namespace = self.namespaces.get("", space)
        return frozenset() if namespace is None else bounds.bound_at_door(namespace)

    async def crd(self, name: str) -> Manifest | None:
        """Return a whole CRD, as new as its view or newer. Raises ClusterErrors."""
        return await self._crds.get("", name)

    def definition(self, crd: Manifest | None) -> Manifest | None:
        """Return the metadata of Crossplane's definition behind a CRD; None without one."""
        found = (self.definitions.get("", name) for name in _definitions(crd or {}))
        return next(filter(None, found), None)

    async def left_in(self, space: Manifest) -> str:
        """Return a sentence about the leavings of an earlier space of that name, or "".

        Lists all again: views lag, and are of some names. Raises ClusterErrors.
        """
        namespaces = await self.cluster.list(refs.NAMESPACE, metadata_only=True)
        bindings = [
            one
            for kind in (refs.ROLE_BINDING, refs.CLUSTER_ROLE_BINDING)
            for one in (await self.cluster.list(kind)).items
        ]
        return rbac.left_over(space, namespaces.items, bindings)

    def _named(self, kind: Kind, name: str, *, served: bool = True) -> Store:
        """Return a view of the objects of one name, by their spaces."""
        return self._view(kind, {SPACE: _space}, fields=f"metadata.name={name}", served=served)


def _name(live: Manifest) -> Iterable[str]:
    return [manifest.name_of(live)]


def _definitions(crd: Manifest) -> Iterable[str]:
    owners = manifest.get_maps(crd, "metadata", "ownerReferences")
    kind = refs.COMPOSITE_DEFINITION.kind
    return [manifest.get_text(one, "name") for one in owners if one.get("kind") == kind]


def _space(live: Manifest) -> Iterable[str]:
    return [manifest.namespace_of(live)]


def _mapping_keys(namespace: Manifest) -> Iterable[ObjectKey]:
    key = key_of(manifest.annotations_of(namespace).get(keys.API_SERVICE_NAMESPACE, ""))
    return [] if key is None else [ObjectKey(key.space, key.name)]


def _subject(namespace: Manifest) -> Iterable[str]:
    owner = bounds.owner_of(manifest.annotations_of(namespace).get(keys.IDENTITY, ""))
    return [owner] if owner else []


def _targets(mapping: Manifest) -> Iterable[str]:
    first = names.service_namespace(manifest.namespace_of(mapping), manifest.name_of(mapping))
    return {first, manifest.get_text(mapping, "status", "namespace") or first}


def _space_of_role(role: Manifest) -> Iterable[str]:
    prefix = names.space_cluster_role("")
    name = manifest.name_of(role)
    return [name.removeprefix(prefix)] if name.startswith(prefix) else []


def _source(binding: Manifest) -> Iterable[ObjectKey]:
    return [api.secret_of(binding)]


def index_key(resource: GroupResource) -> str:
    """Return a resource as the index RESOURCE has it: with a dot at the end for the core group."""
    return f"{resource.plural}.{resource.group}"


def _bound(binding: Manifest) -> Iterable[str]:
    return map(index_key, api.listed_resources(binding))


def _owner(live: Manifest) -> Iterable[ObjectKey]:
    labels = manifest.labels_of(live)
    namespace = labels.get(keys.APP_CLUSTER_BINDING_NAMESPACE)
    name = labels.get(keys.APP_CLUSTER_BINDING_NAME)
    return [ObjectKey(namespace, name)] if namespace and name else []


# Finds the party of an object in a space, so that parties take turns (law 4). Pure.

_OWNER: Final = "owner"  # beside `metadata`: no API server sends it, and nobody writes it there
# Others may annotate Namespaces too, and could join the turns of any owner.
_BELIEVED: Final = (keys.MANAGER_BACKEND, keys.MANAGER_CLI, keys.MANAGER_BIND)


def trimmed_namespace(live: Manifest) -> Manifest:
    """Return a Namespace without managedFields, but with the owner that they prove."""
    notes = manifest.annotations_of(live)
    owner = bounds.owner_of(notes.get(keys.IDENTITY, ""))
    written = manifest.get_map(field_set.owned(live, *_BELIEVED), "f:metadata", "f:annotations")
    if not owner or f"f:{keys.IDENTITY}" not in written:
        return without_managed_fields(live)
    issuer = notes.get(keys.ISSUER, "") if f"f:{keys.ISSUER}" in written else ""
    return {**without_managed_fields(live), _OWNER: f"{issuer} {owner}"}


def party_of(space: str, namespace: Manifest | None, binding: Manifest | None) -> Party:
    """Return the party of a space; `namespace` as trimmed, `binding` its ClusterBinding."""
    if namespace is not None and bounds.is_of_fleet(namespace):
        return Party(f"fleet {manifest.labels_of(namespace)[keys.FLEET]}", space)
    if author := manifest.labels_of(binding or {}).get(keys.APP_CLUSTER_BINDING_NAMESPACE):
        return Party(f"namespace {author}", space)
    if owner := manifest.get_text(namespace, _OWNER):
        return Party(f"identity {owner}", space)
    return Party(f"space {space}", space)


def party_of_binding(key: ObjectKey) -> Party:
    """Return the party of the AppClusterBinding of a place."""
    return Party(f"namespace {key.namespace}", names.app_cluster_binding_space(*key))
