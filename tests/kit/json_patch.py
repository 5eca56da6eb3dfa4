"""RFC 6902 as kube-apiserver takes it, which lets a `replace` add what is missing; RFC 7386."""

from collections.abc import Sequence
from typing import Any

from tests.kit import answers
from tests.kit.typed import ABSENT, same


def merged(live: Any, change: Any) -> Any:
    """Return what a merge patch makes of a value, as RFC 7386 says."""
    if not isinstance(change, dict):
        return change
    made = dict(live) if isinstance(live, dict) else {}
    for key, value in change.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merged(made.get(key), value)
    return made


def patched(live: Any, operations: Sequence[Any]) -> Any:
    """Patch an object in place, and return it. Raises Refused."""
    for one in operations:
        *above, last = [
            step.replace("~1", "/").replace("~0", "~") for step in one["path"].split("/")[1:]
        ]
        parent = live
        for step in above:
            parent = _get(parent, step)
            if parent is ABSENT or not isinstance(parent, dict | list):
                raise answers.unpatchable()
        _do(one, parent, last)
    return live


def _get(value: Any, step: str) -> Any:
    if isinstance(value, list):
        return value[int(step)] if step.isdigit() and int(step) < len(value) else ABSENT
    return value.get(step, ABSENT) if isinstance(value, dict) else ABSENT


def _do(operation: Any, parent: Any, last: str) -> None:
    live = _get(parent, last)
    match operation["op"]:
        case "test" if not same(None if live is ABSENT else live, operation.get("value")):
            raise answers.unpatchable()
        case "remove" if live is ABSENT:
            raise answers.unpatchable()
        case "remove":
            del parent[int(last) if isinstance(parent, list) else last]
        case "add" if isinstance(parent, list):
            parent.insert(len(parent) if last == "-" else int(last), operation["value"])
        case "add" | "replace":
            parent[int(last) if isinstance(parent, list) else last] = operation["value"]
