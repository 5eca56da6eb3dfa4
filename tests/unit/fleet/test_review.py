"""A pull request is judged by the protected branch, and cannot grant itself anything."""

from dataclasses import replace

import pytest

from reconciler.core.errors import ConfigError, Severity
from reconciler.fleet.load import load, load_against, load_base, new_ways
from reconciler.fleet.values import Access, DeletionPolicy, Guards, PruneMode
from tests.support import fleets
from tests.support.fleet_texts import BINDING, CLUSTER, POLICY, TEMPLATE, document, tree

X_TEMPLATE = TEMPLATE.replace("name: pg", "name: x").replace("pgs", "xs")
X_BINDING = BINDING.replace("name: db", "name: x").replace("template: pg", "template: x")
ALLOWS_X = POLICY.replace("[pg]", "[pg, x]")
LENT = CLUSTER.replace("name: shop", "name: bank").replace("Context: shop", "Context: bank")
BANK = LENT.replace("env: prod", "env: bank")
FOLDERS = ("planes", "clusters", "templates", "bindings")
OPEN = document("Policy", "team", "{paths: ['elsewhere/*']}")
LIMITED = POLICY.replace("]}", "], limits: {bindingsPerCluster: 1}}")
WITHOUT_POLICIES = document(
    "Fleet", "acme", f"{{include: [{', '.join(f'{one}/*.yaml' for one in FOLDERS)}]}}"
)


def judged(base, head):
    """Return the review, and `path code` of each problem."""
    found, problems = load_against(load_base("main", tree(base)), tree(head))
    return found, [f"{one.origin.path} {one.code}" for one in problems]


ASKED = {"templates/x.yaml": X_TEMPLATE, "bindings/x.yaml": X_BINDING}
DENIED = {
    "a Policy that is widened beside what needs it": (
        {"policies/p.yaml": POLICY},
        {"policies/p.yaml": ALLOWS_X, **ASKED},
        ["bindings/x.yaml policy-denied"],
    ),
    "a Policy that is removed": (
        {"policies/p.yaml": POLICY},
        ASKED,
        ["bindings/x.yaml policy-denied"],
    ),
    "a Policy that is no longer about the path": (
        {"policies/p.yaml": POLICY},
        {"policies/p.yaml": OPEN, **ASKED},
        ["bindings/x.yaml policy-denied"],
    ),
    "a Policy beside it that allows everything": (
        {"policies/p.yaml": POLICY},
        {
            "policies/p.yaml": POLICY,
            "policies/q.yaml": ALLOWS_X.replace("team", "own"),
            **ASKED,
        },
        ["bindings/x.yaml policy-denied"],
    ),
    "a Policy that is no longer included": (
        {"policies/p.yaml": POLICY},
        {"fleet.yaml": WITHOUT_POLICIES, "policies/p.yaml": POLICY, **ASKED},
        ["bindings/x.yaml policy-denied"],
    ),
    "a cluster that is given the labels": (
        {"policies/p.yaml": POLICY, "clusters/bank.yaml": BANK},
        {"policies/p.yaml": POLICY, "clusters/bank.yaml": LENT},
        ["bindings/db.yaml policy-denied"],
    ),
    "a limit that is lifted": (
        {"policies/p.yaml": LIMITED},
        {"policies/p.yaml": ALLOWS_X, **ASKED},
        ["bindings/x.yaml policy-limit", "bindings/x.yaml policy-denied"],
    ),
    "a Template in the place of Bindings, and the Policy gone": (
        {"policies/p.yaml": POLICY},
        {"bindings/t.yaml": X_TEMPLATE},
        ["bindings/t.yaml policy-kind"],
    ),
    "what its own Policies deny": (
        {},
        {"policies/p.yaml": POLICY, **ASKED},
        ["bindings/x.yaml policy-denied"],
    ),
    "what both deny, told once": (
        {"policies/p.yaml": POLICY},
        {"policies/p.yaml": POLICY, **ASKED},
        ["bindings/x.yaml policy-denied"],
    ),
}


@pytest.mark.parametrize(("base", "head", "want"), DENIED.values(), ids=DENIED.keys())
def test_what_is_denied(base, head, want):
    found, problems = judged(base, head)
    assert found is None
    assert problems == want


ALLOWED = {
    "nothing changes": ({}, {}),
    "what the Policy of the base allows": (
        {"policies/p.yaml": ALLOWS_X, "templates/x.yaml": X_TEMPLATE},
        {"policies/p.yaml": ALLOWS_X, **ASKED},
    ),
    "the Policy alone is widened": (
        {"policies/p.yaml": POLICY, "templates/x.yaml": X_TEMPLATE},
        {"policies/p.yaml": ALLOWS_X, "templates/x.yaml": X_TEMPLATE},
    ),
    "a new cluster has the labels that it is given": (
        {"policies/p.yaml": POLICY},
        {"policies/p.yaml": POLICY, "clusters/bank.yaml": LENT},
    ),
    "a Template goes that the Policy of the base names": (
        {"policies/p.yaml": ALLOWS_X, "templates/x.yaml": X_TEMPLATE},
        {"policies/p.yaml": POLICY},
    ),
    "a base that denies itself": ({"policies/p.yaml": POLICY, **ASKED}, {}),
}


@pytest.mark.parametrize(("base", "head"), ALLOWED.values(), ids=ALLOWED.keys())
def test_what_is_allowed(base, head):
    found, problems = judged(base, head)
    assert problems == []
    assert found is not None
    assert found.head.fleet == load(tree(head))[0]


def test_a_denial_by_the_base_alone_says_so():
    base = load_base("main", tree({"policies/p.yaml": POLICY}))
    _, (problem,) = load_against(base, tree({"policies/p.yaml": ALLOWS_X, **ASKED}))
    assert problem.severity is Severity.DENIED
    assert problem.hint == "So says main; what is changed here counts once it is merged"


def test_a_base_that_is_invalid_judges_nothing():
    wrong = {"bindings/db.yaml": BINDING.replace("pg", "gp"), "clusters/shop.yaml": "x: 1\n"}
    with pytest.raises(ConfigError) as caught:
        load_base("main", tree(wrong))
    assert caught.value.where == "--base main"
    assert "invalid itself, so nothing can be judged by it: bindings/db.yaml:4:18: " in str(
        caught.value
    )


STRICT = Guards(
    mode=PruneMode.REPORT,
    max_deletes=1,
    max_delete_percent=1,
    on_cluster_leave=DeletionPolicy.BLOCK,
)
LOOSE = Guards(
    max_deletes=99,
    max_delete_percent=99,
    allow_empty=True,
    keep_if_in_use=False,
    on_cluster_leave=DeletionPolicy.DELETE,
)
BETWEEN = {
    "equal ones": (LOOSE, LOOSE, LOOSE),
    "looser ones": (STRICT, LOOSE, STRICT),
    "stricter ones": (LOOSE, STRICT, STRICT),
    "what is turned on is shown": (
        Guards(mode=PruneMode.OFF),
        Guards(mode=PruneMode.AUTO),
        Guards(mode=PruneMode.REPORT),
    ),
    "what is turned off is not looked at": (
        Guards(mode=PruneMode.AUTO),
        Guards(mode=PruneMode.OFF),
        Guards(mode=PruneMode.OFF),
    ),
    "a release that becomes a delete waits": (
        Guards(on_cluster_leave=DeletionPolicy.RELEASE),
        Guards(on_cluster_leave=DeletionPolicy.DELETE),
        Guards(on_cluster_leave=DeletionPolicy.BLOCK),
    ),
    "a delete that becomes a release": (
        Guards(on_cluster_leave=DeletionPolicy.DELETE),
        Guards(on_cluster_leave=DeletionPolicy.RELEASE),
        Guards(on_cluster_leave=DeletionPolicy.RELEASE),
    ),
}


def prune(guards):
    """Return a Fleet document with these guards."""
    return document(
        "Fleet",
        "acme",
        f"{{include: ['*/*.yaml'], prune: {{mode: '{guards.mode}',"
        f" maxDeletes: {guards.max_deletes}, maxDeletePercent: {guards.max_delete_percent},"
        f" allowEmpty: {str(guards.allow_empty).lower()},"
        f" keepIfInUse: {str(guards.keep_if_in_use).lower()},"
        f" onClusterLeave: {guards.on_cluster_leave}}}}}",
    )


@pytest.mark.parametrize(("base", "head", "want"), BETWEEN.values(), ids=BETWEEN.keys())
def test_of_two_guards_the_stricter_holds(base, head, want):
    found, _ = judged({"fleet.yaml": prune(base)}, {"fleet.yaml": prune(head)})
    assert found is not None
    assert found.fleet.guards == want
    assert found.head.fleet.guards == head, "what is written is told as it is"


SECRET = Access(secret=("shop", "kubeconfig"))
OTHER = fleets.control_plane("us")
WAYS = {
    "nothing changes": ({}, {}, {}, ([], [])),
    "another context": ({}, {"access": Access(context="bank")}, {}, ([], ["shop"])),
    "another kind of access": ({}, {"access": Access(in_cluster=True)}, {}, ([], ["shop"])),
    "another Secret": (
        {"access": SECRET},
        {"access": Access(secret=("bank", "kubeconfig"))},
        {},
        ([], ["shop"]),
    ),
    "the same Secret of another control plane": (
        {"access": SECRET},
        {"access": SECRET, "control_plane": "us"},
        {},
        ([], ["shop"]),
    ),
    "the same context behind another control plane": ({}, {"control_plane": "us"}, {}, ([], [])),
    "a new name": ({}, {"name": "bank"}, {}, ([], ["bank"])),
    "other labels": ({}, {"labels": {"a": "b"}}, {}, ([], [])),
    "another way to the control plane": ({}, {}, {"access": SECRET}, (["eu"], [])),
}


@pytest.mark.parametrize(("base", "head", "plane", "want"), WAYS.values(), ids=WAYS.keys())
def test_ways_that_the_base_does_not_lead(base, head, plane, want):
    planes = [fleets.control_plane(), OTHER]
    app = fleets.app_cluster()
    before = fleets.fleet(control_planes=planes, clusters=[replace(app, **base)])
    planes[0] = replace(planes[0], **plane)
    after = fleets.fleet(control_planes=planes, clusters=[replace(app, **head)])
    new_planes, new_clusters = new_ways(before, after)
    assert (sorted(new_planes), sorted(new_clusters)) == want


def test_a_control_plane_that_is_new():
    before = fleets.fleet()
    after = fleets.fleet(control_planes=[fleets.control_plane(), OTHER])
    assert new_ways(before, after) == (frozenset({"us"}), frozenset())
