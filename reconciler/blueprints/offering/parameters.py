"""Builds the schema of an offering's parameters, if the schemas of all plans are equal.

Where they are not, an object that `klutch-osb` checks by the claim's plan. Does not know CRDs.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconciler.blueprints import cel
from reconciler.blueprints.offering import structural, validation
from reconciler.blueprints.offering.catalogue import Plan, Schemas
from reconciler.blueprints.offering.outcomes import line, names
from reconciler.blueprints.offering.structural import ANYTHING, FREE, INT_OR_STRING, OPEN, Form
from reconciler.core.manifest import JSON, digest, get_map, get_texts

_FROZEN: Final = "self == oldSelf"
_MOST_FROZEN: Final = 100  # a CRD takes about 300 comparisons of texts without a bound


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a kind. `words` name those of each plan, where they differ."""

    form: Form
    words: str = ""
    warnings: tuple[str, ...] = ()


def of_instances(plans: Sequence[Plan]) -> Parameters:
    def parts(schemas: Schemas) -> dict[str, JSON]:
        return {"create": schemas.create, "update": schemas.update}

    return _of(plans, parts, _form)


def of_bindings(plans: Sequence[Plan]) -> Parameters:
    """Return what bindings take, which do not say in which plan their instance is."""

    def form(schemas: Schemas) -> Form:
        return structural.form_of(schemas.bind)

    return _of(plans, lambda schemas: {"bind": schemas.bind}, form)


def _of(
    plans: Sequence[Plan],
    parts: Callable[[Schemas], dict[str, JSON]],
    form: Callable[[Schemas], Form],
) -> Parameters:
    alike: dict[str, list[Plan]] = defaultdict(list)
    for plan in sorted(plans, key=lambda plan: plan.name):
        alike[digest(parts(plan.schemas))].append(plan)
    groups = list(alike.values())
    warnings = tuple(dict.fromkeys(_warnings(groups, parts)))
    if len(groups) == 1:
        return Parameters(form(groups[0][0].schemas), warnings=warnings)
    words = (_named(group, parts(group[0].schemas)) for group in groups)
    return Parameters(FREE, line(f"Of plan {'; of plan '.join(words)}."), warnings)


def _warnings(
    groups: Iterable[list[Plan]], parts: Callable[[Schemas], dict[str, JSON]]
) -> Iterator[str]:
    for group in groups:
        for part, schema in parts(group[0].schemas).items():
            for flaw in validation.checked(schema).flaws:
                of = f"plan {names([plan.name for plan in group])}: schema to {part}"
                yield f"{of}: {flaw}: it is left to the broker"


def _named(group: Sequence[Plan], parts: dict[str, JSON]) -> str:
    named = sorted({name for schema in parts.values() for name in get_map(schema, "properties")})
    return f"{names([plan.name for plan in group])}: {', '.join(named) or 'none is named'}"


def _form(schemas: Schemas) -> Form:
    """Return what a plan takes when an instance is made or changed."""
    create = structural.form_of(schemas.create)
    if schemas.update == schemas.create or not validation.says(schemas.update):
        return create
    update, named = structural.form_of(schemas.update), validation.changeable(schemas)
    first, second = (get_map(one, "properties") for one in (create, update))
    found: dict[str, Any] = {}
    for name in sorted(first.keys() | second.keys()):
        one, other = first.get(name), second.get(name)
        found[name] = one or other if one is None or other is None or one == other else ANYTHING
    frozen = [
        name
        for name, one in found.items()
        if named is not None and name not in named and _is_scalar(one)
    ]
    for name in frozen[:_MOST_FROZEN]:
        rule = {"rule": _FROZEN, "message": f"{name} cannot be changed"}
        found[name] = {**found[name], structural.RULES: [rule]}
    is_closed = all(
        OPEN not in one and "additionalProperties" not in one for one in (create, update)
    )
    required = get_texts(create, "required")
    return {
        "type": "object",
        **({"properties": found} if found else {}),
        **({"required": required} if required else {}),
        **({} if is_closed else {OPEN: True}),
    }


def _is_scalar(form: Any) -> bool:
    is_one = form.get("type") in structural.SCALARS or INT_OR_STRING in form
    return is_one and not form.get("nullable")


@dataclass(frozen=True, slots=True)
class Rule:
    """A validation of a CRD."""

    rule: str
    message: str

    @property
    def wire(self) -> dict[str, JSON]:
        return {"rule": self.rule, "message": self.message}


def immutable(name: str) -> Rule:
    """Return that an optional property of the spec is not changed, added or taken away."""
    there = f"has(self.{name}) == has(oldSelf.{name})"
    same = f"(!has(self.{name}) || self.{name} == oldSelf.{name})"
    return Rule(f"{there} && {same}", f"{name} is immutable")


def fixed_plans(fixed: Collection[str], plans: Collection[str]) -> Rule | None:
    if not fixed or len(plans) < 2:
        return None
    if set(fixed) == set(plans):
        return Rule("self == oldSelf", "the plan cannot be changed")
    listed = cel.texts(fixed)
    message = f"an instance of plan {names(fixed)} stays in it"
    return Rule(f"self == oldSelf || !(oldSelf in {listed})", message)
