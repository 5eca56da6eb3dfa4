"""A stand-in for the bind backend, as the original behaves on the wire (protocol-bind.md C)."""

import contextlib
from collections.abc import Container
from typing import Final, Literal

from reconciler.api.app_cluster_binding import APP_CLUSTER_BINDING
from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.api.export_request import API_SERVICE_EXPORT_REQUEST
from reconciler.api.export_template import API_SERVICE_EXPORT_TEMPLATE
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.api.service_namespace import API_SERVICE_NAMESPACE
from reconciler.blueprints import space as spaces_of
from reconciler.blueprints.objects import Marks
from reconciler.core import causes, conditions, keys, names
from reconciler.core.conditions import Condition
from reconciler.core.errors import AlreadyExists, Rejected
from reconciler.core.manifest import (
    JSON,
    Manifest,
    annotations_of,
    get_maps,
    get_text,
    is_deleting,
    name_of,
    namespace_of,
    ref_of,
)
from reconciler.core.refs import CRD, NAMESPACE, Kind, Ref
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection
from tests.support import stand_in_wire as wire
from tests.support.stand_in_app_cluster_bindings import AppClusterBindings
from tests.support.stand_in_mirror import Mirror
from tests.support.stand_in_process import (
    StandIn,
    commit_status,
    preconditions_of,
    remove,
    with_conditions,
)

MANAGER: Final = "example-backend"
_MIRRORED: Final = (
    API_SERVICE_BINDING,
    API_SERVICE_EXPORT,
    API_SERVICE_EXPORT_REQUEST,
    API_SERVICE_EXPORT_TEMPLATE,
    API_SERVICE_NAMESPACE,
    APP_CLUSTER_BINDING,
    CLUSTER_BINDING,
    CRD,
    NAMESPACE,
)


class StandInBackend(StandIn):
    """Serves those spaces of a control plane that are in `spaces`, for both modes.

    Of the original it leaves out the rights of a space, the konnector's Deployment and the
    condition Healthy. Time does not pass: what the original does after a minute or ten, it does
    on cue.
    """

    plane: KubeCluster

    def __init__(
        self,
        control_plane: Connection,
        spaces: Container[str],
        *,
        informer_scope: Literal["Namespaced", "Cluster"] = "Namespaced",
    ) -> None:
        super().__init__()
        self.spaces = spaces
        self._connection, self._informer_scope = control_plane, informer_scope
        self._failing: dict[str, str] = {}
        self._mapped: set[tuple[str, str]] = set()  # the APIServiceNamespaces seen so far

    def fail(self, resource: str, message: str) -> None:
        """Let all pending requests for a `plural.group` fail for good, from now on."""
        self._failing[resource] = message
        self.wake()

    def mend(self, resource: str) -> None:
        """Serve new requests for a `plural.group` again; what failed stays so."""
        del self._failing[resource]
        self.wake()

    async def expire(self) -> list[str]:
        """Delete the requests that have an answer, as the original does 10 minutes later."""
        listing = await self.plane.list(API_SERVICE_EXPORT_REQUEST)
        answered = [
            one
            for one in listing.items
            if namespace_of(one) in self.spaces and get_text(one, "status", "phase") != "Pending"
        ]
        for request in answered:
            await remove(self.plane, API_SERVICE_EXPORT_REQUEST, request)
        return sorted(map(name_of, answered))

    def open(self) -> None:
        self._mapped.clear()
        self.plane = self.connect(self._connection, agent=f"{MANAGER}/stand-in")
        for kind in _MIRRORED:
            self.mirrored(kind)

    def mirrored(self, kind: Kind) -> Mirror:
        """Return what the control plane holds of a kind."""
        return self.mirror(self.plane, kind)

    def template(self, group: str, resource: str) -> Manifest | None:
        """Return the first template for a resource."""
        wanted = {"group": group, "resource": resource}
        return next(
            (
                one
                for one in self.mirrored(API_SERVICE_EXPORT_TEMPLATE).all()
                if all(
                    get_text(one, "spec", "APIServiceSelector", key) == value
                    for key, value in wanted.items()
                )
            ),
            None,
        )

    async def look(self) -> None:
        bindings = AppClusterBindings(self)
        for binding in self.mirrored(APP_CLUSTER_BINDING).all():
            if bindings.space_of(binding) in self.spaces:
                await self.attempt(bindings.serve(binding))
        for request in self._ours(API_SERVICE_EXPORT_REQUEST):
            await self.attempt(self._answer(request))
        for export in self._ours(API_SERVICE_EXPORT):
            await self.attempt(self._follow(export))
        for mapping in self._ours(API_SERVICE_NAMESPACE):
            self._mapped.add((namespace_of(mapping), name_of(mapping)))
            await self.attempt(self._map(mapping))
        for space, name in list(self._mapped):
            await self.attempt(self._collect(space, name))

    def _ours(self, kind: Kind) -> list[Manifest]:
        found = self.mirrored(kind).all()
        return [one for one in found if namespace_of(one) in self.spaces and not is_deleting(one)]

    async def _answer(self, request: Manifest) -> None:
        """The state machine of C.2."""
        if (get_text(request, "status", "phase") or "Pending") != "Pending":
            return
        space, status = namespace_of(request), dict[str, JSON]()
        outcome = conditions.true(causes.EXPORTS_READY)
        for resource in get_maps(request, "spec", "resources"):
            group, plural = get_text(resource, "group"), get_text(resource, "resource")
            name = names.resource_name(plural, group)
            if message := self._failing.get(name):
                outcome = conditions.false(causes.CRD_INVALID, message)
                status = {"phase": "Failed", "terminalMessage": message}
                break
            try:
                problem = await self._export(space, group, plural)
            except _NoWord:
                return
            if problem is not None:
                outcome = problem
                break
        if outcome.status == conditions.TRUE:
            status = {"phase": "Succeeded"}
        status["conditions"] = with_conditions(request, outcome, ready=True)
        await commit_status(
            self.plane, API_SERVICE_EXPORT_REQUEST, request, status, manager=MANAGER
        )

    async def _export(self, space: str, group: str, plural: str) -> Condition | None:
        """Make sure that an export exists, or return why it cannot. Raises _NoWord (F24)."""
        name = names.resource_name(plural, group)
        crd = self.mirrored(CRD).get("", name)
        if crd is None:
            message = f"CustomResourceDefinition {name} in the service provider cluster not found"
            return conditions.false(causes.CRD_NOT_FOUND, message)
        if self.mirrored(API_SERVICE_EXPORT).get(space, name) is not None:
            return None
        template = self.template(group, plural)
        if template is None:
            raise _NoWord
        made = wire.new_export(space, crd, template, informer_scope=self._informer_scope)
        try:
            await self.plane.create(made, API_SERVICE_EXPORT, manager=MANAGER)
        except AlreadyExists:
            return None
        except Rejected:
            raise _NoWord from None
        return None

    async def _follow(self, export: Manifest) -> None:
        """Follow the provider's CRD (C.3)."""
        crd_ref = Ref(self.plane.name, CRD, "", name_of(export))
        crd = self.mirrored(CRD).get("", name_of(export)) or await self.plane.get(crd_ref)
        if crd is None:
            await remove(self.plane, API_SERVICE_EXPORT, export)
            return
        followed = wire.export_spec(crd)
        known = wire.source_hash(followed)
        if annotations_of(export).get(keys.SOURCE_SPEC_HASH) != known:
            metadata = preconditions_of(export) | {"annotations": {keys.SOURCE_SPEC_HASH: known}}
            await self.plane.merge_patch(
                ref_of(self.plane.name, API_SERVICE_EXPORT, export),
                {"metadata": metadata, "spec": followed},
                manager=MANAGER,
            )
            return
        synced = conditions.true(causes.PROVIDER_IN_SYNC)
        status = {"conditions": with_conditions(export, synced, ready=False)}
        await commit_status(self.plane, API_SERVICE_EXPORT, export, status, manager=MANAGER)

    async def _map(self, mapping: Manifest) -> None:
        """Make the service namespace of an app namespace (C.4)."""
        space, name = namespace_of(mapping), name_of(mapping)
        target = get_text(mapping, "status", "namespace") or names.service_namespace(space, name)
        if self.mirrored(NAMESPACE).get("", target) is None:
            marks = Marks(annotations={keys.API_SERVICE_NAMESPACE: f"{space}/{name}"})
            made = spaces_of.namespace(target, marks=marks)
            with contextlib.suppress(AlreadyExists):
                await self.plane.create(made, NAMESPACE, manager=MANAGER)
        status: Manifest = {"namespace": target}
        await commit_status(self.plane, API_SERVICE_NAMESPACE, mapping, status, manager=MANAGER)

    async def _collect(self, space: str, name: str) -> None:
        """Delete the service namespace of what was deleted meanwhile; nothing is swept (F46)."""
        mapping = Ref(self.plane.name, API_SERVICE_NAMESPACE, space, name)
        if self.mirrored(API_SERVICE_NAMESPACE).get(space, name) or await self.plane.get(mapping):
            return
        service = Ref(self.plane.name, NAMESPACE, "", names.service_namespace(space, name))
        live = await self.plane.get(service)
        if live is not None:
            await remove(self.plane, NAMESPACE, live)
        self._mapped.discard((space, name))


class _NoWord(Exception):
    """The original returns an error here, and tells nobody."""
