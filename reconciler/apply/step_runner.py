"""The steps of a release, replace or delete, each done so that it may be done twice.

Whoever dies between two of them leaves a state from which the next plan goes on (mapping.md 9).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final

from reconciler.api.app_cluster_binding import APP_CLUSTER_BINDING
from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.apply import copied_secrets, credential_note, service_objects, space_empty
from reconciler.apply.object_writer import Clusters, create
from reconciler.apply.writes import Patch, Stale, Writes, annotate
from reconciler.core import conditions, field_set, keys, names
from reconciler.core.heartbeat import beat_of
from reconciler.core.live import SILENCE
from reconciler.core.manifest import (
    JSON,
    Manifest,
    annotations_of,
    finalizers_of,
    get_list,
    get_maps,
    get_text,
    is_deleting,
    labels_of,
    name_of,
    uid_of,
)
from reconciler.core.refs import CRD, SECRET, Ref
from reconciler.core.times import format_time
from reconciler.fleet.values import DeletionPolicy, unit_policies_text
from reconciler.fleet.wanted import Placement
from reconciler.kube.requests import Propagation
from reconciler.observe.objects import INSTALLERS
from reconciler.planning import release_progress
from reconciler.planning.app_cluster_bindings import policies_of
from reconciler.planning.changes import Action, Change, Step, Verb

_NOT_FOUND: Final = "APIServiceBindingNotFound"


class Unconfirmed(Exception):
    """What a step waits for did not happen in time. All before it is done; the next run goes on."""


@dataclass(frozen=True, slots=True)
class StepOptions:
    """How the steps of one run are done. `wait` is in seconds, `now` the time in UTC.

    `force`: nobody has to prove that the sync has stopped.
    """

    wait: float
    force: bool
    now: Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class StepRunner:
    """Does the steps of one line."""

    change: Change
    clusters: Clusters
    options: StepOptions

    async def do(self, step: Step) -> str:
        """Do one step; return what is worth telling of it, or "".

        Raises Unconfirmed, Stale, Stopped and ClusterErrors.
        """
        return await self._actions[step.verb](self, step) or ""

    @property
    def _placement(self) -> Placement:
        assert self.change.placement is not None, self.change
        return self.change.placement

    @property
    def _name(self) -> str:
        assert self.change.unit is not None, self.change
        return self.change.unit.name

    def _at(self, step: Step) -> Writes:
        return self.clusters(step.ref.cluster)

    @property
    def _plane(self) -> Writes:
        """The control plane, by the step that speaks of it."""
        return self.clusters(next(s.ref.cluster for s in self.change.steps if "/" in s.ref.cluster))

    async def _create(self, step: Step) -> None:
        assert self.change.wanted is not None, self.change
        await create(self.change, self.change.wanted, self.clusters)

    async def _delete(self, step: Step) -> None:
        same = step.ref == self.change.ref
        uid = self.change.uid if same else ""
        await self._removed(step, uid=uid, propagation=Propagation.BACKGROUND)

    async def _orphan(self, step: Step) -> None:
        await self._removed(step, uid=self.change.uid, propagation=Propagation.ORPHAN)

    async def _removed(self, step: Step, *, uid: str, propagation: Propagation) -> None:
        await self._at(step).delete(step.ref, uid=uid, propagation=propagation)
        if step.verb is not Verb.ORPHAN or self.change.action is Action.REPLACE:
            await self._gone(step)

    async def _gone(self, step: Step) -> None:
        writes = self._at(step)

        async def look() -> bool | None:
            return True if await writes.read(step.ref) is None else None

        if await writes.gate.until(look, seconds=self.options.wait) is None:
            held = finalizers_of(await writes.read(step.ref) or {})
            raise Unconfirmed(
                f"{step.ref} is still there after {self.options.wait:.0f} s{_held_by(held)}; the "
                "next run goes on"
            )

    async def _policy(self, step: Step) -> None:
        value = DeletionPolicy.RELEASE.value
        await self._at(step).change(step.ref, annotate(keys.DELETION_POLICY, value))

    async def _own(self, step: Step) -> None:
        assert self.change.wanted is not None, self.change
        bound = self.change.wanted.ref
        binding = await self.clusters(bound.cluster).read(bound)
        if binding is not None:
            await own(self._at(step), step.ref.name, binding)

    async def _remember(self, step: Step) -> None:
        deleting = self.change.action is Action.DELETE
        policy = DeletionPolicy.DELETE if deleting else DeletionPolicy.RELEASE
        await self._note(step, {self._name: policy})

    async def _forget(self, step: Step) -> None:
        await self._note(step, {})

    async def _note(self, step: Step, now: Mapping[str, DeletionPolicy]) -> None:
        def decide(live: Manifest) -> Patch | None:
            known = dict(release_progress.remembered(live))
            known.pop(self._name, None)
            return annotate(keys.LEAVING, unit_policies_text({**known, **now}))(live)

        await self._at(step).change(step.ref, decide, manager=keys.MANAGER_NOTES)

    async def _await_stop(self, step: Step) -> None:
        bound = self._binding()
        app, plane = self.clusters(bound.cluster), self._at(step)
        if self.options.force:
            await app.change(bound, _unheld)
            return

        async def look() -> str | None:
            binding = await app.read(bound)
            if binding is not None and keys.DRAIN not in finalizers_of(binding):
                return None
            export = await plane.read(step.ref)
            if binding is None and (export is None or _has_stopped(export)):
                return ""
            beat = beat_of(await plane.read(self._heart(step)))
            if binding is None and beat is None and not _was_connected(export):
                return ""  # no konnector has ever come to this space
            if beat is None or self.options.now() - beat.time > SILENCE:
                told = "never" if beat is None else format_time(beat.time)
                return f"the konnector does not answer (last heartbeat: {told})"
            return None

        answer = await plane.gate.until(look, seconds=self.options.wait)
        if answer:
            raise Unconfirmed(f"sync stop not confirmed: {answer}; --force skips the proof")
        if answer is None:
            raise Unconfirmed(
                f"sync stop not confirmed: the konnector has not said within "
                f"{self.options.wait:.0f} s that it syncs {step.ref.name} no longer; the next run "
                "goes on, --force skips the proof"
            )

    def _heart(self, step: Step) -> Ref:
        return Ref(step.ref.cluster, CLUSTER_BINDING, step.ref.namespace, names.CLUSTER_BINDING)

    def _binding(self) -> Ref:
        place = "" if self._placement.bindings_cluster_scoped else names.KLUTCH_NAMESPACE
        return Ref(self.change.cluster, API_SERVICE_BINDING, place, self._name)

    async def _release_copies(self, step: Step) -> None:
        now, space = self.options.now(), self._placement.space
        await service_objects.release_copies(self._at(step), self._name, space, now=now)

    async def _free_instances(self, step: Step) -> None:
        await service_objects.free_instances(self._at(step), self._name)

    async def _delete_instances(self, step: Step) -> None:
        await service_objects.delete_instances(self._at(step), self._name, self.change.instances)

    async def _await_no_instances(self, step: Step) -> None:
        app = self._at(step)

        async def look() -> bool | None:
            return None if await service_objects.count(app, self._name) else True

        if await app.gate.until(look, seconds=self.options.wait) is None:
            left = await service_objects.count(app, self._name)
            held = await service_objects.finalizers(app, self._name)
            raise Unconfirmed(
                f"{left} {self._name} are still being deleted after {self.options.wait:.0f} s"
                f"{_held_by(held)}; the next run goes on"
            )

    async def _check_no_instances(self, step: Step) -> None:
        if left := await service_objects.count(self._at(step), self._name):
            raise Unconfirmed(f"{left} {self._name} were made meanwhile: nothing is deleted")

    async def _delete_crd(self, step: Step) -> None:
        app = self._at(step)
        service = await service_objects.served(app, step.ref.name)
        if service is None:
            return
        left = await service_objects.count(app, step.ref.name)
        if left:
            raise Unconfirmed(f"{left} {step.ref.name} were made meanwhile: the CRD stays")
        await self._removed(step, uid=service.uid, propagation=Propagation.BACKGROUND)

    async def _delete_copied(self, step: Step) -> str:
        return await copied_secrets.delete(self._at(step), self._plane, self._placement)

    async def _unlist(self, step: Step) -> None:
        def decide(live: Manifest) -> Patch | None:
            if uid_of(live) != self.change.uid:
                raise Stale(f"{step.ref.object} was deleted and made again")
            listed = get_maps(live, "spec", "apiExports")
            kept: list[JSON] = [one for one in listed if _resource(one) != self._name]
            if len(kept) == len(listed):
                return None
            said = dict(policies_of(live))
            said.pop(self._name, None)
            forgotten = annotate(keys.UNIT_POLICIES, unit_policies_text(said))(live) or []
            return [{"op": "replace", "path": "/spec/apiExports", "value": kept}, *forgotten]

        await self._at(step).change(step.ref, decide)

    async def _note_credential(self, step: Step) -> None:
        await credential_note.note(self._at(step), step.ref)

    async def _revoke(self, step: Step) -> None:
        app, home = self._at(step), await self._plane.read(self.change.ref)
        marks = {keys.FLEET, keys.CLUSTER}
        ours = ",".join(f"{k}={v}" for k, v in sorted(labels_of(home or {}).items()) if k in marks)
        if home is None or ours.count("=") != len(marks):
            return  # whose they are is known by its labels alone
        place = step.ref.namespace
        found = await app.cluster.list(SECRET, namespace=place, labels=ours, metadata_only=True)
        for one in found.items:
            ref = Ref(app.cluster.name, SECRET, place, name_of(one))
            await app.delete(ref, uid=uid_of(one), propagation=Propagation.BACKGROUND)

    async def _retire(self, step: Step) -> None:
        released = annotate(keys.RELEASED, format_time(self.options.now()))

        def decide(live: Manifest) -> Patch | None:
            if uid_of(live) != self.change.uid:
                raise Stale(f"{step.ref.object} was deleted and made again")
            if keys.RELEASED in annotations_of(live):
                return None
            emptied: list[Manifest] = []
            if step.ref.kind == APP_CLUSTER_BINDING:
                emptied = [
                    {"op": "add", "path": "/spec/apiExports", "value": []},
                    {"op": "add", "path": "/spec/konnector/deploy", "value": False},
                ]
            return [*emptied, *(released(live) or [])]

        await self._at(step).change(step.ref, decide)

    async def _delete_empty(self, step: Step) -> None:
        plane, app = self._at(step), self.clusters(self.change.cluster)
        left = await space_empty.what_is_left(plane, app, self._placement.space)
        if left:
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
        Verb.DELETE_COPIED: _delete_copied,
        Verb.UNLIST: _unlist,
        Verb.RETIRE: _retire,
        Verb.NOTE: _note_credential,
        Verb.REVOKE: _revoke,
        Verb.DELETE_EMPTY: _delete_empty,
    }


async def own(app: Writes, name: str, binding: Manifest) -> None:
    """Make a binding the owner of its service's CRD, where a konnector had installed that.

    A konnector calls a CRD foreign whose owner is another binding, also one of that name that
    was deleted (protocol-konnector.md C.3, H15). A CRD that no konnector made stays as it is.
    """
    owner: Manifest = {
        "apiVersion": API_SERVICE_BINDING.api_version,
        "kind": API_SERVICE_BINDING.kind,
        "name": name,
        "uid": uid_of(binding),
        "controller": True,
    }

    def decide(live: Manifest) -> Patch | None:
        owners = get_maps(live, "metadata", "ownerReferences")
        others: list[JSON] = [one for one in owners if not _is_binding(one)]
        if not _from_konnector(live) or owner in owners:
            return None
        path = "/metadata/ownerReferences"
        return [{"op": "add", "path": path, "value": [*others, owner]}]

    await app.change(Ref(app.cluster.name, CRD, "", name), decide)


def _unheld(binding: Manifest) -> Patch | None:
    """Let a binding go for which a konnector that is gone had asked to be waited for."""
    held = finalizers_of(binding)
    if not is_deleting(binding) or keys.DRAIN not in held:
        return None
    rest = [one for one in held if one != keys.DRAIN]
    return [{"op": "replace", "path": "/metadata/finalizers", "value": rest}]


def _held_by(finalizers: Sequence[str]) -> str:
    return f", held by {', '.join(finalizers)}" if finalizers else ""


def _has_stopped(export: Manifest) -> bool:
    connected = _connected(export)
    return (
        connected is not None
        and connected.status == conditions.FALSE
        and connected.reason == _NOT_FOUND
    )


def _was_connected(export: Manifest | None) -> bool:
    return _connected(export) is not None


def _connected(export: Manifest | None) -> conditions.Condition | None:
    found = conditions.parse(get_list(export, "status", "conditions"))
    return conditions.find(found, "Connected")


def _resource(listed: Manifest) -> str:
    group, resource = get_text(listed, "group").strip(), get_text(listed, "resource").strip()
    return names.resource_name(resource, group)


def _is_binding(owner: Manifest) -> bool:
    group = get_text(owner, "apiVersion").partition("/")[0]
    return (
        group == API_SERVICE_BINDING.group and get_text(owner, "kind") == API_SERVICE_BINDING.kind
    )


def _from_konnector(crd: Manifest) -> bool:
    return not field_set.managers_of(crd).isdisjoint(INSTALLERS)
