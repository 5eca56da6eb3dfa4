"""T12: what no Policy has a path for, names that begin with a dot, and what reviewers are shown."""

import pytest

from klutchctl import main, scaffold
from reconciler.core.errors import Severity
from reconciler.fleet.load import load, load_against, load_base, load_valid_part
from reconciler.reports.pr_diff import Effect, edits
from tests.support.fleet_texts import BINDING, GOOD, POLICY, TEMPLATE, document, tree

_MORE = ("bindings/**/*.yaml", "bindings/.hidden/*.yaml", ".github/*/*.yaml", "elsewhere/*")
_GLOBS = ", ".join(f"{{glob: '{one}', optional: true}}" for one in _MORE)
WIDE = f"include: ['[a-df-z]*/*.yaml', {_GLOBS}]"


def fleet(default, include=WIDE):
    return {
        "fleet.yaml": document("Fleet", "acme", f"{{{include}, policies: {{default: {default}}}}}")
    }


X_TEMPLATE = {"templates/x.yaml": TEMPLATE.replace("name: pg", "name: x").replace("pgs", "xs")}
X = BINDING.replace("name: db", "name: x").replace("template: pg", "template: x")
TEAM = {"policies/p.yaml": POLICY.replace("bindings/*", "bindings/**")}
ATTACKS = {
    "a folder that no Policy has a path for": (fleet("Deny"), "elsewhere/x.yaml"),
    "a folder that begins with a dot": (fleet("Allow"), "bindings/.hidden/x.yaml"),
    "both": (fleet("Deny"), ".github/workflows/x.yaml"),
}


@pytest.mark.parametrize(("files", "path"), ATTACKS.values(), ids=ATTACKS.keys())
def test_a_binding_where_no_policy_looked(files, path):
    found, problems = load(tree({**files, **TEAM, **X_TEMPLATE, path: X}))
    assert found is None
    assert [(one.origin.path, one.code, one.severity) for one in problems] == [
        (path, "policy-denied", Severity.DENIED)
    ]


@pytest.mark.parametrize("pattern", ["bindings/*/x.yaml", "bindings/?hidden/*", "bindings/**"])
def test_wildcards_of_a_policy_match_a_name_with_a_dot(pattern):
    files = {**fleet("Allow"), "policies/p.yaml": POLICY.replace("bindings/*", pattern)}
    found, _ = load(tree({**files, **X_TEMPLATE, "bindings/.hidden/x.yaml": X}))
    assert found is None


def test_a_wildcard_of_an_include_does_not():
    files = fleet("Allow", "include: ['*/*.yaml', 'bindings/**/*.yaml']")
    found, problems = load(tree({**files, "bindings/.hidden/x.yaml": "not read"}))
    assert found is not None
    assert problems == ()


def test_allow_lets_a_binding_be_where_no_policy_looks():
    found, problems = load(tree({**fleet("Allow"), **TEAM, **X_TEMPLATE, "elsewhere/x.yaml": X}))
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
        {**fleet("Allow"), "elsewhere/x.yaml": X},
        ["elsewhere/x.yaml policy-denied"],
    ),
    "the pull request brings its own Policy": (
        fleet("Deny"),
        {
            **fleet("Deny"),
            "policies/q.yaml": POLICY.replace("bindings/*", "elsewhere/*")
            .replace("name: team", "name: own")
            .replace("[pg]", "[x]"),
            "elsewhere/x.yaml": X,
        },
        ["elsewhere/x.yaml policy-denied"],
    ),
    "the pull request denies what the base allows": (
        fleet("Allow"),
        {**fleet("Deny"), "elsewhere/x.yaml": X},
        ["elsewhere/x.yaml policy-denied"],
    ),
    "both allow": (fleet("Allow"), {**fleet("Allow"), "elsewhere/x.yaml": X}, []),
}


@pytest.mark.parametrize(("before", "after", "want"), BY_BASE.values(), ids=BY_BASE.keys())
def test_the_default_is_read_from_the_base(before, after, want):
    base = load_base("main", tree({**TEAM, **X_TEMPLATE, **before}))
    _, problems = load_against(base, tree({**TEAM, **X_TEMPLATE, **after}))
    assert [f"{one.origin.path} {one.code}" for one in problems] == want


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
    "a Template more": (X_TEMPLATE, []),
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
    assert "policies: {default: Deny}" in scaffold.files("acme", "{}")["fleet.yaml"]
    assert main.run(["init", str(tmp_path / "new")]) == 0
    assert main.run(["validate", str(tmp_path / "new")]) == 0
    assert "warning" not in capsys.readouterr().out
    other = tmp_path / "new" / "bindings" / "team-b"
    other.mkdir()
    team_a = tmp_path / "new" / "bindings" / "team-a" / "postgresql.yaml"
    team_a.rename(other / "mine.yaml")
    assert main.run(["validate", str(tmp_path / "new")]) == 4
