"""Drift: what of a live object differs from what is stated."""

from typing import Any

import pytest

from reconciler.core.manifest import KNOWN_AFTER_APPLY
from reconciler.planning.objects import differences

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
