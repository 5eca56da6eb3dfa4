"""What Policies deny and allow, and what is only a warning."""

import pytest

from reconciler.core.problems import Severity
from reconciler.fleet.load import load
from tests.support.fleet_texts import ACB_CONTROL_PLANE, POLICY, document, tree

SELECT = "clusters: {names: [shop]}"
X_TEMPLATE = document("Template", "x", "{resources: [{group: g, resource: rs}]}")
X_BINDING = document("Binding", "x", f"{{template: x, {SELECT}}}")
BARE_BINDING = document("Binding", "x", f"{{resources: [{{group: g, resource: rs}}], {SELECT}}}")
BOTH = document("Binding", "db", "{template: pg, clusters: {names: [shop, x]}}")
LIMITED = POLICY.replace("[pg]", "[pg, x]").replace("]}", "], limits: {bindingsPerCluster: 1}}")


def cluster(name):
    spec = f"{{access: {{kubeconfigContext: {name}}}, controlPlane: eu}}"
    return document("Cluster", name, spec)


def allowing(name, template):
    return POLICY.replace("name: team", f"name: {name}").replace("[pg]", f"[{template}]")


DENIED = {
    "a template that is not allowed": (
        {"templates/x.yaml": X_TEMPLATE, "bindings/x.yaml": X_BINDING},
        "bindings/x.yaml:4:18 policy-denied",
    ),
    "a cluster that is not allowed": (
        {"clusters/x.yaml": cluster("x"), "bindings/db.yaml": BOTH},
        "bindings/db.yaml:4:18 policy-denied",
    ),
    "resources without a template": (
        {"bindings/x.yaml": BARE_BINDING},
        "bindings/x.yaml:4:19 policy-denied",
    ),
    "a Policy that lets its own writer in": (
        {"bindings/p.yaml": allowing("own", "pg")},
        "bindings/p.yaml:3:18 policy-kind",
    ),
    "a Template beside the Bindings": (
        {"bindings/t.yaml": X_TEMPLATE},
        "bindings/t.yaml:3:18 policy-kind",
    ),
    "too many Bindings": (
        {
            "policies/p.yaml": LIMITED,
            "templates/x.yaml": X_TEMPLATE,
            "bindings/x.yaml": X_BINDING,
        },
        "bindings/x.yaml:3:18 policy-limit",
    ),
    "a Policy that allows nothing": (
        {"policies/p.yaml": document("Policy", "team", "{paths: ['bindings/**']}")},
        "bindings/db.yaml:4:18 policy-denied",
    ),
}
ALLOWED = {
    "what the Policy names": {},
    "another path": {"policies/p.yaml": POLICY.replace("bindings/*", "elsewhere/*")},
    "what one of two Policies names": {
        "policies/x.yaml": allowing("more", "x"),
        "templates/x.yaml": X_TEMPLATE,
        "bindings/x.yaml": X_BINDING,
    },
}
WARNED = {
    "a long space name": (
        {
            "planes/eu.yaml": ACB_CONTROL_PLANE,
            "clusters/x.yaml": cluster("a-long-name-of-32-characters-xxx"),
        },
        "clusters/x.yaml:3:18 long-space-name",
    ),
    "a dependency that no cluster shares": (
        {
            "clusters/x.yaml": cluster("x"),
            "bindings/db.yaml": document(
                "Binding", "db", f"{{template: pg, {SELECT}, dependsOn: [z]}}"
            ),
            "bindings/z.yaml": document("Binding", "z", "{template: pg, clusters: {names: [x]}}"),
        },
        "bindings/db.yaml:4:61 dependency-elsewhere",
    ),
}


def brief(problem):
    return f"{problem.origin} {problem.code}"


@pytest.mark.parametrize(("changes", "want"), DENIED.values(), ids=DENIED.keys())
def test_denied(changes, want):
    fleet, problems = load(tree({"policies/p.yaml": POLICY, **changes}))
    assert fleet is None
    assert [brief(one) for one in problems] == [want]
    assert {one.severity for one in problems} == {Severity.DENIED}


@pytest.mark.parametrize("changes", ALLOWED.values(), ids=ALLOWED.keys())
def test_allowed(changes):
    fleet, problems = load(tree({"policies/p.yaml": POLICY, **changes}))
    assert fleet is not None
    assert problems == ()


@pytest.mark.parametrize(("changes", "want"), WARNED.values(), ids=WARNED.keys())
def test_warnings_let_the_fleet_through(changes, want):
    fleet, problems = load(tree(changes))
    assert fleet is not None
    assert [brief(one) for one in problems] == [want]
    assert {one.severity for one in problems} == {Severity.WARNING}
