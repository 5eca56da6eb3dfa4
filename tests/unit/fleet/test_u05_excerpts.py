"""U5: a problem shows its line, and nothing of it that may be a credential."""

import pytest

from klutchctl.render import problems as render
from klutchctl.render.problems import Findings
from reconciler.core.errors import Origin, Problem
from reconciler.fleet.load import load
from reconciler.fleet.wording import Excerpt, excerpt
from tests.support.bad_fleets import CANARY, INVALID
from tests.support.fleet_texts import tree

SHOWN = {
    "names and words": ("{template: gp, mode: On}", 12, "{template: gp, mode: On}", 11),
    "numbers and flags": ("a: {maxDeletes: 5, on: true}", 17, "a: {maxDeletes: 5, on: true}", 16),
    "labels": ("matchLabels: {team: gold}", 21, "matchLabels: {team: gold}", 20),
    "a label called like a credential": ("labels: {token: x}", 17, "labels: {token: ...}", 16),
    "a list of names": ("names: [shop, mall]", 15, "names: [shop, mall]", 14),
    "free text": ("reason: moving to eu", 1, "reason: ...", 0),
    "text behind a name": ('name: "two words"', 7, "name: ...", 6),
    "a credential": ("{password: hunter, name: x}", 20, "{password: ..., name: x}", 16),
    "a number as a credential": ("{token: 12345, a: 1}", 16, "{token: ..., a: 1}", 13),
    "below a credential": ("secretRef: {name: hunter}", 13, "secretRef: {...: ...}", 12),
    "below what is free": ("parameters: {name: hunter}", 14, "parameters: {...: ...}", 13),
    "a comment": ("name: x # hunter", 7, "name: x", 6),
    "a list item": ("- name: x", 3, "- name: x", 2),
    "tabs": ("mode:\tOn\t# hunter", 7, "mode:\tOn", 6),
    "a key behind a mark": ("? name\n: x", 3, "? name", 2),
    "an alias": ("{a: &b c, mode: *b, on: true}", 17, "{a: ..., mode: ..., on: true}", 15),
}


@pytest.mark.parametrize(("text", "column", "line", "caret"), SHOWN.values(), ids=SHOWN.keys())
def test_a_line(text, column, line, caret):
    assert excerpt(text.encode(), Origin("f", 1, column)) == Excerpt(line, caret)


def test_the_caret_is_below_its_character_at_any_width_of_tabs():
    problem = Problem(Origin("f", 1, 7), "x", "wrong")
    shown = render.text(Findings((problem,), "", files={"f": b"mode:\tOn\n"}), color=False)
    assert "    1 | mode:\tOn\n      |      \t^\n" in shown


NOTHING = {
    "a line that is not there": ("a: 1\n", Origin("f", 9, 1)),
    "no line": ("a: 1\n", Origin("f")),
    "no YAML": ("a: [hunter\nb: }\n", Origin("f", 2, 1)),
    "no text": ("\udcff", Origin("f", 1, 1)),
}


@pytest.mark.parametrize(("text", "origin"), NOTHING.values(), ids=NOTHING.keys())
def test_no_line(text, origin):
    assert excerpt(text.encode("utf-8", "surrogateescape"), origin) is None


BLOCKS = [
    "a: |\n  hunter\n  two\nb: 1\n",
    'a: "one\n  hunter\n  two"\nb: 1\n',
    "a:\n  hunter\n  two\n",
]


@pytest.mark.parametrize("text", BLOCKS)
@pytest.mark.parametrize("line", [1, 2, 3])
def test_text_over_several_lines(text, line):
    found = excerpt(text.encode(), Origin("f", line, 1))
    assert found is None or "hunter" not in found.line


@pytest.mark.parametrize("changes", INVALID.values(), ids=INVALID.keys())
def test_no_canary_is_shown(changes):
    files = tree(changes)
    _, found = load(files)
    shown = render.text(Findings(found, files=files.files))
    assert CANARY not in shown
    assert "MIIBcanary" not in shown


def problem(path, text):
    _, found = load(tree({path: text}))
    return str(found[0])


def test_messages_name_what_they_are_about():
    twice = "apiVersion: fleet.klutchctl.dev/v1alpha1\nkind: Cluster\nkind: Cluster\n"
    assert "the key 'kind' is there twice" in problem("clusters/shop.yaml", twice)
    hidden = "spec: {secretRef: {hunter: 1, hunter: 2}}\n"
    assert "this key is there twice" in problem("clusters/shop.yaml", hidden)
    plane = tree().files["planes/eu.yaml"].decode().replace("cp}}", "cp}, mode: Dirct}")
    assert "spec.mode is Dirct, and must be Direct or" in problem("planes/eu.yaml", plane)
    assert "hunter2" not in problem("planes/eu.yaml", plane.replace("Dirct", "hunter2"))
