"""Reading, changing, comparing and hashing plain JSON values."""

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.core import manifest as m
from reconciler.core.refs import CONFIG_MAP, NAMESPACE, Ref

OBJECT: m.Manifest = {
    "apiVersion": "v1",
    "metadata": {
        "name": "x",
        "namespace": "ns",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {"a": "1", "broken": 2},
        "finalizers": ["f", 1],
    },
    "spec": {"items": [{"name": "first"}, "text", None], "on": True, "count": 0},
}

READS = {
    "a nested value": (("spec", "items", 0, "name"), "first"),
    "a negative index": (("spec", "items", -2), "text"),
    "the most negative index": (("spec", "items", -3, "name"), "first"),
    "an index beyond the end": (("spec", "items", 3), None),
    "an index far below the start": (("spec", "items", -4), None),
    "a key of an array": (("spec", "items", "name"), None),
    "an index of an object": (("spec", 0), None),
    "below a text": (("apiVersion", "x"), None),
    "a key that is not there": (("status", "phase"), None),
    "no path": ((), OBJECT),
}


@pytest.mark.parametrize(("path", "want"), READS.values(), ids=READS.keys())
def test_get(path, want):
    assert m.get(OBJECT, *path) == want


TYPED = {
    "text": (m.get_text(OBJECT, "apiVersion"), "v1"),
    "no text": (m.get_text(OBJECT, "spec"), ""),
    "zero is an integer": (m.get_int(OBJECT, "spec", "count"), 0),
    "true is none": (m.get_int(OBJECT, "spec", "on"), None),
    "true": (m.get_bool(OBJECT, "spec", "on"), True),
    "zero is not true": (m.get_bool(OBJECT, "spec", "count"), False),
    "no object": (m.get_map(OBJECT, "apiVersion"), {}),
    "no array": (m.get_list(OBJECT, "spec"), []),
    "a text is no array": (m.get_list(OBJECT, "apiVersion"), []),
    "the objects of an array": (m.get_maps(OBJECT, "spec", "items"), [{"name": "first"}]),
    "the texts of an array": (m.get_texts(OBJECT, "spec", "items"), ["text"]),
    "labels that are texts": (m.labels_of(OBJECT), {"a": "1"}),
    "no annotations": (m.annotations_of(OBJECT), {}),
    "finalizers that are texts": (m.finalizers_of(OBJECT), ["f"]),
    "name": (m.name_of(OBJECT), "x"),
    "namespace": (m.namespace_of(OBJECT), "ns"),
    "uid": (m.uid_of(OBJECT), "u"),
    "resource version": (m.resource_version_of(OBJECT), "7"),
    "alive": (m.is_deleting(OBJECT), False),
    "dying": (m.is_deleting({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), True),
    "ref": (m.ref_of("shop", CONFIG_MAP, OBJECT), Ref("shop", CONFIG_MAP, "ns", "x")),
    "cluster-scoped ref": (
        m.ref_of("shop", NAMESPACE, {"metadata": {"name": "n"}}),
        Ref("shop", NAMESPACE, "", "n"),
    ),
}


@pytest.mark.parametrize(("got", "want"), TYPED.values(), ids=TYPED.keys())
def test_typed_readers(got, want):
    assert got == want


CHANGES = {
    "put replaces": (m.put({"a": {"b": 1, "c": 2}}, 3, "a", "b"), {"a": {"b": 3, "c": 2}}),
    "put makes the way": (m.put({}, 1, "a", "b", "c"), {"a": {"b": {"c": 1}}}),
    "put replaces what is no object": (m.put({"a": "text"}, 1, "a", "b"), {"a": {"b": 1}}),
    "drop removes": (m.drop({"a": {"b": 1, "c": 2}}, "a", "b"), {"a": {"c": 2}}),
    "drop leaves the empty holder": (m.drop({"a": {"b": 1}}, "a", "b"), {"a": {}}),
    "drop of nothing": (m.drop({"a": {"b": 1}}, "x", "y"), {"a": {"b": 1}}),
    "fill says what is unsaid": (
        m.fill({"a": None, "b": {"c": 1}, "d": 0}, {"a": 2, "b": {"e": 3}, "d": 4, "f": {"g": 5}}),
        {"a": 2, "b": {"c": 1, "e": 3}, "d": 0, "f": {"g": 5}},
    ),
    "fill keeps what is of another type": (m.fill({"a": "x"}, {"a": {"b": 1}}), {"a": "x"}),
    "map_items changes objects only": (
        m.map_items({"a": {"b": [{"c": 1}, 2]}}, lambda item: {**item, "d": 3}, "a", "b"),
        {"a": {"b": [{"c": 1, "d": 3}, 2]}},
    ),
    "map_items without an array": (m.map_items({"a": {}}, lambda _: 1, "a", "b"), {"a": {}}),
}


@pytest.mark.parametrize(("got", "want"), CHANGES.values(), ids=CHANGES.keys())
def test_changes(got, want):
    assert got == want


def test_changes_leave_their_input_alone():
    before: m.Manifest = {"a": {"b": 1}, "l": [{"x": 1}]}
    m.put(before, 2, "a", "b")
    m.drop(before, "a", "b")
    m.fill(before, {"a": {"c": 3}})
    m.map_items(before, lambda item: {**item, "y": 2}, "l")
    assert before == {"a": {"b": 1}, "l": [{"x": 1}]}


COVERS = {
    "equal": ({"a": 1}, {"a": 1}, True),
    "more in the live object": ({"a": 1, "b": 2}, {"a": 1}, True),
    "more inside an item": ([{"a": 1, "default": 2}], [{"a": 1}], True),
    "another value": ({"a": 1}, {"a": 2}, False),
    "an absent value": ({}, {"a": 1}, False),
    "an absent object is an empty one": ({}, {"a": {}}, True),
    "a null object is an empty one": ({"a": None}, {"a": {}}, True),
    "an empty object says nothing": ({"a": {"b": 1}}, {"a": {}}, True),
    "empty all the way down": ({}, {"a": {"b": {"c": {}}}}, True),
    "an absent array is an empty one": ({}, {"a": []}, True),
    "an empty array says that nothing is in it": ({"a": [1]}, {"a": []}, False),
    "a longer array": ([1, 2], [1], False),
    "a shorter array": ([1], [1, 2], False),
    "another order": ([2, 1], [1, 2], False),
    "a stated null is absence": ({}, {"a": None}, True),
    "a stated null is not a value": ({"a": 1}, {"a": None}, False),
    "true is not 1": ({"a": True}, {"a": 1}, False),
    "0 is not false": ({"a": 0}, {"a": False}, False),
    "1 is 1.0": ({"a": 1}, {"a": 1.0}, True),
    "a text is not a number": ({"a": "1"}, {"a": 1}, False),
    "an object is not an array": ({"a": {}}, {"a": []}, False),
    "an array is not an object": ({"a": []}, {"a": {}}, False),
    "a text is not an array of its characters": ("ab", ["a", "b"], False),
    "an absent text is not an empty one": ({}, {"a": ""}, False),
}


@pytest.mark.parametrize(("live", "stated", "want"), COVERS.values(), ids=COVERS.keys())
def test_covers(live, stated, want):
    assert m.covers(live, stated) is want


CANONICAL = {
    "keys are sorted at every depth": (
        {"b": {"d": 1, "c": 2}, "a": None},
        b'{"a":null,"b":{"c":2,"d":1}}',
    ),
    "whole numbers have no point": ({"a": [1.0, -0.0, 1.5, True]}, b'{"a":[1,0,1.5,true]}'),
    "ASCII only": ("\u00e9\U0001f600", b'"\\u00e9\\ud83d\\ude00"'),
    "a lone surrogate": ("\ud800", b'"\\ud800"'),
    "a tuple is an array": ((1, "a"), b'[1,"a"]'),
    "beyond 64 bits": (1 << 80, b"1208925819614629174706176"),
}


@pytest.mark.parametrize(("value", "want"), CANONICAL.values(), ids=CANONICAL.keys())
def test_canonical(value, want):
    assert m.canonical(value) == want


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_json_lacks_has_no_canonical_form(number):
    with pytest.raises(ValueError, match="JSON"):
        m.canonical(number)


# Whole floats are written as integers, which `test_canonical` tells.
BROKEN = st.floats(allow_nan=False, allow_infinity=False).filter(lambda one: not one.is_integer())
LEAVES = st.none() | st.booleans() | st.integers() | st.text() | BROKEN
TREES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(TREES)
@example('\x7f \x00 \n \u2028 \U0001f600 \\ / " <>&')
@example({"a": [], "b": {}, "c": [[], {}], "\uffff": 1, "\U00010000": 2})
@example({"a": "\ud800"})
@example({"a": 1 << 64, "b": -1 << 63})
@example({"a": 1e-7, "b": 1.5e-300})
def test_the_text_is_that_of_the_standard_library(value):
    assert m.canonical(value) == json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    assert m.indented(value) == json.dumps(value, indent=2).encode()


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_json_lacks_has_no_indented_form(number):
    with pytest.raises(ValueError, match="JSON"):
        m.indented({"a": [number]})


def test_digest_is_the_sha256_of_the_canonical_form():
    assert m.digest({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert m.digest({"a": 1, "b": 2.0}) == m.digest({"b": 2, "a": 1.0})
    assert m.digest({"a": 1}) != m.digest({"a": "1"})
