"""What an apply would change, take away and be unable to take away."""

from typing import Any

import pytest

from reconciler.core.field_set import readable, union
from reconciler.core.server_side_apply import agrees, removals, unstated

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
    assert agrees(live, stated, wrote) is same


def test_one_of_two_writers_who_knew_more_is_enough():
    live, stated = {"m": {"a": 1, "b": 2}}, {"m": {"a": 1}}
    assert agrees(live, stated, union({"f:m": {}}, {"f:m": {"f:a": {}}}))


def test_what_was_empty_when_we_wrote_it_is_no_single_value_where_others_wrote_inside():
    live: Any = {"m": {"x": 1}, "l": [{"name": "a"}]}
    stated: Any = {"m": {}, "l": []}
    ours: Any = {"f:m": {}, "f:l": {}}
    assert not agrees(live, stated, ours)
    assert agrees(live, stated, union(ours, {"f:m": {"f:x": {}}, "f:l": {'k:{"name":"a"}': {}}}))


PORT = 'k:{"containerPort":80,"protocol":"TCP"}'
UNSTATED = {
    "all is stated": ({"f:a": {"f:b": {}}}, {"a": {"b": 1}}, {"a": {"b": 2}}, []),
    "a field": ({"f:a": {"f:b": {}, "f:c": {}}}, {"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, ["a.c"]),
    "a field stated as null": ({"f:a": {}}, {"a": 1}, {"a": None}, ["a"]),
    "a field stated as false": ({"f:a": {}}, {"a": True}, {"a": False}, []),
    "a whole object": ({"f:a": {".": {}, "f:b": {}}}, {"a": {"b": 1}}, {}, ["a", "a.b"]),
    "an empty object is absent": ({"f:a": {}}, {"a": {}}, {}, []),
    "an empty array is absent": ({"f:a": {}}, {"a": []}, {}, []),
    "what is gone already": ({"f:a": {"f:b": {}}}, {"a": {}}, {}, []),
    "an item by its key": (
        {"f:a": {'k:{"name":"x"}': {".": {}}, 'k:{"name":"y"}': {".": {}}}},
        {"a": [{"name": "x"}, {"name": "y"}]},
        {"a": [{"name": "y"}]},
        ["a[name=x]"],
    ),
    "a field of an item": (
        {"f:a": {'k:{"name":"x"}': {"f:image": {}, "f:tty": {}}}},
        {"a": [{"name": "x", "image": "i", "tty": True}]},
        {"a": [{"name": "x", "image": "i"}]},
        ["a[name=x].tty"],
    ),
    "an item whose key has a default": (
        {"f:p": {PORT: {".": {}, "f:containerPort": {}}}},
        {"p": [{"containerPort": 80, "protocol": "TCP"}]},
        {"p": [{"containerPort": 80}]},
        [],
    ),
    "the item with all keys goes first": (
        {"f:p": {PORT: {"f:name": {}}}},
        {"p": [{"containerPort": 80, "protocol": "TCP", "name": "a"}]},
        {"p": [{"containerPort": 80}, {"containerPort": 80, "protocol": "TCP", "name": "a"}]},
        [],
    ),
    "an item of another key": (
        {"f:p": {PORT: {".": {}}}},
        {"p": [{"containerPort": 80, "protocol": "TCP"}]},
        {"p": [{"containerPort": 80, "protocol": "UDP"}]},
        ["p[containerPort=80,protocol=TCP]"],
    ),
    "an item of no key": (
        {"f:p": {PORT: {".": {}}}},
        {"p": [{"containerPort": 80, "protocol": "TCP"}]},
        {"p": [{"name": "a"}, 1]},
        ["p[containerPort=80,protocol=TCP]"],
    ),
    "an item by its value": (
        {"f:f": {'v:"a"': {}, 'v:"b"': {}}},
        {"f": ["a", "b"]},
        {"f": ["b"]},
        ["f[a]"],
    ),
    "an item by its place": (
        {"f:f": {"i:0": {}, "i:1": {}}},
        {"f": ["a", "b"]},
        {"f": ["c"]},
        ["f[1]"],
    ),
    "an array that is no array": ({"f:f": {'v:"a"': {}}}, {"f": ["a"]}, {"f": "a"}, ["f[a]"]),
    "a step that nobody can read": (
        {"f:f": {"v:{": {}, "i:x": {}, "v:NaN": {}, 'k:{"a":Infinity}': {}}},
        {"f": ["a"]},
        {},
        [],
    ),
    "a number is one however it is written": ({"f:f": {"v:1.0": {}}}, {"f": [1]}, {"f": [1]}, []),
}


@pytest.mark.parametrize(
    ("fields", "held", "stated", "want"), UNSTATED.values(), ids=UNSTATED.keys()
)
def test_unstated(fields, held, stated, want):
    assert sorted(map(readable, unstated(fields, live=held, stated=stated))) == want


def test_an_empty_value_counts_where_it_is_no_absence():
    fields: Any = {"f:m": {}, "f:l": {}, "f:null": {}, "f:deep": {".": {}, "f:m": {}}, "f:kept": {}}
    held: dict[str, Any] = {"m": {}, "l": [], "null": None, "deep": {"m": {}}, "kept": {}}
    assert unstated(fields, live=held, stated={}) == {("f:deep",)}
    paths = unstated(fields, live=held, stated={"kept": {}}, empty_is_absent=False)
    assert sorted(map(readable, paths)) == ["deep", "deep.m", "l", "m"]


def test_thousands_of_items_are_found_while_one_waits():
    """Anybody may write that many; looking for each among all would take minutes."""
    numbers = range(10_000)
    ports = [{"containerPort": one, "protocol": "TCP"} for one in numbers]
    fields: Any = {
        "f:env": {f'k:{{"name":"V{one}"}}': {".": {}} for one in numbers},
        "f:ports": {f'k:{{"containerPort":{one},"protocol":"TCP"}}': {".": {}} for one in numbers},
        "f:finalizers": {f'v:"x/{one}"': {} for one in numbers},
    }
    held: dict[str, list[Any]] = {
        "env": [{"name": f"V{one}"} for one in numbers],
        "ports": ports,
        "finalizers": [f"x/{one}" for one in numbers],
    }
    stated: Any = {
        "env": held["env"][:-1],
        "ports": [{"containerPort": one} for one in numbers[:-1]],
        "finalizers": held["finalizers"][:-1],
    }
    paths = unstated(fields, live=held, stated=stated)
    assert sorted(map(readable, paths)) == [
        "env[name=V9999]",
        "finalizers[x/9999]",
        "ports[containerPort=9999,protocol=TCP]",
    ]


LIVE: Any = {"spec": {"size": "1Gi", "notes": {"a/b": "1", "deep": {"x": 1, "y": 2}, "none": {}}}}
EMPTIED: Any = {"spec": {"size": "1Gi", "notes": {}}}
ALL: Any = {"a/b": {}, "deep": {"x": {}, "y": {}}, "none": {}}


def fields(notes):
    """Return FieldsV1 of what somebody wrote."""
    return {key if key == "." else f"f:{key}": fields(below) for key, below in notes.items()}


def written(notes):
    return {"f:spec": {"f:size": {}, "f:notes": fields(notes)}}


NOTE, DEEP, X, NONE = (f"/spec/notes/{path}" for path in ("a~1b", "deep", "deep/x", "none"))
EMPTIES = {
    "all of it is ours": (EMPTIED, ALL, {}, [NOTE, DEEP, NONE]),
    "some is of others": (EMPTIED, ALL, {"deep": {"y": {}}, "none": {}}, [NOTE, X]),
    "all is of others": (EMPTIED, {}, ALL, []),
    "a map was applied empty, and others filled it": (
        EMPTIED,
        {"deep": {}},
        {"deep": {"x": {}, "y": {}}},
        [DEEP],
    ),
    "a map was made by us, and others wrote in it": (
        EMPTIED,
        {"deep": {".": {}, "x": {}}},
        {"deep": {"y": {}}},
        [DEEP],
    ),
    "a map was made by others, too": (
        EMPTIED,
        {"deep": {".": {}, "x": {}}},
        {"deep": {".": {}, "y": {}}},
        [X],
    ),
    "a map was made by others, and left empty": (
        EMPTIED,
        {"deep": {".": {}, "x": {}, "y": {}}},
        {"deep": {}},
        [X, "/spec/notes/deep/y"],
    ),
    "something is left": ({"spec": {"notes": {"a/b": "1"}}}, ALL, {}, []),
    "a map within is emptied": (
        {"spec": {"notes": {"a/b": "1", "deep": {}}}},
        ALL,
        {},
        ["/spec/notes/deep/x", "/spec/notes/deep/y"],
    ),
    "the map goes, too": ({"spec": {"size": "1Gi"}}, ALL, {}, []),
}


@pytest.mark.parametrize(("wanted", "ours", "others", "removed"), EMPTIES.values(), ids=EMPTIES)
def test_what_an_empty_map_takes_along(wanted, ours, others, removed):
    found = removals(LIVE, wanted, ours=written(ours), others=written(others))
    assert found == [{"op": "remove", "path": path} for path in removed]


def test_a_map_that_is_empty_already_has_nothing_to_remove():
    bare: Any = {"spec": {"notes": {}}}
    assert removals(bare, bare, ours=written({}), others={}) == []


ITEMS: Any = {
    "l": [{"n": "a", "x": {"y": 1}}, {"n": "b"}, {"n": "c"}],
    "s": ["p", "q", "r"],
    "o": [1],
}
A_, B_ = 'k:{"n":"a"}', 'k:{"n":"b"}'
OURS: Any = {
    "f:l": {A_: {".": {}, "f:n": {}, "f:x": {"f:y": {}}}, B_: {".": {}, "f:n": {}}},
    "f:s": {'v:"p"': {}, 'v:"r"': {}},
    "f:o": {},
}
LISTS: dict[str, tuple[Any, Any, list[str]]] = {
    "our items, the last first": ({"l": []}, {}, ["/l/1", "/l/0"]),
    "but those of others": ({"l": []}, {"f:l": {A_: {"f:z": {}}}}, ["/l/1"]),
    "of a set": ({"s": []}, {"f:s": {'v:"q"': {}}}, ["/s/2", "/s/0"]),
    "what is one value": ({"o": []}, {}, []),
    "a map in an item": ({"l": [{"n": "b"}, {"n": "a", "x": {}}]}, {}, ["/l/0/x/y"]),
    "a map in an item without keys": ({"o": [{}]}, {}, []),
}


@pytest.mark.parametrize(("wanted", "others", "removed"), LISTS.values(), ids=LISTS)
def test_what_an_empty_list_takes_along(wanted, others, removed):
    found = removals(ITEMS, wanted, ours=OURS, others=others)
    assert found == [{"op": "remove", "path": path} for path in removed]
