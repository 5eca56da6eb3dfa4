"""What counts as the same (mapping.md 0): both sides normalised, then compared."""

import pytest

from reconciler.core.manifest import covers
from reconciler.core.normalize import canonical_quantity, normalize

KLUTCH = "klutch.anynines.com/v1alpha1"
RBAC = "rbac.authorization.k8s.io/v1"
QUANTITIES = {
    "1": "1",
    1: "1",
    0.5: "0.5",
    1e22: "10000000000000000000000",
    "500m": "0.5",
    "0.5": "0.5",
    ".5": "0.5",
    "5.": "5",
    "+5": "5",
    "-5": "-5",
    "-0": "0",
    "1000m": "1",
    "1500u": "0.0015",
    "3n": "0.000000003",
    "0.1n": "0.000000001",
    "1k": "1000",
    "1Ki": "1024",
    "1024Mi": "1073741824",
    "1Gi": "1073741824",
    "1.5Gi": "1610612736",
    "1E": "1000000000000000000",
    "1Ei": "1152921504606846976",
    "1E3": "1000",
    "1e3": "1000",
    "1e-3": "0.001",
    "1e+3": "1000",
}


def role(*rules):
    return {"apiVersion": RBAC, "kind": "ClusterRole", "rules": list(rules)}


def rule(groups, resources, verbs, **more):
    return {"apiGroups": groups, "resources": resources, "verbs": verbs, **more}


def role_binding(*subjects, **role_ref):
    ref = {"kind": "ClusterRole", "name": "r", **role_ref}
    return {"apiVersion": RBAC, "kind": "RoleBinding", "roleRef": ref, "subjects": list(subjects)}


def binding(*claims):
    return {
        "apiVersion": KLUTCH,
        "kind": "APIServiceBinding",
        "spec": {"permissionClaims": list(claims)},
    }


def claim(**fields):
    return {"resource": "secrets", "version": "v1", **fields}


def request(*claims):
    resources = [{"resource": "pods", "permissionClaims": list(claims)}]
    return {
        "apiVersion": KLUTCH,
        "kind": "APIServiceExportRequest",
        "spec": {"resources": resources},
    }


def deployment(*containers, field="containers"):
    pod = {field: list(containers)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": pod}}}


def container(name="konnector", **fields):
    return {"name": name, **fields}


def limits(**amounts):
    return {"limits": amounts}


def app_cluster_binding(exports=None, **overrides):
    spec = {"konnector": {"overrides": overrides}}
    return {
        "apiVersion": KLUTCH,
        "kind": "AppClusterBinding",
        "spec": spec if exports is None else {**spec, "apiExports": exports},
    }


def env(name, value):
    return {"name": name, "value": value}


SA = {"kind": "ServiceAccount", "name": "s", "namespace": "n"}
USER = {"kind": "User", "name": "u"}
SERVED_CLAIM = claim(
    group="",
    selector={"names": ["*"], "namespaces": ["*"]},
    read={},
    onConflict={"recreateWhenConsumerSideDeleted": True},
    required=False,
)
SAME = {
    "members of a rule in another order": (
        role(rule(["", "a"], ["x", "y"], ["get", "list"])),
        role(rule(["a", ""], ["y", "x"], ["list", "get"])),
    ),
    "members of a rule twice": (
        role(rule([""], ["x"], ["get"])),
        role(rule([""], ["x", "x"], ["get", "get"])),
    ),
    "rules in another order and twice": (
        role(rule([""], ["x"], ["get"]), rule([""], ["y"], ["get"])),
        role(*[rule([""], [each], ["get"]) for each in "yxy"]),
    ),
    "no rules and empty rules": ({"apiVersion": RBAC, "kind": "ClusterRole"}, role()),
    "subjects in another order": (role_binding(SA, USER), role_binding(USER, SA)),
    "a user's group left unsaid": (
        role_binding({**USER, "apiGroup": "rbac.authorization.k8s.io"}),
        role_binding(USER),
    ),
    "a service account's group left unsaid": (
        role_binding(SA),
        role_binding({**SA, "apiGroup": ""}),
    ),
    "a role's group left unsaid": (
        role_binding(SA, apiGroup="rbac.authorization.k8s.io"),
        role_binding(SA),
    ),
    "a claim's defaults": (binding(SERVED_CLAIM), binding(claim())),
    "a claim's names left unsaid": (
        binding(claim(selector={"owner": "Provider", "names": ["*"], "namespaces": ["*"]})),
        binding(claim(selector={"owner": "Provider"})),
    ),
    "a claim that a server without defaults keeps bare": (binding(claim()), binding(SERVED_CLAIM)),
    "claims in another order": (
        binding(claim(), claim(resource="pods")),
        binding(claim(resource="pods"), claim()),
    ),
    "claims in another order, with a field that we do not know": (
        binding(claim(), claim(resource="pods", a="b")),
        binding(claim(resource="pods"), claim()),
    ),
    "a claim's names in another order": (
        binding(claim(selector={"names": ["a", "b"]})),
        binding(claim(selector={"names": ["b", "a"]})),
    ),
    "a claim in a request, and its group": (request(SERVED_CLAIM), request(claim())),
    "a claim in an export": (
        {**binding(SERVED_CLAIM), "kind": "APIServiceExport"},
        {**binding(claim()), "kind": "APIServiceExport"},
    ),
    "a claim in a template": (
        {
            **binding(SERVED_CLAIM),
            "apiVersion": "example-backend.klutch.anynines.com/v1alpha1",
            "kind": "APIServiceExportTemplate",
        },
        {
            **binding(claim()),
            "apiVersion": "example-backend.klutch.anynines.com/v1alpha1",
            "kind": "APIServiceExportTemplate",
        },
    ),
    "quantities": (
        deployment(container(resources=limits(memory="1Gi", cpu="500m"))),
        deployment(container(resources=limits(memory="1024Mi", cpu=0.5))),
    ),
    "containers in another order, and more of them": (
        deployment(container("a", image="x"), container("b", image="y")),
        deployment(container("b", image="y")),
    ),
    "init containers": (
        deployment(container("a"), container("b"), field="initContainers"),
        deployment(container("b"), field="initContainers"),
    ),
    "env in another order, and more of it": (
        deployment(container(env=[env("A", "1"), env("B", "2")])),
        deployment(container(env=[env("B", "2")])),
    ),
    "zero values that a server drops": (
        deployment(container(livenessProbe={"periodSeconds": 10}, envFrom=[{}])),
        deployment(
            container(
                stdin=False,
                workingDir="",
                livenessProbe={"periodSeconds": 10, "initialDelaySeconds": 0},
                envFrom=[{"prefix": ""}],
            )
        ),
    ),
    "an empty variable": (
        deployment(container(env=[{"name": "A"}])),
        deployment(container(env=[env("A", "")])),
    ),
    "exports of an AppClusterBinding in another order": (
        app_cluster_binding([{"resource": "a", "group": "g"}, {"resource": "b", "group": ""}]),
        app_cluster_binding([{"resource": "b"}, {"resource": "a", "group": "g"}]),
    ),
    "quantities in overrides": (
        app_cluster_binding(resources=limits(memory="1Gi")),
        app_cluster_binding(resources=limits(memory="1024Mi")),
    ),
    "env in overrides in another order": (
        app_cluster_binding(env=[env("A", "1"), env("B", "2")]),
        app_cluster_binding(env=[env("B", "2"), env("A", "1")]),
    ),
}


@pytest.mark.parametrize(("live", "stated"), SAME.values(), ids=SAME.keys())
def test_the_same(live, stated):
    assert covers(normalize(live), normalize(stated))


DIFFERENT = {
    "another verb": (role(rule([""], ["x"], ["get"])), role(rule([""], ["x"], ["list"]))),
    "a verb too many": (
        role(rule([""], ["x"], ["get", "delete"])),
        role(rule([""], ["x"], ["get"])),
    ),
    "a rule too many": (
        role(rule([""], ["x"], ["get"]), rule(["*"], ["*"], ["*"])),
        role(rule([""], ["x"], ["get"])),
    ),
    "the rule for one name": (
        role(rule([""], ["x"], ["get"])),
        role(rule([""], ["x"], ["get"], resourceNames=["a"])),
    ),
    "a subject too many": (role_binding(SA, USER), role_binding(SA)),
    "another claim": (binding(claim(resource="pods")), binding(claim())),
    "a narrower claim": (binding(claim(selector={"names": ["a"]})), binding(claim())),
    "no namespaces is not all": (
        binding(claim(selector={"namespaces": ["*"]})),
        binding(claim(selector={"namespaces": []})),
    ),
    "a right that somebody added to a claim": (
        binding(claim(create={"replaceExisting": True})),
        binding(claim()),
    ),
    "an owner that somebody added to a claim": (
        binding(claim(selector={"owner": "Consumer"})),
        binding(claim()),
    ),
    "a claim too many": (binding(claim(), claim(resource="pods")), binding(claim())),
    "another image": (deployment(container(image="x")), deployment(container(image="y"))),
    "an absent container": (deployment(container("a")), deployment(container("b"))),
    "another variable": (
        deployment(container(env=[env("A", "1")])),
        deployment(container(env=[env("A", "2")])),
    ),
    "an empty variable that somebody filled": (
        deployment(container(env=[env("A", "1")])),
        deployment(container(env=[env("A", "")])),
    ),
    "a zero that a server keeps": (
        deployment(container(securityContext={})),
        deployment(container(securityContext={"allowPrivilegeEscalation": False})),
    ),
    "a zero in overrides": (app_cluster_binding(), app_cluster_binding(stdin=False)),
    "more memory": (
        deployment(container(resources=limits(memory="1Gi"))),
        deployment(container(resources=limits(memory="1G"))),
    ),
    "an export too many": (
        app_cluster_binding([{"resource": "a"}, {"resource": "b"}]),
        app_cluster_binding([{"resource": "a"}]),
    ),
    "a variable that somebody added to overrides": (
        app_cluster_binding(env=[env("A", "1"), env("B", "2")]),
        app_cluster_binding(env=[env("A", "1")]),
    ),
    "a unit that is text in another kind": (
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"memory": "1Gi"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"memory": "1024Mi"}},
    ),
}


@pytest.mark.parametrize(("live", "stated"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_different(live, stated):
    assert not covers(normalize(live), normalize(stated))


@pytest.mark.parametrize(
    "manifest", [side for pair in (*SAME.values(), *DIFFERENT.values()) for side in pair]
)
def test_twice_is_once(manifest):
    once = normalize(manifest)
    assert normalize(once) == once


ODD = {
    "no kind": {},
    "an apiVersion that is no text": {"apiVersion": 1, "kind": "Role"},
    "rules that are no array": {"apiVersion": RBAC, "kind": "Role", "rules": {"a": 1}},
    "rules of texts": {"apiVersion": RBAC, "kind": "Role", "rules": ["a"]},
    "no roleRef": {"apiVersion": RBAC, "kind": "RoleBinding", "roleRef": None},
    "claims of texts": binding("a"),
    "claims that are no array": {
        "apiVersion": KLUTCH,
        "kind": "APIServiceBinding",
        "spec": {"permissionClaims": "a"},
    },
    "a nameless container": deployment({"image": "x"}),
    "a container twice": deployment(container("a"), container("a")),
    "env that is no array": deployment(container(env="a")),
    "a quantity that is none": deployment(
        container(resources=limits(memory="much", cpu=None, disk=True))
    ),
    "overrides that are no object": {
        "apiVersion": KLUTCH,
        "kind": "AppClusterBinding",
        "spec": {"konnector": {"overrides": 1}, "apiExports": "x"},
    },
}


@pytest.mark.parametrize("manifest", ODD.values(), ids=ODD.keys())
def test_what_a_schema_would_refuse_still_equals_itself(manifest):
    assert covers(normalize(manifest), normalize(manifest))
    assert normalize(normalize(manifest)) == normalize(manifest)


@pytest.mark.parametrize(("quantity", "want"), QUANTITIES.items())
def test_canonical_quantity(quantity, want):
    assert canonical_quantity(quantity) == want


@pytest.mark.parametrize(
    "text",
    ["", ".", "m", "1K", "1mi", "1 Gi", "1e", "1e1000", "--1", "0x1", "\u0661", "9" * 65, "1\n"],
)
def test_what_is_not_a_quantity(text):
    with pytest.raises(ValueError, match="is not a quantity"):
        canonical_quantity(text)
