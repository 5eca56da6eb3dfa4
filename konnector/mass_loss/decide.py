"""Decides when the konnector stops writing, because a side lost data or was exchanged. Pure.

mapping.md 10, protocol-konnector.md D.6, H4. If a kubeconfig leads to another app cluster than the
owner of the space's services, nothing is written on either side. If somebody deletes a CRD, all its
claims go, and their copies are kept. If a claim lost its copy, it gets no new, empty service. An
annotation on the ClusterBinding confirms each of these. The first identity that a konnector sees is
recorded, and trusted. Does not know how objects are found. `orphans` decides about absent claims.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from konnector import APP_CLUSTER
from konnector.claim import orphans
from reconciler.api import CLUSTER_BINDING
from reconciler.core import conditions, field_set, keys, manifest, names
from reconciler.core.conditions import Cause, Condition
from reconciler.core.decision import Decision, Note, Patch, modification
from reconciler.core.documents import first_of
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import SECRET, ObjectKey
from reconciler.core.times import HONOURED, SKEW, is_confirmed, moment

_NAMED: Final = 10  # app namespaces in one command
ALL: Final = "all"  # as a `confirm-recreate`
SURE_AFTER: Final = timedelta(seconds=10)  # a backend has noted by then that the kind is going
NOT_YET: Final = (
    "The copy of this claim is gone from the control plane. It is made again, as a new, empty"
    f" service, in {SURE_AFTER.seconds} seconds, unless its kind is being withdrawn"
)
AGAIN: Final = timedelta(minutes=1)  # when to look again while a guard is closed

# The reason that each confirmation ends.
_REASONS: Final = {
    keys.CONFIRM_APP_CLUSTER: conditions.APP_CLUSTER_CHANGED,
    keys.CONFIRM_MASS_DELETE: conditions.MASS_DELETION,
    keys.CONFIRM_NAMESPACES: conditions.ANOTHER_NAMESPACE,
    keys.CONFIRM_RECREATE: conditions.RECREATION_HELD,
}
# Confirmations without a time in their value.
_DATED: Final = tuple(
    field_set.place_of("metadata", "annotations", key)
    for key in (keys.CONFIRM_RECREATE, keys.CONFIRM_ORPHANS)
)

Problem: TypeAlias = tuple[Cause, str]


@dataclass(frozen=True, slots=True)
class Identity:
    """The app cluster and the space, as they are and as they were recorded.

    `space` is its name, `app_cluster_uid` the uid of the app cluster's Namespace kube-system and
    `space_uid` that of the space's Namespace; "" = not known. `recorded_app_clusters` are from
    the space and all of its mappings, `recorded_spaces` from the Secrets in the app cluster that
    hold its kubeconfig: none in control-plane mode, where no such Secret is.
    """

    space: str
    app_cluster_uid: str = ""
    recorded_app_clusters: frozenset[str] = frozenset()
    space_uid: str = ""
    recorded_spaces: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Recreation:
    """The lost copies that may be made again: of all `resources`, or of ALL, from this time on."""

    resources: frozenset[str] = frozenset()
    since: datetime | None = None

    def allows(self, resource: str, now: datetime) -> bool:
        return bool(self.resources & {resource, ALL}) and is_confirmed(self.since, now)


@dataclass(frozen=True, slots=True)
class Confirmations:
    """The confirmations of a person; None: never, or not as an RFC 3339 time."""

    app_cluster: str = ""
    mass_delete: datetime | None = None
    recreate: Recreation = Recreation()
    namespaces: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Guarded:
    """The held objects of a kind: the places of its orphans, and of claims that lost their copy.

    `resource` is `plural.group`. `deletions` are why copies of claims that are being deleted are.
    `parts` are the places of claims that are parts of services, whose deletions will be.
    `withdrawn`: why the kind is going; until it is back, no confirmation makes a copy.
    """

    resource: str
    orphans: Collection[ObjectKey] = ()
    lost: Collection[ObjectKey] = ()
    deletions: Collection[str] = ()
    parts: Collection[ObjectKey] = ()
    withdrawn: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of the guards for the ClusterBinding.

    `others` are the uids of app namespaces that are not those that were mapped, by name.
    `unwritten` is why an APIServiceBinding cannot be served and report itself, by its name.
    """

    cluster_binding: Manifest = field(repr=False)
    identity: Identity
    guarded: Sequence[Guarded] = ()
    others: Mapping[str, str] = field(default_factory=dict)
    unwritten: Mapping[str, str] = field(default_factory=dict)


def trimmed(cluster_binding: Manifest) -> Manifest:
    """Return a ClusterBinding for a view: with the writer and time of each confirmation."""
    kept: list[JSON] = [
        {"time": entry.get("time"), "fieldsV1": fields}
        for entry in field_set.entries_of(cluster_binding)
        if (fields := field_set.below(field_set.fields_of(entry), *_DATED))
    ]
    return manifest.put(cluster_binding, kept, "metadata", "managedFields")


def recorded(objects: Iterable[Manifest], key: str) -> frozenset[str]:
    """Return the uids that objects bear as annotation `key`, for an Identity."""
    return frozenset(uid for one in objects if (uid := manifest.annotations_of(one).get(key)))


def confirmations_of(cluster_binding: Manifest | None) -> Confirmations:
    """Return the confirmations in a space's ClusterBinding."""
    if cluster_binding is None:
        return Confirmations()
    notes = manifest.annotations_of(cluster_binding)
    return Confirmations(
        notes.get(keys.CONFIRM_APP_CLUSTER, ""),
        moment(notes.get(keys.CONFIRM_MASS_DELETE, "")),
        _recreation(cluster_binding, notes.get(keys.CONFIRM_RECREATE, "")),
        _pairs(notes.get(keys.CONFIRM_NAMESPACES, "")),
    )


def written_at(cluster_binding: Manifest, key: str) -> datetime | None:
    """Return when an annotation was written, at the latest; None where nobody knows."""
    place = field_set.place_of("metadata", "annotations", key)
    times = [
        moment(manifest.get_text(entry, "time"))
        for entry in field_set.entries_of(cluster_binding)
        if field_set.has(field_set.fields_of(entry), place)
    ]
    return max((one for one in times if one is not None), default=None)


def changes_in(confirmations: Confirmations, now: datetime) -> timedelta | None:
    """Return when to look again, because a confirmation may begin or end then."""
    found = []
    for time in (confirmations.mass_delete, confirmations.recreate.since):
        if time is None or (age := now - time) >= HONOURED:
            continue
        found.append(HONOURED - age if age >= -SKEW else min(-SKEW - age, HONOURED))
    return min(found, default=None)


def mismatch(identity: Identity, confirmed: str) -> Problem | None:
    """Return why nothing may be written on either side: this may be another app cluster.

    `confirmed` is the uid of the one that a person says is meant.
    """
    live = identity.app_cluster_uid
    others = sorted(identity.recorded_app_clusters - {live})
    if not others or (live and confirmed == live):
        return None
    if not live:
        return conditions.APP_CLUSTER_UNKNOWN, (
            "Nothing is written on either side: the uid of Namespace kube-system in the app"
            " cluster is not known. Let the konnector read that Namespace"
        )
    return conditions.APP_CLUSTER_CHANGED, (
        "Nothing is written on either side: this app cluster (uid"
        f" {live} of its Namespace kube-system) is not the one whose services are in the space"
        f" ({first_of(others)}). Correct the kubeconfig; or, if this one is to have them from"
        f" now on, confirm it, on the control plane: "
        f"{_command(identity.space, keys.CONFIRM_APP_CLUSTER, live)}"
    )


def other_space(identity: Identity) -> Problem | None:
    """Return why the space's gaps prove nothing: it may be another one than was bound."""
    live = identity.space_uid
    others = sorted(identity.recorded_spaces - {live})
    if not others:
        return None
    if not live:
        return conditions.SPACE_UNKNOWN, _lost(
            "the uid of the space's Namespace is not known", identity
        )
    return conditions.SPACE_CHANGED, _lost(
        f"this space (uid {live} of its Namespace) is not the one that the app cluster was bound to"
        f" ({first_of(others)})",
        identity,
    )


def many_namespaces(space: str) -> str:
    """Return the sentence about claims that go with more Namespaces than can be meant."""
    return _kept(
        "claims whose Namespaces",
        "more than half of the Namespaces with claims were deleted within a minute",
        space,
    )


def mass_deletion(resource: str, why: str, space: str) -> str:
    """Return the sentence about copies of claims that are deleted, but hardly meant to be."""
    return _kept(f"{resource} whose claims", why, space)


def _kept(subject: str, why: str, space: str) -> str:
    now = '"$(date -u +%Y-%m-%dT%H:%M:%SZ)"'
    return (
        f"Copies of {subject} are being deleted are kept, and the claims wait: {why}."
        " If this is intended, allow it for an hour, on the control plane: "
        f"{_command(space, keys.CONFIRM_MASS_DELETE, now)}"
    )


def lost(resource: str, space: str) -> str:
    """Return the sentence about a claim that lost its copy."""
    return (
        "The copy of this claim is gone from the control plane, and is not made again, because it"
        f" would be a new, empty service.{_for_an_hour(space, resource)}"
    )


def withdrawn(resource: str, why: str) -> str:
    """Return the sentence about a claim that gets no copy, because its kind is going."""
    return (
        f"No copy of {resource} is made while the control plane withdraws the kind: {why}. The"
        " claim waits until the kind is there again"
    )


def another_namespace(uids: Mapping[str, str], space: str) -> str:
    """Return the sentence about app namespaces that are not those that were mapped."""
    named = sorted(uids)[:_NAMED]
    value = ",".join(f"{name}={uids[name]}" for name in named)
    return (
        f"Nothing is synced in {first_of(sorted(uids))}: each is a new app namespace, and the"
        " data of a former one of its name is behind its APIServiceNamespace. If its claims are to"
        f" get that data, on the control plane: {_command(space, keys.CONFIRM_NAMESPACES, value)}"
    )


def report(seen: Seen, *, now: datetime, counted: str = "") -> Decision:
    """Return the conditions of the ClusterBinding, new Events, and the time of the next look.

    There is nothing to write but that. A condition is reported from its first trouble on.
    `counted` are the last deletions, for later processes.
    """
    confirmed = confirmations_of(seen.cluster_binding)
    found = {
        conditions.DELETES_ALLOWED: mismatch(seen.identity, confirmed.app_cluster)
        or _deletions(seen),
        conditions.RECREATION_ALLOWED: _recreations(seen, confirmed, now),
        conditions.INSTANCES_IN_SYNC: _out_of_sync(seen),
        conditions.WRITES_ACCEPTED: _unwritten(seen),
    }
    before = conditions.of(seen.cluster_binding)
    last_deletions = Condition(conditions.DELETIONS_COUNTED, conditions.TRUE, message=counted)
    reported: list[Condition] = [last_deletions] if counted else []
    notes: list[Note] = []
    for condition_type, problem in found.items():
        last = conditions.find(before, condition_type)
        if problem is None:
            reported += [] if last is None else [conditions.true(condition_type)]
            continue
        cause, message = problem
        reported.append(conditions.false(cause, message))
        if last is None or not last.agrees_with(reported[-1]):
            notes.append(Note(cause.reason, message, "Warning", action="Hold"))
    times = [changes_in(confirmed, now), AGAIN if any(found.values()) else None]
    again = min((time for time in times if time is not None), default=None)
    return Decision(conditions=tuple(reported), notes=tuple(notes), again=again)


def _unwritten(seen: Seen) -> Problem | None:
    if not seen.unwritten:
        return None
    names, why = sorted(seen.unwritten), next(iter(seen.unwritten.values()))
    # All names: a unit that is not named counts as well.
    message = f"APIServiceBinding {', '.join(names)} cannot be served, nor report that: {why}"
    return conditions.BINDING_NOT_WRITTEN, message


def space_record(secret: Manifest, identity: Identity, *, confirmed: bool) -> Patch | None:
    """Return the patch that records the space on a Secret with its kubeconfig, if one is due.

    `confirmed`: recreation is; only then another space's uid gives way.
    """
    recorded = manifest.annotations_of(secret).get(keys.SPACE_UID)
    if not identity.space_uid or recorded == identity.space_uid or manifest.is_deleting(secret):
        return None
    if recorded and not confirmed:
        return None
    notes: Manifest = {keys.SPACE_UID: identity.space_uid}
    return modification(APP_CLUSTER, SECRET, secret, metadata={"annotations": notes})


def _recreation(cluster_binding: Manifest, value: str) -> Recreation:
    """Read a `confirm-recreate`: resources, or ALL, or, as before, a time, which means all."""
    time = moment(value)
    if time is not None:
        return Recreation(frozenset({ALL}), time)
    resources = frozenset(filter(None, (one.strip() for one in value.split(","))))
    return Recreation(resources, written_at(cluster_binding, keys.CONFIRM_RECREATE))


def _pairs(value: str) -> dict[str, str]:
    """Read a `confirm-namespaces`: the uids of app namespaces, by name."""
    found = (one.strip().partition("=") for one in value.split(","))
    return {name: uid for name, _, uid in found if name and uid}


def _deletions(seen: Seen) -> Problem | None:
    found = sorted({why for one in seen.guarded for why in one.deletions})
    if found:
        return conditions.MASS_DELETION, ". ".join(found)
    found = [_parts(one.resource, one.parts) for one in seen.guarded if one.parts]
    return (conditions.PART_OF_SERVICE, ". ".join(sorted(found))) if found else None


def _parts(resource: str, places: Collection[ObjectKey]) -> str:
    some = first_of("/".join(filter(None, one)) for one in sorted(places))
    return (
        f"Of {resource}, these are parts of services on the control plane, and were adopted as"
        f" claims: {some}. If such a claim is deleted, its copy is kept until that is confirmed."
        f" Annotation {keys.ADOPT_CONTROLLED} on the template has them count as claims"
    )


def _recreations(seen: Seen, confirmed: Confirmations, now: datetime) -> Problem | None:
    other = other_space(seen.identity)
    if other is not None and not confirmed.recreate.allows(ALL, now):
        return other
    waiting = sorted((one for one in seen.guarded if one.lost), key=lambda one: one.resource)
    sentences = [withdrawn(one.resource, one.withdrawn) for one in waiting if one.withdrawn]
    if lost := {one.resource: one.lost for one in waiting if not one.withdrawn}:
        figures = first_of(f"{len(places)} {resource}" for resource, places in lost.items())
        places = sorted(set().union(*lost.values()))
        some = first_of("/".join(filter(None, one)) for one in places)
        why = f"of {figures} the copies are gone ({some})"
        sentences.append(_lost(why, seen.identity, ",".join(lost)))
    return (conditions.RECREATION_HELD, ". ".join(sentences)) if sentences else None


def _out_of_sync(seen: Seen) -> Problem | None:
    space, found = seen.identity.space, {one.resource: one.orphans for one in seen.guarded}
    sentences = [orphans.sentence(name, places, space) for name, places in sorted(found.items())]
    cause = conditions.ORPHANED
    if seen.others:
        sentences.insert(0, another_namespace(seen.others, space))
        cause = conditions.ANOTHER_NAMESPACE
    return (cause, ". ".join(filter(None, sentences))) if any(sentences) else None


def _lost(why: str, identity: Identity, resources: str = ALL) -> str:
    return (
        "Lost copies are not made again on the control plane, because each would be a new, empty"
        f" service, and credentials stay in the app cluster: {why}."
        f"{_for_an_hour(identity.space, resources)}"
    )


def _for_an_hour(space: str, resources: str) -> str:
    command = _command(space, keys.CONFIRM_RECREATE, resources)
    return f" If this is intended, allow it for an hour, on the control plane: {command}"


def _command(space: str, key: str, value: str) -> str:
    """Return the command of a confirmation, and where the way back stands."""
    return (
        f"kubectl annotate {CLUSTER_BINDING.resource} {names.CLUSTER_BINDING} -n {space}"
        f" --overwrite {key}={value}. If not: klutchctl explain {_REASONS[key].reason}"
    )
