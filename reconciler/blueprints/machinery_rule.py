"""The fields of Crossplane that a space's account may not write, as a CEL expression.

An API server cannot tell which kinds are Crossplane's. The account's role marks them, by names of
objects that cannot be (`machinery.marks`), so the rule is in force with the right to write.
"""

from typing import Final

from reconciler.blueprints import cel, machinery
from reconciler.core.keys import KLUTCH_GROUP

_CHOICE: Final = (machinery.REF, machinery.SELECTOR)
_FIRST: Final = cel.texts([*machinery.FIELDS, *_CHOICE])
_INNER: Final = cel.text(machinery.SECOND)
_REF: Final = cel.text(machinery.REF)
_DOMAIN: Final = cel.text("crossplane.io/")


def _object(holder: str, field: str) -> str:
    """Return the object in a field, an empty one where there is none."""
    held = f"{holder}[{field}]"
    return f"{field} in {holder} && type({held}) == map ? {held} : {{}}"


def _spec(holder: str) -> str:
    return f"{holder} == null ? {{}} : ({_object(holder, cel.text('spec'))})"


def _changed(new: str, old: str, names: str) -> str:
    """Return those of these names under which two objects differ.

    A new object has what an API server fills in, and no composition is no choice.
    """
    defaulted = f"oldObject == null && f in {cel.texts(machinery.DEFAULTED)}"
    is_gone = f"f in {old} && !(f in {cel.texts(_CHOICE)})"
    differs = f"f in {new} ? !(f in {old}) || {new}[f] != {old}[f] : {is_gone}"
    return f"{names}.filter(f, !({defaulted}) && ({differs}))"


def _is_marked(mark: str) -> str:
    """Tell whether the account's role has a mark of the kind."""
    exports = f"authorizer.group({cel.text(KLUTCH_GROUP)}).resource('apiserviceexports')"
    place = "namespace(request.?namespace.orValue(''))"
    return f"{exports}.{place}.name(variables.kind + ':' + {mark}).check('get').allowed()"


def _written(changed: str, place: str) -> str:
    """Return the changed fields where the machinery of the kind is at this place, else none."""
    return f"{changed}.size() > 0 && {_is_marked(cel.text(place))} ? {changed} : []"


def _named(fields: str, holder: str) -> str:
    named = f"[{holder}.{machinery.REF}.?name.orValue('')]"
    return f"({_REF} in {fields} ? {named} : [])"


_SECOND: Final = f"spec.{machinery.SECOND}"
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
        f"variables.second.map(f, '{_SECOND}.' + f)).filter(f, !f.endsWith('.{machinery.REF}'))",
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
_CHOSEN: Final = cel.either(
    *(_is_marked(f"'{machinery.REF}=' + {one}") for one in (cel.text(machinery.ANY), "c"))
)
CHOSEN: Final = cel.either(_FREE, f"variables.compositions.all(c, {_CHOSEN})")


def _kept_marks(key: str) -> str:
    """Tell whether an object has the same of Crossplane's labels, or annotations, as before."""
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
