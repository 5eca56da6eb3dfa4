"""How the backend stand-in serves AppClusterBindings (protocol-bind.md C.6)."""

import contextlib
from typing import TYPE_CHECKING, Final

from reconciler.api.app_cluster_binding import APP_CLUSTER_BINDING
from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.api.export_request import API_SERVICE_EXPORT_REQUEST
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.blueprints import space as spaces_of
from reconciler.blueprints.binding import Resource
from reconciler.blueprints.objects import UNMARKED, Marks, build
from reconciler.core import causes, conditions, keys, names
from reconciler.core.conditions import Condition
from reconciler.core.errors import AlreadyExists
from reconciler.core.manifest import (
    JSON,
    Manifest,
    finalizers_of,
    get,
    get_maps,
    get_text,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    ref_of,
)
from reconciler.core.refs import NAMESPACE, SECRET, SERVICE_ACCOUNT, Kind, Ref
from tests.support import stand_in_kubeconfigs as kubeconfigs
from tests.support.stand_in_process import (
    commit_status,
    preconditions_of,
    remove,
    with_conditions,
)

if TYPE_CHECKING:
    from tests.support.stand_in_backend import StandInBackend

_MANAGER: Final = "example-backend"


class AppClusterBindings:
    """The controller appclusterbinding, without rights and Deployment."""

    def __init__(self, backend: "StandInBackend") -> None:
        self._backend, self._plane = backend, backend.plane

    @staticmethod
    def space_of(binding: Manifest) -> str:
        return names.app_cluster_binding_space(namespace_of(binding), name_of(binding))

    async def serve(self, binding: Manifest) -> None:
        """One reconcile."""
        held = keys.APP_CLUSTER_BINDING_CLEANUP in finalizers_of(binding)
        if is_deleting(binding):
            if held:
                await self._clean_up(binding)
            return
        if not held:
            await self._set_finalizers(
                binding, [*finalizers_of(binding), keys.APP_CLUSTER_BINDING_CLEANUP]
            )
            return
        source, valid = await self._source(binding)
        new = [valid]
        if source is not None:
            await self._make_space(binding, source)
            wanted = self._wanted(binding)
            if wanted is None:
                return  # no template: nothing is bound, pruned or said (F5, F35)
            await self._bind(binding, wanted)
            await self._request(binding, wanted)
            new.append(conditions.true(causes.KONNECTOR_DEPLOYED))
        status: Manifest = {"conditions": with_conditions(binding, *new, ready=True)}
        await commit_status(self._plane, APP_CLUSTER_BINDING, binding, status, manager=_MANAGER)

    async def _source(self, binding: Manifest) -> tuple[Manifest | None, Condition]:
        """Return the app cluster's kubeconfig Secret where it is usable, and SecretValid."""
        secret = ("spec", "kubeconfigSecretRef")
        namespace, name = (
            get_text(binding, *secret, "namespace"),
            get_text(binding, *secret, "name"),
        )
        found = await self._plane.get(Ref(self._plane.name, SECRET, namespace, name))
        place = f"{namespace}/{name}"
        verdict = kubeconfigs.verdict(found, place, namespace_needed=False)
        return (found if verdict.status == conditions.TRUE else None), verdict

    async def _make_space(self, binding: Manifest, source: Manifest) -> None:
        space, marks = self.space_of(binding), _marks(binding)
        secret = get_text(binding, "spec", "kubeconfigSecretRef", "name")
        if self._backend.mirrored(NAMESPACE).get("", space) is None:
            await self._create(NAMESPACE, spaces_of.namespace(space))
        account = Ref(self._plane.name, SERVICE_ACCOUNT, space, names.BINDER)
        if await self._plane.get(account) is None:
            made = spaces_of.service_account(space, names.BINDER, marks=UNMARKED)
            await self._create(SERVICE_ACCOUNT, made)
        await self._mirror(source, space, secret, marks)
        if self._backend.mirrored(CLUSTER_BINDING).get(space, names.CLUSTER_BINDING) is None:
            made = spaces_of.cluster_binding(
                space, kubeconfig_name=secret, pretty_name=name_of(binding), marks=marks
            )
            await self._create(CLUSTER_BINDING, made)

    async def _mirror(self, source: Manifest, space: str, name: str, marks: Marks) -> None:
        data: Manifest = {names.KUBECONFIG: get(source, "data", names.KUBECONFIG)}
        live = await self._plane.get(Ref(self._plane.name, SECRET, space, name))
        if live is None:
            secret = build(SECRET, name, namespace=space, marks=marks, data=data)
            await self._create(SECRET, {**secret, "type": get_text(source, "type")})
        elif live.get("data") != data:
            change: list[Manifest] = [{"op": "add", "path": "/data", "value": data}]
            ref = ref_of(self._plane.name, SECRET, live)
            await self._plane.json_patch(ref, change, manager=_MANAGER)

    def _wanted(self, binding: Manifest) -> dict[Resource, Manifest] | None:
        """Return the template of each apiExport, or None where one has none."""
        listed = [
            Resource(get_text(one, "group").strip(), get_text(one, "resource").strip())
            for one in get_maps(binding, "spec", "apiExports")
        ]
        templates = {one: self._backend.template(one.group, one.plural) for one in listed}
        found = {one: template for one, template in templates.items() if template is not None}
        return found if len(found) == len(templates) else None

    async def _bind(self, binding: Manifest, wanted: dict[Resource, Manifest]) -> None:
        """Make, correct and prune APIServiceBindings; their claims are somebody else's."""
        space, labels = self.space_of(binding), _labels(binding)
        ref: Manifest = {
            "name": get_text(binding, "spec", "kubeconfigSecretRef", "name"),
            "key": names.KUBECONFIG,
            "namespace": space,
        }
        bound = {name_of(one): one for one in self._labelled(API_SERVICE_BINDING, labels)}
        for name, live in bound.items():
            if name not in {one.name for one in wanted}:
                await remove(self._plane, API_SERVICE_BINDING, live)
        for resource in wanted:
            if resource.name not in bound:
                made = build(
                    API_SERVICE_BINDING,
                    resource.name,
                    namespace=space,
                    marks=Marks(labels),
                    spec={"kubeconfigSecretRef": ref},
                )
                await self._create(API_SERVICE_BINDING, made)
            elif labels_of(bound[resource.name]) != labels:
                await self._relabel(bound[resource.name], labels)

    async def _request(self, binding: Manifest, wanted: dict[Resource, Manifest]) -> None:
        """Request what is not exported, and prune requests and exports."""
        space, labels = self.space_of(binding), _labels(binding)
        exports = self._backend.mirrored(API_SERVICE_EXPORT).inside(space)
        requests = {name_of(one): one for one in self._labelled(API_SERVICE_EXPORT_REQUEST, labels)}
        asked = {
            names.export_request(name_of(binding), name_of(template)): (resource, template)
            for resource, template in wanted.items()
        }
        for export in exports:
            if name_of(export) not in {one.name for one in wanted}:
                await remove(self._plane, API_SERVICE_EXPORT, export)
        for name, live in requests.items():
            if name not in asked:
                await remove(self._plane, API_SERVICE_EXPORT_REQUEST, live)
        exported = {name_of(one) for one in exports}
        for name, (resource, template) in asked.items():
            if name not in requests and resource.name not in exported:
                claims = get_maps(template, "spec", "permissionClaims")
                item: dict[str, JSON] = {**resource.wire}
                if claims:
                    item["permissionClaims"] = claims
                made = build(
                    API_SERVICE_EXPORT_REQUEST,
                    name,
                    namespace=space,
                    marks=Marks(labels),
                    spec={"resources": [item]},
                )
                await self._create(API_SERVICE_EXPORT_REQUEST, made)

    async def _clean_up(self, binding: Manifest) -> None:
        """Delete bindings and space, and let go once both are gone."""
        bound = self._labelled(API_SERVICE_BINDING, _labels(binding))
        for live in bound:
            await remove(self._plane, API_SERVICE_BINDING, live)
        ref = Ref(self._plane.name, NAMESPACE, "", self.space_of(binding))
        space = await self._plane.get(ref)
        if space is not None and not is_deleting(space):
            await remove(self._plane, NAMESPACE, space)
        if space is None and not bound:
            kept = [
                one for one in finalizers_of(binding) if one != keys.APP_CLUSTER_BINDING_CLEANUP
            ]
            await self._set_finalizers(binding, kept)

    async def _set_finalizers(self, binding: Manifest, finalizers: list[str]) -> None:
        metadata = preconditions_of(binding) | {"finalizers": finalizers}
        ref = ref_of(self._plane.name, APP_CLUSTER_BINDING, binding)
        await self._plane.merge_patch(ref, {"metadata": metadata}, manager=_MANAGER)

    async def _relabel(self, bound: Manifest, labels: dict[str, str]) -> None:
        """Replace all labels, also those of others."""
        change: list[Manifest] = [{"op": "add", "path": "/metadata/labels", "value": labels}]
        ref = ref_of(self._plane.name, API_SERVICE_BINDING, bound)
        await self._plane.json_patch(ref, change, manager=_MANAGER)

    def _labelled(self, kind: Kind, labels: dict[str, str]) -> list[Manifest]:
        return [
            one
            for one in self._backend.mirrored(kind).all()
            if labels.items() <= labels_of(one).items()
        ]

    async def _create(self, kind: Kind, manifest: Manifest) -> None:
        with contextlib.suppress(AlreadyExists):
            await self._plane.create(manifest, kind, manager=_MANAGER)


def _labels(binding: Manifest) -> dict[str, str]:
    return keys.app_cluster_binding_labels(namespace_of(binding), name_of(binding))


def _marks(binding: Manifest) -> Marks:
    return Marks(_labels(binding))
