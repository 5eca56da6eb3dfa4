"""Decides the steps before an AppClusterBinding may go (mapping.md 9, F36).

By default it is a release: the konnector releases the app cluster, then loses its rights, its
Deployment and its kubeconfig. The space and the data stay. With annotation deletion-policy Delete
the space goes, too, with the data of all its services. Each step begins after the one before has
finished, and a condition names the step that is waited for.

After a deadline the wait is reported as an error, and continues until a person ends it by the
annotation `klutchctl.dev/force-cleanup: "true"`. Then the konnector is removed at once, with its
rights, and our finalizer is removed from the bindings. Its objects in the app cluster stay as they
are. Finalizers of others stay, too.

An APIServiceBinding is released so that the konnector can leave the app cluster in order. Our
konnector puts a finalizer on a binding with the annotation `deletion-policy`, and removes it when
the release is complete. It gets a moment for that before the binding is deleted. Other konnectors
do not know the annotation, so it is set only now: a finalizer that nobody removes would keep space
and AppClusterBinding for ever.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from bind.app_cluster_binding import facts
from bind.app_cluster_binding.facts import DELETE, RELEASE, Seen, Space, Terms
from bind.app_cluster_binding.space import Ownership, is_ours, verdict, was_found
from reconciler import api
from reconciler.core import conditions, keys, manifest
from reconciler.core.conditions import Cause
from reconciler.core.decision import Decision, Note, Step, unfinalized, writes
from reconciler.core.manifest import Manifest, annotations_of, finalizers_of, is_deleting
from reconciler.core.refs import DEPLOYMENT, NAMESPACE, SECRET, Kind
from reconciler.core.times import format_time, moment

_FAILED: Final = facts.CLEANUP_FAILED
DRAIN_TIMEOUT: Final = timedelta(seconds=10)  # for the konnector's finalizer to come
RECHECK: Final = timedelta(seconds=30)  # of facts that only time changes, such as a heartbeat's age
_AHEAD: Final = timedelta(minutes=5)  # so far a konnector's clock may be
_LONGEST: Final = timedelta(hours=1)  # until a silent konnector counts as gone

_Object = tuple[Kind, Manifest]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseTerms:
    """The terms of a release. `policy` is Release or Delete; `failure`: the cause of failed writes.

    `lives`: whether a konnector is there that may do something about it.
    """

    policy: str
    lives: bool
    failure: Cause
    now: datetime


def decide(seen: Seen, *, terms: Terms, now: datetime) -> Decision:
    """Return the next step of a deletion; the last one takes our finalizer off."""
    space, standing = seen.space, verdict(seen).standing
    if standing is Ownership.TAKEN:
        return _ends(seen, terms)  # objects with our names may belong to the other one
    if space is None or standing is Ownership.FREE:
        return _legacy_then(seen, terms, now, lambda: _ends(seen, terms))
    waiting = _bindings(seen, space, terms, now)
    if waiting is not None and seen.is_forced:
        waiting = Decision.merge([waiting, _disarmed(seen, space, terms)])
    elif waiting is None:
        waiting = _space(seen, space, terms) if _deletes(seen) else _rest(seen, space, terms, now)
    if waiting is not None:
        return _waiting(seen, terms, now, Decision.merge([waiting, _going(seen.legacy, terms)]))
    return _legacy_then(seen, terms, now, lambda: _released(seen, space, terms, now))


def _deletes(seen: Seen) -> bool:
    # Who deletes the CRD hardly means the data of all.
    notes = {} if seen.kind_goes else manifest.annotations_of(seen.app_cluster_binding)
    return notes.get(keys.DELETION_POLICY) == DELETE


def _bindings(seen: Seen, space: Space, terms: Terms, now: datetime) -> Decision | None:
    """Return how the bindings are let go, or None where there is none any more."""
    bindings = space.bindings  # also those that others made: the konnector serves them, too
    if not bindings:
        return None
    forced = seen.is_forced
    how = ReleaseTerms(
        policy=DELETE if _deletes(seen) else RELEASE,
        lives=konnector_lives(space, now) and not forced,
        failure=_FAILED,
        now=now,
    )
    parts = [let_go(one, how, terms) for one in bindings]
    if forced:
        parts.extend(force(one, _FAILED, terms) for one in bindings)
    return Decision.merge([*parts, _missed((api.API_SERVICE_BINDING, one) for one in bindings)])


def _rest(seen: Seen, space: Space, terms: Terms, now: datetime) -> Decision | None:
    """Return how a release goes on after the bindings: rights first, then the konnector."""
    offers, running = _offers(seen, space), _running(seen, space)
    if not offers:
        return _going(running, terms) if running else None
    if seen.is_forced:
        return Decision.merge([_disarmed(seen, space, terms), _missed(offers)])
    lives = konnector_lives(space, now)
    unconfirmed = [one for one in space.exports if is_unconfirmed(one, lives=lives)]
    free = [(kind, one) for kind, one in offers if one not in unconfirmed]
    again = Decision(again=RECHECK) if unconfirmed else Decision()
    return Decision.merge([terms.deletions(free, _FAILED), _missed(offers), again])


def _disarmed(seen: Seen, space: Space, terms: Terms) -> Decision:
    """Return the deletions after which a konnector that is not waited for does no more harm.

    Else it might hold its bindings with a finalizer of its own, or make more of them, for ever.
    """
    return terms.deletions([*_running(seen, space), *_offers(seen, space)], _FAILED)


def _offers(seen: Seen, space: Space) -> list[_Object]:
    requests = [one for one in space.requests if is_ours(one, seen)]
    return [
        *((api.API_SERVICE_EXPORT_REQUEST, one) for one in requests),
        *((api.API_SERVICE_EXPORT, one) for one in space.exports),
    ]


def _running(seen: Seen, space: Space) -> list[_Object]:
    """Return the konnector and its kubeconfig. The ClusterBinding stays: it proves the owner."""
    copies = [one for one in space.secrets if manifest.name_of(one) == seen.secret_name]
    ours: list[_Object] = [(SECRET, one) for one in copies if is_ours(one, seen)]
    deployment = [] if space.deployment is None else [space.deployment]
    return [*((DEPLOYMENT, one) for one in deployment), *ours]


def _space(seen: Seen, space: Space, terms: Terms) -> Decision:
    """Return how the space goes: marked first, because the proof whose it is goes before it."""
    namespace = space.namespace
    found: list[_Object] = [(NAMESPACE, namespace)]
    if is_ours(namespace, seen):
        return _going(found, terms)
    if was_found(seen, space) and not manifest.is_deleting(namespace):
        return facts.trouble(facts.CLEANUP_WAITING, _unproven(seen))
    step = terms.change(NAMESPACE, namespace, metadata={"labels": seen.labels})
    return Decision.merge([writes(step, failure=_FAILED), _missed(found)])


def _unproven(seen: Seen) -> str:
    labels = " ".join(f"{key}={value}" for key, value in sorted(seen.labels.items()))
    return (
        f"Namespace {seen.space_name} is older than its ClusterBinding, so it may contain objects"
        f" of others, and is not deleted. If all of it may go: `kubectl label namespace"
        f" {seen.space_name} {labels}`; if it is to stay, take off annotation"
        f" {keys.DELETION_POLICY}."
    )


def _released(seen: Seen, space: Space, terms: Terms, now: datetime) -> Decision:
    """Leave the space behind, marked as released, and report how to delete it."""
    namespace, steps = space.namespace, list[Step]()
    if not manifest.is_deleting(namespace) and keys.RELEASED not in manifest.annotations_of(
        namespace
    ):
        notes = {keys.RELEASED: format_time(now)}
        steps.append(terms.change(NAMESPACE, namespace, metadata={"annotations": notes}))
    message = (
        f"Namespace {seen.space_name} and the data of {len(space.service_namespaces)} service"
        f" namespaces stay. Those with data outlive it: find them by annotation"
        f" {keys.API_SERVICE_NAMESPACE}, and delete them before `kubectl delete namespace"
        f" {seen.space_name}`. An AppClusterBinding with annotation {keys.DELETION_POLICY}={DELETE}"
        " takes all of them along."
    )
    return _ends(seen, terms, before=steps, notes=(Note("Released", message),))


def _ends(
    seen: Seen, terms: Terms, *, before: Sequence[Step] = (), notes: tuple[Note, ...] = ()
) -> Decision:
    live = seen.app_cluster_binding
    rest = [one for one in manifest.finalizers_of(live) if one != keys.APP_CLUSTER_BINDING_CLEANUP]
    step = terms.change(api.APP_CLUSTER_BINDING, live, metadata={"finalizers": rest})
    # No status goes with it: by then there may be nothing to write it to.
    return replace(writes(*before, step, failure=_FAILED), notes=notes)


def _legacy_then(seen: Seen, terms: Terms, now: datetime, last: Callable[[], Decision]) -> Decision:
    return _waiting(seen, terms, now, _going(seen.legacy, terms)) if seen.legacy else last()


def _going(found: Sequence[_Object], terms: Terms) -> Decision:
    return Decision.merge([terms.deletions(found, _FAILED), _missed(found)])


def _missed(found: Iterable[_Object]) -> Decision:
    """Return the conditions that name the objects which are waited for, one each."""
    return Decision.merge(
        facts.trouble(facts.CLEANUP_WAITING, _still(kind, live)) for kind, live in found
    )


def _still(kind: Kind, live: Manifest) -> str:
    text = f"{kind} {manifest.name_of(live)} still exists"
    finalizers = manifest.finalizers_of(live)
    if kind == NAMESPACE:
        whys = (
            one.message
            for one in conditions.of(live)
            if one.type.startswith("Namespace") and one.status == conditions.TRUE
        )
        return f"{text}{''.join(f': {why}' for why in whys)}."
    return f"{text} (finalizers: {', '.join(finalizers)})." if finalizers else f"{text}."


def _waiting(seen: Seen, terms: Terms, now: datetime, part: Decision) -> Decision:
    live = seen.app_cluster_binding
    asked = moment(manifest.get_text(live, "metadata", "deletionTimestamp"))
    left = (asked or now) + terms.drain_deadline - now
    if left > timedelta():
        again = left if part.again is None else min(left, part.again)
        whole = Decision.merge([part, Decision(again=again)])
        return facts.summed_up(live, whole, judged=(facts.CLEANED_UP,))
    waiting = " ".join(each.message for each in part.conditions)
    message = f"{waiting} {_advice(seen, now)}"
    late = Decision(
        tasks=part.tasks,
        conditions=(conditions.false(facts.CLEANUP_TIMED_OUT, message),),
        notes=(Note("CleanupTimedOut", message, type="Warning"),) if _is_new(live) else (),
        again=part.again,
    )
    return facts.summed_up(live, late, judged=(facts.CLEANED_UP,))


def _advice(seen: Seen, now: datetime) -> str:
    if seen.is_forced:
        return "klutch-bind stopped waiting for the konnector: check these objects' finalizers."
    space = seen.space
    beat = manifest.get_text(
        None if space is None else space.cluster_binding, "status", "lastHeartbeatTime"
    )
    # That of a living konnector moves on, and a message should not.
    silent = bool(beat) and space is not None and not konnector_lives(space, now)
    last = f"The konnector's last heartbeat was at {beat}. " if silent else ""
    return (
        f"{last}If the app cluster is gone for good, annotate this AppClusterBinding with"
        f" {keys.FORCE_CLEANUP}=true: the konnector is then not waited for."
    )


def _is_new(live: Manifest) -> bool:
    condition = conditions.get(live, facts.CLEANED_UP)
    return condition is None or condition.reason != facts.CLEANUP_TIMED_OUT.reason


def konnector_lives(space: Space, now: datetime) -> bool:
    """Return whether the space's konnector still beats.

    It writes time and interval itself: neither a beat of the future nor a long interval lets it
    count as living for ever.
    """
    beat = api.heartbeat_of(space.cluster_binding)
    timeout = _LONGEST if beat is None else min(beat.timeout, _LONGEST)
    return api.liveness(beat, now, timeout=timeout, ahead=_AHEAD) is api.Liveness.ALIVE


def let_go(live: Manifest, how: ReleaseTerms, terms: Terms) -> Decision:
    """Return the next step of letting a binding go. Nothing while its deletion is under way."""
    if is_deleting(live):
        return Decision()
    drains = keys.DRAIN in finalizers_of(live)
    if not drains and not how.lives:
        return _delete(live, how, terms)
    notes = annotations_of(live)
    since = moment(notes.get(keys.DRAINING, ""))
    if since is None or notes.get(keys.DELETION_POLICY) != how.policy:
        marks = {keys.DELETION_POLICY: how.policy, keys.DRAINING: format_time(how.now)}
        return replace(_annotated(live, marks, how.failure, terms), again=DRAIN_TIMEOUT)
    # A konnector may write that time, too, and is given no more of it.
    left = DRAIN_TIMEOUT - (how.now - since) if since <= how.now + _AHEAD else timedelta()
    return _delete(live, how, terms) if drains or left <= timedelta() else Decision(again=left)


def keep(live: Manifest, failure: Cause, terms: Terms) -> Decision:
    """Return the step that keeps a binding that was about to be released."""
    if keys.DRAINING not in annotations_of(live) or is_deleting(live):
        return Decision()
    marks = {keys.DELETION_POLICY: None, keys.DRAINING: None}
    return _annotated(live, marks, failure, terms)


def force(live: Manifest, failure: Cause, terms: Terms) -> Decision:
    """Return the steps that free a binding of its dead konnector; only our finalizer goes."""
    if not is_deleting(live):
        return Decision()
    step = unfinalized(terms.control_plane, api.API_SERVICE_BINDING, live, keys.DRAIN)
    return writes(step, failure=failure)


def is_unconfirmed(export: Manifest, *, lives: bool) -> bool:
    """Return whether a living konnector has yet to report that it stopped to sync an export."""
    return lives and api.reports_sync(export)


def _annotated(
    live: Manifest, marks: dict[str, str] | dict[str, None], failure: Cause, terms: Terms
) -> Decision:
    step = terms.change(api.API_SERVICE_BINDING, live, metadata={"annotations": marks})
    return writes(step, failure=failure)


def _delete(live: Manifest, how: ReleaseTerms, terms: Terms) -> Decision:
    return writes(terms.deletion(api.API_SERVICE_BINDING, live), failure=how.failure)
