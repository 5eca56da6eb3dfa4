"""Field differences of two JSON values, as people and RFC 6902 name them."""

from dataclasses import dataclass, field

import jsonpatch
import jsonpointer

from reconciler.core.manifest import JSON, Manifest


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
    found: dict[str, FieldChange] = {}
    for operation in jsonpatch.make_patch(before, after):
        for path in {operation["path"], operation.get("from", operation["path"])}:
            found[path] = FieldChange(path, _at(before, path), _at(after, path))
    return tuple(found[path] for path in sorted(found))


def _at(document: Manifest, path: str) -> JSON:
    try:
        value: JSON = jsonpointer.resolve_pointer(document, path, None)
    except jsonpointer.JsonPointerException:
        return None  # below a value of another shape, or after the end of a list ("-")
    return value
