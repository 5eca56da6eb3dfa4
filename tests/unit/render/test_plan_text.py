"""The sentences and the layout of the text, where a golden file would not say why."""

from dataclasses import replace

import pytest

from klutchctl.render import plan_formats, plan_rows
from klutchctl.render.terminal import folded, visible
from reconciler.core.decision import FieldChange
from reconciler.core.refs import CONFIG_MAP, NAMESPACE, Ref
from reconciler.fleet.values import UnitKey
from reconciler.planning.changes import Action, Change
from tests.golden.plans import PLANS

UNIT = UnitKey("shop", "anynines.com", "backups")
CHANGE = Change("shop", "db", Ref("shop", CONFIG_MAP, "ns", "a"), Action.UPDATE, "")

DESCRIPTIONS = {
    "a create names the object": (Action.CREATE, "new", None, "ConfigMap a"),
    "an update names object and reason": (Action.UPDATE, "differs", None, "ConfigMap a: differs"),
    "without a reason, the object": (Action.RELEASE, "", UNIT, "ConfigMap a"),
    "a release is told by its reason": (Action.RELEASE, "3 backups stay", UNIT, "3 backups stay"),
    "a reason that does not say what": (
        Action.REPLACE,
        "the request Failed",
        UNIT,
        "backups.anynines.com: the request Failed",
    ),
    "a blocked object of no unit": (Action.BLOCKED, "foreign", None, "ConfigMap a: foreign"),
}


@pytest.mark.parametrize(
    ("action", "reason", "unit", "what"), DESCRIPTIONS.values(), ids=DESCRIPTIONS.keys()
)
def test_description(action, reason, unit, what):
    found = plan_rows.row(replace(CHANGE, action=action, reason=reason, unit=unit))
    assert found.what == what


def test_a_blocked_place_is_reported_by_its_reason():
    place = Ref("shop", NAMESPACE, "", "")
    blocked = replace(CHANGE, ref=place, action=Action.BLOCKED, reason="Namespace x is foreign")
    assert plan_rows.row(blocked).what == "Namespace x is foreign"


DIFFERENCES = {
    "text": ("a", "b", '/x: "a" -> "b"'),
    "text that looks like a number": ("1", 1, '/x: "1" -> 1'),
    "absent": (None, {"b": 1, "a": []}, '/x: (absent) -> {"a": [], "b": 1}'),
    "lines": ("a\nb", None, '/x: "a\\nb" -> (absent)'),
    "what acts on a terminal": ("\x1b[2J\x9b", None, '/x: "\\u001b[2J\\x9b" -> (absent)'),
    "long": ("x" * 500, None, f'/x: "{"x" * 119}... (502 characters) -> (absent)'),
}


@pytest.mark.parametrize(("before", "after", "says"), DIFFERENCES.values(), ids=DIFFERENCES.keys())
def test_difference(before, after, says):
    found = plan_rows.row(replace(CHANGE, fields=(FieldChange("/x", before, after),)))
    assert found.details == (says,)


REVISIONS = {
    "a commit": ("4c1e9d2f" + "0" * 32, "4c1e9d2"),
    "a dirty tree": ("4c1e9d2f" + "0" * 32 + "+dirty", "4c1e9d2+dirty"),
    "sha256": ("ab" * 32, "abababa"),
    "another word": ("main", "main"),
    "none": ("", ""),
}


@pytest.mark.parametrize(("revision", "shown"), REVISIONS.values(), ids=REVISIONS.keys())
def test_revision(revision, shown):
    assert plan_rows.short_commit(revision) == shown


def test_one_long_description_does_not_push_the_others():
    rows = [
        plan_rows.Row(Action.CREATE, "a", "short", "f:1"),
        plan_rows.Row(Action.CREATE, "bbb", "s" * 200, "f:2"),
        plan_rows.Row(Action.CREATE, "c", "shorter", "f:3"),
    ]
    lines = list(plan_formats.section_lines(rows, plan_formats.column_widths(rows)))
    assert lines[0].index("f:1") == lines[2].index("f:3") < 40
    assert lines[0].index("short") == lines[1].index("sss")


FOLDED = {
    "a line that fits": ("  + create   a   b   f:1", 24, ["  + create   a   b   f:1"]),
    "a row goes on below its subject": (
        "  + create   orders   one two three   bindings/a-long-name.yaml:13",
        40,
        ["  + create   orders   one two three", "             bindings/a-long-name.yaml:13"],
    ),
    "a detail goes on below itself": (
        f"{' ' * 15}/spec/x: one two three",
        30,
        [f"{' ' * 15}/spec/x: one", f"{' ' * 19}two three"],
    ),
    "a sentence": ("Plan: 1 create, 2 update", 12, ["Plan: 1", "    create,", "    2 update"]),
    "a word that is wider stays whole": (f"a {'x' * 50} b", 40, ["a", f"    {'x' * 50}", "    b"]),
    "colours take no room": (
        "\x1b[32m  + create\x1b[0m   a   b",
        20,
        ["\x1b[32m  + create\x1b[0m   a   b"],
    ),
    "no command begins a line": ("one two ::error x", 8, ["one two ::error", "    x"]),
    "an empty line": ("", 40, [""]),
    "a space that is none of ours stays": (
        '    /x: "a\u00a0b \u3000c"',
        40,
        ['    /x: "a\u00a0b \u3000c"'],
    ),
}


@pytest.mark.parametrize(("text", "columns", "lines"), FOLDED.values(), ids=FOLDED.keys())
def test_folded(text, columns, lines):
    assert folded(text, columns).split("\n") == lines
    assert folded(text, None) == text


@pytest.mark.parametrize("columns", [40, 80, 120, 400])
@pytest.mark.parametrize("name", PLANS)
def test_a_terminal_gets_the_same_words_in_lines_that_fit(name, columns):
    whole, shown = (plan_formats.text(PLANS[name], columns=wide) for wide in (None, columns))
    assert shown.split() == whole.split()
    wide = [line for line in shown.split("\n") if len(line) > columns]
    assert all(len(line.split()) == 1 or line.split()[0] in "+~-<=!?-/+" for line in wide)


VISIBLE = {
    "plain text": ("orders-db", "orders-db"),
    "letters of all scripts": ("größe 語", "größe 語"),
    "an escape sequence": ("\x1b[31m", "\\x1b[31m"),
    "the one-byte form of it": ("\x9b31m", "\\x9b31m"),
    "line breaks": ("a\r\nb\u2028c", "a\\r\\nb\\u2028c"),
    "text that runs the other way": ("\u202egnp", "\\u202egnp"),
    "what has no width": ("a\u200bb\ufeff", "a\\u200bb\\ufeff"),
    "half a character": ("\ud800", "\\ud800"),
    "a tag character": ("\U000e0041", "\\U000e0041"),
}


@pytest.mark.parametrize(("text", "shown"), VISIBLE.values(), ids=VISIBLE.keys())
def test_visible(text, shown):
    assert visible(text) == shown
