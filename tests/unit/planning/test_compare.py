"""Drift: what of a live object differs from what is stated."""

from typing import Any

import pytest

from reconciler.core import keys
from reconciler.core.errors import Origin
from reconciler.core.manifest import KNOWN_AFTER_APPLY, Manifest
from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.fleet.wanted import Rule, Wanted
from reconciler.planning.changes import Action
from reconciler.planning.objects import differences, draft_of, owned_changes

TYPE = {"apiVersion": "example.com/v1", "kind": "Thing"}
LATER = KNOWN_AFTER_APPLY

DIFFERENCES: dict[str, tuple[dict[str, Any], dict[str, Any], list[tuple[str, Any, Any]]]] = {
    "all is there": ({"a": 1, "more": 2}, {"a": 1}, []),
    "a value": ({"a": 1}, {"a": 2}, [("/a", 1, 2)]),
    "what is known later agrees with whatever there is": ({"a": {"b": 7}}, {"a": LATER}, []),
    "and differs where there is nothing": ({}, {"a": LATER}, [("/a", None, LATER)]),
    "also beside a difference": (
        {"a": {"later": "x", "b": 1}},
        {"a": {"later": LATER, "b": 2}},
        [("/a/b", 1, 2)],
    ),
}


@pytest.mark.parametrize(("live", "stated", "want"), DIFFERENCES.values(), ids=DIFFERENCES.keys())
def test_differences(
    live: dict[str, Any], stated: dict[str, Any], want: list[tuple[str, Any, Any]]
) -> None:
    found = differences({**TYPE, **live}, {**TYPE, **stated})
    assert [(one.path, one.before, one.after) for one in found] == want


def owned_by(manager, **fields):
    entry = {"manager": manager, "operation": "Apply", "fieldsV1": fields}
    return {"name": "x", "labels": {keys.FLEET: "acme"}, "managedFields": [entry]}


def reason(live, stated):
    """Return the reason of the update that leads from `live` to `stated`."""
    ref = Ref("shop", CONFIG_MAP, "ns", "x")
    whole = {**TYPE, "metadata": {"name": "x", "labels": {keys.FLEET: "acme"}}, **stated}
    wanted = Wanted("shop", ref, whole, Origin("x.yaml"), 1, None, Rule.OWNED)
    (made,) = owned_changes(draft_of(wanted, live, "db"), live, wanted, fleet="acme")
    assert made.action is Action.UPDATE
    return made.reason


OURS: dict[str, Any] = {
    "f:spec": {"f:a": {}, "f:claims": {}, "f:items": {'k:{"name":"x"}': {"f:b": {}}}}
}
LAST, OTHER = "it is as it was applied last", "it was changed since, not by klutchctl"
CAUSES: dict[str, tuple[Any, Any, Any, str]] = {
    "ours, so that the files say otherwise": (OURS, {"a": 1}, {"a": 2}, LAST),
    "a part of what was written as one value": (
        OURS,
        {"claims": [{"names": ["a"]}]},
        {"claims": [{"names": ["b"]}]},
        LAST,
    ),
    "another's": ({"f:spec": {"f:claims": {}}}, {"a": 1}, {"a": 2}, OTHER),
    "some of each": ({"f:spec": {"f:c": {}}}, {"a": 1, "c": 1}, {"a": 2, "c": 2}, ""),
    "an item of a list that is told by its keys": (
        OURS,
        {"items": [{"name": "x", "b": 1}]},
        {"items": [{"name": "x", "b": 2}]},
        "",
    ),
    "nothing there, whoever took it away": (OURS, {}, {"z": 2}, ""),
    "no fields of ours at all": ({}, {"a": 1}, {"a": 2}, ""),
}


@pytest.mark.parametrize(("fields", "live", "stated", "why"), CAUSES.values(), ids=CAUSES.keys())
def test_a_difference_names_its_cause_where_that_is_known(fields, live, stated, why):
    metadata = owned_by(keys.MANAGER_CLI, **fields)
    found = reason({**TYPE, "metadata": metadata, "spec": live}, {"spec": stated})
    assert found == ": ".join(filter(None, ("differs from the files", why)))


KONNECTORS = {
    "the original's": ((keys.MANAGER_ORIGINAL_KONNECTOR,), True),
    "ours": ((keys.MANAGER_KONNECTOR,), False),
    "ours, after the original's": (tuple(sorted(keys.KONNECTORS)), False),
    "one of which nothing is known": ((), False),
}


@pytest.mark.parametrize(("managers", "said"), KONNECTORS.values(), ids=KONNECTORS.keys())
def test_what_the_original_heeds_is_said_of_it_alone(managers, said):
    metadata = owned_by(keys.MANAGER_CLI)
    metadata["managedFields"] += [{"manager": one, "subresource": "status"} for one in managers]
    live: Manifest = {**TYPE, "metadata": metadata, "spec": {"permissionClaims": [{"a": 1}]}}
    found = reason(live, {"spec": {"permissionClaims": [{"a": 2}]}})
    assert ("the original konnector heeds claims only when it starts again" in found) == said


def test_what_is_no_longer_stated_is_shown_with_its_value():
    written = {"f:metadata": {"f:annotations": {"f:x": {}}}, "f:spec": {"f:m": {}}}
    metadata = {**owned_by(keys.MANAGER_CLI, **written), "annotations": {"x": "klutchctl/old"}}
    live: Manifest = {**TYPE, "metadata": metadata, "spec": {"m": {"n": 1}}}
    found = differences(live, {**TYPE, "metadata": {"name": "x"}})
    assert [(one.path, one.before, one.after) for one in found] == [
        ("/metadata/annotations/x", "klutchctl/old", None),
        ("/spec/m", "(ours)", None),
    ]
