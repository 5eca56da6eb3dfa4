"""Executes decisions: writes steps, records notes as Events, and reports results in the status.

Does not know why something was decided, and when to try again: where a task failed, its error
says so, and the decision's `again` counts for nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol, assert_never

from reconciler.controller.fence import WriteFence
from reconciler.core import keys
from reconciler.core import manifest as m
from reconciler.core.decision import (
    VERSION_PATH,
    Apply,
    Create,
    Decision,
    Delete,
    JsonPatch,
    Note,
    Patch,
    Step,
    Task,
    status_patch,
)
from reconciler.core.documents import first_of
from reconciler.core.errors import Contested, KlutchError, Rejected, Retry
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind, Ref
from reconciler.kube.cluster import Writer
from reconciler.kube.informer import ReadYourWrites
from reconciler.kube.requests import Preconditions, Propagation, Verb

if TYPE_CHECKING:
    from reconciler.core.conditions import Cause

_OURS: Final = (keys.OWN_PREFIX, keys.BOUND)
_OFTEN: Final = 60  # writes of one object in a minute; beyond, there are pauses between two
_MINUTE: Final = timedelta(minutes=1)
_PAUSE: Final = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Observed:
    """The object that a decision is about, as it was when that was made."""

    ref: Ref
    live: Manifest


def observed(recent: ReadYourWrites, live: Manifest) -> Observed:
    """Return an object of a view in the form that decisions are about."""
    return Observed(m.ref_of(recent.view.ref.cluster, recent.view.ref.kind, live), live)


class Recorder(Protocol):
    """A recorder of Events about objects; on the site `docs` are the pages of reasons."""

    docs: str

    def record(self, about: Ref, live: Manifest, note: Note) -> None:
        """Record an Event, as soon as possible and as well as possible."""
        ...


class Executor:
    """Writes to clusters, by their names, while the fence is open, as field manager `manager`."""

    def __init__(
        self,
        clusters: Mapping[str, Writer],
        fence: WriteFence,
        *,
        manager: str,
        recorder: Recorder,
        now: Callable[[], datetime],
    ) -> None:
        self.clusters, self.fence, self.manager = clusters, fence, manager
        self.recorder, self.now = recorder, now
        # How often each object was written since then, by the hash of its Ref, and when last.
        self._since, self._writes = now(), dict[int, tuple[int, datetime]]()

    async def execute(
        self,
        decision: Decision,
        about: Observed | None = None,
        *,
        recents: Sequence[ReadYourWrites] = (),
    ) -> timedelta | None:
        """Attempt all tasks and write the status; then raise the first KlutchError that was met.

        Returns when to look again. Events are about the object that the decision is about, and so
        is the status; without one there is neither.

        Steps on one object follow its resourceVersion from one to the next, and so does the status.
        The views of `recents` take in what writes to their objects answered.

        The status is written also where a task failed (protocol-bind.md F5), with the condition of
        the task's Cause and the error as its message, but without `decision.fields`. A task that
        met a Conflict was decided on old facts, so nothing is said about it: its condition stays as
        it is until the next look, which is at once. Raises Stopped as soon as nothing may be
        written any more.
        """
        if about is not None:
            for note in decision.notes:
                self.recorder.record(about.ref, about.live, note)
        execution = _Execution(self, recents, about, about.live if about else None)
        for task in decision.tasks:
            await execution.attempt(task)
        if about is not None:
            await execution.write_status(about.ref, decision)
        if execution.errors:
            raise execution.errors[0]
        return decision.again

    def writer(self, ref: Ref, subresource: str = "") -> Writer:
        """Count a write, and return its cluster. Raises Contested."""
        now, key = self.now(), hash((ref, subresource))
        if not timedelta() <= now - self._since < _MINUTE:
            writes = self._writes.items()
            often = {one: it for one, it in writes if it[0] > _OFTEN and now - it[1] < _MINUTE}
            self._since, self._writes = now, often
        count, last = self._writes.get(key, (0, now))
        if count > _OFTEN and timedelta() <= now - last < _PAUSE:
            raise Contested(
                f"written {_OFTEN} times in a minute: perhaps another program changes it back",
                ref=ref,
                verb="write",
                retry_after=_PAUSE.total_seconds(),
            )
        self._writes[key] = count + 1, now
        return self.clusters[ref.cluster]


@dataclass(slots=True)
class _Execution:
    """An execution: the results of the tasks so far, and the objects that they wrote."""

    executor: Executor
    recents: Sequence[ReadYourWrites]
    about: Observed | None
    live: Manifest | None  # what `about` is now, as far as we know; None once it is gone
    # What an object's resourceVersion was when it was decided about, and is after our writes.
    versions: dict[Ref, tuple[str, str]] = field(default_factory=dict)
    errors: list[KlutchError] = field(default_factory=list)
    failed: list[tuple["Cause", str]] = field(default_factory=list)
    undecided: set[str] = field(default_factory=set)  # types of conditions
    complete: bool = True  # whether all steps were done

    async def attempt(self, task: Task) -> None:
        """Do the steps in order, up to the first that fails."""
        try:
            for step in task.steps:
                await self._send(step)
        except KlutchError as error:
            self.errors.append(error)
            self.complete = False
            if task.failure is not None and error.retry is Retry.NOW:
                self.undecided.add(task.failure.type)
            elif task.failure is not None:
                self.failed.append((task.failure, str(error)))

    async def write_status(self, ref: Ref, decision: Decision) -> None:
        """Write the status, if the object is still there and its status differs."""
        if self.live is None:
            return
        conditions = tuple(one for one in decision.conditions if one.type not in self.undecided)
        fields = decision.fields if self.complete else {}
        patch = status_patch(
            self.live,
            ref,
            replace(decision, conditions=conditions, fields=fields),
            failed=self.failed,
            now=self.executor.now(),
            docs=self.executor.recorder.docs,
        )
        if patch is not None:
            await self.attempt(Task((patch,)))

    async def _send(self, step: Step) -> None:
        match step:
            case Create(kind, manifest, where):
                await self._create(self._ref(where, kind, manifest), manifest)
            case Apply(kind, manifest, where):
                await self._apply(self._ref(where, kind, manifest), manifest)
            case Patch(ref, body, subresource):
                await self._patch(ref, body, subresource)
            case JsonPatch():
                await self._json_patch(step)
            case Delete():
                await self._delete(step)
            case _:
                assert_never(step)

    def _ref(self, cluster: str, kind: Kind, manifest: Manifest) -> Ref:
        cluster = cluster or (self.about.ref.cluster if self.about is not None else "")
        return Ref(cluster, kind, *m.identity_of(manifest))

    async def _create(self, ref: Ref, manifest: Manifest) -> None:
        writer, manager = self.executor.writer(ref), self.executor.manager
        answer = await self.executor.fence.write(
            lambda: writer.create(manifest, ref.kind, manager=manager)
        )
        self._remember(ref, answer)
        _require_kept(ref, "create", manifest, answer)

    async def _apply(self, ref: Ref, manifest: Manifest) -> None:
        writer, manager = self.executor.writer(ref), self.executor.manager
        body = self._with_current_version(ref, manifest)
        answer = await self.executor.fence.write(
            lambda: writer.apply(body, ref.kind, manager=manager, force=True)
        )
        self._follow(ref, m.resource_version_of(manifest), answer)
        _require_kept(ref, "apply", body, answer)

    async def _patch(self, ref: Ref, body: Manifest, subresource: str) -> None:
        writer, manager = self.executor.writer(ref, subresource), self.executor.manager
        patch = self._with_current_version(ref, body)
        answer = await self.executor.fence.write(
            lambda: writer.merge_patch(ref, patch, manager=manager, subresource=subresource)
        )
        self._follow(ref, m.resource_version_of(body), answer)
        _require_kept(ref, "patch", body, answer)

    async def _json_patch(self, step: JsonPatch) -> None:
        ref, manager = step.ref, self.executor.manager
        versions = (one for one in step.operations if one["path"] == VERSION_PATH)
        stated = m.get_text(next(versions, {}), "value")
        now = {"value": self._current_version(ref, stated)}
        patch = [{**one, **now} if one["path"] == VERSION_PATH else one for one in step.operations]
        writer, subresource = self.executor.writer(ref, step.subresource), step.subresource
        answer = await self.executor.fence.write(
            lambda: writer.json_patch(ref, patch, manager=manager, subresource=subresource)
        )
        self._follow(ref, stated, answer)

    async def _delete(self, step: Delete) -> None:
        ref, writer = step.ref, self.executor.writer(step.ref)
        version = self._current_version(ref, step.resource_version)
        await self.executor.fence.write(
            lambda: writer.delete(
                ref,
                preconditions=Preconditions(step.uid, version or None),
                propagation=Propagation.BACKGROUND,
            )
        )
        for recent in self._showing(ref):
            recent.deleted(ref.namespace, ref.name, version)
        if self.about is not None and ref == self.about.ref:
            self.live = None

    def _with_current_version(self, ref: Ref, body: Manifest) -> Manifest:
        stated = m.resource_version_of(body)
        current = self._current_version(ref, stated)
        return body if current == stated else m.put(body, current, "metadata", "resourceVersion")

    def _current_version(self, ref: Ref, stated: str) -> str:
        """Return the resourceVersion that a step means which was decided on `stated`."""
        decided_on, current = self.versions.get(ref, ("", ""))
        return current if stated and stated == decided_on else stated

    def _follow(self, ref: Ref, stated: str, answer: Manifest) -> None:
        """Note the resourceVersion of an object after a write that was decided on `stated`.

        What somebody else wrote before a write without precondition is not to be overlooked, so
        such a write is not followed.
        """
        if stated:
            decided_on = self.versions.get(ref, (stated, ""))[0]
            self.versions[ref] = decided_on, m.resource_version_of(answer)
        self._remember(ref, answer)
        if self.about is not None and ref == self.about.ref and self.live is not None:
            self.live = None if m.is_deleting(answer) and (not m.finalizers_of(answer)) else answer

    def _remember(self, ref: Ref, answer: Manifest) -> None:
        for recent in self._showing(ref):
            recent.wrote(answer)

    def _showing(self, ref: Ref) -> list[ReadYourWrites]:
        views = ((one, one.view.ref) for one in self.recents)
        return [one for one, of in views if (of.cluster, of.kind) == (ref.cluster, ref.kind)]


def _require_kept(ref: Ref, verb: Verb, body: Manifest, answer: Manifest) -> None:
    """Raise Rejected where a finalizer or mark of ours that was written is not in the answer.

    An admission webhook or policy took it away: what depends on it may not be done.
    """
    written = m.get_map(body, "metadata", "annotations").items()
    marks = {key for key, value in written if value is not None and key.startswith(_OURS)}
    lost = {
        "finalizers": {*m.finalizers_of(body)} - {*m.finalizers_of(answer)},
        "annotations": marks - m.get_map(answer, "metadata", "annotations").keys(),
    }
    for part, some in lost.items():
        if some:
            why = f"an admission webhook or policy takes away metadata.{part}"
            raise Rejected(f"{why}: {first_of(sorted(some))}", ref=ref, verb=verb)
