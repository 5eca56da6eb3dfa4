"""A pull request is judged by the protected branch, and cannot grant itself anything.

T12: what no Policy has a path for, names that begin with a dot, and what reviewers are shown.
"""

from dataclasses import replace

import pytest

from klutchctl import main
from reconciler.core.errors import ConfigError, Severity
from reconciler.fleet.load import load, load_against, load_base, load_valid_part, new_ways
from reconciler.fleet.values import Access, DeletionPolicy, Guards, PruneMode
from reconciler.reports.pr_diff import Effect, edits
from tests.support import fleets
from tests.support.fleet_texts import BINDING, CLUSTER, GOOD, POLICY, TEMPLATE, document, tree

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
        {"policies/p.yaml": POLICY, "policies/q.yaml": ALLOWS_X.replace("team", "own"), **ASKED},
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
    assert found is not None
    assert [f"{one.origin.path} {one.code}" for one in found.denied] == problems == want


NOT_READ_AT_ALL = {
    "a Template that is not there, so no Policy allows it": (
        {"bindings/x.yaml": X_BINDING},
        ["bindings/x.yaml unknown-template"],
    ),
    "another name, for which the objects of another fleet would be taken": (
        {"fleet.yaml": GOOD["fleet.yaml"].replace("acme", "bank")},
        ["fleet.yaml fleet-renamed"],
    ),
    "what is invalid beside what is denied": (
        {**ASKED, "clusters/bank.yaml": "kind: Cluster"},
        ["bindings/x.yaml policy-denied", "clusters/bank.yaml missing-field"],
    ),
}


@pytest.mark.parametrize(("head", "want"), NOT_READ_AT_ALL.values(), ids=NOT_READ_AT_ALL.keys())
def test_what_nothing_is_planned_of(head, want):
    found, problems = judged({"policies/p.yaml": POLICY}, {"policies/p.yaml": POLICY, **head})
    assert found is None
    assert want == sorted(set(problems))


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
    assert problem.hint == "The Policies of main apply; changes to them count after the merge"


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


_MORE = ("bindings/**/*.yaml", "bindings/.hidden/*.yaml", ".github/*/*.yaml", "elsewhere/*")
_GLOBS = ", ".join(f"{{glob: '{one}', optional: true}}" for one in _MORE)
WIDE = f"include: ['[a-df-z]*/*.yaml', {_GLOBS}]"


def fleet(default, include=WIDE):
    return {
        "fleet.yaml": document("Fleet", "acme", f"{{{include}, policies: {{default: {default}}}}}")
    }


TEMPLATES = {"templates/x.yaml": X_TEMPLATE}
TEAM = {"policies/p.yaml": POLICY.replace("bindings/*", "bindings/**")}
ATTACKS = {
    "a folder that no Policy has a path for": (fleet("Deny"), "elsewhere/x.yaml"),
    "a folder that begins with a dot": (fleet("Allow"), "bindings/.hidden/x.yaml"),
    "both": (fleet("Deny"), ".github/workflows/x.yaml"),
}


@pytest.mark.parametrize(("files", "path"), ATTACKS.values(), ids=ATTACKS.keys())
def test_a_binding_where_no_policy_looked(files, path):
    found, problems = load(tree({**files, **TEAM, **TEMPLATES, path: X_BINDING}))
    assert found is None
    assert [(one.origin.path, one.code, one.severity) for one in problems] == [
        (path, "policy-denied", Severity.DENIED)
    ]


@pytest.mark.parametrize("pattern", ["bindings/*/x.yaml", "bindings/?hidden/*", "bindings/**"])
def test_wildcards_of_a_policy_match_a_name_with_a_dot(pattern):
    files = {**fleet("Allow"), "policies/p.yaml": POLICY.replace("bindings/*", pattern)}
    found, _ = load(tree({**files, **TEMPLATES, "bindings/.hidden/x.yaml": X_BINDING}))
    assert found is None


def test_a_wildcard_of_an_include_does_not():
    files = fleet("Allow", "include: ['*/*.yaml', 'bindings/**/*.yaml']")
    found, problems = load(tree({**files, "bindings/.hidden/x.yaml": "not read"}))
    assert found is not None
    assert problems == ()


def test_allow_lets_a_binding_be_where_no_policy_looks():
    found, problems = load(
        tree({**fleet("Allow"), **TEAM, **TEMPLATES, "elsewhere/x.yaml": X_BINDING})
    )
    assert found is not None
    assert problems == ()


def test_deny_without_any_policy_denies_every_binding():
    found, problems = load(tree(fleet("Deny")))
    assert found is None
    assert [str(one) for one in problems] == [
        "bindings/db.yaml:3:18: no Policy has a path for this file, and"
        " Fleet.spec.policies.default is Deny. Add a Policy whose spec.paths match it, or move it"
        " to where one does [policy-denied]"
    ]


def test_a_fleet_that_does_not_say_is_warned_and_allows():
    bare = GOOD["fleet.yaml"].replace(", policies: {default: Allow}", "")
    found, (problem,) = load(tree({"fleet.yaml": bare}))
    assert found is not None
    assert problem.severity is Severity.WARNING
    assert (problem.code, str(problem.origin)) == ("policy-default", "fleet.yaml:4:7")


BY_BASE = {
    "the pull request allows what the base denies": (
        fleet("Deny"),
        {**fleet("Allow"), "elsewhere/x.yaml": X_BINDING},
        ["elsewhere/x.yaml policy-denied"],
    ),
    "the pull request brings its own Policy": (
        fleet("Deny"),
        {
            **fleet("Deny"),
            "policies/q.yaml": POLICY.replace("bindings/*", "elsewhere/*")
            .replace("name: team", "name: own")
            .replace("[pg]", "[x]"),
            "elsewhere/x.yaml": X_BINDING,
        },
        ["elsewhere/x.yaml policy-denied"],
    ),
    "the pull request denies what the base allows": (
        fleet("Allow"),
        {**fleet("Deny"), "elsewhere/x.yaml": X_BINDING},
        ["elsewhere/x.yaml policy-denied"],
    ),
    "both allow": (fleet("Allow"), {**fleet("Allow"), "elsewhere/x.yaml": X_BINDING}, []),
}


@pytest.mark.parametrize(("before", "after", "want"), BY_BASE.values(), ids=BY_BASE.keys())
def test_the_default_is_read_from_the_base(before, after, want):
    _, problems = judged({**TEAM, **TEMPLATES, **before}, {**TEAM, **TEMPLATES, **after})
    assert problems == want


RIGHTS = {
    "an include more": (
        {
            "fleet.yaml": document(
                "Fleet", "acme", "{include: ['*/*.yaml', {glob: x/*, optional: true}]}"
            )
        },
        ["/include"],
    ),
    "another default": (fleet("Deny", "include: ['*/*.yaml']"), ["/policies/default"]),
    "no default any more": (
        {"fleet.yaml": GOOD["fleet.yaml"].replace(", policies: {default: Allow}", "")},
        ["/policies"],
    ),
    "a Template more": (TEMPLATES, []),
}


@pytest.mark.parametrize(("changes", "paths"), RIGHTS.values(), ids=RIGHTS.keys())
def test_what_reviewers_are_shown_as_rights(changes, paths):
    before, after = load_valid_part(tree(), []), load_valid_part(tree(changes), [])
    assert before is not None
    assert after is not None
    (edit,) = (one for one in edits(before, after) if one.kind != "Binding")
    assert edit.effect is Effect.RIGHTS
    assert [one.path for one in edit.fields] == paths


def test_a_new_repository_denies_by_default(tmp_path, capsys):
    assert main.run(["init", str(tmp_path / "new")]) == 0
    assert "policies: {default: Deny}" in (tmp_path / "new" / "fleet.yaml").read_text()
    assert main.run(["validate", str(tmp_path / "new")]) == 0
    assert "warning" not in capsys.readouterr().out
    other = tmp_path / "new" / "bindings" / "team-b"
    other.mkdir()
    (tmp_path / "new" / "bindings" / "team-a" / "postgresql.yaml").rename(other / "mine.yaml")
    assert main.run(["validate", str(tmp_path / "new")]) == 4
