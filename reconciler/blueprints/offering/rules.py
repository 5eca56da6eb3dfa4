"""Rules in CEL on the spec of a generated kind. Refuses to know catalogues."""

from collections.abc import Collection
from dataclasses import dataclass

from reconciler.blueprints import cel
from reconciler.blueprints.offering.words import names
from reconciler.core.manifest import JSON


@dataclass(frozen=True, slots=True)
class Rule:
    """A validation of a CRD."""

    rule: str
    message: str

    @property
    def wire(self) -> dict[str, JSON]:
        """The rule as a CRD has it."""
        return {"rule": self.rule, "message": self.message}


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
