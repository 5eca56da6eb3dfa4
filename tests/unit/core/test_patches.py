"""JSON merge patches: the smallest one that leads from one value to the other."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.decision import merge_diff
from reconciler.core.manifest import canonical
from tests.kit.json_patch import merged

CASES: dict[str, tuple[Any, Any, Any]] = {
    "equal": ({"a": 1}, {"a": 1}, {}),
    "a value": ({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 2}),
    "new": ({}, {"a": {"b": 1}}, {"a": {"b": 1}}),
    "gone": ({"a": 1}, {}, {"a": None}),
    "gone as a null": ({"a": 1}, {"a": None}, {"a": None}),
    "null all along": ({"a": None}, {}, {}),
    "further down": ({"m": {"a": 1, "b": 1}}, {"m": {"a": 2, "b": 1}}, {"m": {"a": 2}}),
    "gone further down": ({"m": {"a": 1, "b": 1}}, {"m": {"b": 1}}, {"m": {"a": None}}),
    "emptied": ({"m": {"a": 1}}, {"m": {}}, {"m": {"a": None}}),
    "a list is one value": ({"l": [1, 2]}, {"l": [1, 3]}, {"l": [1, 3]}),
    "a map for a list": ({"l": [1]}, {"l": {"a": 1}}, {"l": {"a": 1}}),
    "true is not 1": ({"a": 1}, {"a": True}, {"a": True}),
    "not inside a list either": ({"a": [{"b": 0}]}, {"a": [{"b": False}]}, {"a": [{"b": False}]}),
    "a null in an item is absence": ({"l": [{"a": None}]}, {"l": [{}]}, {}),
    "and is not sent": ({"l": []}, {"l": [{"a": None}]}, {"l": [{}]}),
    "1.0 is 1": ({"a": 1.0}, {"a": 1}, {}),
}


@pytest.mark.parametrize(("before", "after", "patch"), CASES.values(), ids=CASES.keys())
def test_merge_diff(before, after, patch):
    assert canonical(merge_diff(before, after)) == canonical(patch)


leaves = st.sampled_from([None, 0, 1, True, False, "x"])
keys = st.sampled_from(["a", "b", "c"])
values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(keys, inner, max_size=3)),
    max_leaves=8,
)
objects = st.dictionaries(keys, values, max_size=3)


@given(objects, objects)
def test_the_patch_leads_there(before, after):
    # What was null before, and is not in the patch, is as good as absent.
    there = _without_nulls(merged(before, merge_diff(before, after)))
    assert canonical(there) == canonical(_without_nulls(after))


@given(objects)
def test_nothing_leads_to_the_same(value):
    assert merge_diff(value, value) == {}


def _without_nulls(value):
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _without_nulls(item) for key, item in value.items() if item is not None}
