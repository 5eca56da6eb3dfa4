"""Creates binding spaces for identities, and finds existing ones.

Any replica may do so, whichever leads: a step that two of them take is taken once, because each
name follows from the identity, and each change has its precondition. So there is neither lease nor
fence here, and no write that is under way at the deadline is waited for, as the executor of the
controllers would: the next call finds what it did.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from bind import bounds
from bind.bounds import owner_of
from bind.door import provisioning
from bind.door.authorizer import Authorizer
from bind.door.catalogue import Offer
from bind.door.choices import BoundCluster
from bind.door.identity import Identity, Refused, owner_key
from bind.door.provisioning import Content, Seen, Space, SpaceTerms, Step, Wait, Wanted
from bind.door.settings import PRETTY_NAME, DoorSettings
from bind.door.views import Views
from bind.informers import index_key
from reconciler.api import CLUSTER_BINDING
from reconciler.controller.events import Source, event_of
from reconciler.controller.lease import holder_here
from reconciler.controller.tasks import Clock
from reconciler.core import keys, manifest, names
from reconciler.core.decision import Create, Note
from reconciler.core.errors import ClusterError, Conflict, Rejected
from reconciler.core.manifest import Manifest
from reconciler.core.refs import EVENT, NAMESPACE, SECRET, SERVICE_ACCOUNT, Kind, Ref
from reconciler.kube.cluster import Cluster
from reconciler.kube.connection import Connection

log = logging.getLogger(__name__)

DEADLINE: Final = 10.0  # seconds
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_EVENT_TIME: Final = 1.0  # seconds for an Event, which nobody waits for longer


def terms_of(settings: DoorSettings, way: Connection, *, restricted: bool) -> SpaceTerms:
    """Return how spaces are made. `way` is how the backend itself reaches the control plane."""
    if not settings.external_address:
        log.warning(
            "kubeconfigs for app clusters contain the backend's own address of the control plane: "
            "if app clusters cannot reach it, set --external-address",
            extra={"server": way.server},
        )
    own_name = "" if settings.external_address else way.tls_server_name
    return SpaceTerms(
        settings.namespace_prefix,
        settings.pretty_name or PRETTY_NAME,
        settings.external_address or way.server,
        ca=settings.external_ca or way.ca or "",
        tls_server_name=settings.external_server_name or own_name,
        most_per_subject=settings.most_spaces,
        labels=bounds.RESTRICTED if restricted else {},
    )


class Spaces:
    """The spaces of signed-in identities, on one control plane.

    With an `authorizer`, nothing is made that it does not allow, whatever was asked before.
    """

    def __init__(
        self,
        cluster: Cluster,
        views: Callable[[], Views],
        terms: SpaceTerms,
        *,
        clock: Clock,
        authorizer: Authorizer | None = None,
    ) -> None:
        self._cluster, self._views, self._terms = cluster, views, terms
        self._clock, self._authorizer = clock, authorizer
        # One at a time for each owner: the number of its spaces is bounded.
        self._turns = WeakValueDictionary[str, asyncio.Lock]()
        self._made = dict[str, set[str]]()  # by owner; an informer may not show them yet
        # Created or changed spaces, until an Event reports that they are ready.
        self._unreported = set[str]()
        self._source = Source(f"{keys.OWN_PREFIX}klutch-bind", holder_here())

    async def provide(self, identity: Identity, cid: str, *offers: Offer, name: str = "") -> Space:
        """Return the space of an identity's app cluster, made or mended first where it has to be.

        It may ask for exports of what these offer from then on. `name` is what people call the
        cluster, "" where nobody says.

        Raises Refused: what is not offered or allowed any more, too many spaces, a space that is
        not the identity's, and `unavailable` where it is not ready in 10 s.
        """
        bound = frozenset(index_key(offer.resource) for offer in offers)
        progress = _Progress(Wanted(identity, cid, self._terms, bound, name))
        turn = self._turns.setdefault(owner_key(identity), asyncio.Lock())
        try:
            async with asyncio.timeout(DEADLINE):
                for offer in offers:
                    await self._require(identity, offer)
                async with turn:
                    return await self._provided(progress)
        except TimeoutError:
            fields = {"space": progress.wanted.name, "why": progress.why}
            log.warning("a binding space was not ready in time", extra=fields)
            sentence = "Your binding space is not ready yet. Try again"
            raise Refused("unavailable", sentence, reason="timeout", retry_after=1) from None

    def existing(self, identity: Identity) -> list[BoundCluster]:
        """Return the app clusters of an identity, by the names of their spaces."""
        found = map(self._bound, self._views().namespaces_of(identity))
        return [one for one in found if one.issuer in ("", identity.issuer)]

    def all(self) -> list[BoundCluster]:
        """Return the app clusters of everybody, by the names of their spaces."""
        return [self._bound(namespace) for namespace in self._views().namespaces()]

    def _bound(self, namespace: Manifest) -> BoundCluster:
        notes, space = manifest.annotations_of(namespace), manifest.name_of(namespace)
        annotation = notes.get(keys.IDENTITY, "")
        return BoundCluster(
            space,
            owner_of(annotation),
            annotation.rpartition("#")[2],
            notes.get(keys.ISSUER, ""),
            manifest.is_deleting(namespace),
            self._views().cluster_binding(space),
            tuple(manifest.name_of(one) for one in self._views().exports(space)),
            notes.get(keys.CLUSTER_NAME, ""),
        )

    async def _require(self, identity: Identity, offer: Offer) -> None:
        """Refuse offers that are missing, or not for this identity, before anything is written."""
        current = await self._views().offer(offer.resource.group, offer.resource.plural)
        if self._authorizer is not None and not await self._authorizer.may_bind(identity, current):
            sentence = f"You may not bind {current.resource.name} here"
            raise Refused("forbidden", sentence, reason="authorization")

    async def _provided(self, progress: "_Progress") -> Space:
        while True:
            try:
                seen = await self._look(progress.wanted)
                outcome = provisioning.decide(seen, progress.wanted)
                match outcome:
                    case Space():
                        await self._report(progress, seen.content.cluster_binding)
                        return outcome
                    case Refused():
                        raise outcome
                    case Wait():
                        progress.why = outcome.why
                    case steps:
                        await self._write(steps, progress.wanted)
                        continue
            except Rejected as error:
                log.error("a binding space cannot be created", extra={"why": str(error)})
                sentence = "Your binding space cannot be made. Ask the provider"
                raise Refused("unavailable", sentence, reason="rejected") from None
            except ClusterError as error:
                # A Conflict is another replica, or a Namespace that goes: the next look shows it.
                progress.why = str(error)
                if not isinstance(error, Conflict):
                    log.warning("a binding space is not created yet", extra={"why": progress.why})
            await self._clock.sleep(progress.pause())

    async def _look(self, wanted: Wanted) -> Seen:
        """Return the present state, read by itself, for views lag. Raises ClusterErrors."""
        views = self._views()
        known = views.namespaces_of(wanted.identity)
        places = sorted({wanted.name, *map(manifest.name_of, provisioning.own_of(known, wanted))})
        # A known space is read in the same round trip, because most users have one already.
        likely = next(filter(views.has_namespace, places), "")
        found, content = await asyncio.gather(self._namespaces(places), self._content(likely))
        own = [manifest.name_of(one) for one in provisioning.own_of(found, wanted)]
        if own != [likely]:
            content = await self._content(own[0] if len(own) == 1 else "")
        owned = self._owned(wanted.identity, known)
        # Nobody needs it after the first note, and it takes a look at each request of the space.
        unnoted = provisioning.unnoted(found, wanted)
        resources = (
            frozenset[str]() if unnoted is None else views.resources_of(manifest.name_of(unnoted))
        )
        spaces, left = provisioning.own_of(found, wanted), ""
        if len(spaces) == 1 and content.account is None:
            left = await views.left_in(spaces[0])
        if left:
            log.error("a binding space gets no ServiceAccount", extra={"why": left})
        return Seen(self._cluster.name, found, content, owned, resources, left)

    async def _namespaces(self, places: Sequence[str]) -> list[Manifest]:
        found = await asyncio.gather(*(self._get(NAMESPACE, "", name) for name in places))
        return [one for one in found if one is not None]

    async def _content(self, space: str) -> Content:
        """Return the content of a space; nothing for none."""
        if not space:
            return provisioning.EMPTY
        cluster_binding, account, token, kubeconfig = await asyncio.gather(
            self._get(CLUSTER_BINDING, space, names.CLUSTER_BINDING),
            self._get(SERVICE_ACCOUNT, space, names.BINDER),
            self._get(SECRET, space, names.BINDER),
            self._get(SECRET, space, names.KUBECONFIG),
        )
        secret, _ = provisioning.kubeconfig_place(cluster_binding)
        if secret != names.KUBECONFIG:
            kubeconfig = await self._get(SECRET, space, secret)
        # The backend itself makes the RoleBinding, and nothing is written because of it.
        role_binding = self._views().role_binding(space)
        return Content(cluster_binding, account, token, kubeconfig, role_binding)

    async def _get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        return await self._cluster.get(Ref(self._cluster.name, kind, namespace, name))

    def _owned(self, identity: Identity, known: list[Manifest]) -> int:
        """Return how many spaces an identity has, with those that this process made just now."""
        mine = [
            one
            for one in known
            if manifest.annotations_of(one).get(keys.ISSUER, identity.issuer) == identity.issuer
        ]
        shown, owner = set(map(manifest.name_of, known)), owner_key(identity)
        new = {one for one in self._made.pop(owner, ()) if one not in shown}
        new = set(filter(self._views().has_namespace, new))
        if new:
            self._made[owner] = new
        return provisioning.owned(mine) + len(new)

    async def _report(self, progress: "_Progress", live: Manifest | None) -> None:
        """Write Event `Bound` about a space that was made or changed, if that is quickly done."""
        wanted = progress.wanted
        if live is None or wanted.annotation not in self._unreported:
            return
        self._unreported.discard(wanted.annotation)
        space, name = manifest.namespace_of(live), manifest.name_of(live)
        about = Ref(self._cluster.name, CLUSTER_BINDING, space, name)
        # Each sign has its place: no name reads as that of somebody else.
        user = "".join(one if one.isprintable() else "?" for one in wanted.identity.user)
        message = f"{user} bound {', '.join(sorted(wanted.resources))} to app cluster {wanted.cid}"
        event = event_of(
            about,
            manifest.uid_of(live),
            Note("Bound", message, action="Bind"),
            source=self._source,
            now=self._clock.now(),
        )
        try:
            async with asyncio.timeout(_EVENT_TIME):
                await self._cluster.create(event, EVENT, manager=keys.MANAGER_BACKEND)
        except (ClusterError, TimeoutError) as error:
            log.debug("an Event was not recorded", extra={"ref": str(about), "error": str(error)})

    async def _write(self, steps: tuple[Step, ...], wanted: Wanted) -> None:
        self._unreported.add(wanted.annotation)
        for step in steps:
            if isinstance(step, Create):
                answer = await self._cluster.create(
                    step.manifest, step.kind, manager=keys.MANAGER_BACKEND
                )
                if step.kind == NAMESPACE:
                    self._views().wrote_namespace(answer)
                    owner = owner_key(wanted.identity)
                    self._made.setdefault(owner, set()).add(manifest.name_of(answer))
            else:
                await self._cluster.merge_patch(
                    step.ref, step.body, manager=keys.MANAGER_BACKEND, subresource=step.subresource
                )


@dataclass(slots=True)
class _Progress:
    """The progress of a call: the reason of its wait, and its next pause."""

    wanted: Wanted
    why: str = "another call makes it"
    _pause: float = _FIRST_PAUSE

    def pause(self) -> float:
        """Return how long to sleep before the next look; longer each time."""
        pause, self._pause = self._pause, min(self._pause * 1.5, _LONGEST_PAUSE)
        return pause
