"""What a pull request changes, in each format of a plan."""

import json

import pytest

from klutchctl.render import plan_json, plan_markdown, plan_text
from reconciler.core.diff import FieldChange
from reconciler.core.problems import Origin
from reconciler.planning import planfile
from reconciler.planning.changes import Plan
from reconciler.reports.pr_diff import Against, Edit, Effect

PLAN = planfile.identified(
    Plan(fleet="acme", revision="", digest="", changes=(), sections={}, clusters_total=0)
)
COMMIT = "4c1e9d2" + "0" * 33
CLUSTERS = ("shop-1", "shop-2", "shop-3", "shop-4", "shop-5")
EDITS = (
    Edit(Effect.DELETE, "Binding", "orders-db", Origin("b.yaml", 3, 1), "pgs.g.io", CLUSTERS),
    Edit(
        Effect.WIDEN,
        "Binding",
        "reports",
        Origin("c.yaml", 1, 1),
        "pgs.g.io",
        ("shop-1",),
        (FieldChange("/claims/secrets", "names [a]", "all"),),
    ),
    Edit(
        Effect.RIGHTS,
        "Fleet",
        "",
        Origin("fleet.yaml", 1),
        fields=(FieldChange("/name", "a", "b"),),
    ),
    Edit(Effect.ADD, "Cluster", "shop-6", Origin("clusters/shop-6.yaml", 3, 1)),
)
AGAINST = Against("main", COMMIT, EDITS)
TEXT = """\
Changed against main (4c1e9d2)
  - delete   orders-db   pgs.g.io in shop-1, shop-2, shop-3 and 2 more   b.yaml:3
  ! widen    reports     pgs.g.io in shop-1                              c.yaml:1
               /claims/secrets: "names [a]" -> "all"
  ! rights   -           Fleet                                           fleet.yaml:1
               /name: "a" -> "b"
  + add      shop-6      Cluster                                         clusters/shop-6.yaml:3
"""


def test_text_comes_before_the_clusters():
    assert plan_text.render(PLAN, against=AGAINST).split("\n\n")[1] + "\n" == TEXT


def test_markdown_shows_the_same_lines_first():
    shown = plan_markdown.render(PLAN, against=AGAINST)
    title, _, rest = shown.partition("#### ")[2].partition("\n\n")
    assert title == "Changed against <code>main</code>"
    assert rest.startswith("```text\n" + TEXT.partition("\n")[2])


def test_json_is_still_a_plan_file():
    shown = plan_json.render(PLAN, against=AGAINST)
    against = json.loads(shown)["summary"]["against"]
    assert (against["ref"], against["revision"]) == ("main", COMMIT)
    assert against["edits"][0] == {
        "effect": "delete",
        "kind": "Binding",
        "name": "orders-db",
        "resource": "pgs.g.io",
        "clusters": list(CLUSTERS),
        "origin": {"path": "b.yaml", "line": 3, "column": 1},
    }
    assert against["edits"][1]["fields"] == [
        {"path": "/claims/secrets", "before": "names [a]", "after": "all"}
    ]
    assert "clusters" not in against["edits"][3]
    assert planfile.parse(shown.encode(), "x") == PLAN


def test_nothing_changes():
    shown = plan_text.render(PLAN, against=Against("main", COMMIT, ()))
    assert shown.split("\n\n")[1] == "Changed against main (4c1e9d2)\n    nothing"


TITLES = {
    "a commit is named once": (COMMIT[:7], "Changed against 4c1e9d2"),
    "nothing acts on a terminal": ("\x1b[31m", r"Changed against \x1b[31m (4c1e9d2)"),
}


@pytest.mark.parametrize(("ref", "title"), TITLES.values(), ids=TITLES.keys())
def test_the_title(ref, title):
    assert title in plan_text.render(PLAN, against=Against(ref, COMMIT, ()))


HOSTILE = Edit(
    Effect.CHANGE,
    "Binding",
    "\x1b[2J",
    Origin("a\n```\n@all.yaml", 1, 1),
    "g\u202e",
    ("`" * 9,),
    (FieldChange("/\n", "\x07", "</details>"),),
)


def test_no_text_acts():
    against = Against("<b>@all", "", (HOSTILE,))
    for shown in (
        plan_text.render(PLAN, against=against),
        plan_markdown.render(PLAN, against=against),
    ):
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "<b>" not in plan_markdown.render(PLAN, against=against)
    assert "`" * 10 + "text" in plan_markdown.render(PLAN, against=against)


def test_a_comment_stays_in_its_limit_and_keeps_the_gravest():
    many = [Edit(Effect.ADD, "Cluster", f"c-{n}", Origin("語" * 100)) for n in range(5_000)]
    shown = plan_markdown.render(PLAN, against=Against("main", COMMIT, (*EDITS, *many)))
    assert len(shown.encode()) <= plan_markdown.MAX_BYTES
    assert "- delete" in shown
    assert "more lines" in shown
