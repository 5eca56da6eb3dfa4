"""T7: no account that we ship becomes administrator, lowers a Pod Security label, or writes
Secrets where it has no business. RBAC alone lets most of them: each attack is tried without the
admission policies, too, so that what refuses it is known.
"""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from reconciler.blueprints import policies as shipped
from reconciler.blueprints import rbac
from reconciler.blueprints.objects import build
from reconciler.core import keys, names
from reconciler.core.manifest import uid_of
from reconciler.core.refs import SECRET, SERVICE_ACCOUNT, Ref
from reconciler.doctor.rights import Side, Task
from reconciler.fleet.values import Mode
from tests.support import removal
from tests.support.apply_runs import staged
from tests.support.applying import Fleet
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
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
from tests.support.shipped_accounts import (
    ENFORCE,
    FLEETS,
    IN_APP,
    OF_BINDING,
    ON_PLANE,
    Account,
    Ground,
    ground,
    held,
    klutchctl,
    pods,
)
from tests.support.wire_objects import VERSION

CORE, RBAC = "/api/v1", "/apis/rbac.authorization.k8s.io/v1"


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
    brought = {"annotations": {keys.RESOURCE_OWNER: keys.OWNER_PROVIDER}}
    return {
        "a Secret of kube-system": Attempt("POST", path.format("kube-system"), opaque),
        "a Secret of kube-public": Attempt("POST", path.format("kube-public"), opaque),
        "the content of a stranger's Secret": merged(
            f"{path.format(place.other)}/own", stringData={"a": "c"}
        ),
        "a stranger's Secret gone": Attempt("DELETE", f"{path.format(place.other)}/own"),
        "a Secret marked as brought": merged(f"{path.format(place.other)}/own", metadata=brought),
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
        "klutch-fleet marked as ours": merged(
            f"{path}/{FLEETS}", metadata={"labels": {keys.CLUSTER: "x"}}
        ),
        "a service namespace that is none any more": merged(
            f"{path}/{place.home}", metadata={"annotations": {keys.API_SERVICE_NAMESPACE: None}}
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


def clusterrole(name: str, rules: Any, **more: Any) -> Attempt:
    typed = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    metadata = {"name": name, **more}
    return applied(f"{RBAC}/clusterroles", name, **typed, metadata=metadata, rules=rules)


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
            "versions": [{**VERSION, "served": True}],
        },
    }

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
        **{
            f"klutch-binder for anybody in {one}": Attempt(
                "POST",
                f"{RBAC}/namespaces/{one}/rolebindings",
                {
                    "metadata": {"name": names.BINDER},
                    "roleRef": {**role, "name": names.BINDER},
                    "subjects": anybody,
                },
            )
            for one in ("kube-system", place.space)
        },
        "a CRD of strangers": Attempt(
            "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd
        ),
    }


# What roles alone let through: without these an attack would prove nothing.
BITES_ON_PLANE = {
    "plan": set[str](),
    "apply": {
        "a token of kube-system",
        "a space that enforces less",
        "kube-system that is marked as ours",
        "a service namespace that is none any more",
    },
    "apply with AppClusterBindings": {"a token of kube-system", "klutch-fleet marked as ours"},
    "klutch-bind": {"a token of kube-system", "a ConfigMap of kube-system"},
    "klutch-bind in control-plane mode": {
        "a token of kube-system",
        "Pods of kube-system",
        "a space that enforces less",
        "a token of a service namespace",
        "a service namespace that is none any more",
        "a namespace of nobody's",
    },
    "klutch-bind in consumer scope Cluster": {
        "a token of kube-system",
        "a stranger's namespace gone",
    },
    "klutch-bind with its front door": {"a token of kube-system", "an account of kube-system"},
    "klutch-osb": {
        "a token of kube-system",
        "a Secret of kube-system",
        "the content of a stranger's Secret",
        "a stranger's Secret gone",
    },
    "klutch-binder": {"a token of a service namespace"},
    "klutch-binder in consumer scope Cluster": {
        "a token of kube-system",
        "a token of a service namespace",
    },
}
BITES_IN_APP = {
    "plan": set[str](),
    "apply": {
        "a token of klutch-bind",
        "all rights for a konnector",
        "a konnector that is anybody",
        "Pods with the node's disk",
        "a CRD of strangers",
    },
    "apply with AppClusterBindings": {"a token of klutch-bind"},
    "konnector": {"a token of kube-system", "a Secret marked as brought", "a CRD of strangers"},
}


async def attacked(live: LiveCluster, account: Account, place: Ground, bites: set[str]) -> None:
    tried = attacks(place)
    async with held(live, account) as token:

        async def bitten() -> dict[str, int]:
            found = await answers(live.connection, token, list(tried.values()))
            statuses = {name: status for name, (status, _) in zip(tried, found, strict=True)}
            through = {name for name, status in statuses.items() if status < 300}
            assert bites <= through, (bites - through, statuses)
            return statuses

        before = await eventually(bitten)
        assert bool(bites) == any(status < 300 for status in before.values())
        user = user_of(account.namespace, account.name)
        async with enforced(live.cluster, live.connection, account.policies, user):
            found = await answers(live.connection, token, list(tried.values()))
    for (name, was), (status, text) in zip(before.items(), found, strict=True):
        assert status >= 400, f"{account.name}: {name}: {text}"
        if was < 300:
            assert status == 403, text
            assert REFUSED in text, text


@pytest.mark.parametrize("who", ON_PLANE)
async def test_on_a_control_plane(control_plane, who):
    async with ground(control_plane, OF_BINDING) as place:
        await attacked(control_plane, ON_PLANE[who](place), place, BITES_ON_PLANE[who])


async def test_the_account_of_an_earlier_space_writes_into_no_later_ones(control_plane):
    """S1: its name is that of the present account, in whatever its RoleBindings still name."""
    async with ground(control_plane) as place:
        path = f"{CORE}/namespaces/{place.home}/secrets"
        write = Attempt("POST", path, {"metadata": {"name": "x"}})
        account = ON_PLANE["klutch-binder"](place)
        own = Ref(control_plane.name, SERVICE_ACCOUNT, place.space, names.BINDER)
        uid = uid_of(await control_plane.cluster.get(own) or {})
        user = user_of(account.namespace, account.name)
        async with (
            held(control_plane, account) as token,
            enforced(control_plane.cluster, control_plane.connection, account.policies, user),
        ):
            for owner, status in ((uid, 201), ("former", 403), ("", 403)):
                await place.belongs_to(owner)

                async def answered(wanted: int = status) -> bool:
                    ((found, _),) = await answers(control_plane.connection, token, [write])
                    return found == wanted

                await eventually(answered)


@pytest.mark.parametrize("who", IN_APP)
async def test_in_an_app_cluster(app_cluster, who):
    async with ground(app_cluster) as place:
        await attacked(app_cluster, IN_APP[who](place), place, BITES_IN_APP[who])


async def test_without_a_claim_on_secrets_a_konnector_gets_kubeconfigs_only(app_cluster):
    """An empty name in a role is the name of what a POST makes, and of what a list asks for."""
    account = klutchctl(Task.APPLY, Side.APP_CLUSTER, claims=())
    roles = [
        clusterrole(names.KONNECTOR_CLUSTER_ROLE, [*rbac.minimal_inside(secret)])
        for secret in (names.kubeconfig_secret("cluster-x"), "", "own")
    ]
    user = user_of(account.namespace, account.name)
    async with (
        held(app_cluster, account) as token,
        enforced(app_cluster.cluster, app_cluster.connection, account.policies, user),
    ):
        found = await answers(app_cluster.connection, token, roles)
    assert [status for status, _ in found] == [201, 403, 403], found


async def test_permission_claims_that_name_namespaces_bound_a_konnector(app_cluster):
    """It writes Secrets in just these, and in klutch-bind."""
    minimal = IN_APP["konnector"]
    async with ground(app_cluster) as place:
        account = replace(minimal(place), policies=shipped.konnector([place.home]).manifests())
        made = {
            one: Attempt("POST", f"{CORE}/namespaces/{one}/secrets", {"metadata": {"name": "x"}})
            for one in (place.home, place.other, "default", "kube-system", BIND)
        }
        user = user_of(account.namespace, account.name)
        async with (
            held(app_cluster, account) as token,
            enforced(app_cluster.cluster, app_cluster.connection, account.policies, user),
        ):

            async def bounded() -> bool:
                found = await answers(app_cluster.connection, token, list(made.values()))
                assert [status for status, _ in found] == [201, 403, 403, 403, 201]
                return True

            await eventually(bounded)


async def test_the_front_door_keeps_its_keys_and_no_other_secret_of_its_namespace(control_plane):
    async with ground(control_plane) as place:
        account = ON_PLANE["klutch-bind"](place)
        path = f"{CORE}/namespaces/{BIND}/secrets"
        token = of_token(BIND, names.DOOR_KEYS, names.KONNECTOR)
        making = [
            token,
            Attempt("POST", path, {"metadata": {"name": "other"}}),
            Attempt("POST", path, {"metadata": {"name": names.DOOR_KEYS}}),
        ]
        changing = [
            merged(f"{path}/{names.DOOR_KEYS}", stringData={"present": "x"}),
            Attempt("DELETE", f"{path}/{names.DOOR_KEYS}"),
        ]
        user = user_of(account.namespace, account.name)
        ref = Ref(control_plane.name, SECRET, BIND, names.DOOR_KEYS)
        async with (
            held(control_plane, account) as credential,
            enforced(control_plane.cluster, control_plane.connection, account.policies, user),
        ):

            async def answered(tried: list[Attempt], statuses: list[int]) -> bool:
                found = await answers(control_plane.connection, credential, tried)
                assert [status for status, _ in found] == statuses, found
                return True

            await eventually(lambda: answered(making, [403, 403, 201]))
            made = build(SECRET, names.DOOR_KEYS, namespace=BIND)
            await control_plane.cluster.create(made, SECRET, manager="tests")
            try:
                await answered(changing, [200, 403])
            finally:
                await removal.remove(control_plane.cluster, ref)


@dataclass
class Denying(Fleet):
    """The files of a fleet that allows nothing by itself."""

    def write(self) -> None:
        super().write()
        file = self.folder / "fleet.yaml"
        file.write_text(file.read_text().replace("default: Allow", "default: Deny"))


async def test_what_no_policy_allows_is_not_applied(
    control_plane, app_cluster, namespace, tmp_path
):
    made = staged(
        control_plane, app_cluster, namespace=namespace, mode=Mode.DIRECT, folder=tmp_path
    )
    async with made as scene:
        old = scene.fleet
        scene.fleet = Denying(old.folder, old.name, old.mode, old.group)
        marks = scene.marks()
        run = await scene.apply(code=4)
        assert "no Policy has a path for this file" in run.stderr
        assert [w for audit, mark in marks for w in audit.writes_since(mark)] == []
