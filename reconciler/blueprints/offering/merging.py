"""Merge a catalogue, narrowed by choices, with the content of earlier files.

What is no longer offered stays, with a warning, until narrowing is allowed. What would take
something away from objects that are there is a narrowing, a sentence. Refuses to know files.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from reconciler.api.osb import BrokerSpec, OfferingChoice
from reconciler.blueprints.offering import kinds, parameters
from reconciler.blueprints.offering.catalogue import Catalogue, CatalogueFault, Offering, Plan
from reconciler.blueprints.offering.known import Before, Known, shown_metadata
from reconciler.blueprints.offering.structural import stricter

_STAYS: Final = "is no longer offered: it stays until --allow-narrowing"


@dataclass(slots=True)
class _Merge:
    """A merge as far as it went."""

    catalogue: Catalogue
    held: Before
    allowed: bool
    warnings: list[str] = field(default_factory=list)
    narrowings: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Merged:
    """Offerings by their ids, warnings, and what narrows."""

    known: dict[str, Known]
    warnings: tuple[str, ...] = ()
    narrowings: tuple[str, ...] = ()


def merged(broker: BrokerSpec, catalogue: Catalogue, held: Before, *, allowed: bool) -> Merged:
    """Return what files are made from. Raises CatalogueFault where choices cannot be met."""
    merge = _Merge(catalogue, held, allowed)
    choices = broker.offerings or tuple(
        OfferingChoice(one.name) for one in sorted(catalogue.offerings, key=lambda one: one.name)
    )
    found: dict[str, Known] = {}
    for choice in choices:
        one = _chosen(merge, choice)
        if one is not None:
            found[one.offering.id] = one
    for service, known in sorted(held.known.items()):
        if service not in found and not allowed:
            found[service] = known
            merge.warnings.append(f"offering {known.offering.name} {_STAYS}")
    if held.group and held.group != broker.group:
        merge.narrowings.append(f"the group changes from {held.group} to {broker.group}")
    if merge.faults:
        raise CatalogueFault(merge.faults)
    return Merged(found, tuple(merge.warnings), tuple(merge.narrowings))


def _chosen(merge: _Merge, choice: OfferingChoice) -> Known | None:
    """Return what one choice leaves of the catalogue; None where there is no such offering."""
    known = merge.held.by_name(choice.name)
    current = next((one for one in merge.catalogue.offerings if one.name == choice.name), None)
    if current is None and known is not None:
        current = merge.catalogue.offering(known.offering.id)
        if current is not None:
            merge.warnings.append(f"offering {choice.name} is called {current.name} now")
    if current is None:
        # One that files were made for stays, as others that no choice names.
        if known is None:
            offered = ", ".join(sorted(one.name for one in merge.catalogue.offerings)[:20])
            merge.faults.append(f"there is no offering {choice.name!r}, but {offered or 'none'}")
        return None
    if known is not None and known.offering.id != current.id:
        merge.narrowings.append(f"offering {current.name} has another id: it is another one")
    before = merge.held.known.get(current.id)
    stem = choice.kind or (before.stem if before else "") or kinds.stem_of(current.name)
    plans = _plans(merge, choice, current, before.offering if before else None)
    after = Known(stem, replace(_plain(current), plans=plans))
    if before is not None:
        merge.narrowings += _narrowings(before, after)
    return after


def _plain(offering: Offering) -> Offering:
    """Return just what files follow from."""
    return Offering(
        id=offering.id,
        name=offering.name,
        description=offering.description,
        metadata=shown_metadata(offering.metadata),
    )


def _plans(
    merge: _Merge, choice: OfferingChoice, current: Offering, before: Offering | None
) -> tuple[Plan, ...]:
    """Return the plans of an offering, with those of files, by name."""
    found = {
        one.name: _plain_plan(one)
        for one in current.plans
        if not choice.plans or one.name in choice.plans
    }
    old = {one.name: one for one in before.plans} if before else {}
    for name in sorted(set(choice.plans) - found.keys() - old.keys()):
        merge.faults.append(f"offering {current.name} has no plan {name!r}")
    for name, plan in old.items():
        if name not in found and not merge.allowed:
            living = current.plan(plan.id)
            found[name] = replace(_plain_plan(living), name=name) if living else plan
            merge.warnings.append(f"offering {current.name}: plan {name} {_STAYS}")
        elif name in found and found[name].id != plan.id:
            merge.narrowings.append(f"offering {current.name}: plan {name} has another id")
    if not found:
        merge.faults.append(f"offering {current.name} has none of the plans that are named")
    return tuple(found[name] for name in sorted(found))


def _plain_plan(plan: Plan) -> Plan:
    return Plan(
        id=plan.id,
        name=plan.name,
        description=plan.description,
        bindable=plan.bindable,
        plan_updateable=plan.plan_updateable,
        schemas=plan.schemas,
    )


def _narrowings(before: Known, after: Known) -> Iterator[str]:
    """Return what objects of the kinds could do before, and cannot any more."""
    of = f"offering {after.offering.name}"
    if before.stem != after.stem:
        yield f"{of}: its kinds are called {after.stem}..., and no longer {before.stem}..."
    plans = {plan.name: plan for plan in after.offering.plans}
    for plan in before.offering.plans:
        if plan.name in plans:
            for what in _of_plan(plan, plans[plan.name]):
                yield f"{of}: plan {plan.name}: {what}"


def _of_plan(before: Plan, after: Plan) -> Iterable[str]:
    if before.plan_updateable and not after.plan_updateable:
        yield "instances can no longer leave it"
    if before.bindable and not after.bindable:
        yield "its instances can no longer be bound"
    for of, forms in (("", parameters.of_instances), ("bindings: ", parameters.of_bindings)):
        new, old = (forms([one]).form for one in (after, before))
        yield from (f"{of}{what}" for what in stricter(new, old, "parameters"))
