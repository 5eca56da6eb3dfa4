"""JSON merge patches (RFC 7386): what leads from one value to another."""

from collections.abc import Mapping

from reconciler.core.manifest import JSON, Manifest


def merge_diff(before: Manifest, after: Manifest) -> dict[str, JSON]:
    """Return the smallest merge patch that makes `after` of `before`; {} where they are equal.

    What is null in `after` ends up absent: that is what a null means in such a patch.
    """
    changes: dict[str, JSON] = {
        key: None for key, held in before.items() if held is not None and after.get(key) is None
    }
    for key, value in after.items():
        held = before.get(key)
        if value is None or are_equal(value, held):
            continue
        if isinstance(value, Mapping) and isinstance(held, Mapping):
            if inner := merge_diff(held, value):
                changes[key] = inner
        else:
            changes[key] = value
    return changes


def are_equal(one: JSON, other: JSON) -> bool:
    """Tell whether two values are the same in JSON, where 1 and true are not."""
    return one == other and not _mixes_bools(one, other)


def _mixes_bools(one: JSON, other: JSON) -> bool:
    """Tell whether two values that are equal to Python differ in JSON."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return any(_mixes_bools(value, other.get(key)) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return any(map(_mixes_bools, one, other))
    return isinstance(one, bool) != isinstance(other, bool)
