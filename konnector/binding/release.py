"""Reads the remaining objects of released or deleted bindings (mapping.md 9).

Uses no informers: it lists the objects at each look, after the sync has ended.

"""

import logging
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from konnector.binding import crd, drain
from konnector.binding.crd import Owner
from konnector.binding.drain import Object, Seen
from konnector.claim import copies, orphans
from konnector.context import AgentContext, SyncContext, all_in, copies_in
from konnector.permission_claim import rules as permission_claim_rules
from konnector.permission_claim.rules import Rule
from konnector.provider.provider import Provider
from konnector.provider.registry import AnyProviders
from reconciler import api
from reconciler.api import claim_status
from reconciler.api.claim_status import Stop
from reconciler.controller.tasks import TaskSupervisor
from reconciler.core import keys, manifest
from reconciler.core.decision import Decision, Step, writes
from reconciler.core.errors import ClusterError, Forbidden, KlutchError, NotServed, Rejected
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CRD, NAMESPACE, Kind, ObjectKey, Ref
from reconciler.kube.cluster import Cluster
from reconciler.kube.limits import pause
from reconciler.kube.store import Store

log = logging.getLogger(__name__)

_REFUSED: Final = (Forbidden, Rejected)  # the same write would fail again, once for each claim
_LONGEST: Final = 60.0  # seconds between two attempts to remove finalizers


def key_of(live: Manifest) -> ObjectKey:
    return ObjectKey(manifest.namespace_of(live), manifest.name_of(live))


async def look(
    cluster: Cluster,
    bindings: Store,
    live: Manifest,
    provider: Provider | None,
    *,
    has_namesake: bool,
) -> Seen:
    """Return the state of a binding that is to be drained; `bindings` are all of them.

    `has_namesake`: the same provider serves another binding of this name.
    """
    seen = Seen(cluster=cluster.name, binding=live, kind=bindings.kind)
    if not drain.waits(live):
        return seen
    if provider is None or provider.serving is None:
        return replace(seen, unsure="its service provider cluster is not reached")
    link = provider.serving.link
    seen = replace(
        seen,
        space=link.space,
        lives=provider.guards.lives | {link.space_uid},  # also one that went since then
        service_namespaces=frozenset(map(link.mappings.service, link.mappings.all())),
        mappings=link.mappings.objects(),
        syncing=provider.serving.syncs.wants(manifest.name_of(live)),
        reported=provider.has_reported_the_end(manifest.name_of(live)),
    )
    try:
        return await _Left(link, bindings, live).added_to(seen, has_namesake=has_namesake)
    except ClusterError as error:
        return replace(seen, unsure=str(error))


def report(
    context: AgentContext,
    decision: Decision,
    instances: Sequence[Object],
    stop: Stop = claim_status.RELEASED,
) -> None:
    """Record an Event about each instance that a decision reports as no longer synced."""
    for ref, live in drain.reported(decision, instances):
        context.runtime.recorder.record(ref, live, stop.note)


async def report_withdrawal(context: AgentContext, body: Manifest) -> bool:
    """Report at the instances of a withdrawn kind, and have its CRD warn.

    `body` is that CRD. Returns whether it is done, as far as it is allowed: else try it again.
    """
    warned = await warn(context, drain.unserved(body))
    try:
        found = await _objects(context.app, crd.instance_kind(body), whole=True)
        finalized = [one for one in found if keys.SYNCER in manifest.finalizers_of(one[1])]
        stops = drain.stopped(finalized, body, claim_status.WITHDRAWN, context.clock.now())
        report(context, stops, finalized, claim_status.WITHDRAWN)
        await context.executor().execute(stops)
    except ClusterError as error:
        log.warning("instances do not report the end of their sync", extra={"error": str(error)})
        return warned and isinstance(error, _REFUSED)
    return warned


async def warn(context: AgentContext, step: Step | None) -> bool:
    """Have a CRD warn users of a kind that is bound no more; that holds no release up.

    Returns whether it is done, as far as it is allowed.
    """
    try:
        await context.executor().execute(writes(step))
    except ClusterError as error:
        log.warning("a CRD could not be marked as deprecated", extra={"error": str(error)})
        return isinstance(error, _REFUSED)
    return True


class _Left:
    """The leftovers of a binding's sync, as they are read now."""

    def __init__(self, link: SyncContext, bindings: Store, live: Manifest) -> None:
        self._link, self._bindings, self._live = link, bindings, live
        self._app = link.agent.app

    async def added_to(self, seen: Seen, *, has_namesake: bool) -> Seen:
        """Return it in a Seen. Raises ClusterErrors.

        Nothing is left of a binding whose CRD is another's: what there is is that one's.
        """
        body = await self._app.get(Ref(self._app.name, CRD, "", manifest.name_of(self._live)))
        if body is None:
            return replace(seen, copied=await self._copied())
        kind = crd.instance_kind(body)
        is_anothers = crd.is_anothers(body, self._owner())
        if is_anothers and has_namesake:  # the namesake takes over the copies, and reports it
            return replace(seen, mappings=(), syncing=False, reported=True)
        places = seen.service_namespaces if kind.namespaced else [""]
        seen = replace(seen, copies=await copies_in(self._link.plane, kind, places))
        if is_anothers:
            return seen
        return replace(
            seen,
            # Without copies, the instances and their status are next.
            instances=await _objects(self._app, kind, whole=not drain.copies_to_release(seen)),
            copied=await self._copied(),
            crd=body,
        )

    def _owner(self) -> Owner:
        live = frozenset(manifest.uid_of(one) for one in self._bindings.all())
        marks = self._link.agent.control_plane_mode
        return Owner(self._live, live, self._link.space_uid, marks=marks)

    async def _copied(self) -> Sequence[Object]:
        """Return the objects that came down by this binding's claims, and would by no other's."""
        if manifest.annotations_of(self._live).get(keys.DELETION_POLICY) != drain.DELETE:
            return ()
        own = [rule for rule in permission_claim_rules.rules_of(self._live).rules if rule.goes_down]
        others = [
            rule
            for one in self._bindings.all()
            if manifest.uid_of(one) != manifest.uid_of(self._live)
            for rule in permission_claim_rules.rules_of(one).rules
        ]
        kinds = {(rule.group, rule.version, rule.resource) for rule in own}
        found: list[Object] = []
        for asked in sorted(kinds):
            try:
                kind = await self._app.kind(*asked)
            except NotServed:
                continue  # no object of an unserved kind was copied by a claim (H18)
            for one in await _objects(self._app, kind):
                ours = self._came_by(one, _of(kind, own))
                if ours and not self._came_by(one, _of(kind, others)):
                    found.append(one)
        return found

    def _came_by(self, one: Object, rules: Sequence[Rule]) -> bool:
        _, live = one
        place = ObjectKey(*manifest.identity_of(live))
        mark = manifest.annotations_of(live).get(keys.ORIGIN_SPACE_UID, self._link.space_uid)
        provided = copies.owner_of(live) == keys.OWNER_PROVIDER and mark == self._link.space_uid
        mapping = self._link.mappings.get(place.namespace)
        if not provided or mapping is None or orphans.is_orphan(live):
            return False
        # What was released is in use, and so are its credentials: nothing tells which ones are its.
        released = api.released_kinds(mapping) - {manifest.name_of(self._live)}
        return not released and any(rule.reaches(place) for rule in rules)


def _of(kind: Kind, rules: Sequence[Rule]) -> list[Rule]:
    return [rule for rule in rules if (rule.group, rule.resource) == (kind.group, kind.plural)]


async def _objects(cluster: Cluster, kind: Kind, *, whole: bool = False) -> list[Object]:
    """Return the objects of a kind; none where the cluster does not serve it."""
    try:
        return await all_in(cluster, kind, [""], whole=whole)
    except NotServed:
        return []


class Leftovers(TaskSupervisor):
    """Frees, at the start, the instances of kinds that no binding names any more (U3).

    Their binding was deleted while no konnector ran; they could never be deleted. Their copies on
    the control plane stay, and so does the mark of the instances: bound again, they are joined.
    Nothing is written while this may be another app cluster than the one that was bound (T8), which
    only the spaces of the bindings that are left can tell.

    Looks once, and again until that went well. `bindings` are those in `cluster`.
    `space` is that of control-plane mode, else "": there a CRD says of which space it is; elsewhere
    its owner does, who may be in any namespace.
    """

    def __init__(
        self,
        context: AgentContext,
        cluster: Cluster,
        bindings: Store,
        providers: AnyProviders,
        *,
        space: str,
    ) -> None:
        super().__init__()
        self._context, self._cluster, self._space = context, cluster, space
        self._bindings, self._kind, self._providers = bindings, bindings.kind, providers
        self._executor = context.executor()
        self.start("leftovers", self._free_all)

    async def _free_all(self) -> None:
        failures = 0
        while True:
            asked = None
            try:
                fault = await self._free()
            except Forbidden as error:
                log.warning("released instances cannot be listed", extra={"error": str(error)})
                return
            except KlutchError as error:
                fault = str(error)
                asked = error.retry_after if isinstance(error, ClusterError) else None
            if not fault:
                return
            failures += 1
            log.warning("released instances still have the sync finalizer", extra={"error": fault})
            seconds = min(pause(failures, asked=asked, jitter=random.random()), _LONGEST)
            await self._context.clock.sleep(seconds)

    async def _free(self) -> str:
        """Free it; return why something is not freed yet, or ""."""
        uid = await self._space_uid()
        if self._space and not uid:
            return ""
        candidates = [one for one in self._context.crds.all() if crd.was_made(one, space_uid=uid)]
        if not candidates:
            return ""
        served = self._context.crds.get("", self._kind.resource)
        if not self._space and (served is None or manifest.is_deleting(served)):
            return ""  # the deletion of the kind is no deletion of each binding
        # A whole list is needed: an informer may have the bindings of one namespace only.
        listed = await self._cluster.list(self._kind, namespace=self._space, metadata_only=True)
        named = {manifest.name_of(one) for one in listed.items}
        for one in candidates:
            if manifest.name_of(one) not in named and not manifest.is_deleting(one):
                problem = await self._free_instances(manifest.name_of(one))
                if problem:
                    return problem
        return ""

    async def _space_uid(self) -> str:
        if not self._space:
            return ""
        ref = Ref(self._cluster.name, NAMESPACE, "", self._space)
        live = await self._cluster.get(ref, metadata_only=True)
        return "" if live is None else manifest.uid_of(live)

    async def _free_instances(self, name: str) -> str:
        body = await self._context.bodies.get("", name)
        if body is None:
            return ""
        found = await _objects(self._context.app, crd.instance_kind(body), whole=True)
        finalized = [one for one in found if keys.SYNCER in manifest.finalizers_of(one[1])]
        if not finalized:
            return ""
        mismatch = await self._mismatch()
        if not mismatch:
            log.warning("released instances lose the sync finalizer", extra={"kind": name})
            freed = drain.freed(finalized, body, self._context.clock.now())
            report(self._context, freed, finalized)
            await self._executor.execute(freed)
            await warn(self._context, drain.unserved(body))
        return mismatch

    async def _mismatch(self) -> str:
        """Return why this may be another app cluster than was bound, or "". Raises ClusterErrors.

        What no space was asked about yet may be.
        """
        for live in self._bindings.all():
            if self._providers.of(key_of(live)) is None:
                return f"it is not known yet where APIServiceBinding {key_of(live)} leads"
        for provider in self._providers.all():
            if provider.serving is None:
                return f"space {provider.space} was not read yet"
            await provider.guards.look_at_app_cluster()
            mismatch = provider.guards.mismatch()
            if mismatch:
                return mismatch
        return ""
