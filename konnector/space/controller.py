"""Writes the status of a space's ClusterBinding and exports, and mirrors its kubeconfig."""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from konnector.context import SyncContext
from konnector.kubeconfig import judge
from konnector.space import active, decide
from konnector.space.decide import ClusterBindingView, ExportView
from reconciler.controller.controller import ObjectReconciler, Queue
from reconciler.controller.executor import Observed, observed
from reconciler.core import names
from reconciler.core.decision import Decision
from reconciler.core.errors import Conflict, KlutchError
from reconciler.core.manifest import Manifest, is_deleting

log = logging.getLogger(__name__)

_AGAIN: Final = timedelta(minutes=1)  # until a kubeconfig that did not work is tried again


class ClusterBindings:
    """The controller of one space's ClusterBinding; its key is of no matter.

    `in_use` is the fingerprint of the kubeconfig that leads here now. `outcome` is called with ""
    after a beat that is well, else with why it could not be written.
    """

    def __init__(
        self, link: SyncContext, *, in_use: Callable[[], str], outcome: Callable[[str], None]
    ) -> None:
        self._link, self._in_use, self._outcome = link, in_use, outcome
        self._views, self._guards, self._executor = link.views, link.guards, link.executor
        self._verdict: tuple[str, str] = ("", "")  # a fingerprint, and the result of its trial

    async def reconcile(self, _: str) -> timedelta | None:
        """Reconcile the ClusterBinding."""
        live = self._views.cluster_binding
        if live is None:
            self._outcome(f"ClusterBinding {self._views.space}/{names.CLUSTER_BINDING} not found")
            return None
        try:
            again = await self._beat(live)
        except Conflict:
            raise  # somebody else wrote in between, and the heart is well
        except KlutchError as error:
            self._outcome(str(error))
            raise
        self._outcome("")
        return again

    async def _beat(self, live: Manifest) -> timedelta | None:
        await self._guards.look_at_space()
        if self._guards.space_uid not in ("", self._link.space_uid):
            return None  # the provider begins anew
        await self._look_at_app_cluster()
        seen = self._look(live)
        tried = decide.to_probe(seen)
        if tried is not None:
            seen = replace(seen, verdict=await self._verdict_on(tried))
        standing, now = self._guards.meet(live), self._link.agent.clock.monotonic()
        decided = active.report(standing, active.mark_in(live), now)
        voided = decide.void(live, self._link.mappings.objects())
        decision = Decision.merge((self._decided(seen, live, voided), decided))
        for note in decision.notes:
            self._link.callbacks.notify(note)
        recent = self._views.recent_cluster_bindings
        unnoted = replace(decision, notes=())
        await self._executor.execute(unnoted, observed(recent, live), recents=(recent,))
        self._guards.meet(self._views.cluster_binding or live)
        if self._guards.mismatch():
            return decision.again
        await self._executor.execute(voided)
        # A binding that is gone is remembered until all that it left is released: its Secret is
        # mirrored until then.
        targets = {
            place: live
            for place, live in seen.targets.items()
            if live is not None or await self._link.callbacks.is_wanted(place)
        }
        await self._executor.execute(decide.mirror(replace(seen, targets=targets)))
        await self._executor.execute(self._guards.records())
        return min(_AGAIN, decision.again or _AGAIN) if seen.verdict else decision.again

    async def _look_at_app_cluster(self) -> None:
        """Read the app cluster's identity, if it answers: the heart beats for the control plane."""
        try:
            await self._guards.look_at_app_cluster()
        except KlutchError as error:
            log.warning("the app cluster's identity cannot be read", extra={"error": str(error)})

    def _look(self, live: Manifest) -> ClusterBindingView:
        place = decide.source_place(live)
        mode = self._link.agent.control_plane_mode
        self._views.secrets.need("source", () if mode else (place,))
        return ClusterBindingView(
            cluster_binding=live,
            control_plane_mode=mode,
            source=None if mode else self._views.secrets.object(place),
            source_read=not all(place) or self._views.secrets.knows(place),
            targets={} if mode else self._link.callbacks.targets(),
            in_use=self._in_use(),
            space_uid=self._guards.space_uid,
        )

    async def _verdict_on(self, content: bytes) -> str:
        """Return the verdict of trying a kubeconfig; one that worked is not tried again."""
        fingerprint = judge.fingerprint(content)
        if self._verdict != (fingerprint, ""):
            probed = await self._link.callbacks.probe(content)
            other = probed.uid not in ("", self._guards.space_uid)
            fault = "it belongs to another space of the same name" if other else probed.fault
            self._verdict = (fingerprint, fault)
        return self._verdict[1]

    def _decided(self, seen: ClusterBindingView, live: Manifest, voided: Decision) -> Decision:
        """Unite the reports of the beat and of the guards."""
        beat = decide.beat(seen, now=self._link.guards.now(), version=decide.VERSION)
        guards = self._guards.report(live)
        times = [one.again for one in (beat, guards, voided) if one.again is not None]
        fields = {} if self._guards.mismatch() else {**beat.fields}
        if voided.tasks:
            fields.pop("konnectorVersion", None)
        return replace(
            beat,
            fields=fields,
            conditions=(*beat.conditions, *guards.conditions),
            notes=(*beat.notes, *guards.notes),
            again=min(times, default=None),
        )


class Exports(ObjectReconciler[str, ExportView]):
    """The controller of a space's exports, by name.

    `syncs` is whether something is synced for the binding of that name.
    """

    def __init__(self, link: SyncContext, *, syncs: Callable[[str], bool]) -> None:
        super().__init__(link.executor, link.views.recent_exports)
        self._link, self._views, self._syncs = link, link.views, syncs

    def subscribe(self, queue: Queue[str]) -> None:
        """Have the names enqueued of exports that change."""
        self._views.exports.subscribe_keys(lambda key: queue.enqueue(key.name))

    async def look(self, key: str) -> tuple[Observed, ExportView] | None:
        """Return one export, and its CRD in the app cluster. Raises ClusterErrors."""
        live = self._views.export(key)
        if live is None:
            return None
        crd = await self._link.agent.bodies.get("", key)
        binding = self._link.callbacks.binding(key)
        # One that is on its way out is synced for as long as somebody has to carry deletions.
        ending = binding is not None and is_deleting(binding)
        syncing = not ending or self._syncs(key)
        seen = ExportView(export=live, binding=binding, crd=crd, syncing=syncing)
        return observed(self._views.recent_exports, live), seen

    def decide(self, view: ExportView, now: datetime) -> Decision:
        return decide.export_status(view, now=now)
