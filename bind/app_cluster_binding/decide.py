"""Decides the objects and status of an AppClusterBinding (protocol-bind.md C.6). Pure.

A decision never writes into a Namespace before it is proven to be the binding space of this very
AppClusterBinding: its ClusterBinding, of which a Namespace can hold only one, is the proof. So
the first look makes the Namespace and the ClusterBinding, and the next one the rest.

The konnector's Deployment there (step 6) is applied field by field, so that what others set beside
ours stays; how many replicas there are is decided once, and then by whoever scales it (F34).
Whether it is deployed is what the Deployment says of itself (F48).
"""

import itertools
from dataclasses import replace
from datetime import datetime
from typing import Final

from bind.app_cluster_binding import cleanup, facts, services, space
from bind.app_cluster_binding.facts import Seen, Space, Terms
from bind.app_cluster_binding.space import Ownership
from reconciler.api import APP_CLUSTER_BINDING
from reconciler.blueprints import konnector
from reconciler.blueprints.objects import with_defaults
from reconciler.core import conditions, field_set, keys, manifest
from reconciler.core.conditions import UNKNOWN, Condition
from reconciler.core.decision import NOTHING, Apply, Decision, Step, preconditions_of, writes
from reconciler.core.field_set import created_to_applied
from reconciler.core.manifest import Manifest, finalizers_of, is_deleting
from reconciler.core.normalize import normalize
from reconciler.core.refs import DEPLOYMENT
from reconciler.core.server_side_apply import unstated

_FAILED: Final = conditions.KONNECTOR_DEPLOYMENT_FAILED
_FEW: Final = 5  # fields that a message names
_PROGRESSING: Final = facts.KONNECTOR_PROGRESSING
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


def deployed(seen: Seen, space: Space, terms: Terms) -> Decision:
    """Return the part that makes the Deployment as spec.konnector has it, or takes it away."""
    if not seen.deploys:
        return removed(space, terms)
    overrides = manifest.get_map(seen.app_cluster_binding, "spec", "konnector", "overrides")
    live = space.deployment
    image = konnector.image_of(overrides, terms.konnector_image or konnector.image_in(live or {}))
    obstacle = _obstacle(seen, terms, overrides, image)
    if obstacle is not None:
        return Decision(conditions=(obstacle,))
    if live is not None and manifest.is_deleting(live):
        return facts.trouble(_PROGRESSING, "Waiting until the former konnector is gone.")
    stated = _stated(seen, terms, overrides, image, live)
    if live is not None and _is_as(live, stated):
        found = availability(live)
        return Decision(conditions=() if found is None else (found,))
    waiting = conditions.false(_PROGRESSING, "Waiting for the konnector to start.")
    return replace(writes(*_apply(stated, live, terms), failure=_FAILED), conditions=(waiting,))


def _obstacle(seen: Seen, terms: Terms, overrides: Manifest, image: str) -> Condition | None:
    """Return the reason why nothing is deployed, or None. A present Deployment stays as it is."""
    if not seen.deployments_served:
        return conditions.false(
            _FAILED,
            "The control plane serves no Deployments (apps/v1): run the konnector elsewhere and"
            " set spec.konnector.deploy to false.",
        )
    if not image:
        return conditions.false(
            _FAILED,
            "No image is known: have the operator of the control plane start klutch-bind with"
            " --konnector-image.",
        )
    found = (
        ()
        if terms.all_overrides
        else konnector.refused_overrides(
            overrides, seen.secret_name, terms.konnector_image_prefixes, terms.konnector_image
        )
    )
    refused = [f"spec.konnector.overrides.{path}" for path in itertools.islice(found, _FEW)]
    if not refused:
        return None
    message = (
        f"Not allowed: {', '.join(refused)}. Overrides may set {konnector.ALLOWED_OVERRIDES}, and"
        f" variables may come from Secret {seen.secret_name} alone, an image from"
        f" {' or below '.join((terms.konnector_image, *terms.konnector_image_prefixes))}. Take that"
        " out, or have the operator of the control plane start klutch-bind with"
        " --konnector-image-prefix, or --konnector-overrides=All."
    )
    return conditions.false(facts.OVERRIDE_NOT_ALLOWED, message)


def removed(space: Space, terms: Terms) -> Decision:
    """Return the part that takes the Deployment away."""
    if space.deployment is None:
        return Decision()
    waiting = conditions.false(_PROGRESSING, "Waiting until the konnector is gone.")
    going = terms.deletions([(DEPLOYMENT, space.deployment)], _FAILED)
    return replace(going, conditions=(waiting,))


def availability(live: Manifest) -> Condition | None:
    """Return why a Deployment does not serve in its present form, or None."""
    by_type = {each.type: each for each in conditions.of(live)}
    seen_generation = manifest.get_int(live, "status", "observedGeneration") or 0
    if seen_generation < (manifest.get_int(live, "metadata", "generation") or 0):
        return conditions.false(
            _PROGRESSING, "Waiting for the konnector's Deployment to be noticed."
        )
    for found, bad in (("Progressing", conditions.FALSE), ("ReplicaFailure", conditions.TRUE)):
        each = by_type.get(found)
        if each is not None and each.status == bad:
            message = f"Deployment {manifest.name_of(live)}: {each.message or each.reason}"
            return conditions.false(_FAILED, message)
    wanted = manifest.get_int(live, "spec", "replicas")
    wanted = 1 if wanted is None else wanted
    updated = manifest.get_int(live, "status", "updatedReplicas") or 0
    available = by_type.get("Available")
    if updated >= wanted and available is not None and available.status == conditions.TRUE:
        return None
    ready = min(updated, manifest.get_int(live, "status", "availableReplicas") or 0)
    message = f"{ready} of {wanted} replicas of the konnector are available."
    return conditions.false(_PROGRESSING, message)


def _stated(
    seen: Seen, terms: Terms, overrides: Manifest, image: str, live: Manifest | None
) -> Manifest:
    namespace, name = seen.place
    place = konnector.SpaceKonnector(namespace, name, seen.space_name, seen.secret_name)
    scaled = None if live is None else manifest.get_int(live, "spec", "replicas")
    return konnector.space_deployment(
        place,
        image=image,
        overrides=overrides,
        replicas=konnector.REPLICAS if scaled is None else scaled,
        confined=not terms.all_overrides,
        forced=terms.networks.environment,
    )


def _is_as(live: Manifest, stated: Manifest) -> bool:
    complete = with_defaults(stated)
    written = field_set.owned(live, keys.MANAGER_BACKEND)
    return manifest.covers(normalize(live), normalize(stated)) and not unstated(
        written, live=live, stated=complete
    )


def _apply(stated: Manifest, live: Manifest | None, terms: Terms) -> tuple[Step, ...]:
    """Apply to exactly the Deployment that was looked at.

    What the original wrote becomes ours first: a probe or a variable of its making could not be
    taken away otherwise (mapping.md 0, Field removal).
    """
    if live is None:
        return (Apply(DEPLOYMENT, stated),)
    moved = created_to_applied(
        live, manager=keys.MANAGER_BACKEND, from_managers=(keys.MANAGER_ORIGINAL_BACKEND,)
    )
    if moved is None:
        metadata = {**manifest.get_map(stated, "metadata"), **preconditions_of(live)}
        return (Apply(DEPLOYMENT, manifest.put(stated, metadata, "metadata")),)
    owners = manifest.get(moved[-1], "value")
    return (
        terms.change(DEPLOYMENT, live, metadata={"managedFields": owners}),
        Apply(DEPLOYMENT, manifest.put(stated, manifest.uid_of(live), "metadata", "uid")),
    )


def decide(seen: Seen, *, terms: Terms, now: datetime) -> Decision:
    """Return all that follows from one look.

    It is worth another look whenever something in `seen` changes, and after `again`.
    """
    live = seen.app_cluster_binding
    has_finalizer = keys.APP_CLUSTER_BINDING_CLEANUP in finalizers_of(live)
    if is_deleting(live):
        return cleanup.decide(seen, terms=terms, now=now) if has_finalizer else NOTHING
    return _serve(seen, terms, now) if has_finalizer else _finalizer(live, terms)


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
        deployed(seen, here, terms),
    )
    return facts.summed_up(live, Decision.merge(parts), judged=_JUDGED)


def _without_kubeconfig(seen: Seen, terms: Terms, now: datetime, wrong: Condition) -> Decision:
    """Make nothing, and remove unwanted objects: that needs no kubeconfig."""
    beside = (_RETIRED,) if seen.is_retired else ()
    parts, judged = [Decision(conditions=() if beside else (wrong,))], set[str]()
    here, unusable = _proven(seen), _unusable(seen)
    if unusable is not None:
        parts.append(unusable)
    elif here is not None:
        parts.append(services.pruned(seen, here, terms, now))
        if not seen.deploys:
            parts.append(removed(here, terms))
            judged.add(conditions.KONNECTOR_DEPLOYED)
        elif here.deployment is not None and terms.networks.deny:
            # One that runs already still has to learn where its kubeconfig may not lead.
            parts.append(deployed(seen, here, terms))
            judged.add(conditions.KONNECTOR_DEPLOYED)
    part = Decision.merge(parts)
    types = [each for each in _JUDGED if each in judged | _types(part)]
    return facts.summed_up(seen.app_cluster_binding, part, judged=types, beside=beside)


def _unusable(seen: Seen) -> Decision | None:
    """Return why the Namespace of this name cannot be the binding space, or None."""
    wrong = space.name_problem(seen)
    if wrong:
        return facts.trouble(facts.SPACE_NAME_INVALID, wrong)
    verdict = space.verdict(seen)
    if verdict.standing is Ownership.TAKEN:
        return facts.trouble(facts.SPACE_TAKEN, verdict.reason)
    if seen.space is not None and is_deleting(seen.space.namespace):
        message = f"Waiting until Namespace {seen.space_name}, which is being deleted, is gone."
        return facts.trouble(facts.SPACE_TERMINATING, message)
    return None


def _proven(seen: Seen) -> Space | None:
    return seen.space if space.verdict(seen).standing is Ownership.OURS else None


def _types(part: Decision) -> set[str]:
    return {each.type for each in part.conditions}
