"""Names the fields of a kind that control Crossplane's composition on its control plane.

Through these fields a claim names other objects, such as a composite resource, a revision or a
Secret. They belong to the control plane: an export omits them, a konnector syncs them in neither
direction, and an admission policy refuses them to accounts of binding spaces. A template can open
single fields, and limit the compositions. The export lists the omitted fields, for all programs.

An API server cannot tell which kinds are Crossplane's. So the role of a space's account marks them
by names of objects that cannot exist (`marks`). So a policy's CEL expression takes effect
together with the right to write.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from reconciler.blueprints import cel
from reconciler.core import keys, manifest
from reconciler.core.keys import KLUTCH_GROUP

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


def opening(live: manifest.Manifest) -> Opening:
    """Return the opening of a template, or of an export, which keeps that of its template."""
    return Opening(_words(live, keys.OPEN_MACHINERY), _words(live, keys.COMPOSITIONS))


def paths(version: manifest.Manifest, opened: Opening) -> Sequence[Path]:
    """Return the paths of the fields that a version of a CRD has and its export leaves out.

    A kind is Crossplane's if a composition can be selected in its schema.
    """
    place = next((one for one in _PLACES if SELECTOR in _properties(version, one)), None)
    if place is None:
        return ()
    fields = _properties(version, place)
    known = fields.keys() if place[-1] == SECOND else fields.keys() & {*FIELDS, *_OPEN}
    stays = (_OPEN - {SELECTOR} if opened.compositions else _OPEN) | opened.fields
    return [(*place, name) for name in sorted(known - stays)]


def narrowed(version: manifest.Manifest, opened: Opening) -> manifest.Manifest:
    """Return a version of a CRD as its export has it: without these fields.

    Nothing is left that names them: rules, columns, lists of what is required.
    """
    left = paths(version, opened)
    for path in left:
        version = _without(version, path)
    if left and opened.compositions:
        names = sorted(opened.compositions)
        place = (*_SCHEMA, *_steps((*left[0][:-1], REF, "name")), "enum")
        version = manifest.put(version, names, *place)
    return version


def texts(found: Iterable[Path]) -> str:
    return ",".join(sorted({".".join(path) for path in found}))


def left_out(export: manifest.Manifest | None) -> frozenset[Path]:
    return frozenset(tuple(one.split(".")) for one in _words(export or {}, keys.LEFT_OUT))


def marks(resource: str, export: manifest.Manifest) -> Sequence[str]:
    """Return the rights of an account to the machinery of an exported kind, as names for its role.

    As names of objects that cannot be: `RESOURCE:PLACE` says that the machinery is there, and that
    nothing of it may be written but what is named so, too, and compositions as they are named.
    """
    left, opened = left_out(export), opening(export)
    if not left:
        return ()
    place = next(iter(left))[:-1]
    fields = opened.fields - _OPEN | (frozenset() if opened.compositions else {SELECTOR})
    chosen = {f"{REF}={name}" for name in opened.compositions or {ANY}}
    marked = {".".join(place), *chosen, *(".".join((*place, name)) for name in fields)}
    return [f"{resource}:{name}" for name in sorted(marked)]


def _words(live: manifest.Manifest, key: str) -> frozenset[str]:
    text = manifest.annotations_of(live).get(key, "")
    return frozenset(filter(None, (one.strip() for one in text.split(","))))


def _steps(path: Path) -> Path:
    """Return the way to a field through a schema."""
    return tuple(step for name in path for step in ("properties", name))


def _properties(version: manifest.Manifest, place: Path) -> manifest.Manifest:
    return manifest.get_map(version, *_SCHEMA, *_steps(place), "properties")


def _without(version: manifest.Manifest, path: Path) -> manifest.Manifest:
    named = re.compile(rf"\b{re.escape(path[-1])}\b")
    version = manifest.drop(version, *_SCHEMA, *_steps(path))
    for depth in range(len(path)):
        rules = (*_SCHEMA, *_steps(path[:depth]), "x-kubernetes-validations")
        version = _kept(
            version, rules, lambda rule: not named.search(manifest.get_text(rule, "rule"))
        )
    required = (*_SCHEMA, *_steps(path[:-1]), "required")
    version = _kept(version, required, lambda name: name != path[-1])
    column = f".{'.'.join(path)}"
    columns = ("additionalPrinterColumns",)
    return _kept(
        version,
        columns,
        lambda one: not f"{manifest.get_text(one, 'jsonPath')}.".startswith(f"{column}."),
    )


def _kept(
    version: manifest.Manifest, place: Path, stays: Callable[[manifest.JSON], bool]
) -> manifest.Manifest:
    """Return the version with those items of an array that stay, where it has the array."""
    items = manifest.get(version, *place)
    if not isinstance(items, list | tuple):
        return version
    return manifest.put(version, [one for one in items if stays(one)], *place)


_CHOICE: Final = (REF, SELECTOR)
_FIRST: Final = cel.texts([*FIELDS, *_CHOICE])
_INNER: Final = cel.text(SECOND)
_REF: Final = cel.text(REF)
_DOMAIN: Final = cel.text("crossplane.io/")


def _object(holder: str, field: str) -> str:
    """Return the object in a field, an empty one where there is none."""
    value = f"{holder}[{field}]"
    return f"{field} in {holder} && type({value}) == map ? {value} : {{}}"


def _spec(holder: str) -> str:
    return f"{holder} == null ? {{}} : ({_object(holder, cel.text('spec'))})"


def _changed(new: str, old: str, names: str) -> str:
    """Return those of these names under which two objects differ.

    A new object has what an API server fills in, and no composition is no choice.
    """
    defaulted = f"oldObject == null && f in {cel.texts(DEFAULTED)}"
    is_gone = f"f in {old} && !(f in {cel.texts(_CHOICE)})"
    differs = f"f in {new} ? !(f in {old}) || {new}[f] != {old}[f] : {is_gone}"
    return f"{names}.filter(f, !({defaulted}) && ({differs}))"


def _is_marked(mark: str) -> str:
    """Return whether the account's role has a mark of the kind."""
    exports = f"authorizer.group({cel.text(KLUTCH_GROUP)}).resource('apiserviceexports')"
    place = "namespace(request.?namespace.orValue(''))"
    return f"{exports}.{place}.name(variables.kind + ':' + {mark}).check('get').allowed()"


def _written(changed: str, place: str) -> str:
    """Return the changed fields where the machinery of the kind is at this place, else none."""
    return f"{changed}.size() > 0 && {_is_marked(cel.text(place))} ? {changed} : []"


def _named(fields: str, holder: str) -> str:
    return f"({_REF} in {fields} ? [{holder}.{REF}.?name.orValue('')] : [])"


_SECOND: Final = f"spec.{SECOND}"
VARIABLES: Final = (
    ("kind", "request.resource.resource + '.' + request.resource.group"),
    ("new", _spec("object")),
    ("old", _spec("oldObject")),
    ("newer", _object("variables.new", _INNER)),
    ("older", _object("variables.old", _INNER)),
    ("changed", _changed("variables.new", "variables.old", _FIRST)),
    (
        "within",
        _changed(
            "variables.newer",
            "variables.older",
            "(variables.newer.map(f, f) + variables.older.map(f, f))",
        ),
    ),
    ("first", _written("variables.changed", "spec")),
    ("second", _written("variables.within", _SECOND)),
    (
        "machinery",
        "(variables.first.map(f, 'spec.' + f) + "
        f"variables.second.map(f, '{_SECOND}.' + f)).filter(f, !f.endsWith('.{REF}'))",
    ),
    (
        "compositions",
        f"{_named('variables.first', 'variables.new')} + "
        + _named("variables.second", "variables.newer"),
    ),
)
_FREE: Final = cel.either(cel.IS_DELETE, cel.BUILT_IN)
# A check of rights costs a third of what one expression may cost.
KEPT: Final = cel.either(_FREE, f"variables.machinery.all(f, {_is_marked('f')})")
_CHOSEN: Final = cel.either(*(_is_marked(f"'{REF}=' + {one}") for one in (cel.text(ANY), "c")))
CHOSEN: Final = cel.either(_FREE, f"variables.compositions.all(c, {_CHOSEN})")


def _kept_marks(key: str) -> str:
    """Return whether an object has the same of Crossplane's labels, or annotations, as before."""
    new, old = (
        f"({one} == null ? {{}} : {one}.metadata.?{key}.orValue({{}}))"
        for one in ("object", "oldObject")
    )
    return " && ".join(
        f"{one}.all(k, !k.startsWith({_DOMAIN}) || k in {other} && {one}[k] == {other}[k])"
        for one, other in ((new, old), (old, new))
    )


# Compositions place what they compose by them, and `external-name` is another's database.
MARKS_KEPT: Final = cel.either(_FREE, cel.both(_kept_marks("labels"), _kept_marks("annotations")))
