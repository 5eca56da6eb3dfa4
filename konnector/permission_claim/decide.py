"""Decides the writes for one claimed object on both sides. Pure."""

from collections.abc import Mapping, Set
from typing import Final, NamedTuple

from konnector import APP_CLUSTER, CONTROL_PLANE
from konnector.claim import copies, orphans
from konnector.permission_claim import ways
from konnector.permission_claim.rules import carried_by
from konnector.permission_claim.ways import Seen, Way
from reconciler.core import decision, keys, manifest
from reconciler.core.decision import Create, Decision, Note, Patch, Step
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import CONFIG_MAP, SECRET, Kind, ObjectKey, Ref

CONFLICT: Final = "ClaimConflict"

_PROVIDER: Final = keys.OWNER_PROVIDER
_CONSUMER: Final = keys.OWNER_CONSUMER
_CAN_BE_IMMUTABLE: Final = frozenset(
    {(SECRET.group, SECRET.plural), (CONFIG_MAP.group, CONFIG_MAP.plural)}
)


def needs_content(seen: Seen) -> bool:
    """Return whether the whole object of the app cluster must be read before `decide` is asked.

    Of a partial object, a `type` that would keep it from going up counts as another one.
    """
    is_partial = seen.consumer_partial and seen.consumer is not None
    return is_partial and ways.way_of(seen)[0] in (Way.BRING, Way.CONFLICT)


def decide(seen: Seen) -> Decision:
    """Return the writes that make both sides agree, or that nothing is to be done.

    Where `needs_content` says so, nothing. The copy comes first, since its create proves that the
    place is free; then its origin is annotated. What is in an API server's way (an immutable
    object, another type of a Secret) is deleted and made again, once its finalizers let it go.
    """
    way, owner = ways.way_of(seen)
    if way is Way.LEAVE or needs_content(seen):
        return decision.NOTHING
    if way is Way.CONFLICT:
        return _conflict(seen)
    return decision.writes(*_steps(seen, way, owner))


def _steps(seen: Seen, way: Way, owner: str) -> tuple[Step, ...]:
    (origin, copy), down = seen.pair(owner), owner == _PROVIDER
    from_, to = (CONTROL_PLANE, APP_CLUSTER) if down else (APP_CLUSTER, CONTROL_PLANE)
    if way is Way.BRING and origin is not None:
        uid, noted = manifest.uid_of(origin), manifest.annotations_of(copy or {})
        marks = {
            keys.RESOURCE_OWNER: owner,
            keys.ORIGIN_UID: uid,
            keys.ORIGIN_SPACE_UID: seen.space_uid,
        }
        if down and seen.claim:
            marks[keys.CLAIM_UID] = manifest.uid_of(seen.claim[1])
        travel = _Travel(marks, carried_by(seen.rules, down=down))
        ref = Ref(to, seen.kind, *(seen.claim_place if down else seen.copy_place))
        brought = _brought(ref, origin, copy, travel)
        if copy is not None and not seen.stamps:
            known = travel._replace(marks={key: marks[key] for key in marks if key in noted})
            brought = brought if _brought(ref, origin, copy, known) else ()
        return (*brought, *_marked(from_, seen.kind, origin, owner))
    if copy is None:
        return ()
    if way is Way.COLLECT:
        return (decision.deletion(to, seen.kind, copy),)
    return (orphans.mark(seen.kind, copy, seen.terms, seen.now, cluster=to),)


def _marked(cluster: str, kind: Kind, origin: Manifest, owner: str) -> tuple[Step, ...]:
    if copies.owner_of(origin) == owner:
        return ()
    notes: Manifest = {keys.RESOURCE_OWNER: owner}
    return (decision.modification(cluster, kind, origin, metadata={"annotations": notes}),)


class _Travel(NamedTuple):
    """The annotations of a copy, and the keys that go along beside the usual ones."""

    marks: Mapping[str, str]
    more: Set[str]


def _brought(
    ref: Ref, origin: Manifest, copy: Manifest | None, travel: _Travel
) -> tuple[Step, ...]:
    """Return the steps that make the object at `ref` the copy of its origin."""
    if copy is None:
        return (_made(ref, origin, travel),)
    changed = decision.merge_diff(copies.content(copy), copies.content(origin))
    if changed and _must_be_made_anew(ref.kind, origin, copy):
        return (decision.deletion(ref.cluster, ref.kind, copy), _made(ref, origin, travel))
    metadata = _metadata_changes(origin, copy, travel)
    if not changed and not metadata:
        return ()
    return (Patch(ref, {"metadata": {**decision.preconditions_of(copy), **metadata}, **changed}),)


def _made(ref: Ref, origin: Manifest, travel: _Travel) -> Create:
    place = ObjectKey(ref.namespace, ref.name)
    return Create(ref.kind, copies.moved(origin, ref.kind, place, *travel), ref.cluster)


def _must_be_made_anew(kind: Kind, origin: Manifest, copy: Manifest) -> bool:
    """Return whether an API server would refuse the update of a copy with other content (H19)."""
    if (kind.group, kind.plural) not in _CAN_BE_IMMUTABLE:
        return False
    other_type = manifest.get_text(copy, "type") != manifest.get_text(origin, "type")
    return manifest.get_bool(copy, "immutable") or other_type


def _metadata_changes(origin: Manifest, copy: Manifest, travel: _Travel) -> dict[str, JSON]:
    noted, (marks, more) = manifest.annotations_of(copy), travel
    labels, annotations = (
        decision.merge_diff(*(copies.travelling(group, one, more) for one in (copy, origin)))
        for group in ("labels", "annotations")
    )
    annotations |= {key: value for key, value in marks.items() if noted.get(key) != value}
    annotations |= orphans.unmarks(copy)
    changes = {"labels": labels, "annotations": annotations}
    return {name: change for name, change in changes.items() if change}


def _conflict(seen: Seen) -> Decision:
    """Report an object that is in the way of another one to its developer."""
    consumer, provider = seen.consumer, seen.provider
    if (
        consumer is None
        or provider is None
        or not decision.merge_diff(copies.content(consumer), copies.content(provider))
    ):
        return decision.NOTHING
    subject, given = f"{seen.kind} {seen.claim_place.name}", list[tuple[str, str, str]]()
    if ways.is_of_another_space(seen, consumer):
        text = f"Another space brought the {subject} here, so it stays as it is. Rename one of them"
        given = [("annotate this one", keys.ORIGIN_SPACE_UID, seen.space_uid)]
    else:
        text = f"The provider has another {subject}, so both stay as they are. Rename this one"
        if ways.taking_down(seen, provider):
            given.append(("annotate this one", keys.RESOURCE_OWNER, _PROVIDER))
        if ways.may_go_up(seen, consumer):
            given.append(("have the provider's annotated", keys.RESOURCE_OWNER, _CONSUMER))
    text += "".join(f", or {how} {key}: {to} to have it overwritten" for how, key, to in given)
    return Decision(notes=(Note(CONFLICT, text, "Warning"),))
