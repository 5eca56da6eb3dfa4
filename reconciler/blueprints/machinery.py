"""Crossplane's machinery: the fields of a kind by which its control plane composes services.

Through them a claim names other objects, such as a composite resource, a revision, a Secret. They
are the control plane's: an export leaves them out, a konnector carries them neither way, and an
admission policy refuses them to accounts of binding spaces. A template lets single fields be open,
and narrows the compositions. What is left out stands on the export, so that each program reads it
there. Refuses to know who reads it.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from reconciler.core import keys
from reconciler.core.manifest import (
    JSON,
    Manifest,
    annotations_of,
    drop,
    get,
    get_map,
    get_text,
    put,
)

Path: TypeAlias = tuple[str, ...]

REF: Final = "compositionRef"
SELECTOR: Final = "compositionSelector"
_OPEN: Final = frozenset({REF, SELECTOR})
# Of claims, and of composite resources as 1.x has them; 2.x keeps its own in `spec.crossplane`.
FIELDS: Final = (
    "claimRef",
    "compositeDeletePolicy",
    "compositionRevisionRef",
    "compositionRevisionSelector",
    "compositionUpdatePolicy",
    "publishConnectionDetailsTo",
    "resourceRef",
    "resourceRefs",
    "writeConnectionSecretToRef",
)
# Fields to which a definition may give a default, so that an API server fills them in.
DEFAULTED: Final = ("compositeDeletePolicy", "compositionUpdatePolicy")
SECOND: Final = "crossplane"
ANY: Final = "*"
_PLACES: Final[tuple[Path, ...]] = (("spec", SECOND), ("spec",))
_SCHEMA: Final = ("schema", "openAPIV3Schema")


@dataclass(frozen=True, slots=True)
class Opening:
    """The fields that app clusters may write all the same, and the compositions that they may name.

    Without compositions they may name any.
    """

    fields: frozenset[str] = frozenset()
    compositions: frozenset[str] = frozenset()


CLOSED: Final = Opening()


def opening(live: Manifest) -> Opening:
    """Return what a template says, or an export, which keeps the words of its template."""
    return Opening(_words(live, keys.OPEN_MACHINERY), _words(live, keys.COMPOSITIONS))


def paths(version: Manifest, opened: Opening) -> Sequence[Path]:
    """Return the paths of the fields that a version of a CRD has and its export leaves out.

    A kind is Crossplane's if a composition can be selected in its schema.
    """
    place = next((one for one in _PLACES if SELECTOR in _properties(version, one)), None)
    if place is None:
        return ()
    held = _properties(version, place)
    known = held.keys() if place[-1] == SECOND else held.keys() & {*FIELDS, *_OPEN}
    stays = (_OPEN - {SELECTOR} if opened.compositions else _OPEN) | opened.fields
    return [(*place, name) for name in sorted(known - stays)]


def narrowed(version: Manifest, opened: Opening) -> Manifest:
    """Return a version of a CRD as its export has it: without these fields.

    Nothing is left that names them: rules, columns, lists of what is required.
    """
    left = paths(version, opened)
    for path in left:
        version = _without(version, path)
    if left and opened.compositions:
        names = sorted(opened.compositions)
        place = (*_SCHEMA, *_steps((*left[0][:-1], REF, "name")), "enum")
        version = put(version, names, *place)
    return version


def texts(found: Iterable[Path]) -> str:
    return ",".join(sorted({".".join(path) for path in found}))


def left_out(export: Manifest | None) -> frozenset[Path]:
    return frozenset(tuple(one.split(".")) for one in _words(export or {}, keys.LEFT_OUT))


def marks(resource: str, export: Manifest) -> Sequence[str]:
    """Return what an account may do with the machinery of an exported kind, for its role.

    As names of objects that cannot be: `RESOURCE:PLACE` says that the machinery is there, and that
    nothing of it may be written but what is named so, too, and compositions as they are named.
    """
    left, opened = left_out(export), opening(export)
    if not left:
        return ()
    place = next(iter(left))[:-1]
    fields = opened.fields - _OPEN | (frozenset() if opened.compositions else {SELECTOR})
    chosen = {f"{REF}={name}" for name in opened.compositions or {ANY}}
    said = {".".join(place), *chosen, *(".".join((*place, name)) for name in fields)}
    return [f"{resource}:{name}" for name in sorted(said)]


def _words(live: Manifest, key: str) -> frozenset[str]:
    said = annotations_of(live).get(key, "")
    return frozenset(filter(None, (one.strip() for one in said.split(","))))


def _steps(path: Path) -> Path:
    """Return the way to a field through a schema."""
    return tuple(step for name in path for step in ("properties", name))


def _properties(version: Manifest, place: Path) -> Manifest:
    return get_map(version, *_SCHEMA, *_steps(place), "properties")


def _without(version: Manifest, path: Path) -> Manifest:
    named = re.compile(rf"\b{re.escape(path[-1])}\b")
    version = drop(version, *_SCHEMA, *_steps(path))
    for depth in range(len(path)):
        above = (*_SCHEMA, *_steps(path[:depth]))
        rules = (*above, "x-kubernetes-validations")
        version = _kept(version, rules, lambda rule: not named.search(get_text(rule, "rule")))
    required = (*_SCHEMA, *_steps(path[:-1]), "required")
    version = _kept(version, required, lambda name: name != path[-1])
    column = f".{'.'.join(path)}"
    columns = ("additionalPrinterColumns",)
    return _kept(
        version, columns, lambda one: not f"{get_text(one, 'jsonPath')}.".startswith(f"{column}.")
    )


def _kept(version: Manifest, place: Path, stays: Callable[[JSON], bool]) -> Manifest:
    """Return the version with those items of an array that stay, where it has the array."""
    items = get(version, *place)
    if not isinstance(items, list | tuple):
        return version
    return put(version, [one for one in items if stays(one)], *place)
