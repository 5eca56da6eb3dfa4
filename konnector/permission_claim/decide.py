"""What becomes of one name that permission claims concern, on both sides. Pure.

protocol-konnector.md E.2, restricted by mapping.md 0 "Direction of claims": an object goes only
where an accepted claim lets it go, whatever annotations say. So what the claims do not let up is
never sent to the control plane (H1), and what they do not let down is not brought (H2). What comes
down has to be asked for, too: by an instance of a developer in that app namespace.

A copy in the app cluster is deleted if its origin is gone or on its way out, and a claim of that
direction still reaches its name. It was made under a claim that its labels may no longer meet, and
nobody else would ever collect it; but no claim at all means that claims were withdrawn, which
leaves copies where they are (E.3). On the control plane, such a copy becomes an orphan: its origin
has no finalizer of ours, so nobody knows whether it was deleted or lost. Refuses to know where
objects come from, and how many there are.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Final, Literal, NamedTuple, TypeAlias

from konnector.claim import orphans
from konnector.claim.copies import (
    content,
    is_managed,
    moved,
    owner_of,
    travelling_annotations,
    travelling_labels,
)
from konnector.claim.orphans import Terms
from konnector.permission_claim.rules import Rule, carried_by
from konnector.sides import APP_CLUSTER, CONTROL_PLANE
from reconciler.core import keys
from reconciler.core.decision import (
    NOTHING,
    Create,
    Decision,
    Note,
    Patch,
    Step,
    Task,
    deletion,
    preconditions_of,
)
from reconciler.core.manifest import (
    JSON,
    Manifest,
    annotations_of,
    get_bool,
    get_text,
    is_deleting,
    resource_version_of,
)
from reconciler.core.patches import merge_diff
from reconciler.core.refs import CONFIG_MAP, SECRET, SERVICE_ACCOUNT, Kind, ObjectKey, Ref

CONFLICT: Final = "ClaimConflict"

# Whether another provider of the app cluster has an object that would be in the same place there.
# `alone`: there is no other. `unasked`: there may be other konnectors, of which nothing is known
# but what their copies say.
Rival: TypeAlias = Literal["alone", "none", "perhaps", "there", "unasked"]

_PROVIDER: Final = keys.OWNER_PROVIDER
_CONSUMER: Final = keys.OWNER_CONSUMER
# Credentials of one cluster itself: the other deletes them again, without end, or lets somebody in.
# A release belongs where it was made: elsewhere, Helm takes it for one of its own.
_OF_ONE_CLUSTER: Final = frozenset(
    {
        "kubernetes.io/service-account-token",
        "bootstrap.kubernetes.io/token",
        "helm.sh/release.v1",
    }
)
# What each cluster makes in every namespace: carried over, two controllers would fight over it.
_OF_THE_CLUSTER: Final = frozenset(
    {
        (CONFIG_MAP.group, CONFIG_MAP.plural, "kube-root-ca.crt"),
        (SERVICE_ACCOUNT.group, SERVICE_ACCOUNT.plural, "default"),
    }
)
_CAN_BE_IMMUTABLE: Final = frozenset(
    {(SECRET.group, SECRET.plural), (CONFIG_MAP.group, CONFIG_MAP.plural)}
)


@dataclass(frozen=True, slots=True)
class Seen:
    """All that concerns one name in one mapped app namespace; None for an object that is absent.

    `rules` are those of this kind of all bindings of this provider. `claim_place` is in the app
    cluster, `copy_place` on the control plane. `consumer` is the object in the app cluster,
    `provider`, always whole, that on the control plane. `consumer_partial`: of `consumer` there
    is only metadata, because it is in a view that does not hold the content of what no konnector
    made (H28).
    `rival`: `perhaps` where the view of another provider is not complete. `space_uid` is that of
    this provider's space, with which it marks what it brings where it may not be alone; what is
    not marked may be of any provider.
    `terms`: on which an orphan goes at the time `now`.
    `deleted_at` is the resourceVersion that `provider` had when somebody else deleted its copy in
    the app cluster, "" where nobody is known to have done so.
    `living` are the bindings of which a developer has an instance in this app namespace that is not
    being deleted; `reserved`: it is one of the cluster's own programs.
    """

    kind: Kind
    rules: Sequence[Rule]
    claim_place: ObjectKey
    copy_place: ObjectKey
    terms: Terms
    now: datetime
    consumer: Manifest | None = field(default=None, repr=False)
    provider: Manifest | None = field(default=None, repr=False)
    consumer_partial: bool = False
    rival: Rival = "alone"
    space_uid: str = ""
    deleted_at: str = ""
    living: Set[str] = frozenset()
    reserved: bool = False


class _Way(Enum):
    """What is to happen, as far as metadata tell."""

    LEAVE = auto()
    DOWN = auto()
    UP = auto()
    COLLECT_CONSUMER = auto()
    ORPHAN = auto()
    COLLECT_ORPHAN = auto()
    CONFLICT = auto()


def needs_content(seen: Seen) -> bool:
    """Tell whether the whole object of the app cluster must be read before `decide` is asked.

    Of a partial object, a `type` that would keep it from going up counts as another one.
    """
    return _lacks_content(seen, _way(seen))


def decide(seen: Seen) -> Decision:
    """Return the writes that make both sides agree, or that nothing is to be done.

    Where `needs_content` says so, nothing. The origin is annotated before its copy is made, so
    that no copy is without an owner. What is in an API server's way (an immutable object, another
    type of a Secret) is deleted and made anew, once its finalizers let it go.
    """
    way = _way(seen)
    if way is _Way.LEAVE or _lacks_content(seen, way):
        return NOTHING
    if way is _Way.CONFLICT:
        return _conflict(seen)
    steps = _steps(seen, way)
    return Decision(tasks=(Task(steps),)) if steps else NOTHING


def _lacks_content(seen: Seen, way: _Way) -> bool:
    if not seen.consumer_partial or seen.consumer is None:
        return False
    return way in (_Way.DOWN, _Way.UP, _Way.CONFLICT)


def _way(seen: Seen) -> _Way:
    sides = [live for live in (seen.provider, seen.consumer) if live is not None]
    # An instance that is synced as such has one keeper already.
    if not sides or any(map(is_managed, sides)):
        return _Way.LEAVE
    owner = _owner(seen)
    if owner == _PROVIDER:
        return _down(seen)
    if owner == _CONSUMER:
        return _up(seen)
    return _undecided(seen) if len(sides) == 2 else _Way.LEAVE


def _owner(seen: Seen) -> str:
    """Return whose object it is by the table of E.2, "" where that is undecidable."""
    provider, consumer = owner_of(seen.provider), owner_of(seen.consumer)
    for owner in (provider, consumer):
        if owner in (_PROVIDER, _CONSUMER):
            return owner
    if seen.provider is None and not consumer:
        return _CONSUMER
    if seen.consumer is None and not provider:
        return _PROVIDER
    return ""


def _down(seen: Seen) -> _Way:
    origin, copy = seen.provider, seen.consumer
    if origin is None or is_deleting(origin):
        if copy is None or not _is_copy(copy, _PROVIDER) or not _reached(seen, down=True):
            return _Way.LEAVE
        if _is_of_another_space(seen, copy):
            return _Way.LEAVE  # applications run on it, also where that one was let go
        # An origin that is here and on its way out says more than a view that may be incomplete.
        spared = seen.rival == "there" or (origin is None and seen.rival == "perhaps")
        return _Way.LEAVE if spared else _Way.COLLECT_CONSUMER
    rules = _taking_down(seen, origin)
    if not rules or (copy is not None and is_deleting(copy)):
        return _Way.LEAVE
    if copy is None:
        known = seen.deleted_at == resource_version_of(origin)
        again = any(rule.recreate_when_consumer_side_deleted for rule in rules)
        return _Way.DOWN if again or not known else _Way.LEAVE
    return _Way.CONFLICT if _is_a_rivals(seen, copy) else _Way.DOWN


def _is_of_another_space(seen: Seen, copy: Manifest) -> bool:
    mark = annotations_of(copy).get(keys.ORIGIN_SPACE_UID, "")
    return bool(mark) and mark != seen.space_uid


def _is_a_rivals(seen: Seen, copy: Manifest) -> bool:
    """Tell whether another provider goes on to write a copy; one that has gone leaves it to us."""
    if seen.rival == "unasked":
        return _is_of_another_space(seen, copy)
    return seen.rival == "there"


def _up(seen: Seen) -> _Way:
    origin, copy = seen.consumer, seen.provider
    if origin is None:
        if copy is None or not _is_copy(copy, _CONSUMER) or not _reached(seen, down=False):
            return _Way.LEAVE
        if not orphans.is_orphan(copy):
            return _Way.ORPHAN
        return _Way.COLLECT_ORPHAN if orphans.may_go(copy, seen.terms, seen.now) else _Way.LEAVE
    if is_deleting(origin) or (copy is not None and is_deleting(copy)):
        return _Way.LEAVE
    return _Way.UP if _may_go_up(seen, origin) else _Way.LEAVE


def _undecided(seen: Seen) -> _Way:
    """Judge two objects of one name where neither says whose it is, or in words not known."""
    consumer, provider = seen.consumer, seen.provider
    if consumer is None or provider is None or is_deleting(consumer) or is_deleting(provider):
        return _Way.LEAVE
    down = _taking_down(seen, provider)
    unmarked = not owner_of(consumer) and not owner_of(provider)
    if unmarked and seen.rival != "there" and any(rule.replace_existing for rule in down):
        return _Way.DOWN
    return _Way.CONFLICT if down or _may_go_up(seen, consumer) else _Way.LEAVE


def _is_copy(live: Manifest, owner: str) -> bool:
    return owner_of(live) == owner and not is_deleting(live)


def _reached(seen: Seen, *, down: bool) -> bool:
    return any(
        (rule.goes_down if down else rule.goes_up) and rule.reaches(seen.claim_place)
        for rule in seen.rules
    )


def _taking_down(seen: Seen, origin: Manifest) -> list[Rule]:
    """Return the rules under which the object comes down: to where developers use the service."""
    place = seen.claim_place
    named_only = _is_of_the_cluster(seen) or get_text(origin, "type") in _OF_ONE_CLUSTER
    return [
        rule
        for rule in seen.rules
        if rule.goes_down
        and rule.binding in seen.living
        and not (seen.reserved and place.namespace not in rule.literal_namespaces)
        and rule.selects(place, origin)
        and not (named_only and place.name not in rule.literal)
    ]


def _may_go_up(seen: Seen, origin: Manifest) -> bool:
    """Tell whether any rule lets the app cluster's object up. Its annotation widens no rule.

    What another side owns is not the consumer's to give: a copy that came down stays down.
    """
    owner = owner_of(origin)
    if owner not in ("", _CONSUMER):
        return False
    partial, place = seen.consumer_partial, seen.claim_place
    for rule in seen.rules:
        if not rule.goes_up or not rule.selects(place, origin, partial=partial):
            continue
        if place.name in rule.literal:
            return True
        if _CONSUMER in (rule.owner, owner) and not _is_kept(seen, origin):
            return True
    return False


def _is_kept(seen: Seen, origin: Manifest) -> bool:
    """Tell whether an object stays in the app cluster unless its very name is claimed."""
    return (
        get_text(origin, "type") in _OF_ONE_CLUSTER
        or _is_of_the_cluster(seen)
        or keys.SPACE_UID in annotations_of(origin)  # a kubeconfig of a konnector
    )


def _is_of_the_cluster(seen: Seen) -> bool:
    return (seen.kind.group, seen.kind.plural, seen.claim_place.name) in _OF_THE_CLUSTER


def _steps(seen: Seen, way: _Way) -> tuple[Step, ...]:
    consumer, provider = seen.consumer, seen.provider
    if way is _Way.COLLECT_CONSUMER and consumer is not None:
        return (deletion(APP_CLUSTER, seen.kind, consumer),)
    if way is _Way.ORPHAN and provider is not None:
        return (orphans.mark(CONTROL_PLANE, seen.kind, provider, seen.terms, seen.now),)
    if way is _Way.COLLECT_ORPHAN and provider is not None:
        return (deletion(CONTROL_PLANE, seen.kind, provider),)
    here = Ref(APP_CLUSTER, seen.kind, *seen.claim_place)
    there = Ref(CONTROL_PLANE, seen.kind, *seen.copy_place)
    if way is _Way.DOWN and provider is not None:
        return (
            *_marked(there, provider, _PROVIDER),
            *_brought(here, provider, consumer, _travel(seen, _PROVIDER)),
        )
    if way is _Way.UP and consumer is not None:
        return (
            *_marked(here, consumer, _CONSUMER),
            *_brought(there, consumer, provider, _travel(seen, _CONSUMER)),
        )
    return ()


def _marked(ref: Ref, origin: Manifest, owner: str) -> tuple[Step, ...]:
    if owner_of(origin) == owner:
        return ()
    metadata = {**preconditions_of(origin), "annotations": {keys.RESOURCE_OWNER: owner}}
    return (Patch(ref, {"metadata": metadata}),)


class _Travel(NamedTuple):
    """What a copy is annotated with, and what goes along beside what always does."""

    marks: Mapping[str, str]
    more: Set[str]


def _travel(seen: Seen, owner: str) -> _Travel:
    return _Travel(_marks_of_copy(seen, owner), carried_by(seen.rules, down=owner == _PROVIDER))


def _marks_of_copy(seen: Seen, owner: str) -> dict[str, str]:
    """Return what a copy says of its origin. On the control plane, its namespace says the rest."""
    marks = {keys.RESOURCE_OWNER: owner}
    if owner == _PROVIDER and seen.space_uid and seen.rival != "alone":
        marks[keys.ORIGIN_SPACE_UID] = seen.space_uid
    return marks


def _brought(
    ref: Ref, origin: Manifest, copy: Manifest | None, travel: _Travel
) -> tuple[Step, ...]:
    """Return what makes the object at `ref` the copy of its origin."""
    if copy is None:
        return (_made(ref, origin, travel),)
    changed = merge_diff(content(copy), content(origin))
    if changed and _must_be_made_anew(ref.kind, origin, copy):
        return (deletion(ref.cluster, ref.kind, copy), _made(ref, origin, travel))
    metadata = _metadata_changes(origin, copy, travel)
    if not changed and not metadata:
        return ()
    return (Patch(ref, {"metadata": {**preconditions_of(copy), **metadata}, **changed}),)


def _made(ref: Ref, origin: Manifest, travel: _Travel) -> Create:
    place = ObjectKey(ref.namespace, ref.name)
    return Create(ref.kind, moved(origin, ref.kind, place, *travel), ref.cluster)


def _must_be_made_anew(kind: Kind, origin: Manifest, copy: Manifest) -> bool:
    """Tell whether an API server would refuse the update of a copy whose content differs (H19)."""
    if (kind.group, kind.plural) not in _CAN_BE_IMMUTABLE:
        return False
    return get_bool(copy, "immutable") or get_text(copy, "type") != get_text(origin, "type")


def _metadata_changes(origin: Manifest, copy: Manifest, travel: _Travel) -> dict[str, JSON]:
    held, (marks, more) = annotations_of(copy), travel
    labels = merge_diff(travelling_labels(copy, more), travelling_labels(origin, more))
    annotations = merge_diff(
        travelling_annotations(copy, more), travelling_annotations(origin, more)
    )
    annotations |= {key: value for key, value in marks.items() if held.get(key) != value}
    annotations |= orphans.unmarks(copy)
    changes = {"labels": labels, "annotations": annotations}
    return {name: change for name, change in changes.items() if change}


def _conflict(seen: Seen) -> Decision:
    """Tell the developer of an object that keeps another one from being carried to its place."""
    consumer, provider = seen.consumer, seen.provider
    if consumer is None or provider is None or not merge_diff(content(consumer), content(provider)):
        return NOTHING
    subject = f"{seen.kind} {seen.claim_place.name}"
    if _is_a_rivals(seen, consumer):
        message = (
            f"Two providers have a {subject} for this namespace, so the one here stays as it is. "
            "One of the providers has to rename its own"
        )
        return Decision(notes=(Note(CONFLICT, message, "Warning"),))
    ways = {_PROVIDER: bool(_taking_down(seen, provider)), _CONSUMER: _may_go_up(seen, consumer)}
    owners = " or ".join(owner for owner, open_ in ways.items() if open_)
    message = (
        f"The provider has another {subject}, and neither says whose it is, so both stay as they "
        f"are. Rename this one, or annotate it {keys.RESOURCE_OWNER}: {owners}, whose content "
        "then replaces the other's"
    )
    return Decision(notes=(Note(CONFLICT, message, "Warning"),))
