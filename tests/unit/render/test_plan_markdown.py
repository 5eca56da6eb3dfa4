"""A comment has a limit, and what matters most must be inside it."""

import re
from dataclasses import replace

import pytest

from klutchctl.render import plan_markdown
from reconciler.core.decision import FieldChange
from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.fleet.values import UnitKey
from reconciler.planning.changes import Action, Change, Held, Plan, UnseenCluster, WidenedClaim


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
        held=tuple(Held("in-use", f"{number} exist") for number in range(5_000)),
        unseen=tuple(UnseenCluster(f"edge-{number}", "timeout") for number in range(5_000)),
        warnings=tuple(f"note {number}" for number in range(5_000)),
    ),
    "wide characters": lambda: plan([change(n, Action.DELETE, reason=WIDE) for n in range(900)]),
}


@pytest.mark.parametrize("case", LARGE)
def test_a_comment_is_never_too_large(case):
    text = plan_markdown.comment(LARGE[case]())
    assert len(text.encode()) <= 60_000
    assert text.count("<details>") == text.count("</details>")
    assert len(re.findall("^`{3,}", text, re.MULTILINE)) % 2 == 0


def test_room_is_used():
    text = plan_markdown.comment(LARGE["creates of many clusters"]())
    assert len(text.encode()) > 50_000


def test_every_line_is_shown_or_counted():
    text = plan_markdown.comment(LARGE["creates of many clusters"]())
    shown = text.count("+ create")
    inside = sum(map(int, re.findall(r"^\.\.\. and (\d+) more lines?$", text, re.MULTILINE)))
    (left,) = re.findall(r"^\d+ more clusters? with (\d+) lines left out here", text, re.MULTILINE)
    assert shown + inside + int(left) == 10_000


def test_deletes_are_shown_or_counted():
    text = plan_markdown.comment(LARGE["deletes of one cluster"]())
    first = text.partition("<details>")[0]
    (hidden,) = re.findall(r"^\.\.\. and (\d+) more lines$", first, re.MULTILINE)
    assert first.count("- delete") + int(hidden) == 10_000


def test_ten_thousand_deletes_do_not_hide_one_widened_claim_or_guard():
    held = Held("max-deletes", "too many")
    deleting = replace(LARGE["deletes of many clusters"](), widened=(CLAIM,), held=(held,))
    text = plan_markdown.comment(deleting)
    assert "! orders-db  secrets: [a] -> all" in text
    assert "! max-deletes  too many" in text


def test_what_takes_away_comes_before_what_adds():
    mixed = plan([change(1, Action.CREATE), change(2, Action.DELETE)], widened=(CLAIM,))
    text = plan_markdown.comment(mixed)
    places = [text.index(mark) for mark in ("- delete", "secrets: [a]", "<details>", "+ create")]
    assert places == sorted(places)


def test_a_block_cannot_be_ended_from_inside():
    ticks = plan([], warnings=("`" * 7,))
    assert "````````text\n```````\n````````" in plan_markdown.comment(ticks)


def test_nothing_acts_or_hides_in_why_there_is_no_plan():
    said = "app-1: \u202eno\x1b[2J\r\n::error::x\n```@all"
    text = plan_markdown.without_plan(ValueError(), [said])
    shown = "app-1: \\u202eno\\x1b[2J\\r\n./::error::x\n```@all"
    assert f"#### Why\n\n````text\n{shown}\n````\n" in text


def test_secret_digests_are_all_that_a_difference_of_a_secret_shows():
    changed = replace(
        change(1, Action.UPDATE), fields=(FieldChange("/data/token", "0123456789abcdef", None),)
    )
    text = plan_markdown.comment(plan([changed]))
    assert '/data/token: "0123456789abcdef" -> (absent)' in text
