"""Which way an object goes that permission claims concern, as far as metadata tell. Pure.

protocol-konnector.md E.2, restricted by mapping.md 0 "Direction of claims": an object goes only
where an accepted claim lets it go, whatever annotations say. So what the claims do not let up is
never sent to the control plane (H1), and what they do not let down is not brought (H2). What comes
down has to be asked for, too: by a developer's claim in that app namespace.

A copy in the app cluster is deleted if its origin is gone or on its way out, and a permission claim
of that direction still reaches its name. It was made under one that its labels may no longer meet,
and nobody else would ever collect it; but no permission claim at all means that they were
withdrawn, which leaves copies where they are (E.3). On the control plane, such a copy becomes an
orphan: its origin has no finalizer of ours, so nobody knows whether it was deleted or lost. Refuses
to know where objects come from, and how many there are.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Final, Literal, TypeAlias

from konnector.claim import orphans
from konnector.claim.copies import is_managed, owner_of
from konnector.claim.orphans import Terms
from konnector.permission_claim.rules import Rule
from reconciler.core import keys, manifest
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CONFIG_MAP, SERVICE_ACCOUNT, Kind, ObjectKey

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
    not marked may be of any provider. `unread`: `consumer` may be of a space of which a binding is
    not followed yet, and no `rival` speaks for that.
    `terms`: on which an orphan goes at the time `now`.
    `deleted_at` is the resourceVersion that `provider` had when somebody else deleted its copy in
    the app cluster, "" where nobody is known to have done so.
    `living` are the bindings of which a developer has an instance in this app namespace that is not
    being deleted, `wide` those of which one has a cluster-scoped instance. `reserved`: it is one of
    the cluster's own programs; `is_kubeconfig`: it is the Secret of an APIServiceBinding.
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
    unread: bool = False
    deleted_at: str = ""
    living: Set[str] = frozenset()
    wide: Set[str] = frozenset()
    reserved: bool = False
    is_kubeconfig: bool = False


class Way(Enum):
    """What is to happen, as far as metadata tell."""

    LEAVE = auto()
    DOWN = auto()
    UP = auto()
    COLLECT_CONSUMER = auto()
    ORPHAN = auto()
    COLLECT_ORPHAN = auto()
    CONFLICT = auto()


def way_of(seen: Seen) -> Way:
    """Return what is to happen with an object and its copy."""
    sides = [live for live in (seen.provider, seen.consumer) if live is not None]
    # An instance that is synced as such has one keeper already.
    if not sides or any(map(is_managed, sides)):
        return Way.LEAVE
    owner = _owner(seen)
    if owner == _PROVIDER:
        return _down(seen)
    if owner == _CONSUMER:
        return _up(seen)
    return _undecided(seen) if len(sides) == 2 else Way.LEAVE


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


def _down(seen: Seen) -> Way:
    origin, copy = seen.provider, seen.consumer
    if origin is None or manifest.is_deleting(origin):
        if copy is None or not _is_copy(copy, _PROVIDER) or not _reached(seen, down=True):
            return Way.LEAVE
        if _is_of_another_space(seen, copy):
            return Way.LEAVE  # applications run on it, also where that one was let go
        # An origin that is here and on its way out says more than a view that may be incomplete.
        spared = seen.rival == "there" or (origin is None and seen.rival == "perhaps")
        return Way.LEAVE if spared else Way.COLLECT_CONSUMER
    rules = taking_down(seen, origin)
    if not rules or (copy is not None and manifest.is_deleting(copy)):
        return Way.LEAVE
    if copy is None:
        known = seen.deleted_at == manifest.resource_version_of(origin)
        again = any(rule.recreate_when_consumer_side_deleted for rule in rules)
        return Way.DOWN if again or not known else Way.LEAVE
    return Way.CONFLICT if is_a_rivals(seen, copy) else Way.DOWN


def _is_of_another_space(seen: Seen, copy: Manifest) -> bool:
    mark = manifest.annotations_of(copy).get(keys.ORIGIN_SPACE_UID, "")
    return bool(mark) and mark != seen.space_uid


def is_a_rivals(seen: Seen, copy: Manifest) -> bool:
    """Tell whether another provider goes on to write a copy; one that has gone leaves it to us."""
    unknown = seen.unread or seen.rival in ("unasked", "perhaps")
    return seen.rival == "there" or (unknown and _is_of_another_space(seen, copy))


def _up(seen: Seen) -> Way:
    origin, copy = seen.consumer, seen.provider
    if origin is None:
        if copy is None or not _is_copy(copy, _CONSUMER) or not _reached(seen, down=False):
            return Way.LEAVE
        if not orphans.is_orphan(copy):
            return Way.ORPHAN
        return Way.COLLECT_ORPHAN if orphans.may_go(copy, seen.terms, seen.now) else Way.LEAVE
    if manifest.is_deleting(origin) or (copy is not None and manifest.is_deleting(copy)):
        return Way.LEAVE
    return Way.UP if may_go_up(seen, origin) else Way.LEAVE


def _undecided(seen: Seen) -> Way:
    """Judge two objects of one name where neither says whose it is, or in words not known."""
    consumer, provider = seen.consumer, seen.provider
    if consumer is None or provider is None:
        return Way.LEAVE
    if manifest.is_deleting(consumer) or manifest.is_deleting(provider):
        return Way.LEAVE
    down = taking_down(seen, provider)
    unmarked = not owner_of(consumer) and not owner_of(provider)
    if unmarked and seen.rival != "there" and any(rule.replace_existing for rule in down):
        return Way.DOWN
    return Way.CONFLICT if down or may_go_up(seen, consumer) else Way.LEAVE


def _is_copy(live: Manifest, owner: str) -> bool:
    return owner_of(live) == owner and not manifest.is_deleting(live)


def _reached(seen: Seen, *, down: bool) -> bool:
    return any(
        (rule.goes_down if down else rule.goes_up) and rule.reaches(seen.claim_place)
        for rule in seen.rules
    )


def taking_down(seen: Seen, origin: Manifest) -> list[Rule]:
    """Return the rules under which the object comes down: to where developers use the service."""
    place = seen.claim_place
    named_only = _is_of_the_cluster(seen) or manifest.get_text(origin, "type") in _OF_ONE_CLUSTER
    return [
        rule
        for rule in seen.rules
        if rule.goes_down
        and rule.binding in seen.living
        and not _is_closed(seen, rule)
        and rule.selects(place, origin)
        and not (named_only and place.name not in rule.literal)
    ]


def may_go_up(seen: Seen, origin: Manifest) -> bool:
    """Tell whether any rule lets the app cluster's object up. Its annotation widens no rule.

    What another side owns is not the consumer's to give: a copy that came down stays down.
    """
    owner = owner_of(origin)
    if owner not in ("", _CONSUMER):
        return False
    partial, place = seen.consumer_partial, seen.claim_place
    for rule in seen.rules:
        used = seen.living or rule.binding in seen.wide
        selected = used and rule.goes_up and rule.selects(place, origin, partial=partial)
        if not selected or _is_closed(seen, rule):
            continue
        if place.name in rule.literal:
            return True
        if _CONSUMER in (rule.owner, owner) and not _is_kept(seen, origin):
            return True
    return False


def _is_closed(seen: Seen, rule: Rule) -> bool:
    """Tell whether a rule does not reach an app namespace that it would have to spell out."""
    return seen.reserved and seen.claim_place.namespace not in rule.literal_namespaces


def _is_kept(seen: Seen, origin: Manifest) -> bool:
    """Tell whether an object stays in the app cluster unless its very name is claimed."""
    return (
        manifest.get_text(origin, "type") in _OF_ONE_CLUSTER
        or _is_of_the_cluster(seen)
        or seen.is_kubeconfig
        or keys.SPACE_UID in manifest.annotations_of(origin)  # a kubeconfig, as a konnector noted
    )


def _is_of_the_cluster(seen: Seen) -> bool:
    return (seen.kind.group, seen.kind.plural, seen.claim_place.name) in _OF_THE_CLUSTER
