"""Everything that can be wrong with a fleet repository: code, line and column, all at once."""

import pytest

from reconciler.core.problems import Origin, Problem, Severity
from reconciler.fleet.files import Snapshot
from reconciler.fleet.load import load
from reconciler.fleet.wording import CODES
from tests.support import bad_fleets
from tests.support.fleet_texts import CLUSTER, tree


def brief(problem):
    return f"{problem.origin} {problem.code}"


@pytest.mark.parametrize("row", bad_fleets.INVALID.values(), ids=bad_fleets.INVALID.keys())
def test_what_is_wrong_is_told_with_its_place(row):
    changes, *want = row
    loaded, problems = load(tree(changes))
    assert loaded is None
    assert [brief(one) for one in problems] == want
    assert {one.severity for one in problems} == {Severity.INVALID}
    assert all(one.code in CODES for one in problems)
    assert not any(bad_fleets.CANARY in str(one) or "MIIB" in str(one) for one in problems)


def test_a_file_that_was_not_read_is_told_once_and_nothing_is_called_unknown():
    good = tree({"templates/pg.yaml": None})
    unread = {"templates/pg.yaml": Problem(Origin("templates/pg.yaml"), "not-a-file", "is a link")}
    loaded, problems = load(Snapshot(good.files, "", unread=unread))
    assert loaded is None
    assert [brief(one) for one in problems] == ["templates/pg.yaml not-a-file"]


def test_one_mistake_in_a_cluster_is_not_many():
    changes = {
        "clusters/shop.yaml": CLUSTER.replace("controlPlane", "controlPlan"),
        "bindings/x.yaml": bad_fleets.binding("{template: pg, clusters: {names: [shop]}}", "x"),
    }
    _, problems = load(tree(changes))
    assert [brief(one) for one in problems] == [
        "clusters/shop.yaml:4:7 missing-field",
        "clusters/shop.yaml:4:43 unknown-key",
    ]


def test_a_problem_that_many_clusters_have_is_told_once():
    changes = {f"clusters/c{n}.yaml": bad_fleets.other(f"c{n}", f"c{n}") for n in range(9)}
    names = ", ".join(f"c{n}" for n in range(9))
    spec = f"template: pg, clusters: {{names: [{names}]}}"
    changes["bindings/db.yaml"] = bad_fleets.binding(
        f"{{{spec}, parameters: {{a: '${{cluster.labels.x}}'}}}}"
    )
    _, (problem,) = load(tree(changes))
    assert problem.message == "the cluster label x is missing in c0, c1, c2 and 6 more"


HINTS = {
    "the nearest key": (bad_fleets.FORMS["an unknown key"], "Did you mean dependsOn?"),
    "the nearest template": (bad_fleets.REFERENCES["an unknown template"], "Known: pg"),
    "the nearest cluster": (bad_fleets.REFERENCES["an unknown cluster"], "Did you mean shop?"),
    "the nearest kind": (bad_fleets.FILES["an unknown kind"], "Did you mean Binding?"),
    "the nearest value": (bad_fleets.FORMS["none of the allowed values"], "Did you mean Direct?"),
    "quotes": (bad_fleets.FORMS["a number for text"], "Put it in quotes"),
    "no value": (
        bad_fleets.FORMS["a null for a list"],
        "Leave the key out, or write [] or {} for nothing",
    ),
}


@pytest.mark.parametrize(("row", "hint"), HINTS.values(), ids=HINTS.keys())
def test_hints(row, hint):
    assert load(tree(row[0]))[1][0].hint == hint


# Of files that are fetched (tests/unit/source), of Policies and warnings (test_policies.py).
ELSEWHERE = {
    "dependency-elsewhere",
    "fleet-renamed",
    "long-space-name",
    "not-a-file",
    "policy-default",
    "policy-denied",
    "policy-kind",
    "policy-limit",
    "too-many-files",
    "tree-too-large",
    "unreadable-file",
}


def test_every_code_has_a_row():
    shown = {want.split()[1] for _, *wants in bad_fleets.INVALID.values() for want in wants}
    assert CODES.keys() - shown == ELSEWHERE
