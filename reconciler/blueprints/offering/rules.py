"""Rules in CEL on the spec of a generated kind: what each plan asks for beyond the common form.

A rule reads only what is there, and only through plain objects; names are escaped as CRDs want it.
Refuses to know catalogues.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from reconciler.blueprints import cel
from reconciler.blueprints.offering import forms
from reconciler.blueprints.offering.differences import Aspect, Difference, Path, shown
from reconciler.blueprints.offering.forms import ANY, Form
from reconciler.core.manifest import JSON

MOST: Final = 200  # of a CRD
_LONGEST: Final = 60_000  # characters of a rule; CEL's parser reads 100,000
_LONGEST_MESSAGE: Final = 500
_NAMES_SHOWN: Final = 5

_ACCESSIBLE: Final = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*")
_KEYWORDS: Final = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for"),
        *("function", "if", "import", "let", "loop", "package", "namespace", "return"),
        *("var", "void", "while"),
    )
)
_ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_ESCAPED: Final = re.compile(r"__|[./-]")
# Texts that CEL reads as something else.
_NO_TEXT: Final = frozenset({"date", "date-time"})
_LENGTHS: Final = frozenset({"minLength", "maxLength"})

Asked: TypeAlias = tuple[frozenset[str], Difference]
"""Plans, and what each of them asks for."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A validation of a CRD."""

    rule: str
    message: str

    @property
    def wire(self) -> dict[str, JSON]:
        """The rule as a CRD has it."""
        return {"rule": self.rule, "message": self.message}


def escaped(name: str) -> str | None:
    """Return a property's name as CEL reads it; None where it cannot be read."""
    if not _ACCESSIBLE.fullmatch(name):
        return None
    if name in _KEYWORDS:
        return f"__{name}__"
    return _ESCAPED.sub(lambda found: _ESCAPES[found[0]], name)


def immutable(name: str) -> Rule:
    """Return that an optional property of the spec is not changed, added or taken away."""
    there = f"has(self.{name}) == has(oldSelf.{name})"
    same = f"(!has(self.{name}) || self.{name} == oldSelf.{name})"
    return Rule(f"{there} && {same}", f"{name} is immutable")


def fixed_plans(fixed: Collection[str], plans: Collection[str]) -> Rule | None:
    """Return that instances of some plans stay in them."""
    if not fixed or len(plans) < 2:
        return None
    if set(fixed) == set(plans):
        return Rule("self == oldSelf", "the plan cannot be changed")
    listed = cel.texts(fixed)
    message = f"an instance of plan {names(fixed)} stays in it"
    return Rule(f"self == oldSelf || !(oldSelf in {listed})", message)


def of_plans(
    asked: Iterable[Asked], form: Form, plans: frozenset[str], *, most: int
) -> tuple[list[Rule], list[Asked]]:
    """Return rules for what plans ask for beyond a form, and what no rule says.

    There are `most` rules, those of the first aspects first.
    """
    grouped: dict[tuple[int, Path], list[Asked]] = defaultdict(list)
    lost: list[Asked] = []
    order = list(Aspect)
    for one in asked:
        if _can_say(one[1], form):
            grouped[order.index(one[1].aspect), one[1].path].append(one)
        else:
            lost.append(one)
    rules: list[Rule] = []
    for key in sorted(grouped, key=lambda key: (key[0], len(key[1]), key[1])):
        rule = _rule(grouped[key], form, plans)
        if len(rules) < most and len(rule.rule) <= _LONGEST:
            rules.append(rule)
        else:
            lost += grouped[key]
    return rules, lost


def names(plans: Collection[str]) -> str:
    """Return the names of plans for people, the first few of many."""
    listed = sorted(plans)
    more = len(listed) - _NAMES_SHOWN
    text = ", ".join(listed[:_NAMES_SHOWN])
    return f"{text} and {more} more" if more > 0 else text


def _can_say(difference: Difference, form: Form) -> bool:
    """Tell whether a rule can read what it is about, in the form that all plans share."""
    if difference.aspect is Aspect.OTHER:
        return False
    for step in difference.path[:-1]:
        inner = forms.properties_of(form).get(step)
        if inner is None or inner.get("nullable") or escaped(step) is None:
            return False
        form = inner
    leaf = forms.properties_of(form).get(difference.path[-1])
    if leaf is None or escaped(difference.path[-1]) is None or not _is_visible(leaf):
        return False
    if difference.aspect in (Aspect.ENUM, Aspect.BOUND):
        return not leaf.get("nullable") and leaf.get("format") not in _NO_TEXT
    return True


def _is_visible(form: Form) -> bool:
    """Tell whether CEL sees a property of this form: it has a type, and what it holds, too."""
    kind = forms.type_of(form)
    if kind == "array":
        return _is_visible(form["items"])
    values = forms.values_of(form)
    return kind != ANY and (values is None or _is_visible(values))


def _rule(asked: Sequence[Asked], form: Form, plans: frozenset[str]) -> Rule:
    difference = asked[0][1]
    place = [
        f"self.{'.'.join(('parameters', *map(_name, difference.path[:depth])))}"
        for depth in range(len(difference.path) + 1)
    ]
    if difference.aspect is Aspect.FROZEN:
        return _frozen_rule(asked, place, plans)
    if difference.aspect is Aspect.REQUIRED:
        last = f"has({place[-1]})"
        tests = {last if len(place) > 2 else f"has({place[0]}) && {last}": _plans(asked)}
        guards = [f"!has({one})" for one in place[:-1]] if len(place) > 2 else []
    elif difference.aspect is Aspect.ABSENT:
        tests = {"false": _plans(asked)}
        guards = [f"!has({one})" for one in place]
    else:
        tests = _tests(asked, place[-1], forms.type_of(_leaf(form, difference.path)))
        guards = [f"!has({one})" for one in place]
    head = "".join(f"{guard} || " for guard in guards)
    if len(tests) == 1:
        ((test, of),) = tests.items()
        text = _outside(of, plans, "" if test == "false" else test, head)
    else:
        text = (
            f"{head}({' && '.join(f'({_outside(of, plans, test)})' for test, of in tests.items())})"
        )
    return Rule(text, _message(difference, _plans(asked)))


def _name(step: str) -> str:
    return escaped(step) or step


def _leaf(form: Form, path: Path) -> Form:
    for step in path:
        form = forms.properties_of(form)[step]
    return form


def _plans(asked: Iterable[Asked]) -> frozenset[str]:
    return frozenset[str]().union(*(of for of, _ in asked))


def _outside(of: frozenset[str], plans: frozenset[str], test: str, head: str = "") -> str:
    """Return that the plan is none of these, or that the test holds."""
    others = plans - of
    if not others:
        return f"{head}{test}" if test else head.removesuffix(" || ")
    few = f"self.plan in {cel.texts(others)}"
    if len(of) < len(others):
        few = f"!(self.plan in {cel.texts(of)})"
    parts = [few, head.removesuffix(" || "), test]
    return " || ".join(
        part if part is not test or " && " not in part else f"({part})" for part in parts if part
    )


def _tests(asked: Iterable[Asked], place: str, kind: str) -> dict[str, frozenset[str]]:
    """Return tests of a value, each with the plans that ask for it."""
    found: dict[str, frozenset[str]] = {}
    for plans, difference in asked:
        test = _test(difference, place, kind)
        found[test] = found.get(test, frozenset()) | plans
    return found


def _test(difference: Difference, place: str, kind: str) -> str:
    if difference.aspect is Aspect.ENUM:
        return f"{place} in [{', '.join(_literal(one, kind) for one in difference.value)}]"
    lower = difference.key.startswith("min")
    sign = (">" if lower else "<") + ("" if difference.sharp else "=")
    if difference.key in _LENGTHS:
        return f"size({place}) {sign} {difference.value}"
    if kind == "integer" and not float(difference.value).is_integer():
        return f"double({place}) {sign} {float(difference.value)!r}"
    return f"{place} {sign} {_literal(difference.value, kind)}"


def _literal(value: Any, kind: str) -> str:
    if isinstance(value, str):
        return cel.text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(float(value)) if kind == "number" else repr(value)


def _frozen_rule(asked: Sequence[Asked], place: Sequence[str], plans: frozenset[str]) -> Rule:
    of = _plans(asked)
    there = " && ".join(f"has({one})" for one in place)
    before = there.replace("has(self.", "has(oldSelf.")
    old = place[-1].replace("self.", "oldSelf.", 1)
    same = f"({there} ? {before} && {place[-1]} == {old} : !({before}))"
    outside = (
        ""
        if of == plans
        else (f"!(self.plan in {cel.texts(of)}) || !(oldSelf.plan in {cel.texts(of)}) || ")
    )
    return Rule(outside + same, _message(asked[0][1], of))


def _message(difference: Difference, plans: frozenset[str]) -> str:
    of = f"plan {names(plans)}"
    sentence = {
        Aspect.REQUIRED: f"is required by {of}",
        Aspect.ABSENT: f"is no parameter of {of}",
        Aspect.FROZEN: f"cannot be changed with {of}",
        Aspect.ENUM: f"is none of the values of {of}",
        Aspect.BOUND: f"is out of the bounds of {of}",
    }.get(difference.aspect, str(difference))
    return f"{shown(difference.path)} {sentence}"[:_LONGEST_MESSAGE]
