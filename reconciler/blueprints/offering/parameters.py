"""The parameters of an offering: one form for all of its plans, and rules for what each refuses.

Nothing is lost in silence: what neither says is a warning. Refuses to know CRDs.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from reconciler.blueprints.offering import forms, rules
from reconciler.blueprints.offering.catalogue import Plan, Schemas
from reconciler.blueprints.offering.differences import (
    Aspect,
    Difference,
    differences,
    frozen,
    shown,
)
from reconciler.blueprints.offering.forms import FREE, Form
from reconciler.blueprints.offering.json_schema import Note, Reading, read
from reconciler.blueprints.offering.rules import Asked, Rule
from reconciler.core.manifest import JSON, digest

_PATH: Final = "parameters"


@dataclass(frozen=True, slots=True)
class PlanParameters:
    """What parameters a plan takes; `frozen` cannot be changed once an instance is there."""

    form: Form
    frozen: tuple[Difference, ...] = ()
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True)
class Parameters:
    """What parameters a kind takes. `warnings` name plans, path, and what became of it."""

    form: Form
    rules: tuple[Rule, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of a form there is place for: levels, and words."""

    depth: int
    words: bool = True

    def of(self, form: Form) -> Form:
        """Return as much of a form."""
        return forms.cut(form if self.words else forms.silent(form), self.depth)


def of_plan(schemas: Schemas) -> PlanParameters:
    """Return what a plan takes when an instance is made or changed."""
    create = read(schemas.create, _PATH)
    update = read(schemas.update, _PATH) if schemas.update is not None else Reading(FREE)
    if not forms.properties_of(update.form) and not forms.is_closed(update.form):
        # Says nothing of what may be changed.
        return PlanParameters(create.form, notes=create.notes)
    form = forms.common(create.form, update.form, named=True)
    notes = [*create.notes, *update.notes]
    for reading in (create, update):
        for one in differences(reading.form, form):
            if one.aspect is not Aspect.ABSENT and not (
                one.aspect is Aspect.REQUIRED and reading is create and len(one.path) == 1
            ):
                what = f"{one} differs for creating and updating: dropped"
                notes.append(Note(shown(one.path), what))
    required = sorted(forms.required_of(create.form))
    form = {key: value for key, value in form.items() if key != "required"}
    kept = [] if schemas.create is None else list(frozen(create.form, update.form))
    return PlanParameters(
        form | ({"required": required} if required else {}),
        tuple(one for one in kept if one.aspect is Aspect.FROZEN),
        (
            *dict.fromkeys(notes),
            *(Note(shown(one.path), str(one)) for one in kept if one.aspect is Aspect.OTHER),
        ),
    )


def of_instances(plans: Sequence[Plan], extent: Extent, *, most: int) -> Parameters:
    """Return what instances take in all these plans, with `most` rules at most."""
    groups = _alike(plans, lambda schemas: [schemas.create, schemas.update])
    taken = {names: of_plan(schemas) for names, schemas in groups.items()}
    cut = {names: extent.of(one.form) for names, one in taken.items()}
    form = reduce(lambda one, other: forms.common(one, other, named=True), cut.values())
    asked: list[Asked] = []
    for names, one in taken.items():
        asked += [(names, found) for found in differences(cut[names], form)]
        asked += [(names, found) for found in one.frozen]
    said, lost = rules.of_plans(asked, form, frozenset(plan.name for plan in plans), most=most)
    notes = [(names, note) for names, one in taken.items() for note in one.notes]
    return Parameters(form, tuple(said), (*_noted(notes), *_lost(lost)))


def of_bindings(plans: Sequence[Plan], extent: Extent) -> Parameters:
    """Return what bindings take, which do not say in which plan their instance is."""
    groups = _alike(plans, lambda schemas: [schemas.bind])
    read_ = {names: read(schemas.bind, _PATH) for names, schemas in groups.items()}
    cut = {names: extent.of(one.form) for names, one in read_.items()}
    form = reduce(lambda one, other: forms.common(one, other, named=True), cut.values())
    lost: list[Asked] = [
        (names, one) for names, own in cut.items() for one in differences(own, form)
    ]
    notes = [(names, note) for names, one in read_.items() for note in one.notes]
    held = [rules.immutable(_PATH)] if rules.is_visible(form) else []
    if not held:
        of = frozenset(plan.name for plan in plans)
        lost.append((of, Difference(Aspect.FROZEN, ())))
    return Parameters(form, tuple(held), (*_noted(notes), *_lost(lost)))


def _alike(
    plans: Iterable[Plan], part: Callable[[Schemas], list[JSON]]
) -> dict[frozenset[str], Schemas]:
    """Return the schemas of plans, once for those of which the part is equal, by their names."""
    groups: dict[str, list[Plan]] = defaultdict(list)
    for plan in sorted(plans, key=lambda plan: plan.name):
        groups[digest(part(plan.schemas))].append(plan)
    return {frozenset(plan.name for plan in group): group[0].schemas for group in groups.values()}


def _noted(notes: Iterable[tuple[frozenset[str], Note]]) -> list[str]:
    return [f"plan {rules.names(plans)}: {note.path}: {note.what}" for plans, note in notes]


def _lost(lost: Iterable[Asked]) -> list[str]:
    found: dict[str, set[str]] = defaultdict(set)
    for plans, difference in lost:
        found[f"{shown(difference.path)}: {difference} is not checked"] |= plans
    return [f"plan {rules.names(plans)}: {sentence}" for sentence, plans in found.items()]
