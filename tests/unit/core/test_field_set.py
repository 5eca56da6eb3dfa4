"""Who owns which field, and how fields created by POST are taken over."""

import pytest

from reconciler.core.field_set import created_to_applied, owned, paths, readable, union

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
    "a predecessor not named stays": (live(entry("konnector", "Update", data("a"))), (), None),
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
    assert union(one, other) == want


def test_owned_paths_are_the_members_and_not_the_way_to_them():
    found = live(
        entry("us", "Update", {"f:a": {"f:b": {}, 'k:{"n":1}': {".": {}, "f:c": {}}}, "f:d:e": {}}),
        entry("us", "Apply", {"f:spec": {"f:x": {}}}),
        entry("us", "Update", {"f:status": {}}, subresource="status"),
        OTHER,
    )
    assert set(paths(owned(found, "us"))) == {
        ("f:a", "f:b"),
        ("f:a", 'k:{"n":1}'),
        ("f:a", 'k:{"n":1}', "f:c"),
        ("f:d:e",),
        ("f:spec", "f:x"),
    }
    assert owned({}, "us") == {}


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
