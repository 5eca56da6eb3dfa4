"""Patterns of brokers: as an API server reads them, or dropped."""

import pytest

from reconciler.blueprints.offering.patterns import for_server

KEPT = {
    "classes, groups, counts": r"^[a-z]{1,63}(\.[a-z]{1,63})*$",
    "a dash that ends a set": r"[\w-]+@[\w.-]+",
    "an escaped slash": r"\/api\/.*",
    "a lazy quantifier": "a+?b",
    "a group that is not kept": "(?:a|b){2}",
}
WRITTEN = {
    "a code of four digits": (r"[\u00e4-\u00fc]\u0041", r"[\x{00e4}-\x{00fc}]\x{0041}"),
    "a named group": (r"^(?<year>\d{4})$", r"^(\d{4})$"),
}
DROPPED = {
    "a look ahead": "^(?=a)b",
    "a look ahead that must not fit": "^(?!a)b",
    "a look behind": "(?<=a)b",
    "a back reference": r"(a)\1",
    "more repeats than RE2 takes": "a{1001}",
    "more of them inside of each other": "((a{40}){40})",
    "a quantifier of nothing": "a**",
    "a quantifier of an anchor": "^*",
    "a set without end": "[a",
    "a set of nothing": "[]",
    "a range from a class": r"[\d-z]",
    "a range the wrong way": "[z-a]",
    "an operator between sets, for some": "[a--b]",
    "a property of Unicode": r"\p{L}",
    "a flag": "(?i)a",
    "half of a character": r"\ud800",
    "a group without end": "(a",
    "an end without group": "a)",
    "counts the wrong way": "a{3,1}",
    "a backslash at the end": "a\\",
    "one that is very long": "a" * 2001,
}


@pytest.mark.parametrize("pattern", KEPT.values(), ids=KEPT)
def test_kept(pattern):
    assert for_server(pattern) == pattern


@pytest.mark.parametrize(("pattern", "written"), WRITTEN.values(), ids=WRITTEN)
def test_written_for_re2(pattern, written):
    assert for_server(pattern) == written


@pytest.mark.parametrize("pattern", DROPPED.values(), ids=DROPPED)
def test_dropped(pattern):
    assert for_server(pattern) is None
