"""The status of a ServiceBroker: whether it answers, offers the generated kinds, and forgets
nothing.
"""

from dataclasses import dataclass
from typing import Final

from bind.osb.decisions import causes, record
from reconciler.api.osb import BrokerSpec, GeneratedKind
from reconciler.blueprints.offering.catalogue import Catalogue
from reconciler.core import conditions, keys
from reconciler.core.conditions import Condition
from reconciler.core.decision import Decision
from reconciler.core.manifest import Manifest, get_text, name_of

_NAMED: Final = 5  # things that a message names


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A ServiceBroker, and what is known of its broker.

    `fault` says why its calls wait, `problem` why its catalogue could not be read the last time;
    `catalogue` is the last good one. `troubles` say why claims of its kinds cannot be read.
    """

    spec: BrokerSpec
    fault: str = ""
    problem: str = ""
    catalogue: Catalogue | None = None
    kinds: tuple[GeneratedKind, ...] = ()
    troubles: tuple[str, ...] = ()
    records: tuple[Manifest, ...] = ()


def decide(state: BrokerState) -> Decision:
    return Decision(conditions=tuple(state_of(state) for state_of in _CONDITIONS))


def _reachable(state: BrokerState) -> Condition:
    problem = state.fault or (state.problem if state.catalogue is None else "")
    if problem:
        return conditions.false(causes.UNREACHABLE, problem)
    return conditions.true(causes.REACHABLE)


def _in_sync(state: BrokerState) -> Condition:
    """Say what the files have and the live catalogue has not, and the other way round."""
    if state.catalogue is None or state.problem:
        message = state.problem or "it was not read yet"
        return conditions.false(causes.CATALOG_UNREAD, f"{message}; the last good one holds")
    missing = sorted(name for kind in state.kinds for name in _missing(kind, state.catalogue))
    known = {kind.offering for kind in state.kinds}
    new = sorted(each.name for each in state.catalogue.offerings if each.id not in known)
    chosen = {choice.name for choice in state.spec.offerings}
    new = [name for name in new if not chosen or name in chosen]
    if not missing and not new:
        return conditions.true(causes.CATALOG_IN_SYNC)
    words = []
    if missing:
        words.append(f"gone from the catalogue: {', '.join(missing[:_NAMED])}")
    if new:
        words.append(f"not generated yet: {', '.join(new[:_NAMED])}")
    message = f"{'; '.join(words)}; run `klutchctl catalog` again"
    return conditions.false(causes.CATALOG_DIFFERS, message)


def _missing(kind: GeneratedKind, catalogue: Catalogue) -> list[str]:
    if kind.is_binding:
        return []
    offering = catalogue.offering(kind.offering)
    if offering is None:
        return [f"offering {kind.offering} of {kind.kind.kind}"]
    return [
        f"plan {name} of {offering.name}"
        for name, plan_id in kind.plans.items()
        if offering.plan(plan_id) is None
    ]


def _kinds_served(state: BrokerState) -> Condition:
    """Say of which kinds nothing is served, because nobody knows which claims there are."""
    if state.troubles:
        return conditions.false(causes.CLAIMS_UNREAD, "; ".join(state.troubles[:_NAMED]))
    return conditions.true(causes.KINDS_SERVED)


def _no_orphans(state: BrokerState) -> Condition:
    orphans = sorted(
        name_of(each)
        for each in state.records
        if get_text(each, "spec", "state") == record.ORPHANED
    )
    if not orphans:
        return conditions.true(causes.NO_ORPHANS)
    message = (
        f"{len(orphans)} records have no claim: {', '.join(orphans[:_NAMED])}; annotation "
        f"{keys.OSB_ORPHAN} on each says Adopt, Deprovision or Forget"
    )
    return conditions.false(causes.ORPHANS, message)


_CONDITIONS: Final = (_reachable, _in_sync, _kinds_served, _no_orphans)
