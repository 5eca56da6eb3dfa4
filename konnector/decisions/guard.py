"""When the konnector refuses to delete or to make anew, because one side may have lost all. Pure.

mapping.md 10, protocol-konnector.md D.6, H4. An app cluster that comes back empty, or another one
in its place, would take all services of its space along; a space that comes back empty would give
each claim a new, empty service. So nothing is deleted, or made anew, while a cluster or space is
not the one that was recorded, or while most of a kind is lost at once. A person allows it for an
hour. What a konnector sees for the first time is recorded, and trusted. More loss never opens a
guard. Refuses to know how objects are counted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from konnector.decisions.sides import APP_CLUSTER
from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.core import causes, conditions, keys, names
from reconciler.core.conditions import Cause, Condition
from reconciler.core.decision import Decision, Note, Patch, preconditions_of
from reconciler.core.manifest import Manifest, annotations_of, get_list, is_deleting, ref_of
from reconciler.core.moments import moment
from reconciler.core.refs import SECRET, ObjectKey

HONOURED: Final = timedelta(hours=1)  # a confirmation, from the time that it tells
SKEW: Final = timedelta(minutes=1)  # so far that time may lie ahead of our clock
FEW: Final = 5  # so many lost at once are never too many
APP_NAMESPACES: Final = "app namespaces"  # as a `Count.what`: those that have a mapping
LATELY: Final = timedelta(minutes=1)  # so long what was let through counts as lost, too
AGAIN: Final = timedelta(minutes=1)  # when to count again while a guard is closed

_SHOWN: Final = 5  # kinds in one sentence

Problem: TypeAlias = tuple[Cause, str]


@dataclass(frozen=True, slots=True)
class Identity:
    """Which app cluster and which space these are, and which ones were recorded.

    `space` is its name, `app_cluster_uid` the uid of the app cluster's Namespace kube-system and
    `space_uid` that of the space's Namespace; "" = not known. `recorded_app_clusters` are from
    all mappings of the space, `recorded_spaces` from the Secrets in the app cluster that hold its
    kubeconfig: none in control-plane mode, where no such Secret is.
    """

    space: str
    app_cluster_uid: str = ""
    recorded_app_clusters: frozenset[str] = frozenset()
    space_uid: str = ""
    recorded_spaces: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Confirmations:
    """When a person allowed what is held; None: never, or not as an RFC 3339 time."""

    mass_delete: datetime | None = None
    recreate: datetime | None = None


@dataclass(frozen=True, slots=True)
class Count:
    """How many of `bound` objects of a kind lack their other side. `lost` are among `bound`.

    `what` is `plural.group`, or APP_NAMESPACES. What is being deleted counts until it is gone, and
    what a guard let through counts a while longer (`still_lost`).
    """

    what: str
    lost: int
    bound: int

    @property
    def is_mass(self) -> bool:
        """Tell whether so many cannot be meant: more than five, and more than half."""
        return self.lost > FEW and 2 * self.lost > self.bound


@dataclass(frozen=True, slots=True)
class Seen:
    """All that the ClusterBinding has to tell of the guards.

    `copies` count bound copies, and mappings, whose claim or app namespace is gone; `claims` count
    bound claims without a copy, but for those that this process has just marked.
    """

    cluster_binding: Manifest = field(repr=False)
    identity: Identity
    copies: Sequence[Count] = ()
    claims: Sequence[Count] = ()


@dataclass(frozen=True, slots=True)
class _Rule:
    """One guard in words. `other` tells of a stranger, `unknown` of a uid that is not known."""

    key: str
    effect: str
    other: str
    unknown: str
    loss: str
    causes: tuple[Cause, Cause, Cause]  # changed, unknown, too many


_DELETES: Final = _Rule(
    keys.CONFIRM_MASS_DELETE,
    "Nothing is deleted on the control plane",
    "this app cluster (uid {live} of its Namespace kube-system) is not the one whose services are"
    " in the space ({recorded})",
    "the uid of Namespace kube-system in the app cluster is not known",
    "more than half of the bound {what} are gone from the app cluster at once",
    (causes.APP_CLUSTER_CHANGED, causes.APP_CLUSTER_UNKNOWN, causes.MASS_DELETE_HELD),
)
_RECREATION: Final = _Rule(
    keys.CONFIRM_RECREATE,
    "Lost copies are not made again on the control plane, because each would be a new, empty"
    " service, and credentials stay in the app cluster",
    "this space (uid {live} of its Namespace) is not the one that the app cluster was bound to"
    " ({recorded})",
    "the uid of the space's Namespace is not known",
    "more than half of the bound {what} have no copy there",
    (causes.SPACE_CHANGED, causes.SPACE_UNKNOWN, causes.MASS_RECREATION_HELD),
)


def recorded(objects: Iterable[Manifest], key: str) -> frozenset[str]:
    """Return the uids that objects bear as annotation `key`, for an Identity."""
    return frozenset(uid for one in objects if (uid := annotations_of(one).get(key)))


def confirmations_of(cluster_binding: Manifest | None) -> Confirmations:
    """Return what a space's ClusterBinding says that is allowed."""
    notes = {} if cluster_binding is None else annotations_of(cluster_binding)
    return Confirmations(
        moment(notes.get(keys.CONFIRM_MASS_DELETE, "")),
        moment(notes.get(keys.CONFIRM_RECREATE, "")),
    )


def is_confirmed(time: datetime | None, now: datetime) -> bool:
    """Tell whether a confirmation of that time holds now."""
    return time is not None and -SKEW <= now - time < HONOURED


def changes_in(confirmations: Confirmations, now: datetime) -> timedelta | None:
    """Return when to look again, because a confirmation may begin or end then."""
    found = []
    for time in (confirmations.mass_delete, confirmations.recreate):
        if time is None or (age := now - time) >= HONOURED:
            continue
        found.append(HONOURED - age if age >= -SKEW else min(-SKEW - age, HONOURED))
    return min(found, default=None)


def deletes(
    identity: Identity, count: Count, *, confirmations: Confirmations, now: datetime
) -> str:
    """Return why nothing of the counted kind is deleted on the control plane; "" where it is.

    It is about what the app cluster no longer has: bound copies without a claim, copies that the
    consumer owned, mappings without an app namespace.
    """
    found = _problem(_DELETES, identity, (count,), confirmations.mass_delete, now)
    return found[1] if found else ""


def recreations(
    identity: Identity, count: Count, *, confirmations: Confirmations, now: datetime
) -> str:
    """Return why a bound claim of the counted kind gets no new copy; "" where it does."""
    found = _problem(_RECREATION, identity, (count,), confirmations.recreate, now)
    return found[1] if found else ""


def still_lost(
    let_through: Mapping[ObjectKey, datetime], *, now: datetime, held: bool
) -> dict[ObjectKey, datetime]:
    """Return what of it, by the time at which a guard let it through, counts as lost still.

    Whatever is lost shows bit by bit, in watch events: alone, each is one of many. `held` is
    whether too many were lost at the last count. None of them is forgotten then, or the rest
    would be few a minute later.
    """
    if held:
        return dict(let_through)
    return {place: time for place, time in let_through.items() if abs(now - time) < LATELY}


def told(seen: Seen, *, now: datetime) -> Decision:
    """Return the conditions of the ClusterBinding, what is worth an Event, and when to look again.

    There is nothing to write but that. An Event comes once, with the figures; the condition has
    none, so that it is not written with each object that is lost.
    """
    confirmed = confirmations_of(seen.cluster_binding)
    found = (
        (_DELETES, seen.copies, confirmed.mass_delete),
        (_RECREATION, seen.claims, confirmed.recreate),
    )
    said: list[Condition] = []
    notes: list[Note] = []
    for rule, counts, time in found:
        problem = _problem(rule, seen.identity, counts, time, now)
        before = _said_before(seen.cluster_binding, rule)
        if problem is not None:
            said.append(conditions.false(*problem))
            if before is None or not before.says_the_same(said[-1]):
                notes.append(_note(problem, counts))
        elif before is not None:
            said.append(conditions.true(before.type))
    closed = any(one.status == conditions.FALSE for one in said)
    times = [changes_in(confirmed, now), AGAIN if closed else None]
    again = min((time for time in times if time is not None), default=None)
    return Decision(conditions=tuple(said), notes=tuple(notes), again=again)


def space_record(secret: Manifest, identity: Identity, *, confirmed: bool) -> Patch | None:
    """Return the patch that records the space on a Secret with its kubeconfig, if one is due.

    `confirmed`: recreation is; only then another space's uid gives way.
    """
    held = annotations_of(secret).get(keys.SPACE_UID)
    if not identity.space_uid or held == identity.space_uid or is_deleting(secret):
        return None
    if held and not confirmed:
        return None
    notes: Manifest = {keys.SPACE_UID: identity.space_uid}
    metadata: Manifest = {**preconditions_of(secret), "annotations": notes}
    return Patch(ref_of(APP_CLUSTER, SECRET, secret), {"metadata": metadata})


def _problem(
    rule: _Rule,
    identity: Identity,
    counts: Sequence[Count],
    confirmed: datetime | None,
    now: datetime,
) -> Problem | None:
    if is_confirmed(confirmed, now):
        return None
    found = _stranger(rule, identity) or _loss(rule, counts)
    if found is None:
        return None
    cause, why = found
    command = (
        f"kubectl annotate {CLUSTER_BINDING.resource} {names.CLUSTER_BINDING} -n {identity.space}"
        f' --overwrite {rule.key}="$(date -u +%Y-%m-%dT%H:%M:%SZ)"'
    )
    return cause, (
        f"{rule.effect}: {why}. If this is meant, allow it for an hour, on the control plane:"
        f" {command}"
    )


def _stranger(rule: _Rule, identity: Identity) -> Problem | None:
    if rule is _DELETES:
        live, known = identity.app_cluster_uid, identity.recorded_app_clusters
    else:
        live, known = identity.space_uid, identity.recorded_spaces
    others = sorted(known - {live})
    changed, unknown, _ = rule.causes
    if not others:
        return None
    if not live:
        return unknown, rule.unknown
    return changed, rule.other.format(live=live, recorded=_listed(others))


def _loss(rule: _Rule, counts: Sequence[Count]) -> Problem | None:
    lost = sorted({one.what for one in counts if one.is_mass})
    return (rule.causes[-1], rule.loss.format(what=_listed(lost))) if lost else None


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _SHOWN
    return ", ".join(texts[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _said_before(cluster_binding: Manifest, rule: _Rule) -> Condition | None:
    held = conditions.parse(get_list(cluster_binding, "status", "conditions"))
    return conditions.find(held, rule.causes[0].type)


def _note(problem: Problem, counts: Sequence[Count]) -> Note:
    cause, message = problem
    figures = sorted(f"{one.lost} of {one.bound} {one.what}" for one in counts if one.is_mass)
    lost = f"Lost are {_listed(figures)}. " if figures else ""
    return Note(cause.reason, f"{lost}{message}", "Warning", action="Hold")
