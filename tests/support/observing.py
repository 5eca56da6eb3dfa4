"""Fleets of real clusters, objects made by hand in them, and what `observe` sees of them."""

import base64
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from reconciler.core import names
from reconciler.core.errors import NotServed, Unreachable
from reconciler.core.live import ClusterState, Live, Unavailable
from reconciler.core.manifest import Manifest, get_maps, get_text, name_of, namespace_of, uid_of
from reconciler.core.refs import CRD, Kind, Ref
from reconciler.fleet.values import Fleet
from reconciler.kube import registry
from reconciler.kube.cluster import Cluster
from reconciler.kube.registry import Surroundings
from reconciler.kube.requests import Preconditions, Propagation
from reconciler.observe import observe
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.faults import Faults, FaultyClusters
from tests.support.wire_objects import MANAGER

TOKEN = "eyJhbGciOiJSUzI1NiJ9.canary-of-a-token.c2lnbmF0dXJl"
BIND = names.KLUTCH_NAMESPACE


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def kubeconfig(namespace: str, token: str = TOKEN) -> str:
    cluster = {"server": "https://cp.example:6443/"}
    return yaml.safe_dump(with_one_context("x", cluster, {"token": token}, namespace=namespace))


def with_one_context(name: str, cluster: Any, user: Any, **more: str) -> dict[str, Any]:
    """Return a kubeconfig with one context; `more` is about that."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **more}}],
        "current-context": name,
    }


@dataclass
class Hand:
    """Writes objects by hand, and takes them away after the test."""

    live: LiveCluster
    made: list[tuple[Ref, str]]

    async def create(self, kind: Kind, name: str, *, namespace: str = "", **more: Any) -> Manifest:
        metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
        manifest = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            **more,
            "metadata": metadata | more.get("metadata", {}),
        }
        created = await self.live.cluster.create(manifest, kind, manager=MANAGER)
        self.made.append((Ref(self.live.cluster.name, kind, namespace, name), uid_of(created)))
        return created

    async def clean(self) -> None:
        for ref, uid in reversed(self.made):
            await self.live.cluster.delete(
                ref, preconditions=Preconditions(uid=uid), propagation=Propagation.BACKGROUND
            )


def around(*kubeconfigs: Path) -> Surroundings:
    return Surroundings(kubeconfigs=kubeconfigs, environ={})


def context(live: LiveCluster, name: str, **changes: Any) -> bytes:
    """Return a kubeconfig with one context: that of a live cluster, with changes to its entries."""
    document = yaml.safe_load(live.kubeconfig.read_text())
    of = {entry["name"]: entry["context"] for entry in document["contexts"]}[live.context]
    cluster = next(e["cluster"] for e in document["clusters"] if e["name"] == of["cluster"])
    user = next(e["user"] for e in document["users"] if e["name"] == of["user"])
    cluster, user = cluster | changes.get("cluster", {}), changes.get("user", user)
    return yaml.safe_dump(with_one_context(name, cluster, user)).encode()


async def seen_by(
    fleet: Fleet, *kubeconfigs: Path, faults: Faults | None = None, **how: Any
) -> Live:
    """Observe a fleet, with credentials; `how` goes to `observe`."""
    async with registry.of(fleet, around(*kubeconfigs)) as real:
        clusters = FaultyClusters(real, faults or Faults())
        return await observe(fleet, clusters, credentials=True, **how)


def the_plane(live: Live) -> ClusterState:
    return _state(live.control_planes["eu"])


def the_app(live: Live) -> ClusterState:
    return _state(live.clusters["shop"])


def _state(verdict: ClusterState | Unavailable) -> ClusterState:
    assert isinstance(verdict, ClusterState), verdict
    return verdict


def named(objects: Iterable[Manifest], namespace: str) -> dict[str, Manifest]:
    return {name_of(item): item for item in objects if namespace_of(item) == namespace}


async def established(cluster: Cluster, kind: Kind) -> None:
    """Wait until a kind is served, which is a little after its CRD says so."""

    async def is_established():
        crd = await cluster.get(Ref(cluster.name, CRD, "", kind.resource))
        conditions = {
            get_text(c, "type"): get_text(c, "status")
            for c in get_maps(crd, "status", "conditions")
        }
        return conditions.get("Established") == "True"

    async def is_served():
        with contextlib.suppress(NotServed, Unreachable):
            await cluster.first_page(kind, limit=1)
            return True
        return False

    await eventually(is_established)
    await eventually(is_served)
