"""Releases or deletes a binding without loss: finalizer `klutchctl.dev/drain`.

mapping.md 9, protocol-konnector.md C.7, H15, H33. The finalizer holds bindings with annotation
`deletion-policy` only; others go at once, and are released afterwards.

Release, also of an unknown policy: the sync stops. APIServiceNamespaces are marked, because their
end would end copies of a kind that nobody may list any more. Copies lose `bound` and get
`released`, so that no konnector deletes them. Then instances report that their sync stopped, and
lose their finalizer. They keep `bound`: a bound instance without a copy lost its service, and the
guard against new, empty services (guard.recreations) needs to know that.

Delete, with nothing left on either side: the CRD in the app cluster goes, then the objects that the
provider sent down. This deletes no instance: klutchctl, or a person, does that before. If instances
are left, a backend that will delete the space (annotation `draining`) waits, and the sync
continues, because nobody else can carry their deletion. Otherwise, as where klutchctl replaces a
binding, it is a release.

Each look reads new lists and does a part, so a konnector that died continues where it was. The last
part waits until the control plane reports that nothing is synced, which is klutchctl's proof.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from konnector import APP_CLUSTER, CONTROL_PLANE
from konnector.binding import crd as crd_of
from konnector.claim import copies
from konnector.namespace import decide as namespace_decide
from reconciler import api
from reconciler.api import claim_status
from reconciler.api.claim_status import Stop
from reconciler.blueprints import objects
from reconciler.core import conditions, identity, keys, manifest
from reconciler.core.conditions import ERROR, INFO, WARNING, Cause
from reconciler.core.decision import (
    NOTHING,
    Decision,
    Patch,
    Step,
    deletion,
    modification,
    preconditions_of,
    unfinalized,
    writes,
    writes_each,
)
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import CRD, Kind, Ref

DELETE: Final = "Delete"  # the one policy that is not a release
RELEASE: Final = "Release"
BATCH: Final = 200  # objects of one look
AT_ONCE: Final = timedelta()
SOON: Final = timedelta(seconds=1)
SOMEWHAT_LATER: Final = timedelta(seconds=5)  # while an object goes: no event of it arrives
RECHECK: Final = timedelta(seconds=30)

# Our condition of an APIServiceBinding during its release.
DRAINED: Final = "Drained"
DRAINING: Final = Cause(DRAINED, INFO, "Draining")
DRAIN_WAITING: Final = Cause(DRAINED, WARNING, "DrainWaiting")
DRAIN_FAILED: Final = Cause(DRAINED, ERROR, "DrainFailed")


Object: TypeAlias = tuple[Kind, Manifest]  # an object with its kind, as its cluster serves it


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A binding, and the remains of its sync.

    `cluster` is the cluster that the binding is in, and `kind` what it is there: Klutch up to 1.5.0
    has bindings without namespaces. `mappings` are the APIServiceNamespaces of the space. `copies`
    are the objects of its kind on the control plane, of which those in `service_namespaces`, or
    of a uid in `lives`, are of this space; `instances` are those in the app cluster.
    `copied` are objects there that came down by claims of this binding and of no other live one.
    `crd` is that of the app cluster, with managedFields. `syncing`: some worker of this kind or
    these claims still runs. `reported`: the control plane reports that nothing is synced for this
    binding. `unsure`: why all this may be incomplete.
    """

    cluster: str
    binding: Manifest = field(repr=False)
    kind: Kind = api.API_SERVICE_BINDING
    space: str = ""
    lives: frozenset[str] = frozenset()
    service_namespaces: frozenset[str] = frozenset()
    mappings: Sequence[Manifest] = field(default=(), repr=False)
    copies: Sequence[Object] = field(default=(), repr=False)
    instances: Sequence[Object] = field(default=(), repr=False)
    copied: Sequence[Object] = field(default=(), repr=False)
    crd: Manifest | None = field(default=None, repr=False)
    syncing: bool = False
    reported: bool = False
    unsure: str = ""


def waits(binding: Manifest) -> bool:
    """Return whether a binding waits for its konnector; without its annotation, it does not."""
    return (
        manifest.is_deleting(binding)
        and keys.DRAIN in manifest.finalizers_of(binding)
        and _asks(binding)
    )


def syncs(seen: Seen) -> bool:
    """Return whether objects of this binding are synced, apart from its own deletion."""
    return not manifest.is_deleting(seen.binding) or (waits(seen.binding) and _awaits_deletes(seen))


def decide(seen: Seen, *, now: datetime) -> Decision:
    """Return the next part of the drain, and the condition; nothing where there is no hold."""
    binding = seen.binding
    drains = keys.DRAIN in manifest.finalizers_of(binding)
    if not manifest.is_deleting(binding) or not drains:
        return _marked(seen, drains=drains)
    if not _asks(binding):
        return _let_go(seen)
    if seen.unsure:
        return _waits(f"Nothing is released yet: {seen.unsure}", RECHECK)
    if _awaits_deletes(seen):
        return _in_use(seen)
    if seen.syncing:
        return _drains("Waiting for the sync to stop")
    deletes = _policy(binding) == DELETE and not _left(seen)
    return _deleted(seen) if deletes else _released(seen, now)


def detached(kind: Kind, instance: Manifest) -> Patch | None:
    """Return the patch after which an instance in the app cluster needs no konnector any more.

    For a control plane that is gone for good (H33). Unlike in a release, the instance loses
    `bound`: bound again elsewhere it gets a new service, and nothing was lost there.
    """
    change: dict[str, JSON] = {}
    finalizers = manifest.finalizers_of(instance)
    if keys.SYNCER in finalizers:
        change["finalizers"] = [one for one in finalizers if one != keys.SYNCER]
    if copies.is_managed(instance):
        change["annotations"] = {keys.BOUND: None}
    return modification(APP_CLUSTER, kind, instance, metadata=change) if change else None


def freed(found: Sequence[Object], crd: Manifest | None, now: datetime) -> Decision:
    """Free instances; each first reports that its sync stopped, if its schema has such a status."""
    reports = stopped(found, crd, claim_status.RELEASED, now)
    frees = (unfinalized(APP_CLUSTER, kind, one, keys.SYNCER) for kind, one in found)
    part = writes_each(frees, DRAIN_FAILED)
    return replace(part, tasks=(*reports.tasks, *part.tasks))


def stopped(found: Sequence[Object], crd: Manifest | None, stop: Stop, now: datetime) -> Decision:
    """Report at instances that stay that their sync has stopped, where they do not yet."""
    return writes_each(_report(kind, one, crd, stop, now) for kind, one in found)


def unserved(crd: Manifest | None) -> Patch | None:
    """Return the patch by which an API server warns users of a kind that is synced no more."""
    change = None if crd is None else claim_status.unserved(crd)
    if crd is None or change is None:
        return None
    return modification(APP_CLUSTER, CRD, crd, spec=change)


def reported(decision: Decision, instances: Sequence[Object]) -> list[tuple[Ref, Manifest]]:
    """Return the instances that a decision reports as no longer synced."""
    refs = {step.ref for step in decision.steps if isinstance(step, Patch)}
    found = [(manifest.ref_of(APP_CLUSTER, kind, one), one) for kind, one in instances]
    return [(ref, one) for ref, one in found if ref in refs and not manifest.is_deleting(one)]


def let_go_plainly(binding: Manifest) -> dict[str, JSON]:
    """Return a binding that was deleted without a hold, as if it were being released (U3).

    Nobody asked for the end of its data; and nobody else would free its instances.
    """
    metadata: dict[str, JSON] = {
        **manifest.get_map(binding, "metadata"),
        "annotations": {keys.DELETION_POLICY: RELEASE},
        "deletionTimestamp": "gone",
        "finalizers": [keys.DRAIN],
    }
    return {**binding, "metadata": metadata}


def is_over(seen: Seen, decision: Decision) -> bool:
    """Return whether a decision lets the binding itself go: nothing else is left to do."""
    itself = manifest.ref_of(seen.cluster, seen.kind, seen.binding)
    return any(isinstance(step, Patch) and step.ref == itself for step in decision.steps)


def _asks(binding: Manifest) -> bool:
    return keys.DELETION_POLICY in manifest.annotations_of(binding)


def _policy(binding: Manifest) -> str:
    return manifest.annotations_of(binding).get(keys.DELETION_POLICY, "")


def _awaits_deletes(seen: Seen) -> bool:
    """Return whether the instances that are left have to be deleted first, each by its owner."""
    goes_with_space = keys.DRAINING in manifest.annotations_of(seen.binding)
    return _policy(seen.binding) == DELETE and goes_with_space and bool(_left(seen))


def _marked(seen: Seen, *, drains: bool) -> Decision:
    """Hold the binding exactly while it states how to release it."""
    binding = seen.binding
    if manifest.is_deleting(binding) or drains == _asks(binding):
        return NOTHING
    if drains:
        return _let_go(seen)
    finalizers = [*manifest.finalizers_of(binding), keys.DRAIN]
    step = modification(seen.cluster, seen.kind, binding, metadata={"finalizers": finalizers})
    return writes(step, failure=DRAIN_FAILED)


def _released(seen: Seen, now: datetime) -> Decision:
    """Copies first: an instance may go as soon as it is free, and a bound copy would follow it."""
    left = copies_to_release(seen)
    finalized = [
        (kind, one) for kind, one in seen.instances if keys.SYNCER in manifest.finalizers_of(one)
    ]
    unmarked = _unmarked(seen, left)
    if unmarked:
        return _batch(unmarked, "APIServiceNamespaces to mark")
    if left:
        return _batch(
            [
                modification(CONTROL_PLANE, kind, one, metadata=objects.released(one, now))
                for kind, one in left
            ],
            "copies to release",
        )
    if finalized:
        waiting = conditions.false(DRAINING, f"{len(finalized)} instances to free")
        part = freed(finalized[:BATCH], seen.crd, now)
        return replace(part, conditions=(waiting,), again=AT_ONCE)
    return _ends(seen)


def _in_use(seen: Seen) -> Decision:
    left = _left(seen)
    message = (
        f"{len(seen.instances)} instances in the app cluster and {len(left) - len(seen.instances)}"
        f" copies on the control plane are left ({_first(left)}): delete them, or annotate this"
        f" binding with {keys.DELETION_POLICY}=Release to keep them"
    )
    goes = any(manifest.is_deleting(one) for _, one in left)
    return _waits(message, SOMEWHAT_LATER if goes else RECHECK)


def _deleted(seen: Seen) -> Decision:
    if seen.crd is not None and _is_ours(seen.crd, seen.binding):
        return _crd_goes(seen.crd)
    ours = [one for one in seen.copied if copies.owner_of(one[1]) == keys.OWNER_PROVIDER]
    leaving = [
        deletion(APP_CLUSTER, kind, one) for kind, one in ours if not manifest.is_deleting(one)
    ]
    if leaving:
        return _batch(leaving, "copied objects to delete")
    if ours:
        return _waits(f"Copied objects are still being deleted ({_first(ours)})", SOMEWHAT_LATER)
    return _ends(seen)


def _crd_goes(crd: Manifest) -> Decision:
    if manifest.is_deleting(crd):
        return _waits(
            f"CustomResourceDefinition {manifest.name_of(crd)} is still being deleted", RECHECK
        )
    return _batch([deletion(APP_CLUSTER, CRD, crd)], "CustomResourceDefinition to delete")


def _is_ours(crd: Manifest, binding: Manifest) -> bool:
    """Return whether a konnector made the CRD for this binding.

    klutchctl deletes bindings so that the CRD loses its owner; then who wrote it tells.
    """
    owners = {manifest.get_text(reference, "uid") for reference in api.binding_references(crd)}
    return owners == {manifest.uid_of(binding)} if owners else api.is_from_konnector(crd)


def copies_to_release(seen: Seen) -> list[Object]:
    """Return the copies to release: also those that a konnector adopted and did not mark."""
    return [
        (kind, one)
        for kind, one in seen.copies
        if objects.is_to_release(one) and _is_of_space(seen, kind, one)
    ]


def _is_of_space(seen: Seen, kind: Kind, copy: Manifest) -> bool:
    if kind.namespaced:
        return manifest.namespace_of(copy) in seen.service_namespaces
    return identity.is_of_space(copy, seen.space, seen.lives)


def _left(seen: Seen) -> list[Object]:
    return [*seen.instances, *copies_to_release(seen)]


def _report(
    kind: Kind, live: Manifest, crd: Manifest | None, stop: Stop, now: datetime
) -> Patch | None:
    status = None if manifest.is_deleting(live) else claim_status.stopped(live, stop, now=now)
    if crd is None or status is None or not claim_status.takes_conditions(crd, kind.version):
        return None
    body: Manifest = {"metadata": preconditions_of(live), "status": status}
    subresource = "status" if crd_of.has_status(crd, kind.version) else ""
    return Patch(manifest.ref_of(APP_CLUSTER, kind, live), body, subresource=subresource)


def _unmarked(seen: Seen, left: Sequence[Object]) -> list[Step]:
    """Return the steps that mark the mappings of these copies."""
    resource = manifest.name_of(seen.binding)
    behind = {manifest.namespace_of(one) for kind, one in left if kind.namespaced}
    steps: list[Step] = []
    for mapping in seen.mappings:
        marked = api.released_kinds(mapping)
        if manifest.get_text(mapping, "status", "namespace") in behind and resource not in marked:
            steps.append(namespace_decide.marked(mapping, marked | {resource}))
    return steps


def _ends(seen: Seen) -> Decision:
    """Release the binding, once its remains were reported: nobody could do so later."""
    if not seen.reported:
        return _drains("Waiting until the export reports the end of the sync")
    return _let_go(seen)


def _let_go(seen: Seen) -> Decision:
    return writes(
        unfinalized(seen.cluster, seen.kind, seen.binding, keys.DRAIN), failure=DRAIN_FAILED
    )


def _first(found: Sequence[Object]) -> str:
    kind, one = found[0]
    return manifest.ref_of("", kind, one).object + (" and others" if len(found) > 1 else "")


def _batch(steps: Sequence[Step], text: str) -> Decision:
    """Do a part of it. Each stands alone: one that fails holds the binding, not the others."""
    waiting = conditions.false(DRAINING, f"{len(steps)} {text}")
    return replace(writes_each(steps[:BATCH], DRAIN_FAILED), conditions=(waiting,), again=AT_ONCE)


def _drains(message: str) -> Decision:
    return Decision(conditions=(conditions.false(DRAINING, message),), again=SOON)


def _waits(message: str, again: timedelta) -> Decision:
    return Decision(conditions=(conditions.false(DRAIN_WAITING, message),), again=again)
