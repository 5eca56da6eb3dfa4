"""Runs the steps of a release, replace or delete. Each step is idempotent.

A run that ends between two of them leaves a state from which the next plan goes on (mapping.md 9).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from reconciler import api
from reconciler.apply import Options, patches, service_objects
from reconciler.apply.object_writer import Clusters, ClusterWriter, create
from reconciler.apply.waits import Unconfirmed
from reconciler.core import keys, manifest, names
from reconciler.core.refs import SECRET, Ref
from reconciler.core.times import format_time
from reconciler.fleet.values import DeletionPolicy
from reconciler.fleet.wanted import Placement
from reconciler.kube.requests import Propagation
from reconciler.planning.changes import Action, Change, Step, Verb


@dataclass(frozen=True, slots=True)
class StepRunner:
    """Does the steps of one line."""

    change: Change
    clusters: Clusters
    options: Options

    async def do(self, step: Step) -> str:
        """Execute one step; return a remark for people, or "".

        Raises Unconfirmed, Stale, Stopped and ClusterErrors.
        """
        return await self._actions[step.verb](self, step) or ""

    @property
    def _placement(self) -> Placement:
        assert self.change.placement is not None, self.change
        return self.change.placement

    @property
    def _time(self) -> str:
        """The duration of a wait."""
        return f"{self.options.wait_seconds:.0f} s"

    @property
    def _name(self) -> str:
        assert self.change.unit is not None, self.change
        return self.change.unit.name

    def _at(self, step: Step) -> ClusterWriter:
        return self.clusters(step.ref.cluster)

    @property
    def _plane(self) -> ClusterWriter:
        """The control plane, by the step that speaks of it."""
        return self.clusters(next(s.ref.cluster for s in self.change.steps if "/" in s.ref.cluster))

    async def _brought(self, step: Step) -> service_objects.Service | None:
        """Return the service in the app cluster, where it came by this unit's binding."""
        return await service_objects.brought(
            self._at(step), self._plane, self._name, self._placement
        )

    async def _create(self, step: Step) -> None:
        assert self.change.wanted is not None, self.change
        await create(self.change, self.change.wanted, self.clusters)

    async def _delete(self, step: Step) -> None:
        uid = self.change.uid if step.ref == self.change.ref else ""
        await self._removed(step, uid=uid, propagation=Propagation.BACKGROUND)

    async def _orphan(self, step: Step) -> None:
        await self._removed(step, uid=self.change.uid, propagation=Propagation.ORPHAN)

    async def _removed(self, step: Step, *, uid: str, propagation: Propagation) -> None:
        await self._at(step).delete(step.ref, uid=uid, propagation=propagation)
        if step.verb is not Verb.ORPHAN or self.change.action is Action.REPLACE:
            await self._gone(step)

    async def _gone(self, step: Step) -> None:
        writer = self._at(step)

        async def look() -> bool | None:
            return True if await writer.read(step.ref) is None else None

        if await writer.fence.until(look, seconds=self.options.wait_seconds) is None:
            finalizers = manifest.finalizers_of(await writer.read(step.ref) or {})
            raise Unconfirmed(
                f"{step.ref} is still there after {self._time}{_kept_by(finalizers)}; the "
                "next run continues"
            )

    async def _policy(self, step: Step) -> None:
        value = DeletionPolicy.RELEASE.value
        await self._at(step).change(step.ref, patches.annotate(keys.DELETION_POLICY, value))

    async def _own(self, step: Step) -> str:
        assert self.change.wanted is not None, self.change
        bound = self.change.wanted.ref
        binding = await self.clusters(bound.cluster).read(bound)
        return await service_objects.own_crd(self._at(step), step.ref, binding)

    async def _remember(self, step: Step) -> None:
        deleting = self.change.action is Action.DELETE
        policy = DeletionPolicy.DELETE if deleting else DeletionPolicy.RELEASE
        await self._note(step, {self._name: policy})

    async def _forget(self, step: Step) -> None:
        await self._note(step, {})

    async def _note(self, step: Step, now: Mapping[str, DeletionPolicy]) -> None:
        note = patches.remember(self._name, now)
        await self._at(step).change(step.ref, note, manager=keys.MANAGER_NOTES)

    async def _await_stop(self, step: Step) -> None:
        bound = self._binding()
        app, plane = self.clusters(bound.cluster), self._at(step)
        if self.options.force:
            # A konnector that is gone had asked to be waited for.
            await app.change(
                bound,
                lambda live: (
                    patches.unfinalized(keys.DRAIN)(live) if manifest.is_deleting(live) else None
                ),
            )
            return

        async def look() -> str | None:
            binding = await app.read(bound)
            if binding is not None and keys.DRAIN not in manifest.finalizers_of(binding):
                return None
            export = await plane.read(step.ref)
            if binding is None and (export is None or api.reports_end_of_sync(export)):
                return ""
            space, name = step.ref.namespace, names.CLUSTER_BINDING
            heart = Ref(step.ref.cluster, api.CLUSTER_BINDING, space, name)
            beat = api.heartbeat_of(await plane.read(heart))
            if binding is None and beat is None and api.connected_of(export) is None:
                return ""  # no konnector has ever come to this space
            liveness = api.liveness(beat, self.options.now(), timeout=api.SILENCE)
            if liveness is not api.Liveness.ALIVE:
                last = "never" if beat is None else format_time(beat.time)
                return f"the konnector does not answer (last heartbeat: {last})"
            return None

        if answer := await plane.fence.until(look, seconds=self.options.wait_seconds):
            raise Unconfirmed(f"sync stop not confirmed: {answer}; --force skips the proof")
        if answer is None:
            raise Unconfirmed(
                f"sync stop not confirmed: the konnector has not reported within "
                f"{self._time} that it stopped to sync {step.ref.name}; the next run "
                "continues, --force skips the proof"
            )

    def _binding(self) -> Ref:
        place = "" if self._placement.bindings_cluster_scoped else names.KLUTCH_NAMESPACE
        return Ref(self.change.cluster, api.API_SERVICE_BINDING, place, self._name)

    async def _release_copies(self, step: Step) -> None:
        now, space = self.options.now(), self._placement.space
        await service_objects.release_copies(self._at(step), self._name, space, now=now)

    async def _free_instances(self, step: Step) -> str:
        app = self._at(step)
        await service_objects.free_instances(app, await self._brought(step))
        if self.change.action is not Action.RELEASE:
            return ""  # it is bound again at once
        return await service_objects.warn_of_end(app, self._name)

    async def _delete_instances(self, step: Step) -> None:
        await service_objects.delete_instances(
            self._at(step), await self._brought(step), self.change.instances
        )

    async def _await_no_instances(self, step: Step) -> None:
        app = self._at(step)

        async def look() -> bool | None:
            return None if await service_objects.count(app, await self._brought(step)) else True

        if await app.fence.until(look, seconds=self.options.wait_seconds) is None:
            found = await service_objects.instances(app, await self._brought(step))
            finalizers = sorted({one for _, live in found for one in manifest.finalizers_of(live)})
            raise Unconfirmed(
                f"{len(found)} {self._name} are still being deleted after {self._time}"
                f"{_kept_by(finalizers)}; the next run continues"
            )

    async def _check_no_instances(self, step: Step) -> None:
        if left := await service_objects.count(self._at(step), await self._brought(step)):
            raise Unconfirmed(f"{left} {self._name} are new: nothing is deleted")

    async def _delete_crd(self, step: Step) -> str:
        app, service = self._at(step), await self._brought(step)
        if service is None:
            stays = f"{step.ref.object} and its objects stay: it did not come with this binding"
            return stays if await app.read(step.ref) is not None else ""
        if left := await service_objects.count(app, service):
            raise Unconfirmed(f"{left} {step.ref.name} are new: the CRD stays")
        await self._removed(
            step, uid=manifest.uid_of(service.live), propagation=Propagation.BACKGROUND
        )
        return ""

    async def _unlist(self, step: Step) -> None:
        shorter = patches.unlist(step.ref, self._name, uid=self.change.uid)
        await self._at(step).change(step.ref, shorter)

    async def _note_credential(self, step: Step) -> None:
        writer, root = self._at(step), self.change.ref
        if step.ref == root:
            await service_objects.note_kubeconfig(writer, root)
        else:
            plane = self.clusters(root.cluster)
            await service_objects.note_binding(writer, step.ref, plane, root.namespace)

    async def _revoke(self, step: Step) -> None:
        app, root = self._at(step), await self._plane.read(self.change.ref)
        marks = {keys.FLEET, keys.CLUSTER}
        ours = ",".join(
            f"{k}={v}" for k, v in sorted(manifest.labels_of(root or {}).items()) if k in marks
        )
        if root is None or ours.count("=") != len(marks):
            return  # whose they are is known by its labels alone
        place = step.ref.namespace
        found = await app.cluster.list(SECRET, namespace=place, labels=ours, metadata_only=True)
        for item in found.items:
            ref = Ref(app.cluster.name, SECRET, place, manifest.name_of(item))
            await app.delete(ref, uid=manifest.uid_of(item), propagation=Propagation.BACKGROUND)

    async def _retire(self, step: Step) -> None:
        released = patches.retire(step.ref, uid=self.change.uid, now=self.options.now())
        await self._at(step).change(step.ref, released)

    async def _delete_empty(self, step: Step) -> None:
        plane, app = self._at(step), self.clusters(self.change.cluster)
        if left := await service_objects.left_over(plane, app, self._placement.space):
            raise Unconfirmed(f"{step.ref.object} stays: {left}")
        await plane.delete(step.ref, uid=self.change.uid, propagation=Propagation.BACKGROUND)

    _actions: ClassVar[Mapping[Verb, Callable[["StepRunner", Step], Awaitable[str | None]]]] = {
        Verb.CREATE: _create,
        Verb.DELETE: _delete,
        Verb.ORPHAN: _orphan,
        Verb.POLICY: _policy,
        Verb.OWN: _own,
        Verb.REMEMBER: _remember,
        Verb.FORGET: _forget,
        Verb.AWAIT_STOP: _await_stop,
        Verb.AWAIT_GONE: _gone,
        Verb.RELEASE_COPIES: _release_copies,
        Verb.FREE_INSTANCES: _free_instances,
        Verb.DELETE_INSTANCES: _delete_instances,
        Verb.AWAIT_NO_INSTANCES: _await_no_instances,
        Verb.CHECK_NO_INSTANCES: _check_no_instances,
        Verb.DELETE_CRD: _delete_crd,
        Verb.UNLIST: _unlist,
        Verb.RETIRE: _retire,
        Verb.NOTE: _note_credential,
        Verb.REVOKE: _revoke,
        Verb.DELETE_EMPTY: _delete_empty,
    }


def _kept_by(finalizers: Sequence[str]) -> str:
    return f", held by {', '.join(finalizers)}" if finalizers else ""
