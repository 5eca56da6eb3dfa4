"""What an apply sends: what is stated, what we own beyond it, and nothing that has left."""

from typing import Any

import pytest

from reconciler.core import keys
from reconciler.core.server_side_apply import body


def live(fields, *, manager=keys.MANAGER_CLI, operation="Apply", **content):
    entry = {"manager": manager, "operation": operation, "fieldsV1": fields}
    metadata = {
        "name": "x",
        "namespace": "ns",
        "uid": "u-1",
        "resourceVersion": "7",
        "managedFields": [entry],
    }
    return {"apiVersion": "v1", "kind": "Thing", "metadata": metadata, **content}


def stated(**content):
    return {"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "x"}, **content}


SPEC_A: Any = {"f:spec": {"f:a": {}}}
SPEC_AB: Any = {"f:spec": {"f:a": {}, "f:b": {}}}
CONTAINERS: Any = {
    "f:spec": {
        "f:containers": {'k:{"name":"k"}': {".": {}, "f:name": {}, "f:image": {}, "f:args": {}}}
    }
}

CASES = {
    "what is stated is sent": (live({}, spec={"a": 1}), stated(spec={"a": 2}), None, {"a": 2}),
    "what others own is not sent": (
        live(SPEC_AB, manager="someone", spec={"a": 1, "b": 1}),
        stated(spec={"a": 2}),
        None,
        {"a": 2},
    ),
    "what we own and state only on creation keeps its live value": (
        live(SPEC_AB, spec={"a": 1, "b": 5}),
        stated(spec={"a": 2}),
        stated(spec={"a": 2, "b": 1}),
        {"a": 2, "b": 5},
    ),
    "what we own and state no more is dropped": (
        live(SPEC_AB, spec={"a": 1, "b": 5}),
        stated(spec={"a": 2}),
        stated(spec={"a": 2}),
        {"a": 2},
    ),
    "items of a keyed list are told by their key": (
        live(CONTAINERS, spec={"containers": [{"name": "k", "image": "old", "args": ["-v"]}]}),
        stated(spec={"containers": [{"name": "k", "image": "new"}]}),
        stated(spec={"containers": [{"name": "k", "image": "new", "args": []}]}),
        {"containers": [{"name": "k", "image": "new", "args": ["-v"]}]},
    ),
    "a keyed item that is not stated is kept whole": (
        live(CONTAINERS, spec={"containers": [{"name": "k", "image": "old", "args": ["-v"]}]}),
        stated(spec={}),
        stated(spec={"containers": [{"name": "k", "image": "x", "args": []}]}),
        {"containers": [{"name": "k", "image": "old", "args": ["-v"]}]},
    ),
    "fields that we created and never applied are taken over first, so they are not sent": (
        live(SPEC_A, operation="Update", spec={"a": 1}),
        stated(spec={}),
        stated(spec={"a": 1}),
        {},
    ),
}


@pytest.mark.parametrize(("held", "wanted", "whole", "spec"), CASES.values(), ids=CASES.keys())
def test_the_body(held, wanted, whole, spec):
    assert body(held, wanted, whole=whole or wanted, manager=keys.MANAGER_CLI)["spec"] == spec


def test_the_body_fits_only_the_object_that_was_read():
    sent = body(live({}, spec={}), stated(spec={}), whole=stated(spec={}), manager=keys.MANAGER_CLI)
    assert sent["metadata"] == {
        "name": "x",
        "namespace": "ns",
        "uid": "u-1",
        "resourceVersion": "7",
    }


def test_an_adoption_takes_nothing_away():
    held = live({**SPEC_A, "f:metadata": {"f:labels": {"f:old": {}}}}, spec={"a": 1})
    held["metadata"]["labels"] = {"old": "1"}
    marks: Any = {"apiVersion": "v1", "kind": "Thing", "metadata": {"labels": {"new": "2"}}}
    sent: Any = body(held, marks, whole=held, manager=keys.MANAGER_CLI)
    assert sent["metadata"]["labels"] == {"old": "1", "new": "2"}
    assert sent["spec"] == {"a": 1}
