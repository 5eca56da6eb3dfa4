"""What one form asks for beyond another one: what a plan refuses, and its kind would take.

Refuses to know which of it an API server can be told.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from reconciler.blueprints.offering import forms
from reconciler.blueprints.offering.forms import ANY, MIXED, Form
from reconciler.core.manifest import canonical

Path: TypeAlias = tuple[str, ...]

# What a bound becomes in CEL, by the type that it bounds.
COMPARED: Final = frozenset({"minimum", "maximum", "minLength", "maxLength"})
_WIDER: Final = frozenset({("integer", "number"), ("integer", MIXED), ("string", MIXED)})
_WORDS: Final = frozenset({"title", "description"})


class Aspect(Enum):
    """What is asked for, in the order in which rules are worth their place."""

    REQUIRED = "required"
    ABSENT = "absent"
    FROZEN = "frozen"
    ENUM = "enum"
    BOUND = "bound"
    OTHER = "other"  # nothing that CEL is asked to say


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that a form asks for at a path; `key` and `value` say more, as the aspect wants.

    ENUM: the values. BOUND: keyword and limit, and whether the limit itself is refused. OTHER:
    `key` is the sentence.
    """

    aspect: Aspect
    path: Path
    key: str = ""
    value: Any = None
    sharp: bool = False

    def __str__(self) -> str:
        match self.aspect:
            case Aspect.REQUIRED:
                return "that it has to be there"
            case Aspect.ABSENT:
                return "that it is no parameter"
            case Aspect.FROZEN:
                return "that it cannot be changed"
            case Aspect.ENUM:
                return "which values it may have"
            case Aspect.BOUND:
                return f"its {self.key}"
            case Aspect.OTHER:
                return self.key


def shown(path: Path) -> str:
    """Return a path for people."""
    return ".".join(("parameters", *path))


def differences(narrow: Form, wide: Form, path: Path = ()) -> Iterator[Difference]:
    """Return what `narrow` asks for beyond `wide`."""
    if narrow == wide:
        return
    kinds = forms.type_of(narrow), forms.type_of(wide)
    if kinds[0] == ANY:
        return
    if kinds[1] == ANY:
        yield _other(path, "its type and all that it holds")
        return
    if kinds[0] != kinds[1] and kinds not in _WIDER:
        yield _other(path, f"that it is {kinds[0]}, and not {kinds[1]}")
        return
    if kinds[0] != kinds[1]:
        yield _other(path, f"that it is {kinds[0]}")
    if wide.get("nullable") and not narrow.get("nullable"):
        yield _other(path, "that it is not null")
    yield from _of_values(narrow, wide, path)
    if kinds[0] == "object":
        yield from _of_objects(narrow, wide, path)
    if kinds[0] == "array":
        yield from _inside(narrow["items"], wide["items"], (*path, "[]"))


def _other(path: Path, what: str) -> Difference:
    return Difference(Aspect.OTHER, path, what)


def _of_values(narrow: Form, wide: Form, path: Path) -> Iterator[Difference]:
    if "enum" in narrow:
        allowed = {canonical(value) for value in wide.get("enum", narrow["enum"])}
        if "enum" not in wide or allowed - {canonical(value) for value in narrow["enum"]}:
            yield Difference(Aspect.ENUM, path, value=tuple(narrow["enum"]))
    for keys, stricter in ((forms.LOWER, float.__gt__), (forms.UPPER, float.__lt__)):
        for key in keys:
            if key not in narrow:
                continue
            sharp = bool(narrow.get(forms.EXCLUSIVE.get(key, "")))
            same = narrow[key] == wide.get(key)
            looser = same and (wide.get(forms.EXCLUSIVE.get(key, "")) or not sharp)
            if looser or (
                key in wide and not same and not stricter(float(narrow[key]), float(wide[key]))
            ):
                continue
            if key in COMPARED:
                yield Difference(Aspect.BOUND, path, key, narrow[key], sharp)
            else:
                yield _other(path, f"its {key}")
    for key in forms.ALIKE:
        if key in narrow and narrow[key] != wide.get(key):
            yield _other(path, f"its {key}")


def _of_objects(narrow: Form, wide: Form, path: Path) -> Iterator[Difference]:
    own = forms.properties_of(narrow)
    for name, inner in forms.properties_of(wide).items():
        if name in own:
            yield from differences(own[name], inner, (*path, name))
        elif forms.values_of(narrow) is not None:
            yield from differences(forms.values_of(narrow) or {}, inner, (*path, name))
        elif forms.WELCOMING not in narrow:
            yield Difference(Aspect.ABSENT, (*path, name))
    for name in sorted(forms.required_of(narrow) - forms.required_of(wide)):
        yield Difference(Aspect.REQUIRED, (*path, name))
    values, wider = forms.values_of(narrow), forms.values_of(wide)
    if values is not None and wider is not None:
        yield from _inside(values, wider, (*path, "*"))
    elif not forms.is_closed(wide) and (forms.is_closed(narrow) or values is not None):
        yield _other(path, "that it has no other properties")


def _inside(narrow: Form, wide: Form, path: Path) -> Iterator[Difference]:
    """Return the differences of what there may be several of: no rule reaches there."""
    for one in differences(narrow, wide, path):
        yield one if one.aspect is Aspect.OTHER else _other(one.path, str(one))


def frozen(create: Form, update: Form, path: Path = ()) -> Iterator[Difference]:
    """Return what of `create` an update does not name: scalars cannot be changed then."""
    if forms.WELCOMING in update or forms.values_of(update) is not None:
        return
    named = forms.properties_of(update)
    for name, inner in forms.properties_of(create).items():
        if name not in named:
            yield from _leaves(inner, (*path, name))
        elif forms.type_of(inner) == forms.type_of(named[name]) == "object":
            yield from frozen(inner, named[name], (*path, name))


def _leaves(form: Form, path: Path) -> Iterator[Difference]:
    kind = forms.type_of(form)
    if kind == "object" and forms.is_closed(form):
        for name, inner in forms.properties_of(form).items():
            yield from _leaves(inner, (*path, name))
    elif kind in (ANY, "array", "object"):
        yield _other(path, "that it cannot be changed, as it is no scalar")
        for name, inner in forms.properties_of(form).items():
            yield from _leaves(inner, (*path, name))
    else:
        yield Difference(Aspect.FROZEN, path)
