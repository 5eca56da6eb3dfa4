"""The manifests of bind/deploy on a real control plane, and what the backend does with its rights.

They are read as kustomize does, as far as they use it.
"""

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import jsonpatch
import yaml

import bind
from klutchctl.sandbox.addons.agents import REVIEW
from reconciler.core import keys, manifest, refs
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import Cluster
from reconciler.kube.connection import Connection
from tests.support import policed, removal
from tests.support.accounts import token_of, with_token
from tests.support.cues import Cue
from tests.support.eventually import eventually
from tests.support.fault_proxy import FaultProxy
from tests.support.http_faults import Request
from tests.support.raw import http_session

DEPLOY: Final = Path(bind.__file__).parent / "deploy"
FOLDER: Final = DEPLOY / "default-mode"
CONTROL_PLANE_MODE: Final = DEPLOY / "control-plane-mode"
CLUSTER_SCOPE: Final = DEPLOY / "consumer-scope-cluster"
FRONT_DOOR: Final = DEPLOY / "front-door"
OSB: Final = DEPLOY / "osb"
DATASERVICES: Final = DEPLOY / "osb-dataservices"
SERVICES: Final = "klutch-bind-services"
PDB: Final = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
SERVICE: Final = Kind("", "v1", "Service", "services")
_FLOW: Final = "flowcontrol.apiserver.k8s.io"
PRIORITY_LEVEL: Final = Kind(
    _FLOW, "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations", namespaced=False
)
FLOW_SCHEMA: Final = Kind(_FLOW, "v1", "FlowSchema", "flowschemas", namespaced=False)
INGRESS: Final = Kind("networking.k8s.io", "v1", "Ingress", "ingresses")
NETWORK_POLICY: Final = Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
KINDS: Final = {
    one.kind: one
    for one in (
        refs.NAMESPACE,
        refs.SERVICE_ACCOUNT,
        refs.ROLE,
        refs.ROLE_BINDING,
        refs.CLUSTER_ROLE,
        refs.CLUSTER_ROLE_BINDING,
        refs.DEPLOYMENT,
        PDB,
        SERVICE,
        INGRESS,
        NETWORK_POLICY,
        PRIORITY_LEVEL,
        FLOW_SCHEMA,
        refs.ADMISSION_POLICY,
        refs.ADMISSION_POLICY_BINDING,
    )
}
_MANAGER: Final = "operator"
_WORKLOAD: Final = (refs.DEPLOYMENT.kind, PDB.kind, SERVICE.kind, INGRESS.kind)
_DISCOVERY: Final = re.compile(r"/api(/[^/]+)?|/apis(/[^/]+){0,2}")


class Right(NamedTuple):
    """`resource` is a plural, with its subresource after a slash."""

    group: str
    resource: str
    verb: str


def rights_of(rules: Iterable[Manifest]) -> frozenset[Right]:
    """Return what RBAC rules allow, one by one."""
    return frozenset(
        Right(str(group), str(resource), str(verb))
        for rule in rules
        for group in manifest.get_list(rule, "apiGroups")
        for resource in manifest.get_list(rule, "resources")
        for verb in manifest.get_list(rule, "verbs")
    )


def built(folder: Path = FOLDER) -> list[Any]:
    """Return the manifests that `kustomize build` gives, but for the images."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    made = list[Any]()
    for resource in kustomization["resources"]:
        place = (folder / resource).resolve()
        made += built(place) if place.is_dir() else yaml.safe_load_all(place.read_text())
    for each in kustomization.get("patches", ()):
        kind, name = each["target"]["kind"], each["target"]["name"]
        (index,) = [
            i for i, one in enumerate(made) if (one["kind"], manifest.name_of(one)) == (kind, name)
        ]
        made[index] = jsonpatch.apply_patch(made[index], yaml.safe_load(each["patch"]))
    return made


def bases_of(folder: Path) -> set[str]:
    """Return the bases of a kustomization that names all files beside it."""
    named = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    beside = {one.name for one in folder.glob("*.yaml")} - {"kustomization.yaml"}
    bases = {one for one in named if one not in beside}
    assert {*named} == beside | bases
    # Kustomize refuses a base that contains the folder which names it.
    assert not [one for one in bases if folder.is_relative_to((folder / one).resolve())]
    return bases


async def check_fields(cluster: KubeCluster, connection: Connection, made: list[Any]) -> None:
    """Apply them as a dry run, in which the API server refuses a field that it does not know."""
    await apply(cluster, [only(refs.NAMESPACE, made)])
    async with http_session(connection) as session:
        for one in made:
            query = "dryRun=All&force=true&fieldManager=tests&fieldValidation=Strict"
            async with session.patch(
                f"{place(one)}?{query}",
                data=yaml.safe_dump(one),
                headers={"Content-Type": "application/apply-patch+yaml"},
            ) as answer:
                assert answer.status in (200, 201), (one["kind"], await answer.text())
                assert "Warning" not in answer.headers


def only(kind: Kind, made: Iterable[Any], *, name: str = "") -> Any:
    (found,) = [
        one for one in made if one["kind"] == kind.kind and name in ("", manifest.name_of(one))
    ]
    return found


def granted(made: Iterable[Manifest]) -> frozenset[Right]:
    """Return what the manifests give to a program, wherever."""
    roles = [
        one
        for one in made
        if manifest.get_text(one, "kind") in (refs.CLUSTER_ROLE.kind, refs.ROLE.kind)
    ]
    return rights_of(rule for one in roles for rule in manifest.get_maps(one, "rules"))


@asynccontextmanager
async def installed(
    cluster: Cluster, connection: Connection, made: Sequence[Manifest]
) -> AsyncIterator[Connection]:
    """Apply all but the workload, wait until it holds, and yield the way of the program's account.

    At the end all of it goes but the Namespace, which others share.
    """
    applied = [one for one in made if manifest.get_text(one, "kind") not in _WORKLOAD]
    namespace, name = manifest.identity_of(only(refs.SERVICE_ACCOUNT, made))
    try:
        await apply(cluster, applied)
        way = with_token(connection, await token_of(cluster, namespace, name))
        await _held(way, namespace, granted(applied))
        if any(manifest.get_text(one, "kind") == refs.ADMISSION_POLICY.kind for one in applied):
            await policed.in_force(connection, policed.user_of(namespace, name))
        yield way
    finally:
        for one in applied:
            kind = KINDS[manifest.get_text(one, "kind")]
            if kind != refs.NAMESPACE:
                await removal.remove_manifest(cluster, kind, one)


def place(one: Any) -> str:
    kind = KINDS[one["kind"]]
    root = f"/apis/{kind.api_version}" if kind.group else "/api/v1"
    namespace = one["metadata"].get("namespace")
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{inside}/{kind.plural}/{manifest.name_of(one)}"


async def apply(cluster: Cluster, made: Iterable[Manifest]) -> None:
    """Do what `kubectl apply --server-side` does."""
    for one in made:
        kind = KINDS[manifest.get_text(one, "kind")]
        await cluster.apply(one, kind, manager=_MANAGER, force=True)


async def _held(way: Connection, namespace: str, wanted: frozenset[Right]) -> None:
    """Wait until an account has rights: an API server hears of new roles a little later."""
    async with KubeCluster(way) as cluster:

        async def hears():
            return wanted <= await rights_in(cluster, namespace)

        await eventually(hears)


async def rights_in(cluster: Cluster, namespace: str) -> frozenset[Right]:
    """Return what the account of a client may do in a namespace."""
    review: Manifest = {
        "apiVersion": REVIEW.api_version,
        "kind": REVIEW.kind,
        "spec": {"namespace": namespace},
    }
    answer = await cluster.create(review, REVIEW, manager=_MANAGER)
    return rights_of(manifest.get_maps(answer, "status", "resourceRules"))


def aggregated(made: Iterable[Manifest], program: str) -> frozenset[Right]:
    """Return what the aggregated ClusterRole of a program is to hold."""
    label = f"{keys.OWN_PREFIX}aggregate-to-{program}"
    marked = [one for one in made if manifest.labels_of(one).get(label) == "true"]
    return rights_of(rule for one in marked for rule in manifest.get_maps(one, "rules"))


class Hearing:
    """Hears through a proxy what an account asks of an API server."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy
        self._watched: set[str] = set()  # paths
        proxy.add(Cue(self._notes))

    def used(self) -> frozenset[Right]:
        return frozenset(self._rights())

    def refused(self) -> set[tuple[str, str]]:
        """Return method and path of what was refused, and not answered later either.

        Rights are given while accounts work, and an API server hears of them a moment later.
        """
        last = {(one.method, one.path): one.status for one in self._proxy.log if one.status}
        return {request for request, status in last.items() if status == 403}

    def _notes(self, call: Request) -> bool:
        """Note what is watched, which is nothing to fail."""
        if "watch=1" in call.query.split("&"):
            self._watched.add(call.path)
        return False

    def _rights(self) -> Iterator[Right]:
        for one in self._proxy.log:
            if _DISCOVERY.fullmatch(one.path):
                continue  # everybody may
            if 200 <= one.status < 300 or one.status in (404, 409):  # looked for after the right
                yield _right(one.method, one.path)
            if (one.method, one.status) == ("PATCH", 201):  # an apply to what was not there
                yield _right("POST", one.path)
        for path in self._watched:
            yield _right("GET", path)._replace(verb="watch")


@asynccontextmanager
async def heard(way: Connection) -> AsyncIterator[tuple[Connection, Hearing]]:
    """Lead an account's way to its API server through a proxy that listens."""
    async with FaultProxy(way) as proxy:
        yield replace(proxy.connection, ca=None), Hearing(proxy)


def _right(method: str, path: str) -> Right:
    """Return the right that a request needs, as an API server sees it."""
    _, root, *rest = path.split("/")
    group = rest.pop(0) if root == "apis" else ""
    rest = rest[1:]  # without the version
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        rest = rest[2:]
    plural, name, subresource = [*rest, "", ""][:3]
    verbs = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
    verb = verbs.get(method) or ("get" if name else "list")
    return Right(group, f"{plural}/{subresource}" if subresource else plural, verb)
