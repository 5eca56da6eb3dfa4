"""Which fields are removed by name, because an apply would make null of their map."""

from typing import Any

import pytest

from konnector.decisions.emptied import removals

LIVE: Any = {"spec": {"size": "1Gi", "notes": {"a/b": "1", "deep": {"x": 1, "y": 2}, "none": {}}}}
EMPTIED: Any = {"spec": {"size": "1Gi", "notes": {}}}
ALL: Any = {"a/b": {}, "deep": {"x": {}, "y": {}}, "none": {}}


def fields(notes):
    """Return FieldsV1 of what somebody wrote."""
    return {f"f:{key}": fields(below) for key, below in notes.items()}


def written(notes):
    return [{"f:spec": {"f:size": {}, "f:notes": fields(notes)}}]


A, DEEP, X, NONE = (f"/spec/notes/{path}" for path in ("a~1b", "deep", "deep/x", "none"))
CASES = {
    "all of it is ours": (EMPTIED, ALL, {}, [A, DEEP, NONE]),
    "some is of others": (EMPTIED, ALL, {"deep": {"y": {}}, "none": {}}, [A, X]),
    "all is of others": (EMPTIED, {}, ALL, []),
    "something is left": ({"spec": {"notes": {"a/b": "1"}}}, ALL, {}, []),
    "a map within is emptied": (
        {"spec": {"notes": {"a/b": "1", "deep": {}}}},
        ALL,
        {},
        ["/spec/notes/deep/x", "/spec/notes/deep/y"],
    ),
    "the map goes, too": ({"spec": {"size": "1Gi"}}, ALL, {}, []),
}


@pytest.mark.parametrize(("wanted", "ours", "others", "removed"), CASES.values(), ids=CASES)
def test_what_an_empty_map_takes_along(wanted, ours, others, removed):
    found = removals(LIVE, wanted, ours=written(ours), others=written(others))
    assert found == [{"op": "remove", "path": path} for path in removed]


def test_a_map_that_is_empty_already_has_nothing_to_remove():
    bare: Any = {"spec": {"notes": {}}}
    assert removals(bare, bare, ours=written({}), others=[]) == []


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
    found = removals(ITEMS, wanted, ours=[OURS], others=[others])
    assert found == [{"op": "remove", "path": path} for path in removed]
