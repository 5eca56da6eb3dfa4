"""What the backend does about one AppClusterBinding (protocol-bind.md C.6). Pure.

A decision never writes into a Namespace before it is proven to be the binding space of this very
AppClusterBinding: its ClusterBinding, of which a Namespace can hold only one, is the proof. So
the first look makes the Namespace and the ClusterBinding, and the next one the rest.
"""

from datetime import datetime
from typing import Final

from bind.app_cluster_binding import cleanup, facts, konnector, ownership, services, space
from bind.app_cluster_binding.facts import Seen, Space, Terms
from bind.app_cluster_binding.ownership import Ownership
from reconciler.api import APP_CLUSTER_BINDING
from reconciler.core import conditions, keys
from reconciler.core.conditions import UNKNOWN, Condition
from reconciler.core.decision import NOTHING, Decision, writes
from reconciler.core.manifest import Manifest, finalizers_of, is_deleting

_JUDGED: Final = (
    conditions.SECRET_VALID,
    facts.SPACE_READY,
    facts.BINDINGS_READY,
    conditions.EXPORTS_READY,
    conditions.KONNECTOR_DEPLOYED,
)
_RETIRED: Final = Condition(
    conditions.SECRET_VALID, UNKNOWN, reason="Released", message="Nothing is bound any more."
)


def decide(seen: Seen, *, terms: Terms, now: datetime) -> Decision:
    """Return all that follows from one look.

    It is worth another look whenever something in `seen` changes, and after `again`.
    """
    live = seen.app_cluster_binding
    held = keys.APP_CLUSTER_BINDING_CLEANUP in finalizers_of(live)
    if is_deleting(live):
        return cleanup.decide(seen, terms=terms, now=now) if held else NOTHING
    if not held:
        return _finalizer(live, terms)
    return _serve(seen, terms, now)


def _finalizer(live: Manifest, terms: Terms) -> Decision:
    """Nothing is made before it is sure that it will be cleaned up."""
    finalizers = [*finalizers_of(live), keys.APP_CLUSTER_BINDING_CLEANUP]
    step = terms.change(APP_CLUSTER_BINDING, live, metadata={"finalizers": finalizers})
    return writes(step, failure=facts.SPACE_FAILED)


def _serve(seen: Seen, terms: Terms, now: datetime) -> Decision:
    live, unusable = seen.app_cluster_binding, _unusable(seen)
    wrong = space.kubeconfig_problem(seen, terms)
    if wrong is not None:
        return _without_kubeconfig(seen, terms, now, wrong)
    if unusable is not None:
        return facts.summed_up(live, unusable, judged=(conditions.SECRET_VALID, facts.SPACE_READY))
    here = _proven(seen)
    if here is None or here.cluster_binding is None:
        made = space.claim(seen, terms)
        return facts.summed_up(live, made, judged=(conditions.SECRET_VALID, *_types(made)))
    parts = (
        space.content(seen, here, terms),
        services.bound(seen, here, terms),
        services.requested(seen, here, terms, now),
        services.pruned(seen, here, terms, now),
        konnector.deployed(seen, here, terms),
    )
    return facts.summed_up(live, Decision.merge(parts), judged=_JUDGED)


def _without_kubeconfig(seen: Seen, terms: Terms, now: datetime, wrong: Condition) -> Decision:
    """Make nothing, and take away what is no longer wanted: that needs no kubeconfig."""
    beside = (_RETIRED,) if seen.is_retired else ()
    parts, judged = [Decision(conditions=() if beside else (wrong,))], set[str]()
    here, unusable = _proven(seen), _unusable(seen)
    if unusable is not None:
        parts.append(unusable)
    elif here is not None:
        parts.append(services.pruned(seen, here, terms, now))
        if not seen.deploys:
            parts.append(konnector.removed(here, terms))
            judged.add(conditions.KONNECTOR_DEPLOYED)
        elif here.deployment is not None and terms.networks.deny:
            # One that runs already still has to learn where its kubeconfig may not lead.
            parts.append(konnector.deployed(seen, here, terms))
            judged.add(conditions.KONNECTOR_DEPLOYED)
    part = Decision.merge(parts)
    types = [each for each in _JUDGED if each in judged | _types(part)]
    return facts.summed_up(seen.app_cluster_binding, part, judged=types, beside=beside)


def _unusable(seen: Seen) -> Decision | None:
    """Return why the Namespace of this name cannot be the binding space, or None."""
    wrong = ownership.name_problem(seen)
    if wrong:
        return facts.trouble(facts.SPACE_NAME_INVALID, wrong)
    verdict = ownership.verdict(seen)
    if verdict.standing is Ownership.TAKEN:
        return facts.trouble(facts.SPACE_TAKEN, verdict.reason)
    if seen.space is not None and is_deleting(seen.space.namespace):
        message = f"Waiting until Namespace {seen.space_name}, which is being deleted, is gone."
        return facts.trouble(facts.SPACE_TERMINATING, message)
    return None


def _proven(seen: Seen) -> Space | None:
    return seen.space if ownership.verdict(seen).standing is Ownership.OURS else None


def _types(part: Decision) -> set[str]:
    return {each.type for each in part.conditions}
