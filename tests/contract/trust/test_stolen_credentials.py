"""What a stolen credential can do, measured, and shown in the books as it was measured.

Each account has all that is shipped for it. Writes are dry runs, authorized like any other.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

from reconciler.core import keys, names
from reconciler.core.manifest import name_of
from tests.support import shipped_accounts
from tests.support.clusters import LiveCluster
from tests.support.observing import BIND
from tests.support.osb_scenes import BINDING
from tests.support.policed import Attempt, answers, enforced, merged, of_token, user_of

FILE = Path(__file__).parents[3] / "klutchctl/docs/security/measured.md"
CORE, RBAC = "/api/v1/namespaces", "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
space, stranger = attrgetter("space"), attrgetter("stranger")
home, strangers_home, other = map(attrgetter, ("home", "strangers_home", "other"))
Deed: TypeAlias = Callable[[shipped_accounts.Ground, shipped_accounts.Account], Attempt]
Deeds: TypeAlias = Mapping[str, Deed | tuple[Deed, ...]]  # any of several ways


def secret_of(namespace: Callable[[shipped_accounts.Ground], str], name: str) -> Deed:
    return lambda place, _: Attempt("GET", f"{CORE}/{namespace(place)}/secrets/{name}")


def listed(namespace: Callable[[shipped_accounts.Ground], str], name: str) -> Deed:
    """Return another way to the same: roles may name what may be listed."""
    query = f"secrets?fieldSelector=metadata.name%3D{name}"
    return lambda place, _: Attempt("GET", f"{CORE}/{namespace(place)}/{query}")


def new_secret(namespace: Callable[[shipped_accounts.Ground], str]) -> Deed:
    body = {"metadata": {"name": names.KUBECONFIG}, "stringData": {"a": "b"}}
    return lambda place, _: Attempt("POST", f"{CORE}/{namespace(place)}/secrets", body)


def brokered(place: shipped_accounts.Ground, account: shipped_accounts.Account) -> Attempt:
    """Return the making of credentials as klutch-osb makes them."""
    owner = {"apiVersion": BINDING.api_version, "kind": BINDING.kind, "name": "x", "uid": "x"}
    metadata = {"name": names.KUBECONFIG, "ownerReferences": [{**owner, "controller": True}]}
    body = {"metadata": metadata, "type": "servicebinding.io/Database"}
    return Attempt("POST", f"{CORE}/{place.strangers_home}/secrets", body)


def asked(verb: str, group: str, resource: str, namespace: str = "") -> Deed:
    """Return the question whether a verb is allowed on all objects of a kind."""
    what = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
    return lambda _place, _account: _review(what)


def of_service(verb: str) -> Deed:
    def review(_: shipped_accounts.Ground, account: shipped_accounts.Account) -> Attempt:
        group, resource = account.service
        return _review({"verb": verb, "group": group, "resource": resource})

    return review


def _review(what: Mapping[str, str]) -> Attempt:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return Attempt(
        "POST", path, {"spec": {"resourceAttributes": {k: v for k, v in what.items() if v}}}
    )


def deployed(
    namespace: Callable[[shipped_accounts.Ground], str], account: str, **more: Any
) -> Deed:
    spec = shipped_accounts.pods(account, **more)
    body = {"metadata": {"name": names.KONNECTOR}, "spec": spec}
    return lambda place, _: Attempt(
        "POST", f"/apis/apps/v1/namespaces/{namespace(place)}/deployments", body
    )


def system(_: shipped_accounts.Ground) -> str:
    return "kube-system"


def bind(_: shipped_accounts.Ground) -> str:
    return BIND


def everywhere_anybody(
    place: shipped_accounts.Ground, account: shipped_accounts.Account
) -> Attempt:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    who = [{"apiGroup": role["apiGroup"], "kind": "User", "name": "somebody"}]
    body = {"metadata": {"name": names.KONNECTOR_CLUSTER_ROLE}, "roleRef": role, "subjects": who}
    return Attempt("POST", f"{RBAC}/clusterrolebindings", body)


def policy_gone(place: shipped_accounts.Ground, account: shipped_accounts.Account) -> Attempt:
    name = name_of(account.policies[0]) if account.policies else names.BINDER
    return Attempt("DELETE", f"{ADMISSION}/{name}")


def lowered(namespace: Callable[[shipped_accounts.Ground], str]) -> Deed:
    labels = {"labels": {shipped_accounts.ENFORCE: "privileged"}}
    return lambda place, _: merged(f"{CORE}/{namespace(place)}", metadata=labels)


def annotated(namespace: Callable[[shipped_accounts.Ground], str], key: str) -> Deed:
    """Return the try to have a Namespace pass for one of somebody else."""
    return lambda place, _: merged(
        f"{CORE}/{namespace(place)}", metadata={"annotations": {key: f"{place.stranger}/x"}}
    )


def new_space(_: shipped_accounts.Ground, _account: shipped_accounts.Account) -> Attempt:
    metadata = {"name": "klutch-bind-of-somebody", "annotations": {keys.IDENTITY: "somebody#1"}}
    return Attempt("POST", CORE, {"metadata": metadata})


NOBODY: Deeds = {
    "get a token of `kube-system`": lambda _, _account: of_token(
        "kube-system", names.KUBECONFIG, "default"
    ),
    "write a Secret in `kube-system`": new_secret(system),
    "change a Secret of somebody else": lambda place, _: merged(
        f"{CORE}/{place.other}/secrets/own", stringData={"a": "c"}
    ),
    "run Pods in `kube-system`, or with the node's disk": deployed(
        system, "default", volumes=[{"name": "root", "hostPath": {"path": "/"}}]
    ),
    "make somebody administrator": everywhere_anybody,
    "take its admission policy away": policy_gone,
}
ON_PLANE_DEEDS: Deeds = {
    "read all Secrets": lambda _, _account: Attempt("GET", "/api/v1/secrets"),
    "read the token of its binding space": (
        secret_of(space, names.BINDER),
        listed(space, names.BINDER),
    ),
    "read the tokens of other binding spaces": (
        secret_of(stranger, names.BINDER),
        listed(stranger, names.BINDER),
    ),
    "read credentials of its services": secret_of(home, "own"),
    "read credentials of services of others": secret_of(strangers_home, "own"),
    "write Secrets beside its services": new_secret(home),
    "write Secrets beside services of others": new_secret(strangers_home),
    "write credentials of bindings at service brokers": brokered,
    "change services of all tenants": of_service("patch"),
    "delete services of all tenants": of_service("delete"),
    "offer services: write exports": asked("patch", "klutch.anynines.com", "apiserviceexports"),
    "make a binding space for a person": new_space,
    "give a binding space to another person": annotated(space, keys.IDENTITY),
    "make another namespace a binding space": annotated(other, keys.IDENTITY),
    "make another namespace a service namespace": annotated(other, keys.API_SERVICE_NAMESPACE),
    "give a service namespace to another binding space": annotated(
        home, keys.API_SERVICE_NAMESPACE
    ),
    "delete a binding space with all its data": lambda place, _: Attempt(
        "DELETE", f"{CORE}/{place.space}"
    ),
    "delete another namespace": lambda place, _: Attempt("DELETE", f"{CORE}/{place.other}"),
    "run harmless Pods in binding spaces": deployed(space, names.BINDER),
    "lower a Pod Security label": lowered(space),
    **NOBODY,
}
IN_APP_DEEDS: Deeds = {
    "read all Secrets": lambda _, _account: Attempt("GET", "/api/v1/secrets"),
    "read Secrets of `klutch-bind`": (secret_of(bind, "own"), listed(bind, "own")),
    "write new Secrets in app namespaces": new_secret(other),
    "change what developers claim": of_service("patch"),
    "delete what developers claim": of_service("delete"),
    "bind other services: write APIServiceBindings": asked(
        "patch", "klutch.anynines.com", "apiservicebindings", BIND
    ),
    "run Pods as the konnector": deployed(bind, names.KONNECTOR),
    "lower a Pod Security label": lowered(bind),
    **NOBODY,
}
ON_PLANE, IN_APP = shipped_accounts.ON_PLANE, shipped_accounts.IN_APP
PLANE_COLUMNS: Mapping[str, shipped_accounts.Made] = {
    "`plan`": ON_PLANE["plan"],
    "`apply`": ON_PLANE["apply"],
    "`klutch-bind`": ON_PLANE["klutch-bind in control-plane mode"],
    "`klutch-osb`": ON_PLANE["klutch-osb"],
    "`klutch-binder` of a space": ON_PLANE["klutch-binder"],
}
APP_COLUMNS: Mapping[str, shipped_accounts.Made] = {
    "`plan`": IN_APP["plan"],
    "`apply`": IN_APP["apply"],
    "konnector": IN_APP["konnector"],
    "konnector, `rbac: Full`": shipped_accounts.full_konnector,
}


async def measured(live: LiveCluster, made: shipped_accounts.Made, deeds: Deeds) -> dict[str, bool]:
    async with shipped_accounts.ground(live, shipped_accounts.OF_BINDING) as place:
        account = made(place)
        user = user_of(account.namespace, account.name)
        asked_for = [
            (name, way(place, account))
            for name, ways in deeds.items()
            for way in (ways if isinstance(ways, tuple) else (ways,))
        ]
        async with (
            shipped_accounts.held(live, account) as token,
            enforced(live.cluster, live.connection, account.policies, user),
        ):
            found = await answers(live.connection, token, [one for _, one in asked_for])
    done = {name for (name, _), answer in zip(asked_for, found, strict=True) if _can(answer)}
    return {name: name in done for name in deeds}


def _can(answer: tuple[int, str]) -> bool:
    status, text = answer
    assert status < 300 or status in (401, 403), text
    return status < 300 and ('"SelfSubjectAccessReview"' not in text or '"allowed":true' in text)


async def table(
    live: LiveCluster, columns: Mapping[str, shipped_accounts.Made], deeds: Deeds
) -> str:
    found = {name: await measured(live, made, deeds) for name, made in columns.items()}
    lines = [f"| a stolen ... can | {' | '.join(columns)} |", f"|---{'|---' * len(columns)}|"]
    for deed in deeds:
        cells = ["yes" if found[one][deed] else "-" for one in columns]
        lines.append(f"| {deed} | {' | '.join(cells)} |")
    return "\n".join(lines)


async def test_on_the_control_plane(control_plane):
    found = await table(control_plane, PLANE_COLUMNS, ON_PLANE_DEEDS)
    assert found in FILE.read_text(), f"measured.md should have this:\n{found}"


async def test_in_an_app_cluster(app_cluster):
    found = await table(app_cluster, APP_COLUMNS, IN_APP_DEEDS)
    assert found in FILE.read_text(), f"measured.md should have this:\n{found}"
