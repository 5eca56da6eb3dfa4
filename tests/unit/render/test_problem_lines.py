"""Problems that are alike share a line, where people read them."""

from klutchctl.render import problems
from klutchctl.render.problems import Findings
from reconciler.core.errors import Origin, Problem

MANY = [
    Problem(Origin(f"clusters/edge-{n:03}.yaml", 9, 5), "missing-field", "x is required", "Name it")
    for n in range(200)
]


def test_problems_that_are_alike_are_one_with_their_count_and_places():
    assert problems.text(Findings(MANY, "my/")).splitlines() == [
        "my/clusters/edge-000.yaml:9:5: error: x is required [missing-field]",
        "    Name it",
        "    The same in 199 more places: my/clusters/edge-001.yaml:9:5, "
        "my/clusters/edge-002.yaml:9:5, my/clusters/edge-003.yaml:9:5, "
        "my/clusters/edge-004.yaml:9:5, my/clusters/edge-005.yaml:9:5 "
        "and 194 more; -o json has all",
        "200 errors",
    ]


def test_programs_get_each_of_them():
    assert problems.as_json(Findings(MANY)).count('"missing-field"') == 200
    assert problems.sarif(Findings(MANY), version="1").count('"ruleId"') == 200
    assert problems.github(Findings(MANY)).count("::error ") == 200


def test_a_table_of_problems_has_a_row_for_those_that_are_alike():
    assert problems.rows([*MANY, Problem(Origin("\x1b"), "bad-path", "evil\nline")]) == [
        (r"\x1b", r"evil\nline [bad-path]"),
        (
            "clusters/edge-000.yaml:9:5 and 199 more places",
            "x is required. Name it [missing-field]",
        ),
    ]
