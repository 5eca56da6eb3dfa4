"""Models of clusters in place of the real ones of tests: the same handles, the same audit log."""

import base64
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from klutchctl.sandbox import manifests
from klutchctl.sandbox.state import Role
from reconciler.core.secret import Secret
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection, Token
from tests.kit import virtual_time
from tests.kit.api_controllers import CA
from tests.kit.api_model import ApiModel, Written
from tests.kit.api_store import CRDS, Object
from tests.kit.wire import Wires
from tests.support.clusters import AuditLog, LiveCluster


@dataclass(frozen=True, slots=True)
class ModelAudit(AuditLog):
    """What the model was asked to write, told as an audit log tells it."""

    model: ApiModel

    def mark(self) -> int:
        return len(self.model.writes)

    def events_since(self, mark: int) -> list[Any]:
        writes = enumerate(self.model.writes[mark:])
        return [event for number, one in writes for event in _events(number, one)]


def model_of(live: LiveCluster) -> ApiModel:
    assert isinstance(live.audit, ModelAudit)
    return live.audit.model


def _events(number: int, written: Written) -> list[Any]:
    group, plural = written.resource
    target = {
        "apiGroup": group,
        "resource": plural,
        "namespace": written.key.namespace,
        "name": "" if written.verb == "create" else written.key.name,
        **({"subresource": written.subresource} if written.subresource else {}),
    }
    event = {
        "auditID": str(number),
        "userAgent": written.agent,
        "user": {"username": "somebody"},
        "verb": written.verb,
        "requestURI": "",
        "objectRef": target,
    }
    code = {"code": written.status}
    ended = {**event, "stage": "ResponseComplete", "responseStatus": code}
    # A create names its object only once it is made, as real logs do.
    if written.verb == "create" and written.status < 300:
        ended["objectRef"] = {**target, "name": written.key.name}
    return [{**event, "stage": "RequestReceived"}, ended]


# Installed once, for each model to begin with: the second most costly part of a short test.
_CRDS_OF: Final[dict[Role, list[Object]]] = {}


@contextlib.asynccontextmanager
async def model_clusters(folder: Path) -> AsyncIterator[tuple[LiveCluster, LiveCluster, Wires]]:
    """Yield a control plane and an app cluster with their CRDs, and how they are reached.

    `folder` gets the kubeconfig that leads to both, and to a second app cluster.
    """
    wires, kubeconfig = Wires(), folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(_kubeconfig("control-plane", "app-1", "app-2")))
    with virtual_time.virtual_time(), wires.plugged():
        async with (
            live_model(wires, "control-plane", Role.CONTROL_PLANE, kubeconfig) as plane,
            live_model(wires, "app-1", Role.APP_CLUSTER, kubeconfig) as app,
        ):
            yield plane, app, wires


@contextlib.asynccontextmanager
async def live_model(
    wires: Wires, name: str, role: Role, kubeconfig: Path
) -> AsyncIterator[LiveCluster]:
    model = ApiModel(virtual_time.now)
    wires.models[_server(name)] = model
    way = Connection(name, _server(name), Token(Secret("admin")), ca=CA)
    async with KubeCluster(way) as cluster:
        if role in _CRDS_OF:
            model.begin_with(_CRDS_OF[role])
        else:
            await manifests.install(cluster, role)
            _CRDS_OF[role] = [crd for _, crd in model.store.all(CRDS)]
        model.writes.clear()
        yield LiveCluster(name, name, kubeconfig, way, cluster, ModelAudit(kubeconfig, model))


def _server(name: str) -> str:
    return f"https://{name}.example:6443"


def _kubeconfig(*names: str) -> Any:
    authority = base64.b64encode(CA.encode()).decode()
    clusters = {
        name: {"server": _server(name), "certificate-authority-data": authority} for name in names
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": one} for name, one in clusters.items()],
        "users": [{"name": "admin", "user": {"token": "admin"}}],
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": "admin"}} for name in names
        ],
        "current-context": names[0],
    }
