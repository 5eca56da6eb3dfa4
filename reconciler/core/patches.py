"""Differences of JSON objects, as merge patches (RFC 7386) and field by field (RFC 6902)."""

from dataclasses import dataclass, field
from typing import Final

from reconciler.core.manifest import JSON, Manifest, resource_version_of

_ARRAYS: Final = (list, tuple)


def merge_diff(before: Manifest, after: Manifest) -> dict[str, JSON]:
    """Return the smallest merge patch that makes `before` say what `after` says, {} if it does.

    A null says what absence says, at any depth: a merge patch cannot tell them apart.
    """
    patch: dict[str, JSON] = {}
    for key, value in after.items():
        held = before.get(key)
        if type(value) is str:  # nearly all, as in a Secret's data
            if held != value:
                patch[key] = value
        elif isinstance(value, dict) and isinstance(held, dict):
            if inner := merge_diff(held, value):
                patch[key] = inner
        elif value is not None and not _says_the_same(held, value):
            patch[key] = _without_nulls(value)
    for key, held in before.items():
        if held is not None and after.get(key) is None:
            patch[key] = None
    return patch


def are_equal(one: JSON, other: JSON) -> bool:
    """Tell whether two values are the same in JSON, where 1 and true are not."""
    return one == other and not _mixes_bools(one, other)


def pointer(*steps: str) -> str:
    """Return the JSON pointer (RFC 6901) of a path."""
    return "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in steps)


def unchanged(live: Manifest) -> dict[str, JSON]:
    """Return the operation that fails where an object is no longer as it was read."""
    path = pointer("metadata", "resourceVersion")
    return {"op": "test", "path": path, "value": resource_version_of(live)}


def _says_the_same(held: JSON, wanted: JSON) -> bool:
    if isinstance(wanted, dict):
        return isinstance(held, dict) and not merge_diff(held, wanted)
    if isinstance(wanted, _ARRAYS):
        if not isinstance(held, _ARRAYS) or len(held) != len(wanted):
            return False
        return all(map(_says_the_same, held, wanted))
    # A bool is an int to Python, and not to JSON.
    return held == wanted and isinstance(held, bool) == isinstance(wanted, bool)


def _without_nulls(value: JSON) -> JSON:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, _ARRAYS):
        return [_without_nulls(item) for item in value]
    return value


def _mixes_bools(one: JSON, other: JSON) -> bool:
    """Tell whether two values that are equal to Python differ in JSON."""
    if isinstance(one, dict) and isinstance(other, dict):
        return any(_mixes_bools(value, other.get(key)) for key, value in one.items())
    if isinstance(one, _ARRAYS) and isinstance(other, _ARRAYS):
        return any(map(_mixes_bools, one, other))
    return isinstance(one, bool) != isinstance(other, bool)


@dataclass(frozen=True, slots=True, order=True)
class FieldChange:
    """One field that differs: a JSON pointer (RFC 6901), and what stands there.

    Values of Secrets are digests. None = absent.
    """

    path: str
    before: JSON = field(compare=False)
    after: JSON = field(compare=False)


def field_changes(before: Manifest, after: Manifest) -> tuple[FieldChange, ...]:
    """Return what has to change to come from `before` to `after`, by path."""
    import jsonpatch  # takes a tenth of a second, and the agents never need it

    changes: dict[str, FieldChange] = {}
    for operation in jsonpatch.make_patch(before, after):
        for path in {operation["path"], operation.get("from", operation["path"])}:
            changes[path] = FieldChange(path, _at(before, path), _at(after, path))
    return tuple(changes[path] for path in sorted(changes))


def _at(document: Manifest, path: str) -> JSON:
    import jsonpointer

    try:
        value: JSON = jsonpointer.resolve_pointer(document, path, None)
    except jsonpointer.JsonPointerException:
        return None  # below a value of another shape, or after the end of a list ("-")
    return value
