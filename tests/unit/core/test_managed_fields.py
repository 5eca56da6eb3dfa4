"""Who owns which field, and how fields created by POST are taken over."""

from typing import Any

import pytest

from reconciler.core.managed_fields import (
    created_to_applied,
    owned_paths,
    readable,
    unstated_paths,
)
from reconciler.core.manifest import get

TIME = "2026-01-01T00:00:00Z"


def entry(manager, operation, fields, *, subresource=None, time=TIME):
    found = {
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        "manager": manager,
        "operation": operation,
        "time": time,
    }
    return {**found, "subresource": subresource} if subresource else found


def live(*entries, **fields):
    return {"metadata": {"resourceVersion": "7", "managedFields": list(entries)}, **fields}


def data(*names):
    return {"f:data": {f"f:{name}": {} for name in names}}


def patch(*entries):
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "replace", "path": "/metadata/managedFields", "value": list(entries)},
    ]


OTHER = entry("kubectl", "Update", data("z"))
STATUS = entry("us", "Update", {"f:status": {"f:phase": {}}}, subresource="status")

TAKEOVERS = {
    "nothing is managed": (live(), (), None),
    "no metadata at all": ({}, (), None),
    "applied already": (live(entry("us", "Apply", data("a"))), (), None),
    "created by others": (live(OTHER), (), None),
    "only a status is ours": (live(STATUS), (), None),
    "created by us": (
        live(entry("us", "Update", data("a"))),
        (),
        patch(entry("us", "Apply", data("a"))),
    ),
    "others and the status stay": (
        live(OTHER, entry("us", "Update", data("a")), STATUS),
        (),
        patch(OTHER, STATUS, entry("us", "Apply", data("a"))),
    ),
    "created and applied are united": (
        live(
            entry("us", "Apply", data("a", "b"), time="2026-01-02T00:00:00Z"),
            entry("us", "Update", data("b", "c")),
        ),
        (),
        patch(entry("us", "Apply", data("a", "b", "c"), time="2026-01-02T00:00:00Z")),
    ),
    "a predecessor is taken over": (
        live(entry("konnector", "Update", data("a"))),
        ("konnector",),
        patch(entry("us", "Apply", data("a"))),
    ),
    "a predecessor and our own": (
        live(
            entry("konnector", "Update", data("a")),
            entry("us", "Update", data("b")),
            entry("us", "Apply", data("c")),
        ),
        ("konnector",),
        patch(entry("us", "Apply", data("c", "a", "b"))),
    ),
    "a predecessor's status stays": (
        live(
            entry("konnector", "Update", data("a"), subresource="status"),
            entry("konnector", "Update", data("b")),
        ),
        ("konnector",),
        patch(
            entry("konnector", "Update", data("a"), subresource="status"),
            entry("us", "Apply", data("b")),
        ),
    ),
    "a predecessor's Apply stays": (
        live(entry("konnector", "Apply", data("a")), entry("us", "Update", data("b"))),
        ("konnector",),
        patch(entry("konnector", "Apply", data("a")), entry("us", "Apply", data("b"))),
    ),
    "a predecessor not named stays": (
        live(entry("konnector", "Update", data("a"))),
        (),
        None,
    ),
}


@pytest.mark.parametrize(
    ("found", "predecessors", "want"), TAKEOVERS.values(), ids=TAKEOVERS.keys()
)
def test_created_to_applied(found, predecessors, want):
    assert created_to_applied(found, manager="us", from_managers=predecessors) == want


UNIONS = {
    "a leaf and its parts": ({"f:a": {}}, {"f:a": {"f:b": {}}}, {"f:a": {".": {}, "f:b": {}}}),
    "parts and their leaf": ({"f:a": {"f:b": {}}}, {"f:a": {}}, {"f:a": {".": {}, "f:b": {}}}),
    "two leaves": ({"f:a": {}}, {"f:a": {}}, {"f:a": {}}),
    "deep": (
        {"f:a": {".": {}, 'k:{"name":"x"}': {".": {}, "f:name": {}}}},
        {"f:a": {'k:{"name":"x"}': {"f:image": {}}, 'v:"y"': {}}},
        {"f:a": {".": {}, 'k:{"name":"x"}': {".": {}, "f:name": {}, "f:image": {}}, 'v:"y"': {}}},
    ),
}


@pytest.mark.parametrize(("one", "other", "want"), UNIONS.values(), ids=UNIONS.keys())
def test_unions(one, other, want):
    found = live(entry("us", "Apply", one), entry("us", "Update", other))
    patch = created_to_applied(found, manager="us") or []
    assert get(patch, 1, "value", 0, "fieldsV1") == want


def test_owned_paths_are_the_members_and_not_the_way_to_them():
    found = live(
        entry("us", "Update", {"f:a": {"f:b": {}, 'k:{"n":1}': {".": {}, "f:c": {}}}, "f:d:e": {}}),
        entry("us", "Apply", {"f:spec": {"f:x": {}}}),
        entry("us", "Update", {"f:status": {}}, subresource="status"),
        OTHER,
    )
    assert owned_paths(found, "us") == {
        ("f:a", "f:b"),
        ("f:a", 'k:{"n":1}'),
        ("f:a", 'k:{"n":1}', "f:c"),
        ("f:d:e",),
        ("f:spec", "f:x"),
    }
    assert owned_paths({}, "us") == frozenset()


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
def test_unstated_paths(fields, held, stated, want):
    found = live(entry("us", "Update", fields), **held)
    paths = unstated_paths(found, manager="us", stated=stated)
    assert sorted(map(readable, paths)) == want


def test_an_empty_value_counts_where_it_is_no_absence():
    fields: Any = {"f:m": {}, "f:l": {}, "f:null": {}, "f:deep": {".": {}, "f:m": {}}, "f:kept": {}}
    held: dict[str, Any] = {"m": {}, "l": [], "null": None, "deep": {"m": {}}, "kept": {}}
    found = live(entry("us", "Update", fields), **held)
    assert unstated_paths(found, manager="us", stated={}) == {("f:deep",)}
    paths = unstated_paths(found, manager="us", stated={"kept": {}}, empty_is_absent=False)
    assert sorted(map(readable, paths)) == ["deep", "deep.m", "l", "m"]


def test_thousands_of_items_are_found_while_one_waits():
    """Anybody may write that many; looking for each among all would take minutes."""
    numbers = range(30_000)
    ports = [{"containerPort": one, "protocol": "TCP"} for one in numbers]
    fields = {
        "f:env": {f'k:{{"name":"V{one}"}}': {".": {}} for one in numbers},
        "f:ports": {f'k:{{"containerPort":{one},"protocol":"TCP"}}': {".": {}} for one in numbers},
        "f:finalizers": {f'v:"x/{one}"': {} for one in numbers},
    }
    held: dict[str, list[Any]] = {
        "env": [{"name": f"V{one}"} for one in numbers],
        "ports": ports,
        "finalizers": [f"x/{one}" for one in numbers],
    }
    stated = {
        "env": held["env"][:-1],
        "ports": [{"containerPort": one} for one in numbers[:-1]],
        "finalizers": held["finalizers"][:-1],
    }
    found = live(entry("us", "Apply", fields), **held)
    paths = unstated_paths(found, manager="us", stated=stated)
    assert sorted(map(readable, paths)) == [
        "env[name=V29999]",
        "finalizers[x/29999]",
        "ports[containerPort=29999,protocol=TCP]",
    ]


READABLE = {
    "spec.replicas": ("f:spec", "f:replicas"),
    "spec.containers[name=a,x=true].image": (
        "f:spec",
        "f:containers",
        'k:{"name":"a","x":true}',
        "f:image",
    ),
    "metadata.annotations.a.b/c:d": ("f:metadata", "f:annotations", "f:a.b/c:d"),
    'finalizers[{"a": 1}]': ("f:finalizers", 'v:{"a":1}'),
    "": (),
}


@pytest.mark.parametrize(("want", "path"), READABLE.items())
def test_readable(want, path):
    assert readable(path) == want


def test_the_input_is_left_alone():
    found = live(entry("us", "Apply", data("a")), entry("us", "Update", data("b")))
    again = live(entry("us", "Apply", data("a")), entry("us", "Update", data("b")))
    created_to_applied(found, manager="us")
    assert found == again
