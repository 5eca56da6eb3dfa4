"""What counts as already so: maps may hold more, lists may not, but for those with keys."""

from typing import Any

import pytest

from konnector.decisions.agreement import agrees

KEYED: Any = {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:port": {}}}
SET: Any = {'v:"a"': {}, 'v:"b"': {}}
# What is there, what is stated, what we wrote there (None: nothing), and whether they agree.
CASES: dict[str, tuple[Any, Any, Any, bool]] = {
    "equal": ({"a": 1}, {"a": 1}, None, True),
    "others added a field": ({"a": 1, "b": 2}, {"a": 1}, None, True),
    "and one further down": ({"m": {"a": 1, "b": 2}}, {"m": {"a": 1}}, None, True),
    "a value differs": ({"a": 1}, {"a": 2}, None, False),
    "a text differs": ({"a": "x"}, {"a": "y"}, None, False),
    "a field is missing": ({}, {"a": 1}, None, False),
    "all of it is missing": (None, {"a": 1}, None, False),
    "true is not 1": ({"a": True}, {"a": 1}, None, False),
    "an empty map is missing": ({}, {"m": {}}, None, False),
    "an empty list is missing": ({}, {"l": []}, None, False),
    "a null is missing": ({}, {"a": None}, None, False),
    "all are there": ({"a": None, "m": {}, "l": []}, {"a": None, "m": {}, "l": []}, None, True),
    "an empty map is no empty list": ({"m": []}, {"m": {}}, None, False),
    "an item lacks an empty map": ({"l": [{"a": 1}]}, {"l": [{"a": 1, "m": {}}]}, None, False),
    "1.0 is 1": ({"a": 1.0, "l": [2]}, {"a": 1, "l": [2.0]}, None, True),
    "another type": ({"a": "x"}, {"a": {"b": 1}}, None, False),
    "a list is one value: longer": ({"l": [1, 2]}, {"l": [1]}, None, False),
    "a field of an item is too much": ({"l": [{"a": 1, "b": 2}]}, {"l": [{"a": 1}]}, None, False),
    "also as we wrote it": (
        {"l": [{"a": 1, "b": 2}]}, {"l": [{"a": 1}]}, {"f:l": {}}, False,
    ),
    "lists that are equal": ({"l": [{"a": 1}]}, {"l": [{"a": 1}]}, {"f:l": {}}, True),
    "an empty list": ({"l": [1]}, {"l": []}, {"f:l": {}}, False),
    "items with keys: others added one": (
        {"l": [{"name": "b"}, {"name": "a", "port": 1}]},
        {"l": [{"name": "a", "port": 1}]},
        {"f:l": KEYED},
        True,
    ),
    "and a field of ours": (
        {"l": [{"name": "a", "port": 1, "ip": "x"}]},
        {"l": [{"name": "a", "port": 1}]},
        {"f:l": KEYED},
        True,
    ),
    "items with keys: ours is gone": (
        {"l": [{"name": "b"}]}, {"l": [{"name": "a"}]}, {"f:l": KEYED}, False,
    ),
    "items with keys: ours differs": (
        {"l": [{"name": "a", "port": 2}]}, {"l": [{"name": "a", "port": 1}]}, {"f:l": KEYED}, False,
    ),
    "items with keys: one is new": (
        {"l": [{"name": "a"}]}, {"l": [{"name": "a"}, {"name": "c"}]}, {"f:l": KEYED}, False,
    ),
    "a list in an item is one value": (
        {"l": [{"name": "a", "x": [1, 2]}]},
        {"l": [{"name": "a", "x": [1]}]},
        {"f:l": {'k:{"name":"a"}': {"f:name": {}, "f:x": {}}}},
        False,
    ),
    "a set with more": ({"l": ["c", "b", "a"]}, {"l": ["a", "b"]}, {"f:l": SET}, True),
    "a set with less": ({"l": ["a"]}, {"l": ["a", "b"]}, {"f:l": SET}, False),
    "a map that is one value": (
        {"m": {"a": 1, "b": 2}}, {"m": {"a": 1}}, {"f:m": {}}, False,
    ),
    "a map that is one value is emptied": ({"m": {"x": 1}}, {"m": {}}, {"f:m": {}}, False),
    "items with keys: in another order": (
        {"l": [{"name": "b"}, {"name": "c"}, {"name": "a"}]},
        {"l": [{"name": "a"}, {"name": "b"}]},
        {"f:l": KEYED},
        False,
    ),
    "items with keys: in that order": (
        {"l": [{"name": "a"}, {"name": "c"}, {"name": "b"}]},
        {"l": [{"name": "a"}, {"name": "b"}]},
        {"f:l": KEYED},
        True,
    ),
    "a map of fields": (
        {"m": {"a": 1, "b": 2}}, {"m": {"a": 1}}, {"f:m": {"f:a": {}}}, True,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("live", "stated", "wrote", "same"), CASES.values(), ids=CASES.keys())
def test_agrees(live, stated, wrote, same):
    assert agrees(live, stated, [] if wrote is None else [wrote]) is same


def test_one_of_two_writers_who_knew_more_is_enough():
    live, stated = {"m": {"a": 1, "b": 2}}, {"m": {"a": 1}}
    assert agrees(live, stated, [{"f:m": {}}, {"f:m": {"f:a": {}}}])


def test_what_was_empty_when_we_wrote_it_is_no_single_value_where_others_wrote_inside():
    live: Any = {"m": {"x": 1}, "l": [{"name": "a"}]}
    stated: Any = {"m": {}, "l": []}
    ours: Any = {"f:m": {}, "f:l": {}}
    assert not agrees(live, stated, [ours])
    assert agrees(live, stated, [ours, {"f:m": {"f:x": {}}, "f:l": {'k:{"name":"a"}': {}}}])
