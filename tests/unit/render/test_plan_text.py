"""The sentences and the layout of plans, as text and as comment; a golden file gives no reason."""

import re
from dataclasses import replace

import pytest

from klutchctl.render import plan_formats, plan_rows, problems
from klutchctl.render.problems import Findings
from klutchctl.render.terminal import folded, visible
from reconciler.core.decision import FieldChange
from reconciler.core.errors import Origin, Problem
from reconciler.core.refs import CONFIG_MAP, NAMESPACE, Ref
from reconciler.fleet.values import UnitKey
from reconciler.planning.changes import Action, Change, Plan, Tripped, UnseenCluster, WidenedClaim
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
    ("action", "reason", "unit", "text"), DESCRIPTIONS.values(), ids=DESCRIPTIONS.keys()
)
def test_description(action, reason, unit, text):
    found = plan_rows.row(replace(CHANGE, action=action, reason=reason, unit=unit))
    assert found.text == text


def test_a_blocked_place_is_reported_by_its_reason():
    place = Ref("shop", NAMESPACE, "", "")
    blocked = replace(CHANGE, ref=place, action=Action.BLOCKED, reason="Namespace x is foreign")
    assert plan_rows.row(blocked).text == "Namespace x is foreign"


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


def change(number, action, *, clusters=1, reason="because"):
    name = f"shop-{number % clusters:04}"
    unit = UnitKey(name, "anynines.com", f"things{number}")
    return Change(
        name, f"db-{number}", Ref(name, CONFIG_MAP, "ns", f"c{number}"), action, reason, unit=unit
    )


def plan(changes, **more):
    ordered = sorted(changes, key=lambda one: one.cluster)
    return Plan(
        fleet="acme",
        revision="",
        digest="",
        changes=tuple(ordered),
        sections={one.cluster: "eu" for one in ordered},
        clusters_total=len({one.cluster for one in ordered}),
        **more,
    )


def many(action, *, clusters, count=10_000):
    return [change(number, action, clusters=clusters) for number in range(count)]


CLAIM = WidenedClaim(UnitKey("shop-0001", "g", "r"), "orders-db", "secrets", "[a]", "all")
LONG, WIDE = "x" * 100_000, "語" * 300
LARGE = {
    "deletes of one cluster": lambda: plan(many(Action.DELETE, clusters=1)),
    "deletes of many clusters": lambda: plan(many(Action.DELETE, clusters=500)),
    "creates of many clusters": lambda: plan(many(Action.CREATE, clusters=500)),
    "creates, one per cluster": lambda: plan(many(Action.CREATE, clusters=10_000)),
    "lines without end": lambda: plan([change(n, Action.BLOCKED, reason=LONG) for n in range(9)]),
    "names without end": lambda: replace(plan([]), fleet="é" * 99_999, revision=LONG, id=LONG),
    "everything at once": lambda: plan(
        many(Action.DELETE, clusters=500) + many(Action.BLOCKED, clusters=500),
        widened=tuple(replace(CLAIM, binding=f"b{number}") for number in range(5_000)),
        held=tuple(Tripped("in-use", f"{number} exist") for number in range(5_000)),
        unseen=tuple(UnseenCluster(f"edge-{number}", "timeout") for number in range(5_000)),
        warnings=tuple(f"note {number}" for number in range(5_000)),
    ),
    "wide characters": lambda: plan([change(n, Action.DELETE, reason=WIDE) for n in range(900)]),
}


@pytest.mark.parametrize("case", LARGE)
def test_a_comment_is_never_too_large(case):
    text = plan_formats.comment(LARGE[case]())
    assert len(text.encode()) <= 60_000
    assert text.count("<details>") == text.count("</details>")
    assert len(re.findall("^`{3,}", text, re.MULTILINE)) % 2 == 0


def test_room_is_used():
    text = plan_formats.comment(LARGE["creates of many clusters"]())
    assert len(text.encode()) > 50_000


def test_every_line_is_shown_or_counted():
    text = plan_formats.comment(LARGE["creates of many clusters"]())
    shown = text.count("+ create")
    inside = sum(map(int, re.findall(r"^\.\.\. and (\d+) more lines?$", text, re.MULTILINE)))
    (left,) = re.findall(r"^\d+ more clusters? with (\d+) lines left out here", text, re.MULTILINE)
    assert shown + inside + int(left) == 10_000


def test_deletes_are_shown_or_counted():
    first = plan_formats.comment(LARGE["deletes of one cluster"]()).partition("<details>")[0]
    (hidden,) = re.findall(r"^\.\.\. and (\d+) more lines$", first, re.MULTILINE)
    assert first.count("- delete") + int(hidden) == 10_000


def test_ten_thousand_deletes_do_not_hide_one_widened_claim_or_guard():
    held = Tripped("max-deletes", "too many")
    deleting = replace(LARGE["deletes of many clusters"](), widened=(CLAIM,), held=(held,))
    text = plan_formats.comment(deleting)
    assert "! orders-db  secrets: [a] -> all" in text
    assert "! max-deletes  too many" in text


def test_what_takes_away_comes_before_what_adds():
    mixed = plan([change(1, Action.CREATE), change(2, Action.DELETE)], widened=(CLAIM,))
    text = plan_formats.comment(mixed)
    places = [text.index(mark) for mark in ("- delete", "secrets: [a]", "<details>", "+ create")]
    assert places == sorted(places)


def test_a_block_cannot_be_ended_from_inside():
    ticks = plan([], warnings=("`" * 7,))
    assert "````````text\n```````\n````````" in plan_formats.comment(ticks)


def test_nothing_acts_or_hides_in_why_there_is_no_plan():
    said = "app-1: \u202eno\x1b[2J\r\n::error::x\n```@all"
    text = plan_formats.without_plan(ValueError(), [said])
    shown = "app-1: \\u202eno\\x1b[2J\\r\n./::error::x\n```@all"
    assert f"#### Why\n\n````text\n{shown}\n````\n" in text


def test_secret_digests_are_all_that_a_difference_of_a_secret_shows():
    changed = replace(
        change(1, Action.UPDATE), fields=(FieldChange("/data/token", "0123456789abcdef", None),)
    )
    text = plan_formats.comment(plan([changed]))
    assert '/data/token: "0123456789abcdef" -> (absent)' in text
