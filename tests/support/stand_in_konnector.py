"""A stand-in for the konnector, as the original behaves on the wire (protocol-konnector.md)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.api.service_namespace import API_SERVICE_NAMESPACE
from reconciler.core import causes, conditions, keys, names
from reconciler.core.conditions import Condition
from reconciler.core.durations import format_duration, format_time, parse_time
from reconciler.core.errors import Rejected
from reconciler.core.manifest import (
    JSON,
    Manifest,
    covers,
    get,
    get_list,
    get_map,
    get_text,
    name_of,
    ref_of,
    uid_of,
)
from reconciler.core.refs import CRD, NAMESPACE, SECRET, Kind, Ref
from reconciler.fleet.values import Mode
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection
from tests.support import stand_in_kubeconfigs as kubeconfigs
from tests.support import stand_in_wire as wire
from tests.support.stand_in_claims import Claims
from tests.support.stand_in_instances import Instances
from tests.support.stand_in_mirror import Mirror
from tests.support.stand_in_process import (
    StandIn,
    commit_status,
    remove,
    with_conditions,
)

MANAGER: Final = keys.MANAGER_ORIGINAL_KONNECTOR
INTERVAL: Final = timedelta(minutes=5)
VERSION: Final = "v1.5.0"
_OF_SPACE: Final = (API_SERVICE_EXPORT, API_SERVICE_NAMESPACE, CLUSTER_BINDING, SECRET)


@dataclass(frozen=True, slots=True)
class _Bound:
    """A binding, its Secret, and what is to be said of that."""

    binding: Manifest
    secret: Manifest | None
    secret_valid: Condition

    @property
    def usable(self) -> bool:
        return self.secret_valid.status == conditions.TRUE


class StandInKonnector(StandIn):
    """Serves one app cluster from one space of a control plane; other spaces are not its own.

    It follows changes of accepted claims at once, where the original needs a restart (H9), and
    a deleted kubeconfig Secret is always made again, where the original may lose the race (A.7).
    """

    app: KubeCluster
    plane: KubeCluster

    def __init__(
        self,
        app_cluster: Connection,
        control_plane: Connection,
        space: str,
        *,
        mode: Mode = Mode.DIRECT,
    ) -> None:
        super().__init__()
        self.space = space
        self._connections, self._direct = (app_cluster, control_plane), mode is Mode.DIRECT
        self._beating = True
        self._members: set[str] = set()  # uids of bindings that were served since the start
        self._first: frozenset[str] = frozenset()  # those that were there when the first was

    async def stop_heart(self, *, last: timedelta) -> None:
        """Beat no more; the last beat was so long ago. All else goes on."""
        self._beating = False
        binding = Ref(self.plane.name, CLUSTER_BINDING, self.space, names.CLUSTER_BINDING)
        status: Manifest = {"lastHeartbeatTime": format_time(datetime.now(UTC) - last)}
        await self.plane.merge_patch(
            binding, {"status": status}, manager=MANAGER, subresource="status"
        )

    def start_heart(self) -> None:
        """Beat again."""
        self._beating = True
        self.wake()

    def open(self) -> None:
        app, plane = self._connections
        self.app = self.connect(app, agent=f"{MANAGER}/stand-in")
        self.plane = self.connect(plane, agent=f"{MANAGER}/stand-in")
        self._members, self._first = set(), frozenset()
        for kind in _OF_SPACE:
            self.in_space(kind)
        for kind in (CRD, NAMESPACE):
            self.mirror(self.app, kind)
        self._bindings()

    def in_space(self, kind: Kind) -> Mirror:
        """Return what the space holds of a kind."""
        return self.mirror(self.plane, kind, self.space)

    def _bindings(self) -> Mirror:
        if self._direct:
            return self.mirror(self.app, API_SERVICE_BINDING)
        return self.in_space(API_SERVICE_BINDING)

    async def look(self) -> None:
        bound = [one for one in await self._bound() if one is not None]
        usable = {name_of(one.binding): one.binding for one in bound if one.usable}
        self._count_members(bound)
        if not self._members:
            for one in bound:
                await self.attempt(self._tell(one, ()))
            return
        beat = await self.attempt(self._beat())
        for one in bound:
            if self._direct and uid_of(one.binding) in self._members:
                await self.attempt(self._restore(one))
            await self.attempt(self._serve(one, beating=beat))
        for export in self.in_space(API_SERVICE_EXPORT).all():
            binding = usable.get(name_of(export))
            crd = self.mirror(self.app, CRD).get("", name_of(export))
            if binding is not None and crd is not None:
                await Instances(self, export).sync()
                await Claims(self, binding).sync()
            await self.attempt(self._report(export, binding, crd))
        for mapping in self.in_space(API_SERVICE_NAMESPACE).all():
            await self.attempt(self._unmap(mapping))

    async def _bound(self) -> list[_Bound | None]:
        return [await self._looked_at(one) for one in self._bindings().all()]

    async def _looked_at(self, binding: Manifest) -> _Bound | None:
        """Return a binding with its Secret, or None where that leads to another space."""
        reference = get_map(binding, "spec", "kubeconfigSecretRef")
        namespace, name = get_text(reference, "namespace"), get_text(reference, "name")
        cluster = self.app if self._direct else self.plane
        secret = self.mirror(cluster, SECRET, namespace).get(namespace, name)
        if secret is None:
            secret = await cluster.get(Ref(cluster.name, SECRET, namespace, name))
        verdict = kubeconfigs.verdict(secret, f"{namespace}/{name}", namespace_needed=self._direct)
        leads_to = kubeconfigs.namespace(secret) if self._direct else self.space
        if verdict.status == conditions.TRUE and leads_to != self.space:
            return None
        return _Bound(binding, secret, verdict)

    def _count_members(self, bound: list[_Bound]) -> None:
        """Attach what is usable; detach what cannot be mended from the space's Secret (A.7).

        A binding that is gone stays a member: the original never stops for that.
        """
        found = {uid_of(one.binding) for one in bound if one.usable}
        if found and not self._members:
            self._first = frozenset(found)
        source = self._source()
        lost = {
            uid_of(one.binding)
            for one in bound
            if not one.usable and (source is None or get(one.secret, "data") == source["data"])
        }
        self._members = (self._members | found) - lost

    def _source(self) -> Manifest | None:
        """Return the Secret that is mirrored into the app cluster."""
        binding = self.in_space(CLUSTER_BINDING).get(self.space, names.CLUSTER_BINDING)
        name = get_text(binding, "spec", "kubeconfigSecretRef", "name")
        return self.in_space(SECRET).get(self.space, name)

    async def _restore(self, bound: _Bound) -> None:
        """Mirror the space's kubeconfig over the binding's."""
        source = self._source()
        if source is None or get(bound.secret, "data") == get(source, "data"):
            return
        reference = get_map(bound.binding, "spec", "kubeconfigSecretRef")
        metadata = {"name": reference["name"], "namespace": reference["namespace"]}
        data, kind = get_map(source, "data"), get_text(source, "type")
        if bound.secret is None:
            typed: dict[str, JSON] = {"apiVersion": SECRET.api_version, "kind": SECRET.kind}
            made = typed | {"metadata": metadata, "type": kind, "data": data}
            await self.app.create(made, SECRET, manager=MANAGER)
            return
        change: list[Manifest] = [
            {"op": "test", "path": "/metadata/uid", "value": uid_of(bound.secret)},
            {"op": "add", "path": "/data", "value": data},
        ]
        ref = ref_of(self.app.name, SECRET, bound.secret)
        await self.app.json_patch(ref, change, manager=MANAGER)

    async def _beat(self) -> None:
        """Heartbeat, version, and conditions of the ClusterBinding (B)."""
        binding = self.in_space(CLUSTER_BINDING).get(self.space, names.CLUSTER_BINDING)
        if binding is None:
            return
        now = datetime.now(UTC)
        new = [conditions.true(causes.VALID_VERSION)]
        if self._direct:
            new.append(self._provider_secret(binding))
        status: dict[str, JSON] = {
            "heartbeatInterval": format_duration(INTERVAL),
            "konnectorVersion": VERSION,
            "conditions": with_conditions(binding, *new, ready=True),
        }
        last = get_text(binding, "status", "lastHeartbeatTime")
        if self._beating and (not last or now - parse_time(last) > INTERVAL / 2):
            status["lastHeartbeatTime"] = format_time(now)
        await commit_status(self.plane, CLUSTER_BINDING, binding, status, manager=MANAGER)

    def _provider_secret(self, binding: Manifest) -> Condition:
        name = get_text(binding, "spec", "kubeconfigSecretRef", "name")
        source = self._source()
        if source is None:
            message = f"Provider secret {self.space}/{name} not found"
            return conditions.false(causes.PROVIDER_SECRET_NOT_FOUND, message)
        if not get_text(source, "data", names.KUBECONFIG):
            message = f'Provider secret {self.space}/{name} has no key "{names.KUBECONFIG}"'
            return conditions.false(causes.PROVIDER_SECRET_INVALID, message)
        return conditions.true(causes.SECRET_VALID)

    async def _serve(self, bound: _Bound, *, beating: bool) -> None:
        """Install the CRD, and say how the binding is (C.2)."""
        if not bound.usable:
            await self._tell(bound, ())
            return
        new = [await self._install(bound.binding)]
        if uid_of(bound.binding) in self._first:
            new.append(conditions.true(causes.INFORMERS_SYNCED))
        if beating:
            new.append(conditions.true(causes.HEARTBEATING))
        await self._tell(bound, new)

    async def _tell(self, bound: _Bound, new: Sequence[Condition]) -> None:
        kind, binding = API_SERVICE_BINDING, bound.binding
        said = with_conditions(binding, bound.secret_valid, *new, ready=True)
        status: dict[str, JSON] = {"conditions": said}
        provider = self.in_space(CLUSTER_BINDING).get(self.space, names.CLUSTER_BINDING)
        if new and provider is not None:
            status["providerPrettyName"] = get_text(provider, "spec", "providerPrettyName")
        cluster = self.app if self._direct else self.plane
        await commit_status(cluster, kind, binding, status, manager=MANAGER)

    async def _install(self, binding: Manifest) -> Condition:
        """Bring the CRD into the app cluster, and return Connected (C.3, C.4)."""
        name = name_of(binding)
        export = self.in_space(API_SERVICE_EXPORT).get(self.space, name)
        if export is None:
            message = f"APIServiceExport {name} not found on the service provider cluster."
            return conditions.false(causes.EXPORT_NOT_FOUND, message)
        wanted = wire.consumer_crd(export, binding)
        live = self.mirror(self.app, CRD).get("", name)
        if live is None:
            try:
                await self.app.create(wanted, CRD, manager=MANAGER)
            except Rejected as error:
                return conditions.false(causes.CRD_CREATE_FAILED, str(error))
        elif not wire.owns(binding, live):
            message = f"CustomResourceDefinition {name} is not owned by klutch.anynines.com."
            return conditions.false(causes.CRD_FOREIGN, message)
        elif not covers(live["spec"], wanted["spec"]):
            ref, change = ref_of(self.app.name, CRD, live), {"spec": wanted["spec"]}
            try:
                await self.app.merge_patch(ref, change, manager=MANAGER)
            except Rejected as error:
                return conditions.false(causes.CRD_UPDATE_FAILED, str(error))
        return conditions.true(causes.CONNECTED)

    async def _report(
        self, export: Manifest, binding: Manifest | None, crd: Manifest | None
    ) -> None:
        """Say on the control plane how an export fares in the app cluster (C.5)."""
        if binding is None:
            message = "No APIServiceBinding exists."
            new = [
                conditions.false(causes.BINDING_NOT_FOUND, message),
                conditions.false(causes.CONSUMER_SYNC_NOT_APPLICABLE, message),
            ]
        else:
            message = (
                f"APIServiceBinding {name_of(export)} in the consumer cluster does not have a "
                "SchemaInSync condition."
            )
            new = [
                conditions.true(causes.CONNECTED),
                conditions.false(causes.CONSUMER_SYNC_UNKNOWN, message),
            ]
        status: dict[str, JSON] = {}
        if crd is not None:
            status = {
                key: get(crd, "status", key)
                for key in ("acceptedNames", "storedVersions")
                if get(crd, "status", key)
            }
        status["conditions"] = with_conditions(
            export, *new, copied=_of_crd(crd), ready=crd is not None
        )
        await commit_status(self.plane, API_SERVICE_EXPORT, export, status, manager=MANAGER)

    async def _unmap(self, mapping: Manifest) -> None:
        """Delete the counterpart of an app namespace that is gone (D.1)."""
        name = name_of(mapping)
        if self.mirror(self.app, NAMESPACE).get("", name) is not None:
            return
        if await self.app.get(Ref(self.app.name, NAMESPACE, "", name)) is None:
            await remove(self.plane, API_SERVICE_NAMESPACE, mapping)


def _of_crd(crd: Manifest | None) -> list[Condition]:
    """Return a CRD's conditions as they are copied into the export."""
    found = conditions.parse(get_list(crd, "status", "conditions"))
    return [
        replace(one, severity="" if one.status == conditions.TRUE else conditions.ERROR)
        for one in found
        if one.type != conditions.READY
    ]
