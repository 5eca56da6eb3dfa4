"""What is live where the large fleet has been applied: a plan of it changes nothing.

The bodies are as real API servers give them: with uids, managedFields, defaults and status, the
CRDs of other products beside ours, and the service namespaces of a control plane in use.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from reconciler import api
from reconciler.core import keys, names
from reconciler.core.live import Address
from reconciler.core.refs import CRD, DEPLOYMENT, NAMESPACE, SECRET, SERVICE_ACCOUNT, Kind
from reconciler.core.secret import Secret
from reconciler.fleet.compile import cluster_objects, unit_objects, units_by_cluster
from reconciler.fleet.values import AppCluster, Fleet, Unit
from reconciler.fleet.wanted import Wanted, default_placement
from tests.bench.large_fleet import CONTROL_PLANE
from tests.bench.peers import TOKEN, reported_of_binding, reported_of_space
from tests.bench.store import Item, State

_NOW: Final = "2026-06-01T12:00:00Z"
_FOREIGN_CRDS: Final = 120
_SERVICE_NAMESPACES: Final = 3  # app namespaces that use services, per cluster
_APP_KINDS: Final = (NAMESPACE, SECRET, api.API_SERVICE_BINDING, DEPLOYMENT, CRD)
_PLANE_KINDS: Final = (
    NAMESPACE,
    SECRET,
    SERVICE_ACCOUNT,
    CRD,
    api.API_SERVICE_EXPORT,
    api.CLUSTER_BINDING,
    api.API_SERVICE_EXPORT_REQUEST,
    api.API_SERVICE_EXPORT_TEMPLATE,
    api.APP_CLUSTER_BINDING,
    api.API_SERVICE_BINDING,
)


def state(fleet: Fleet, address: Address) -> State:
    """Return what every cluster holds; `address` is that of the control plane."""
    app_crds = [*_foreign_crds(), _crd(api.API_SERVICE_BINDING), *_service_crds(fleet)]
    plane: dict[Kind, list[Item]] = {kind: [] for kind in _PLANE_KINDS}
    plane[CRD] = [*_foreign_crds(), *map(_crd, _PLANE_KINDS[4:]), *_service_crds(fleet)]
    plane[NAMESPACE] = [_item(NAMESPACE, {"metadata": {"name": names.KUBE_SYSTEM}})]
    plane[api.API_SERVICE_EXPORT_TEMPLATE] = list(_templates(fleet))
    clusters: dict[str, Mapping[Kind, Sequence[Item]]] = {CONTROL_PLANE: plane}
    units = units_by_cluster(fleet)
    for cluster in fleet.clusters.values():
        app: dict[Kind, list[Item]] = {kind: [] for kind in _APP_KINDS}
        clusters[cluster.name] = app
        system = _item(NAMESPACE, {"metadata": {"name": names.KUBE_SYSTEM}}, of=cluster.name)
        app[NAMESPACE] = [system]
        app[CRD] = app_crds
        of_system = json.loads(system.body)["metadata"]["uid"]
        space = default_placement(fleet, cluster).space
        for wanted in _wanted(fleet, cluster, units[cluster.name], address, of_system):
            there = app if wanted.ref.cluster == cluster.name else plane
            if wanted.ref.kind not in (CRD, api.API_SERVICE_EXPORT_REQUEST):
                there[wanted.ref.kind].append(_applied(wanted, address, space))
        plane[api.API_SERVICE_EXPORT] += [_export(space, unit) for unit in units[cluster.name]]
        plane[NAMESPACE] += (
            _item(NAMESPACE, {"metadata": {"name": f"{space}-team-{number}"}})
            for number in range(_SERVICE_NAMESPACES)
        )
    return State(clusters)


def _wanted(
    fleet: Fleet, cluster: AppCluster, units: Sequence[Unit], address: Address, uid: str
) -> Iterator[Wanted]:
    placement = replace(
        default_placement(fleet, cluster), cluster_uid=uid, address=address, token=Secret(TOKEN)
    )
    yield from cluster_objects(fleet, cluster, placement, units=units)
    for unit in units:
        yield from unit_objects(fleet, unit, placement, claims=unit.claims)


def _applied(wanted: Wanted, address: Address, space: str) -> Item:
    """Return an object that klutchctl created, as the server and its controllers completed it."""
    kind, manifest = wanted.ref.kind, json.loads(json.dumps(wanted.manifest))
    owned = _entry(keys.MANAGER_CLI, manifest)
    if kind in (api.CLUSTER_BINDING, api.API_SERVICE_BINDING):
        annotations = manifest["metadata"].setdefault("annotations", {})
        annotations[keys.CREDENTIAL] = _credential(address, space)
    if kind == api.API_SERVICE_BINDING:
        for claim in manifest["spec"].get("permissionClaims", ()):
            claim |= {"read": {}, "onConflict": {"recreateWhenConsumerSideDeleted": True}}
        manifest["status"] = reported_of_binding()
    elif kind == api.CLUSTER_BINDING:
        manifest["status"] = reported_of_space()
    elif manifest.get("type") == "kubernetes.io/service-account-token":
        data = {"token": TOKEN, "ca.crt": "c" * 600, "namespace": wanted.ref.namespace}
        manifest["data"] = {
            key: base64.b64encode(text.encode()).decode() for key, text in data.items()
        }
    elif kind == SECRET:
        manifest["type"] = "Opaque"
    elif kind == NAMESPACE:
        manifest["spec"] = {"finalizers": ["kubernetes"]}
        manifest["status"] = {"phase": "Active"}
    entries = [owned]
    if "status" in manifest:
        entries.append(_entry("konnector", {"status": manifest["status"]}, subresource="status"))
    place = CONTROL_PLANE if kind == api.CLUSTER_BINDING else wanted.ref.cluster
    return _item(kind, manifest, of=place, entries=entries)


def _credential(address: Address, space: str) -> str:
    """Return the note about a space's kubeconfig: on its ClusterBinding and all its bindings."""
    facts = api.KubeconfigFacts(
        address.server, api.ca_digest(address.ca), "", space, api.token_digest(TOKEN)
    )
    kind = api.CLUSTER_BINDING
    return api.credential_note(
        facts, _uid(CONTROL_PLANE, kind.plural, space, names.CLUSTER_BINDING)
    )


def _export(space: str, unit: Unit) -> Item:
    labels = {keys.APP: "export", f"{keys.KLUTCH_GROUP}/exported": "true"}
    manifest = {"metadata": {"name": unit.key.name, "namespace": space, "labels": labels}}
    spec = {"spec": {"group": unit.key.group, "names": {"plural": unit.key.resource}}}
    entries = [_entry(keys.MANAGER_BACKEND, manifest | spec)]
    return _item(api.API_SERVICE_EXPORT, manifest, of=space, entries=entries)


def _templates(fleet: Fleet) -> Iterator[Item]:
    claim = {
        "group": "",
        "resource": "secrets",
        "version": "v1",
        "selector": {"names": ["*"], "namespaces": ["*"], "owner": "Provider"},
    }
    some = next(iter(units_by_cluster(fleet).values()))
    for unit in some:
        selector = {"group": unit.key.group, "resource": unit.key.resource}
        spec = {"APIServiceSelector": selector, "permissionClaims": [claim] if unit.claims else []}
        metadata = {"name": unit.key.resource, "namespace": "crossplane-system"}
        yield _item(api.API_SERVICE_EXPORT_TEMPLATE, {"metadata": metadata, "spec": spec})


def _service_crds(fleet: Fleet) -> list[Item]:
    some = next(iter(units_by_cluster(fleet).values()))
    return [_crd(Kind(unit.key.group, "v1", "", unit.key.resource)) for unit in some]


def _foreign_crds() -> list[Item]:
    return [
        _crd(Kind(f"product{number % 12}.example.org", "v1", "", f"things{number}"))
        for number in range(_FOREIGN_CRDS)
    ]


def _crd(kind: Kind) -> Item:
    """Return a CRD as far as somebody reads it here."""
    annotations = {"controller-gen.kubebuilder.io/version": "v0.16.5"}
    metadata = {"name": kind.resource, "annotations": annotations}
    spec = {"spec": {"group": kind.group, "names": {"plural": kind.plural}, "scope": "Namespaced"}}
    served = {"type": "Established", "status": "True", "lastTransitionTime": _NOW}
    manifest = {"metadata": metadata, **spec, "status": {"conditions": [served]}}
    return _item(CRD, manifest, entries=[_entry("kubectl-client-side-apply", manifest)])


def _item(
    kind: Kind,
    manifest: Mapping[str, Any],
    *,
    of: str = "",
    entries: Sequence[Mapping[str, Any]] = (),
) -> Item:
    """Complete an object as a server does. `of` tells clusters apart."""
    given = manifest["metadata"]
    namespace, name = given.get("namespace", ""), given["name"]
    metadata = {
        **given,
        "uid": _uid(of, kind.plural, namespace, name),
        "resourceVersion": "184467",
        "creationTimestamp": _NOW,
        "managedFields": list(entries or [_entry("kubectl-create", manifest)]),
    }
    typed = {"apiVersion": kind.api_version, "kind": kind.kind}
    shown = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata}
    return Item(
        namespace=namespace,
        name=name,
        body=json.dumps({**typed, **manifest, "metadata": metadata}).encode(),
        metadata=json.dumps(shown).encode(),
    )


def _uid(*parts: str) -> str:
    return str(UUID(bytes=hashlib.sha256("/".join(parts).encode()).digest()[:16]))


def _entry(manager: str, manifest: Mapping[str, Any], *, subresource: str = "") -> dict[str, Any]:
    entry = {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": _NOW,
        "fieldsType": "FieldsV1",
        "fieldsV1": _fields(_owned(manifest)),
    }
    return {**entry, "subresource": subresource} if subresource else entry


def _owned(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what managedFields speak of: no type, no name."""
    metadata = manifest.get("metadata", {})
    stated = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    rest = {
        key: value
        for key, value in manifest.items()
        if key not in ("apiVersion", "kind", "metadata")
    }
    return {**rest, **({"metadata": stated} if stated else {})}


def _fields(value: Any) -> dict[str, Any]:
    """Return FieldsV1 of a value; lists are owned as a whole."""
    if not isinstance(value, Mapping) or not value:
        return {}
    return {f"f:{key}": _fields(item) for key, item in value.items()}
