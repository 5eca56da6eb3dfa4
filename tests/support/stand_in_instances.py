"""How the konnector stand-in carries instances of one export (protocol-konnector.md D)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from reconciler.api.service_namespace import API_SERVICE_NAMESPACE
from reconciler.core import keys, names
from reconciler.core.manifest import (
    JSON,
    Manifest,
    annotations_of,
    covers,
    drop,
    finalizers_of,
    get,
    get_map,
    get_text,
    is_deleting,
    name_of,
    namespace_of,
    put,
    ref_of,
    uid_of,
)
from reconciler.core.refs import NAMESPACE, Ref
from tests.support import stand_in_wire as wire
from tests.support.stand_in_process import preconditions_of, remove

if TYPE_CHECKING:
    from tests.support.stand_in_konnector import StandInKonnector

_MANAGER: Final = keys.MANAGER_ORIGINAL_KONNECTOR
_BOUND: Final = {keys.BOUND: keys.BOUND_VALUE}

Place = tuple[str, str]  # namespace ("" for cluster-scoped kinds) and name


class Instances:
    """The controllers spec, status and adopt of one export.

    Unlike the original they send nothing that changes nothing, and carry neither owners nor
    finalizers over (H5). A field that leaves an instance's spec stays in the copy (H10).
    """

    def __init__(self, konnector: "StandInKonnector", export: Manifest) -> None:
        self._konnector, self._space = konnector, konnector.space
        self._app, self._plane = konnector.app, konnector.plane
        self._kind, self._has_status = wire.instance_kind(export), wire.has_status(export)
        self._here = konnector.mirror(self._app, self._kind)
        self._there = konnector.mirror(self._plane, self._kind)

    async def sync(self) -> None:
        """Carry what differs. Nothing is done until both sides are known."""
        if not (self._here.served and self._there.served):
            return
        app_namespaces = app_namespaces_of(self._konnector)
        for instance in self._here.all():
            await self._konnector.attempt(self._up(instance))
        for copy in self._there.all():
            place = self._place_of_instance(copy, app_namespaces)
            if place is not None:
                await self._konnector.attempt(self._down(copy, place))

    async def _up(self, instance: Manifest) -> None:
        place = await self._place_of_copy(instance)
        if place is None:
            return
        copy = self._there.get(*place)
        if copy is None:
            copy = await self._plane.get(Ref(self._plane.name, self._kind, *place))
        if copy is None and not is_deleting(instance):
            await self._hold(instance)
            await self._plane.create(
                await self._copy(instance, place), self._kind, manager=_MANAGER
            )
        elif copy is None:
            await self._let_go(instance)
        elif not is_deleting(instance):
            await self._hold(instance)
            await self._update(instance, copy)
        elif not is_deleting(copy):
            await remove(self._plane, self._kind, copy)
            await self._let_go(instance)

    async def _down(self, copy: Manifest, place: Place) -> None:
        ref = Ref(self._app.name, self._kind, *place)
        instance = self._here.get(*place) or await self._app.get(ref)
        bound = keys.BOUND in annotations_of(copy)
        if instance is not None:
            await self._mark(instance)
            await self._report(instance, copy)
        elif bound and not is_deleting(copy):
            await remove(self._plane, self._kind, copy)
        elif not bound and not is_deleting(copy):
            await self._app.create(wire.moved(copy, *place, _BOUND), self._kind, manager=_MANAGER)

    async def _place_of_copy(self, instance: Manifest) -> Place | None:
        """Return where the copy belongs, or None until the backend has made that namespace."""
        if not self._kind.namespaced:
            return "", names.copy_name(self._space, name_of(instance))
        kind, name = API_SERVICE_NAMESPACE, namespace_of(instance)
        mapping = self._konnector.in_space(kind).get(self._space, name)
        if mapping is None:
            metadata = {"name": name, "namespace": self._space}
            typed: dict[str, JSON] = {"apiVersion": kind.api_version, "kind": kind.kind}
            made = typed | {"metadata": metadata, "spec": {}}
            await self._plane.create(made, kind, manager=_MANAGER)
            return None
        namespace = get_text(mapping, "status", "namespace")
        return (namespace, name_of(instance)) if namespace else None

    def _place_of_instance(self, copy: Manifest, app_namespaces: Mapping[str, str]) -> Place | None:
        """Return where the instance belongs, or None for what is not of this space."""
        if self._kind.namespaced:
            namespace = app_namespaces.get(namespace_of(copy))
            return None if namespace is None else (namespace, name_of(copy))
        if annotations_of(copy).get(keys.CLUSTER_NAMESPACE) != self._space:
            return None
        name = names.claim_name(self._space, name_of(copy))
        return None if name is None else ("", name)

    async def _copy(self, instance: Manifest, place: Place) -> Manifest:
        if self._kind.namespaced:
            return wire.moved(instance, *place, _BOUND)
        marks = {**_BOUND, keys.CLUSTER_NAMESPACE: self._space}
        space = await self._plane.get(Ref(self._plane.name, NAMESPACE, "", self._space))
        owner = {
            "apiVersion": NAMESPACE.api_version,
            "kind": NAMESPACE.kind,
            "name": self._space,
            "uid": uid_of(space or {}),
        }
        return put(wire.moved(instance, *place, marks), [owner], "metadata", "ownerReferences")

    async def _update(self, instance: Manifest, copy: Manifest) -> None:
        """Apply the instance's spec over the whole copy, as the original does."""
        if covers(copy.get("spec"), get(instance, "spec")):
            return
        body = drop(put(copy, keys.BOUND_VALUE, "metadata", "annotations", keys.BOUND), "spec")
        body = drop(body, "metadata", "managedFields")
        if "spec" in instance:
            body["spec"] = instance["spec"]
        await self._plane.apply(body, self._kind, manager=keys.MANAGER_KONNECTOR, force=True)

    async def _hold(self, instance: Manifest) -> None:
        held = finalizers_of(instance)
        if keys.SYNCER not in held:
            await self._set_finalizers(instance, [*held, keys.SYNCER])

    async def _let_go(self, instance: Manifest) -> None:
        held = finalizers_of(instance)
        if keys.SYNCER in held:
            await self._set_finalizers(instance, [one for one in held if one != keys.SYNCER])

    async def _set_finalizers(self, instance: Manifest, finalizers: list[str]) -> None:
        metadata = preconditions_of(instance) | {"finalizers": finalizers}
        ref = ref_of(self._app.name, self._kind, instance)
        await self._app.merge_patch(ref, {"metadata": metadata}, manager=_MANAGER)

    async def _mark(self, instance: Manifest) -> None:
        if keys.BOUND not in annotations_of(instance):
            metadata: Manifest = {"uid": uid_of(instance), "annotations": _BOUND}
            ref = ref_of(self._app.name, self._kind, instance)
            await self._app.merge_patch(ref, {"metadata": metadata}, manager=_MANAGER)

    async def _report(self, instance: Manifest, copy: Manifest) -> None:
        """Bring the copy's status down."""
        status = get_map(copy, "status")
        if not self._has_status or status == get_map(instance, "status"):
            return
        change: list[Manifest] = [
            {"op": "test", "path": "/metadata/uid", "value": uid_of(instance)},
            {"op": "add", "path": "/status", "value": status},
        ]
        ref = ref_of(self._app.name, self._kind, instance)
        await self._app.json_patch(ref, change, manager=_MANAGER, subresource="status")


def app_namespaces_of(konnector: "StandInKonnector") -> dict[str, str]:
    """Return the app namespace of each service namespace."""
    mappings = konnector.in_space(API_SERVICE_NAMESPACE).all()
    found = {get_text(one, "status", "namespace"): name_of(one) for one in mappings}
    return {service: app for service, app in found.items() if service}
