"""What a pull request changes, in each format of a plan."""

from dataclasses import replace

import pytest

from klutchctl.render import plan_formats, plan_markdown
from reconciler.core.decision import FieldChange
from reconciler.core.errors import Origin
from reconciler.planning import planfile
from reconciler.planning.changes import Plan
from reconciler.reports.pr_diff import Against, Edit, Effect
from tests.golden import values

PLAN = planfile.identified(
    Plan(fleet="acme", revision="", digest="", changes=(), sections={}, clusters_total=0)
)
COMMIT = values.against().revision


def test_json_is_still_a_plan_file():
    shown = plan_formats.as_json(PLAN, against=replace(values.against(), denied=()))
    assert planfile.parse(shown.encode(), "x") == PLAN


def test_nothing_changes():
    shown = plan_formats.text(PLAN, against=Against("main", COMMIT, ()))
    assert shown.split("\n\n")[1] == "Changed against main (4c1e9d2)\n    nothing"


TITLES = {
    "a commit is named once": (COMMIT[:7], "Changed against 4c1e9d2"),
    "nothing acts on a terminal": ("\x1b[31m", r"Changed against \x1b[31m (4c1e9d2)"),
}


@pytest.mark.parametrize(("ref", "title"), TITLES.values(), ids=TITLES.keys())
def test_the_title(ref, title):
    assert title in plan_formats.text(PLAN, against=Against(ref, COMMIT, ()))


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
        plan_formats.text(PLAN, against=against),
        plan_markdown.comment(PLAN, against=against),
    ):
        assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "<b>" not in plan_markdown.comment(PLAN, against=against)
    assert "`" * 10 + "text" in plan_markdown.comment(PLAN, against=against)


def test_a_comment_stays_in_its_limit_and_keeps_the_gravest():
    many = [Edit(Effect.ADD, "Cluster", f"c-{n}", Origin("語" * 100)) for n in range(5_000)]
    shown = plan_markdown.comment(
        PLAN, against=replace(values.against(), edits=(*values.against().edits, *many))
    )
    assert len(shown.encode()) <= plan_markdown.MAX_BYTES
    assert "- delete" in shown
    assert "more lines" in shown
