"""T7: no account that we ship becomes administrator, lowers a Pod Security label, or writes
Secrets where it has no business. RBAC alone lets most of them: each attack is tried without the
admission policies, too, so that what refuses it is known.
"""

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from reconciler.blueprints import policies as shipped
from reconciler.blueprints import space as spaces
from reconciler.blueprints.objects import Marks, build
from reconciler.core import keys, names
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.refs import (
    ADMISSION_POLICY,
    ADMISSION_POLICY_BINDING,
    CLUSTER_ROLE,
    NAMESPACE,
    SECRET,
    SERVICE_ACCOUNT,
)
from reconciler.fleet.values import DeletionPolicy, Konnector, Mode, Rbac
from reconciler.health import policies, rights, roles
from reconciler.health.rights import Side, Task, scope_of_fleet
from tests.contract.test_konnector_manifests import MINIMAL
from tests.support import deployed, fleets
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.konnector_ways import token_of
from tests.support.observing import BIND
from tests.support.policed import (
    REFUSED,
    Attempt,
    answers,
    applied,
    enforced,
    merged,
    of_token,
    user_of,
)

CORE, RBAC = "/api/v1", "/apis/rbac.authorization.k8s.io/v1"
ENFORCE = "pod-security.kubernetes.io/enforce"


@dataclass(frozen=True, slots=True)
class Ground:
    """A space, its service namespace and an app namespace, on one cluster."""

    live: LiveCluster
    space: str
    home: str
    other: str


@asynccontextmanager
async def ground(live: LiveCluster) -> AsyncIterator[Ground]:
    name = f"cluster-{uuid.uuid4().hex[:10]}"
    place = Ground(live, name, f"{name}-team-a", f"other-{name}")
    strict = {ENFORCE: "restricted"}
    made = [
        (BIND, Marks()),
        (
            place.space,
            Marks({keys.CLUSTER: "shop", **strict}, {keys.IDENTITY: "klutchctl:acme/shop"}),
        ),
        (place.home, Marks(strict, {keys.API_SERVICE_NAMESPACE: f"{name}/team-a"})),
        (place.other, Marks(strict)),
    ]
    objects = [(NAMESPACE, spaces.namespace(one, marks=marks)) for one, marks in made]
    objects.append((SERVICE_ACCOUNT, build(SERVICE_ACCOUNT, names.BINDER, namespace=name)))
    objects += [
        (SECRET, build(SECRET, "own", namespace=one, stringData={"a": "b"}))
        for one in (place.other, BIND)
    ]
    for kind, one in objects:
        await live.cluster.apply(one, kind, manager="tests", force=True)
    yield place
    for kind, one in objects:
        if one["metadata"]["name"] != BIND:  # type: ignore[index, call-overload]
            await deployed.remove(live.cluster, kind, one)


def pods(account: str, **more: Any) -> Any:
    container = {"name": "konnector", "image": "x", **more.pop("container", {})}
    labels = {"app": "konnector"}
    return {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"serviceAccountName": account, "containers": [container], **more},
        },
    }


def attacks(place: Ground) -> dict[str, Attempt]:
    """Return what no account may ever do, whatever roles it has."""
    return {
        **_credentials(place),
        **_secrets_elsewhere(place),
        **_security(place),
        **_workloads(place),
        **_rights(place),
    }


def _credentials(place: Ground) -> dict[str, Attempt]:
    system = "kube-system"
    bootstrap = {"metadata": {"name": "kubeconfig"}, "type": "bootstrap.kubernetes.io/token"}
    notes = {"kubernetes.io/service-account.name": "default"}
    token = of_token(system, names.KUBECONFIG, "default").body
    return {
        "a token of kube-system": of_token(system, names.KUBECONFIG, "default"),
        "a token of kube-system, by an apply": applied(
            f"{CORE}/namespaces/{system}/secrets",
            names.KUBECONFIG,
            apiVersion="v1",
            kind="Secret",
            metadata={"name": names.KUBECONFIG, "annotations": notes},
            type=token["type"],
        ),
        "a token of kube-system for klutch-binder": of_token(system, names.BINDER, names.BINDER),
        "a token of klutch-bind": of_token(BIND, names.KUBECONFIG, names.KONNECTOR),
        "another token of a space": of_token(place.space, names.BINDER, "default"),
        "a token of a service namespace": of_token(place.home, names.BINDER, names.BINDER),
        "a token of an app namespace": of_token(place.other, "x", "default"),
        "a bootstrap token": Attempt("POST", f"{CORE}/namespaces/{system}/secrets", bootstrap),
        "a token by asking": Attempt(
            "POST",
            f"{CORE}/namespaces/{system}/serviceaccounts/default/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
        ),
        "an account of kube-system": Attempt(
            "POST", f"{CORE}/namespaces/{system}/serviceaccounts", {"metadata": {"name": "x"}}
        ),
    }


def _secrets_elsewhere(place: Ground) -> dict[str, Attempt]:
    path = f"{CORE}/namespaces/{{}}/secrets"
    opaque = {"metadata": {"name": names.KUBECONFIG}, "stringData": {"a": "b"}}
    return {
        "a Secret of kube-system": Attempt("POST", path.format("kube-system"), opaque),
        "a Secret of kube-public": Attempt("POST", path.format("kube-public"), opaque),
        "the content of a stranger's Secret": merged(
            f"{path.format(place.other)}/own", stringData={"a": "c"}
        ),
        "a stranger's Secret gone": Attempt("DELETE", f"{path.format(place.other)}/own"),
        "a ConfigMap of kube-system": Attempt(
            "POST",
            f"{CORE}/namespaces/kube-system/configmaps",
            {"metadata": {"name": "aws-auth"}, "data": {"mapUsers": "x"}},
        ),
    }


def _security(place: Ground) -> dict[str, Attempt]:
    path = f"{CORE}/namespaces"
    labels = {ENFORCE: "privileged"}
    lowered = {"labels": labels}
    marked = {keys.API_SERVICE_NAMESPACE: f"{place.space}/x"}
    return {
        "a space that enforces less": merged(f"{path}/{place.space}", metadata=lowered),
        "a space that enforces nothing": merged(
            f"{path}/{place.space}", metadata={"labels": {ENFORCE: None}}
        ),
        "a service namespace that enforces less": merged(f"{path}/{place.home}", metadata=lowered),
        "a namespace that enforces less": merged(f"{path}/{place.other}", metadata=lowered),
        "klutch-bind that enforces less": merged(f"{path}/{BIND}", metadata=lowered),
        "a new space that enforces nothing": Attempt(
            "POST",
            path,
            {
                "metadata": {
                    "name": f"{place.space}-x",
                    "labels": {**labels, keys.CLUSTER: "x"},
                    "annotations": marked,
                }
            },
        ),
        "a stranger's namespace that is marked as ours": merged(
            f"{path}/{place.other}", metadata={"annotations": marked}
        ),
        "kube-system that is marked as ours": merged(
            f"{path}/kube-system", metadata={"annotations": marked, "labels": {keys.CLUSTER: "x"}}
        ),
        "a namespace of nobody's": Attempt("POST", path, {"metadata": {"name": "nobodys"}}),
        "a stranger's namespace gone": Attempt("DELETE", f"{path}/{place.other}"),
    }


def _workloads(place: Ground) -> dict[str, Attempt]:
    def deployment(namespace: str, spec: Any) -> Attempt:
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        return Attempt("POST", path, {"metadata": {"name": names.KONNECTOR}, "spec": spec})

    disk = [{"name": "root", "hostPath": {"path": "/"}}]
    mounted = [{"name": "own", "secret": {"secretName": "own"}}]
    privileged = {"securityContext": {"privileged": True}}
    return {
        "Pods of kube-system": deployment("kube-system", pods("default")),
        "Pods that are klutch-bind": deployment(BIND, pods("klutch-bind")),
        "Pods with the node's disk": deployment(BIND, pods(names.KONNECTOR, volumes=disk)),
        "Pods with a Secret of others": deployment(BIND, pods(names.KONNECTOR, volumes=mounted)),
        "Pods with privileges": deployment(BIND, pods(names.KONNECTOR, container=privileged)),
        "Pods in the node's network": deployment(BIND, pods(names.KONNECTOR, hostNetwork=True)),
        "Pods of a space with the node's disk": deployment(
            place.space, pods(names.BINDER, volumes=disk)
        ),
        "Pods of a space that are somebody else": deployment(place.space, pods("default")),
    }


def _rights(place: Ground) -> dict[str, Attempt]:
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    tokens = [{"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole"}
    anybody = [{"apiGroup": role["apiGroup"], "kind": "User", "name": "system:anonymous"}]
    crd = {
        "metadata": {"name": "networks.stranger.example"},
        "spec": {
            "group": "stranger.example",
            "scope": "Namespaced",
            "names": {"plural": "networks", "kind": "Network"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }
            ],
        },
    }

    def clusterrole(name: str, rules: Any, **more: Any) -> Attempt:
        typed = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
        metadata = {"name": name, **more}
        return applied(f"{RBAC}/clusterroles", name, **typed, metadata=metadata, rules=rules)

    def everywhere(name: str, of: str, subjects: Any) -> Attempt:
        typed = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
        body = {**typed, "metadata": {"name": name}, "roleRef": {**role, "name": of}}
        return applied(f"{RBAC}/clusterrolebindings", name, **body, subjects=subjects)

    bound = names.KONNECTOR_CLUSTER_ROLE
    return {
        "a role of its own": clusterrole("attacker", []),
        "all rights for a konnector": clusterrole(bound, everything),
        "tokens for a konnector": clusterrole(bound, tokens),
        "rights that everybody gets": clusterrole(
            bound, [], labels={"rbac.authorization.k8s.io/aggregate-to-view": "true"}
        ),
        "an administrator": everywhere("attacker", "cluster-admin", anybody),
        "a konnector that is anybody": everywhere(bound, bound, anybody),
        "klutch-binder in kube-system": Attempt(
            "POST",
            f"{RBAC}/namespaces/kube-system/rolebindings",
            {
                "metadata": {"name": names.BINDER},
                "roleRef": {**role, "name": names.BINDER},
                "subjects": anybody,
            },
        ),
        "klutch-binder for anybody": Attempt(
            "POST",
            f"{RBAC}/namespaces/{place.space}/rolebindings",
            {
                "metadata": {"name": names.BINDER},
                "roleRef": {**role, "name": names.BINDER},
                "subjects": anybody,
            },
        ),
        "a CRD of strangers": Attempt(
            "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd
        ),
    }


@dataclass(frozen=True, slots=True)
class Account:
    """An account with all that is shipped for it, on one of the clusters.

    `rights` and `policies` are manifests. `bites` are attacks that its roles alone let through.
    """

    namespace: str
    name: str
    rights: Sequence[Manifest]
    policies: Sequence[Manifest]
    bites: frozenset[str]


POLICIES = (ADMISSION_POLICY.kind, ADMISSION_POLICY_BINDING.kind)
WORKLOAD = ("Deployment", "PodDisruptionBudget", "NetworkPolicy", "Service", "ResourceQuota")


def split(made: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    rest = [one for one in made if one["kind"] not in WORKLOAD]
    held = [one for one in rest if one["kind"] in POLICIES]
    return [one for one in rest if one["kind"] not in POLICIES], held


def backend(folder: Any, *bites: str) -> Account:
    return Account(BIND, "klutch-bind", *split(deployed.built(folder)), frozenset(bites))


def a_fleet(name: str, mode: Mode, *, rbac: Rbac = Rbac.MINIMAL) -> Any:
    cluster = fleets.app_cluster(konnector=Konnector(deploy=True, image="x", rbac=rbac))
    unit = fleets.unit(deletion_policy=DeletionPolicy.DELETE)
    made = fleets.fleet(
        control_planes=[fleets.control_plane(mode=mode)], clusters=[cluster], units=[unit]
    )
    return replace(made, name=name)


def klutchctl(task: Task, side: Side, mode: Mode, *bites: str) -> Account:
    scope = scope_of_fleet(a_fleet("t07", mode))
    return Account(
        BIND,
        rights.account("t07", task),
        roles.manifests(task, side, scope),
        policies.manifests(task, side, scope),
        frozenset(bites),
    )


def a_binder(place: Ground) -> Account:
    """Return the account of a space, with rights as in consumer scope `Cluster`."""
    secrets = [{"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["*"]}]
    subject = {"kind": "ServiceAccount", "name": names.BINDER, "namespace": place.space}
    of = {"apiGroup": CLUSTER_ROLE.group, "kind": "ClusterRole", "name": place.space}
    made: list[dict[str, Any]] = [
        {"apiVersion": CLUSTER_ROLE.api_version, "kind": "ClusterRole", "rules": secrets},
        {
            "apiVersion": CLUSTER_ROLE.api_version,
            "kind": "ClusterRoleBinding",
            "roleRef": of,
            "subjects": [subject],
        },
    ]
    rights: list[Manifest] = [{**one, "metadata": {"name": place.space}} for one in made]
    held = shipped.binder().manifests()
    bites = frozenset({"a token of kube-system", "a token of a service namespace"})
    return Account(place.space, names.BINDER, rights, held, bites)


ON_PLANE = {
    "klutch-bind": lambda _: backend(
        deployed.FOLDER, "a token of kube-system", "a ConfigMap of kube-system"
    ),
    "klutch-bind in control-plane mode": lambda _: backend(
        deployed.CONTROL_PLANE_MODE,
        "a token of kube-system",
        "Pods of kube-system",
        "a space that enforces less",
        "a namespace of nobody's",
    ),
    "klutch-bind in consumer scope Cluster": lambda _: backend(
        deployed.CLUSTER_SCOPE, "a token of kube-system", "a stranger's namespace gone"
    ),
    "apply": lambda _: klutchctl(
        Task.APPLY,
        Side.CONTROL_PLANE,
        Mode.DIRECT,
        "a token of kube-system",
        "a space that enforces less",
        "kube-system that is marked as ours",
    ),
    "apply with AppClusterBindings": lambda _: klutchctl(
        Task.APPLY, Side.CONTROL_PLANE, Mode.APP_CLUSTER_BINDING, "a token of kube-system"
    ),
    "plan": lambda _: klutchctl(Task.PLAN, Side.CONTROL_PLANE, Mode.DIRECT),
    "klutch-binder": a_binder,
}
IN_APP = {
    "apply": lambda _: klutchctl(
        Task.APPLY,
        Side.APP_CLUSTER,
        Mode.DIRECT,
        "a token of klutch-bind",
        "all rights for a konnector",
        "a konnector that is anybody",
        "Pods with the node's disk",
        "a CRD of strangers",
    ),
    "apply with AppClusterBindings": lambda _: klutchctl(
        Task.APPLY, Side.APP_CLUSTER, Mode.APP_CLUSTER_BINDING, "a token of klutch-bind"
    ),
    "plan": lambda _: klutchctl(Task.PLAN, Side.APP_CLUSTER, Mode.DIRECT),
    "konnector": lambda _: Account(
        BIND,
        names.KONNECTOR,
        *split(deployed.built(MINIMAL)),
        frozenset({"a token of kube-system", "a Secret of kube-system", "a CRD of strangers"}),
    ),
}


@asynccontextmanager
async def held(live: LiveCluster, account: Account) -> AsyncIterator[str]:
    """Give an account its rights, and yield its token once the API server knows them."""
    cluster = live.cluster
    own = build(SERVICE_ACCOUNT, account.name, namespace=account.namespace)
    try:
        for one in (own, *account.rights):
            kind = deployed.KINDS[get_text(one, "kind")]
            await cluster.apply(one, kind, manager="operator", force=True)
        yield await token_of(live, account.namespace, account.name)
    finally:
        for one in account.rights:
            kind = deployed.KINDS[get_text(one, "kind")]
            if kind != NAMESPACE:
                await deployed.remove(cluster, kind, one)


async def attacked(live: LiveCluster, account: Account, place: Ground) -> None:
    tried = attacks(place)
    async with held(live, account) as token:

        async def bitten() -> dict[str, int]:
            found = await answers(live.connection, token, list(tried.values()))
            statuses = {name: status for name, (status, _) in zip(tried, found, strict=True)}
            through = {name for name, status in statuses.items() if status < 300}
            assert account.bites <= through, (account.bites - through, statuses)
            return statuses

        before = await eventually(bitten)
        assert bool(account.bites) == any(status < 300 for status in before.values())
        user = user_of(account.namespace, account.name)
        async with enforced(live.cluster, live.connection, account.policies, user):
            found = await answers(live.connection, token, list(tried.values()))
    for (name, was), (status, text) in zip(before.items(), found, strict=True):
        assert status >= 400, f"{account.name}: {name}: {text}"
        if was < 300:
            assert status == 403, text
            assert REFUSED in text, text


@pytest.mark.parametrize("account", ON_PLANE.values(), ids=ON_PLANE)
async def test_on_a_control_plane(control_plane, account):
    async with ground(control_plane) as place:
        await attacked(control_plane, account(place), place)


@pytest.mark.parametrize("account", IN_APP.values(), ids=IN_APP)
async def test_in_an_app_cluster(app_cluster, account):
    async with ground(app_cluster) as place:
        await attacked(app_cluster, account(place), place)
