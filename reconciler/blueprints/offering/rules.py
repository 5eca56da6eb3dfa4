"""Rules in CEL on the spec of a generated kind: what each plan asks for beyond the common form.

A rule reads only what is there, and only through plain objects; names are escaped as CRDs want it.
Refuses to know catalogues.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, TypeAlias

from reconciler.blueprints import cel
from reconciler.blueprints.offering import forms
from reconciler.blueprints.offering.differences import Aspect, Difference, Path, shown
from reconciler.blueprints.offering.forms import ANY, MIXED, Form
from reconciler.core.manifest import JSON

MOST: Final = 200  # of a CRD
_MOST_OCTETS: Final = 150 * 1024  # of all rules, so that forms need not give way to them
_MOST_COSTLY: Final = 200
_LONG: Final = 1000
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

    There are `most` rules at most, those of the first aspects first.
    """
    grouped: dict[tuple[int, int, Path, str, bool], list[Asked]] = defaultdict(list)
    lost: list[Asked] = []
    order = list(Aspect)
    for one in asked:
        about = one[1]
        if _can_say(about, form):
            key = (order.index(about.aspect), len(about.path), about.path, about.key, about.sharp)
            grouped[key].append(one)
        else:
            lost.append(one)
    rules: list[tuple[Aspect, Rule]] = []
    octets = costly = 0
    for _, alike in sorted(grouped.items()):
        rule = _rule(alike, form, plans)
        octets += len(rule.rule)
        costly += _is_costly(alike[0][1], form)
        if octets <= _MOST_OCTETS and costly <= _MOST_COSTLY:
            rules.append((alike[0][1].aspect, rule))
        else:
            lost += alike
    return _packed(rules, most), lost


def _is_costly(difference: Difference, form: Form) -> bool:
    """Tell whether a rule compares texts without a bound, of which a CRD takes about 300."""
    leaf = _leaf(form, difference.path)
    bounded = "enum" in leaf or leaf.get("maxLength", _LONG) < _LONG
    is_text = forms.type_of(leaf) in ("string", MIXED)
    return difference.aspect is Aspect.FROZEN and is_text and not bounded


def _packed(rules: Sequence[tuple[Aspect, Rule]], most: int) -> list[Rule]:
    """Return no more than `most` rules, several of an aspect in one where there are too many."""
    together = -(-len(rules) // most)
    groups = [[rule for _, rule in group] for _, group in groupby(rules, key=lambda one: one[0])]
    while True:
        packs = [
            group[start : start + together]
            for group in groups
            for start in range(0, len(group), together)
        ]
        if len(packs) <= most:
            return [pack[0] if len(pack) == 1 else _joined(pack) for pack in packs]
        together += 1


def _joined(rules: Sequence[Rule]) -> Rule:
    text = " && ".join(f"({one.rule})" for one in rules)
    return Rule(text, f"one of: {'; '.join(one.message for one in rules)}"[:_LONGEST_MESSAGE])


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
    if leaf is None or escaped(difference.path[-1]) is None or not is_visible(leaf):
        return False
    if difference.aspect in (Aspect.ENUM, Aspect.BOUND):
        return not leaf.get("nullable") and leaf.get("format") not in _NO_TEXT
    return True


def is_visible(form: Form) -> bool:
    """Tell whether CEL sees a property of this form: it has a type, and what it holds, too."""
    kind = forms.type_of(form)
    if kind == "array":
        return is_visible(form["items"])
    values = forms.values_of(form)
    return kind != ANY and (values is None or is_visible(values))


def _rule(asked: Sequence[Asked], form: Form, plans: frozenset[str]) -> Rule:
    difference, of = asked[0][1], frozenset[str]().union(*(of for of, _ in asked))
    path = difference.path
    steps = ["self.parameters", *(escaped(step) or step for step in path)]
    place = [".".join(steps[: depth + 1]) for depth in range(len(steps))]
    guards = [f"!has({one})" for one in place]
    if difference.aspect is Aspect.FROZEN:
        text = _same(of, place, plans)
    elif difference.aspect is Aspect.ABSENT:
        text = _outside(of, plans, guards)
    elif difference.aspect is Aspect.REQUIRED and len(path) == 1:
        text = _outside(of, plans, [f"(has({place[0]}) && has({place[1]}))"])
    elif difference.aspect is Aspect.REQUIRED:
        text = _outside(of, plans, [*guards[:-1], f"has({place[-1]})"])
    else:
        text = _outside(of, plans, [*guards, _test(asked, place[-1], form)])
    return Rule(text, _message(difference, of))


def _leaf(form: Form, path: Path) -> Form:
    for step in path:
        form = forms.properties_of(form)[step]
    return form


def _outside(of: frozenset[str], plans: frozenset[str], holds: Sequence[str]) -> str:
    """Return that the plan is none of these, or that something of this holds."""
    others = plans - of
    if not others:
        return " || ".join(holds)
    fewer = len(of) < len(others)
    few = f"!(self.plan in {cel.texts(of)})" if fewer else f"self.plan in {cel.texts(others)}"
    return " || ".join([few, *holds])


def _test(asked: Sequence[Asked], place: str, form: Form) -> str:
    """Return a test of a value: the same for all plans that ask, or looked up by the plan.

    A term for each plan would take an API server seconds to compile.
    """
    first = asked[0][1]
    kind = forms.type_of(_leaf(form, first.path))
    if first.aspect is Aspect.ENUM:
        listed = [
            (of, f"[{', '.join(_item(value, kind) for value in one.value)}]") for of, one in asked
        ]
        return f"{place} in {_looked_up(listed)}"
    sign = (">" if first.key.startswith("min") else "<") + ("" if first.sharp else "=")
    limits = [(of, one.value) for of, one in asked]
    if first.key in _LENGTHS:
        place = f"size({place})"
    elif kind == "number" or not all(float(limit).is_integer() for _, limit in limits):
        place = place if kind == "number" else f"double({place})"
        limits = [(of, float(limit)) for of, limit in limits]
    return f"{place} {sign} {_looked_up([(of, repr(limit)) for of, limit in limits])}"


def _looked_up(literals: Sequence[tuple[frozenset[str], str]]) -> str:
    if len({literal for _, literal in literals}) == 1:
        return literals[0][1]
    by_plan = {plan: literal for of, literal in literals for plan in of}
    pairs = (f"{cel.text(plan)}: {by_plan[plan]}" for plan in sorted(by_plan))
    return f"{{{', '.join(pairs)}}}[self.plan]"


def _literal(value: Any, kind: str) -> str:
    if isinstance(value, str):
        return cel.text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(float(value)) if kind == "number" else repr(value)


def _item(value: Any, kind: str) -> str:
    """Return a literal in a list, which is of one type."""
    return f"dyn({_literal(value, kind)})" if kind == MIXED else _literal(value, kind)


def _same(of: frozenset[str], place: Sequence[str], plans: frozenset[str]) -> str:
    """Return that a value is what it was, with a plan that is one of these and was."""
    there = " && ".join(f"has({one})" for one in place)
    before = there.replace("has(self.", "has(oldSelf.")
    old = place[-1].replace("self.", "oldSelf.", 1)
    same = f"({there} ? {before} && {place[-1]} == {old} : !({before}))"
    if of == plans:
        return same
    listed = cel.texts(of)
    return f"!(self.plan in {listed}) || !(oldSelf.plan in {listed}) || {same}"


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
