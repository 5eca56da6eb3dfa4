"""What Kubernetes, a backend and konnectors do after a write, in the memory of the stand-ins.

They do it `DELAY` seconds later, so that whoever waits for them has to look more than once.
"""

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from reconciler import api
from reconciler.core import keys, names
from reconciler.core.refs import CRD, SECRET, Kind
from reconciler.core.times import format_time
from tests.bench import store as stores
from tests.bench.large_fleet import CONTROL_PLANE
from tests.bench.store import Object, Store, condition

DELAY: Final = 0.2
# About as long as a real one, whose signature is 2048 bits.
TOKEN: Final = "bench." + "x" * 900
_REPORTED: Final = ("Ready", "Connected", "Heartbeating", "InformersSynced", "SecretValid")


def reported_of_binding() -> Object:
    """Return the status of an APIServiceBinding that is well, as konnectors write it."""
    return {"conditions": [condition(one) for one in _REPORTED], "providerPrettyName": "Bench"}


def reported_of_space() -> Object:
    """Return the status of a ClusterBinding whose konnector has just been heard of."""
    return {
        "conditions": [condition(one) for one in ("Ready", "Healthy", "SecretValid")],
        "lastHeartbeatTime": format_time(datetime.now(UTC)),
        "heartbeatInterval": "1h0m0s",  # one heartbeat is enough for a bench
        "konnectorVersion": "v1.5.0",
    }


class Peers:
    """All peers of all clusters. `fleet` is the name from which the spaces follow."""

    def __init__(self, store: Store, fleet: str) -> None:
        self._store, self._fleet = store, fleet

    def answer_to(self, cluster: str, kind: Kind, made: Object) -> Callable[[], None] | None:
        """Return what somebody will do because an object was made, or None."""
        namespace, name = made["metadata"].get("namespace", ""), made["metadata"]["name"]
        if kind == SECRET and made.get("type") == "kubernetes.io/service-account-token":
            return lambda: self._fill(cluster, namespace, name)
        if kind == api.API_SERVICE_EXPORT_REQUEST:
            return lambda: self._export(cluster, namespace, name)
        if kind == api.API_SERVICE_BINDING:
            return lambda: self._bind(cluster, namespace, name)
        if kind.resource == CRD.resource:  # its objects open others
            return lambda: self._establish(cluster, name)
        return None

    def _change(self, cluster: str, kind: Kind, namespace: str, name: str, **new: object) -> None:
        live = self._store.read(cluster, kind, namespace, name)
        if live is not None:
            self._store.replace(cluster, kind, live, {**live, **new, "metadata": live["metadata"]})

    def _fill(self, cluster: str, namespace: str, name: str) -> None:
        data = {"token": TOKEN, "ca.crt": "c" * 600, "namespace": namespace}
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
        self._change(cluster, SECRET, namespace, name, data=encoded)

    def _establish(self, cluster: str, name: str) -> None:
        crd = self._store.read(cluster, CRD, "", name)
        if crd is not None:
            self._store.open(cluster, stores.kind_of(crd))
            self._change(cluster, CRD, "", name, status=stores.established(crd)["status"])

    def _export(self, cluster: str, namespace: str, name: str) -> None:
        request = self._store.read(cluster, api.API_SERVICE_EXPORT_REQUEST, namespace, name)
        if request is None:
            return
        for one in request["spec"]["resources"]:
            labels = {keys.APP: "export", f"{keys.KLUTCH_GROUP}/exported": "true"}
            full = names.resource_name(one["resource"], one["group"])
            export: Object = {
                "apiVersion": api.API_SERVICE_EXPORT.api_version,
                "kind": api.API_SERVICE_EXPORT.kind,
                "metadata": {"name": full, "namespace": namespace, "labels": labels},
                "spec": {"group": one["group"], "names": {"plural": one["resource"]}},
            }
            self._store.create(
                cluster, api.API_SERVICE_EXPORT, export, manager=keys.MANAGER_BACKEND
            )
        reported = {"phase": "Succeeded", "conditions": [condition("ExportsReady")]}
        self._change(cluster, api.API_SERVICE_EXPORT_REQUEST, namespace, name, status=reported)

    def _bind(self, cluster: str, namespace: str, name: str) -> None:
        binding = self._store.read(cluster, api.API_SERVICE_BINDING, namespace, name)
        if binding is None:
            return
        self._install(cluster, binding)
        status = reported_of_binding()
        self._change(cluster, api.API_SERVICE_BINDING, namespace, name, status=status)
        space, beat = names.direct_space(self._fleet, cluster), reported_of_space()
        self._change(CONTROL_PLANE, api.CLUSTER_BINDING, space, names.CLUSTER_BINDING, status=beat)

    def _install(self, cluster: str, binding: Object) -> None:
        name = binding["metadata"]["name"]
        if self._store.of(cluster, CRD).get("", name) is not None:
            return
        plural, _, group = name.partition(".")
        owner = {
            "apiVersion": api.API_SERVICE_BINDING.api_version,
            "kind": api.API_SERVICE_BINDING.kind,
            "name": name,
            "uid": binding["metadata"]["uid"],
            "controller": True,
        }
        crd: Object = {
            "apiVersion": CRD.api_version,
            "kind": CRD.kind,
            "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"plural": plural, "kind": plural.capitalize()},
                "versions": [{"name": "v1", "served": True, "storage": True}],
            },
        }
        manager = keys.MANAGER_KONNECTOR
        self._store.create(cluster, CRD, stores.established(crd), manager=manager)
        self._store.open(cluster, stores.kind_of(crd))
