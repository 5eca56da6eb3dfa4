"""Decides the direction of a claimed object by its metadata. Pure.

protocol-konnector.md E.2, restricted by mapping.md 0 "Direction of claims": an object goes only
where an accepted claim lets it go, whatever its annotations say. So other objects are not sent to
the control plane (H1), and not brought to the app cluster (H2). A developer's claim in that app
namespace has to ask for what comes down.

A place is free, or the copy there is ours by its marks: our side's annotation, and the uid of no
other space. Everything else is an obstacle on either side, until such a mark gives it away.

A copy ends with its origin, if a permission claim of that direction still reaches its name; its
labels may no longer match. Proof is a watch that saw the deletion of the uid that the copy names,
an origin in deletion, or its claim in deletion. An origin that is only absent makes the copy an
orphan. If all permission claims were withdrawn, copies stay (E.3). Does not know where objects are.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Final

from konnector.claim import orphans
from konnector.claim.copies import is_managed, owner_of
from konnector.claim.orphans import Terms
from konnector.permission_claim.rules import Rule
from reconciler.core import identity, keys, manifest
from reconciler.core.identity import Life
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CONFIG_MAP, SERVICE_ACCOUNT, Kind, ObjectKey

_PROVIDER: Final = keys.OWNER_PROVIDER
_CONSUMER: Final = keys.OWNER_CONSUMER
# Credentials of one cluster itself: the other deletes them again, without end, or lets somebody in.
# A release belongs where it was made: elsewhere, Helm takes it for one of its own.
_OF_ONE_CLUSTER: Final = frozenset(
    {"kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token", "helm.sh/release.v1"}
)
# Each cluster creates these in every namespace: two controllers would fight over a copy.
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
    is only metadata, because it is in a view without the content of what no konnector made (H28).
    `space_uid` is that of this provider's space, `claim` the claim whose copy owns `provider`.
    `ended` is the uid of the last origin here that is known to be deleted, "" for none.
    `terms`: on which an orphan goes at the time `now`.
    `deleted_at` is the resourceVersion that `provider` had when somebody else deleted its copy in
    the app cluster, "" where nobody is known to have done so.
    `living` are the bindings of which a developer has an instance in this app namespace that is not
    being deleted, `wide` those of which one has a cluster-scoped instance. `reserved`: it is one of
    the cluster's own programs; `is_kubeconfig`: it is the Secret of an APIServiceBinding.
    `stamps`: a copy gets marks that it lacks also where there is no other reason to write.
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
    space_uid: str = ""
    claim: tuple[Kind, Manifest] | None = field(default=None, repr=False)
    ended: str = ""
    deleted_at: str = ""
    living: Set[str] = frozenset()
    wide: Set[str] = frozenset()
    reserved: bool = False
    is_kubeconfig: bool = False
    stamps: bool = True

    def pair(self, owner: str) -> tuple[Manifest | None, Manifest | None]:
        """Return origin and copy of an object that this side owns."""
        pair = self.provider, self.consumer
        return pair if owner == _PROVIDER else pair[::-1]


class Way(Enum):
    """The way of a copy, by its metadata."""

    LEAVE = auto()
    BRING = auto()
    COLLECT = auto()
    ORPHAN = auto()
    CONFLICT = auto()


def way_of(seen: Seen) -> tuple[Way, str]:
    """Return the way of a copy, and its owner."""
    sides = [live for live in (seen.provider, seen.consumer) if live is not None]
    owner = _owner(seen)
    # An instance that is synced as such has one keeper already.
    if not sides or any(map(is_managed, sides)):
        return Way.LEAVE, owner
    if not owner:
        return _undecided(seen)
    origin, copy = seen.pair(owner)
    if origin is None or manifest.is_deleting(origin):
        return _ending(seen, owner), owner
    if copy is not None and manifest.is_deleting(copy):
        return Way.LEAVE, owner
    return (_down(seen, origin) if owner == _PROVIDER else _up(seen, origin)), owner


def _owner(seen: Seen) -> str:
    """Return the owner of an object by the table of E.2, "" where that is undecidable."""
    provider, consumer = _word(seen.provider, _CONSUMER), _word(seen.consumer, _PROVIDER)
    for owner in (provider, consumer):
        if owner in (_PROVIDER, _CONSUMER):
            return owner
    if seen.provider is None and not consumer:
        return _CONSUMER
    return _PROVIDER if seen.consumer is None and not provider else ""


def _word(live: Manifest | None, brought: str) -> str:
    """Return the owner of an object: a copy that lost that annotation still names its origin."""
    word = owner_of(live)
    is_brought = live is not None and keys.ORIGIN_UID in manifest.annotations_of(live)
    return brought if is_brought and not word else word


def is_of_another_space(seen: Seen, copy: Manifest) -> bool:
    """Return whether a copy in the app cluster came from another space."""
    return identity.of_mark(seen.space_uid, copy, keys.ORIGIN_SPACE_UID) is Life.ANOTHER


def _ending(seen: Seen, owner: str) -> Way:
    """Judge the copy of an origin that is absent, or on its way out."""
    origin, copy = seen.pair(owner)
    if copy is None or manifest.is_deleting(copy) or owner_of(copy) != owner:
        return Way.LEAVE
    down = owner == _PROVIDER
    # Applications may use another space's object, even after that space was released.
    if not _reached(seen, down=down) or (down and is_of_another_space(seen, copy)):
        return Way.LEAVE
    ended = seen.ended if origin is None else manifest.uid_of(origin)
    if ended and identity.of_mark(ended, copy, keys.ORIGIN_UID) is not Life.ANOTHER:
        return Way.COLLECT
    if not orphans.is_orphan(copy):
        return Way.ORPHAN
    return Way.COLLECT if orphans.may_go(copy, seen.terms, seen.now) else Way.LEAVE


def _down(seen: Seen, origin: Manifest) -> Way:
    rules, copy = taking_down(seen, origin), seen.consumer
    if not rules:
        return Way.LEAVE
    if copy is None:
        known = seen.deleted_at == manifest.resource_version_of(origin)
        again = any(rule.recreate_when_consumer_side_deleted for rule in rules)
        return Way.BRING if again or not known else Way.LEAVE
    if is_of_another_space(seen, copy):
        return Way.CONFLICT
    word = _word(copy, _PROVIDER)
    replaced = not word and any(rule.replace_existing for rule in rules)
    return Way.BRING if word == _PROVIDER or replaced else Way.CONFLICT


def _up(seen: Seen, origin: Manifest) -> Way:
    if not may_go_up(seen, origin):
        return Way.LEAVE
    free = seen.provider is None or _word(seen.provider, _CONSUMER) == _CONSUMER
    return Way.BRING if free else Way.CONFLICT


def _undecided(seen: Seen) -> tuple[Way, str]:
    """Judge two objects of one name without a known owner."""
    consumer, provider = seen.consumer, seen.provider
    if not consumer or not provider or any(map(manifest.is_deleting, (consumer, provider))):
        return Way.LEAVE, ""
    down = _down(seen, provider)
    if down is Way.BRING and not owner_of(provider):
        return down, _PROVIDER
    hindered = down is not Way.LEAVE or may_go_up(seen, consumer)
    return (Way.CONFLICT if hindered else Way.LEAVE), ""


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
    """Return whether any rule lets the app cluster's object up. Its annotation widens no rule.

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
    """Return whether a rule does not reach an app namespace that it would have to spell out."""
    return seen.reserved and seen.claim_place.namespace not in rule.literal_namespaces


def _is_kept(seen: Seen, origin: Manifest) -> bool:
    """Return whether an object stays in the app cluster unless its very name is claimed."""
    return (
        manifest.get_text(origin, "type") in _OF_ONE_CLUSTER
        or _is_of_the_cluster(seen)
        or seen.is_kubeconfig
        or keys.SPACE_UID in manifest.annotations_of(origin)  # a kubeconfig, as a konnector noted
    )


def _is_of_the_cluster(seen: Seen) -> bool:
    return (seen.kind.group, seen.kind.plural, seen.claim_place.name) in _OF_THE_CLUSTER
