"""Reconciles app namespaces with the APIServiceNamespaces of a space."""

from collections.abc import Set
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from konnector.binding import crd
from konnector.claim import orphans
from konnector.context import SyncContext, copies_in
from konnector.namespace import decide
from konnector.namespace.decide import Removal, Seen
from konnector.provider.sync_manager import Syncs
from konnector.space import decide as space_decide
from reconciler.api import API_SERVICE_NAMESPACE, released_kinds
from reconciler.core import keys
from reconciler.core.decision import Decision, Note
from reconciler.core.documents import first_of
from reconciler.core.errors import AlreadyExists, ClusterError, Forbidden
from reconciler.core.manifest import Manifest, annotations_of, get_text, is_deleting, uid_of
from reconciler.core.refs import NAMESPACE, Kind, ObjectKey, Ref

_SOON: Final = timedelta(seconds=1)
_RECHECK: Final = timedelta(minutes=1)  # after this time, an Event reports why a mapping is kept
_NAMED: Final = 4  # kinds in a note
_AT_FIRST: Final = 60.0  # seconds after a start in which syncs of bound kinds may still begin


class Namespaces:
    """The controller of a space's mappings, by app namespace; run it once."""

    def __init__(self, link: SyncContext, syncs: Syncs) -> None:
        self._link, self._syncs = link, syncs
        self._context, self._guards, self._views = link.agent, link.guards, link.views
        self._resource = API_SERVICE_NAMESPACE.resource
        self._kind_guard = link.guards.kind_guard(self._resource)
        self._ended: set[str] = set()  # app namespaces that were seen on their way out
        self._began = link.agent.clock.monotonic()
        self._kept: dict[str, _Kept] = {}

    async def reconcile(self, key: str) -> timedelta | None:
        """Reconcile one app namespace and its mapping."""
        if self._guards.mismatch():
            return _RECHECK
        seen = self._look(key)
        if seen.mapping is not None and decide.leaving(seen):
            removal = await self._removal(key, seen.mapping)
            if isinstance(removal, timedelta):
                return removal
            seen = replace(self._look(key), removal=removal)
        else:
            self._keep(key, frozenset())
            seen = replace(seen, stamped=await self._is_stamped(key, seen.mapping))
        orphan = seen.app_namespace is None and orphans.is_orphan(seen.mapping)
        self._kind_guard.note(ObjectKey("", key), orphan=orphan)
        decision = decide.decide(seen)
        self._report(seen, decision)
        if self._guards.mismatch():
            return _RECHECK
        if decision.deletes and (wait := self._guards.deletes_in()) is not None:
            return wait
        try:
            await self._link.executor.execute(decision)
        except AlreadyExists:
            return None  # its event is on the way
        return decision.again

    def observe(self, name: str) -> None:
        """Note whether an app namespace is on its way out, as the view of them shows it now."""
        live = self._context.namespaces.get("", name)
        if live is None:
            return
        if is_deleting(live):
            self._ended.add(name)
        else:
            self._ended.discard(name)

    async def _removal(self, name: str, mapping: Manifest) -> Removal | timedelta:
        """Read the facts without which no mapping goes, or return when to look again."""
        if self.pending:
            self._kept.setdefault(name, _Kept(self._context.clock.monotonic()))
            return _SOON
        stopped = self._stopped()
        unsynced = await self._unsynced(mapping)
        self._keep(name, unsynced)
        brought = self._syncs.has_brought(name)
        removal = await self._read(name, mapping)
        removal = replace(removal, brought=brought, unsynced=bool(unsynced))
        # A sync that ended since then knows of no copies any more; one that began does.
        return removal if self._stopped() <= stopped else _SOON

    async def _read(self, name: str, mapping: Manifest) -> Removal:
        gone = await self._is_gone(name, mapping)
        removal = Removal(gone=gone, released=gone and await self._has_released(mapping))
        # The identity of the app cluster and the confirmations have to be current, too.
        await self._guards.look_at_app_cluster()
        await self._guards.look_at_confirmations()
        if removal.gone:  # all this takes long enough for it to be made again, with claims
            return replace(removal, gone=await self._is_gone(name, mapping))
        return removal

    async def _is_stamped(self, name: str, mapping: Manifest | None) -> bool:
        """Return whether each copy of a mapping has its claim's uid. A new one has no copies."""
        if space_decide.is_anothers(self._views.cluster_binding):
            return False
        if mapping is None or decide.is_marked(mapping):
            return True
        known = self._syncs.are_stamped(name) and not self.pending
        return known and not await self._unsynced(mapping)

    def _look(self, name: str) -> Seen:
        app_namespace = self._context.namespaces.get("", name)
        mapping = self._views.mappings.get(self._views.space, name)
        ended = name in self._ended or decide.has_ended(mapping)
        return Seen(
            name=name,
            space=self._views.space,
            terms=self._guards.terms(self._resource),
            now=self._context.clock.now(),
            app_cluster_uid=self._guards.app_cluster_uid,
            app_namespace=app_namespace,
            mapping=mapping,
            wanted=self._syncs.needs(name),
            ended=ended,
            occupied=self._syncs.has_copies(name) or (not ended and self._guards.has_orphans(name)),
            confirmed=self._guards.confirmed,
            confirmed_uid=self._guards.confirmed_namespace(name),
            vouched=decide.is_unmarked(mapping) and self._syncs.vouches(name),
        )

    @property
    def pending(self) -> bool:
        """Whether copies may be behind a mapping of which nothing is known yet."""
        callbacks = self._link.callbacks
        bound = set(callbacks.bound())
        # At first, what is bound may still come to be synced.
        return not self._syncs.settled or (
            self._context.clock.monotonic() - self._began < _AT_FIRST
            and (
                not bound.issuperset(callbacks.unfollowed(self._link.space_uid))
                or any(map(self._is_unread, bound))
            )
        )

    def _bindable(self) -> Set[str]:
        """Return the resources that may have copies here: all that are exported, or bound.

        An export without a binding counts, and a binding that goes, or has lost its export: their
        copies stay. Those of them that were released are bound no more, and have another mark.
        So does a binding that may lead here, and whose Secret is not there or does not work.
        """
        callbacks = self._link.callbacks
        exported = self._views.exports.names(self._views.space)
        return {*exported, *callbacks.bound(), *callbacks.unfollowed(self._link.space_uid)}

    def _stopped(self) -> Set[str]:
        """Return those of them with copies that no sync knows."""
        return {name for name in self._bindable() if not self._syncs.runs(name)}

    def _is_unread(self, name: str) -> bool:
        """Return whether these are namespaced, and not all instances and copies were seen."""
        if self._syncs.runs(name) and not self._syncs.missing(name):
            return False
        export = self._views.export(name)
        return export is None or get_text(export, "spec", "scope") == "Namespaced"

    async def _unsynced(self, mapping: Manifest) -> Set[str]:
        """Return the unsynced resources that may have copies behind a mapping.

        It may be so for ever, say where the CRD of its name is somebody else's: then it holds no
        more than that (U1). Nobody can tell where rights went with an export; then a binding
        that may be another provider's holds nothing.
        """
        service, found = get_text(mapping, "status", "namespace"), set[str]()
        bound = set(self._link.callbacks.bound())
        for name in sorted(filter(self._is_unread, self._bindable())) if service else ():
            export = self._views.export(name)
            plural, _, group = name.partition(".")
            kind = Kind(group, "", "", plural) if export is None else crd.instance_kind(export)
            try:
                copies = await copies_in(self._link.plane, kind, [service])
            except ClusterError as error:
                if export is not None or name in bound or not isinstance(error, Forbidden):
                    found.add(name)
                continue
            if any(keys.BOUND in annotations_of(one) for _, one in copies):
                found.add(name)
        return found

    def _keep(self, app_namespace: str, resources: Set[str]) -> None:
        """Report, once it lasts, the resources for the sake of which a mapping is kept."""
        now = self._context.clock.monotonic()
        kept = self._kept.pop(app_namespace, _Kept(now))
        about = f"app namespace {app_namespace}"
        for resource in kept.resources - resources:
            self._link.troubles.report(resource, about, "")
        if not resources:
            return
        self._kept[app_namespace] = kept
        kept.resources = resources
        if now - kept.since < _RECHECK.total_seconds():
            return
        for resource in resources:
            self._link.troubles.report(resource, about, _KEPT)
        unbound = {one for one in resources if self._link.callbacks.binding(one) is None}
        if not unbound <= kept.noted:  # and no binding reports it
            kept.noted |= unbound
            message = (
                f"App namespace {app_namespace} is gone, and its APIServiceNamespace is kept: there"
                f" may be copies of {first_of(sorted(unbound), _NAMED)} behind it, and no"
                " APIServiceBinding of them works here. Bind them again; or, where nobody needs"
                " these copies any more, have the provider delete them and the APIServiceNamespace"
            )
            note = Note("CopiesKept", message, "Warning", action="Keep")
            self._link.callbacks.notify_one(note)

    async def _is_gone(self, name: str, mapping: Manifest) -> bool:
        """Ask whether an app namespace is gone, or still another one, as the view shows it."""
        live = await self._context.app.get(self._ref(name), metadata_only=True)
        shown = self._context.namespaces.get("", name)
        return live is None or (shown is not None and decide.is_unproven(mapping, live))

    def _ref(self, name: str, namespace: str = "") -> Ref:
        return Ref(self._context.app.name, NAMESPACE, namespace, name)

    def _report(self, seen: Seen, decision: Decision) -> None:
        """Report why a mapping is kept: for another app namespace, with an Event in that one."""
        live = seen.app_namespace if decision.notes else None
        self._guards.note_namespace(seen.name, uid_of(live or {}))
        for note in decision.notes:
            if live is None:
                self._link.callbacks.notify(note)
            else:
                ref = self._ref(seen.name, namespace=seen.name)
                self._context.runtime.recorder.record(ref, live, note)

    async def _has_released(self, mapping: Manifest) -> bool:
        """Return whether released copies would go along, or may."""
        service = get_text(mapping, "status", "namespace")
        if not service:
            return False
        synced = {kind.resource for kind in self._syncs.kinds}
        if not released_kinds(mapping) <= synced:
            return True
        for kind in self._syncs.kinds:
            if not kind.namespaced:
                continue
            try:
                found = await self._link.plane.list(kind, namespace=service, metadata_only=True)
            except ClusterError:
                return True
            if any(keys.RELEASED in annotations_of(one) for one in found.items):
                return True
        return False


@dataclass(slots=True)
class _Kept:
    """A mapping that is kept: its start, its resources, and those with an Event."""

    since: float
    resources: Set[str] = frozenset()
    noted: Set[str] = frozenset()


_KEPT: Final = (
    "it is gone, and its APIServiceNamespace is kept: there may be copies of this kind behind it,"
    " which are not synced. See Connected for why. It goes when they are gone, or, if nobody can"
    " check that, with the APIServiceBinding"
)
