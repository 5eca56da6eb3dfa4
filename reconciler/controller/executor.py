"""Carries out what was decided about one object, and tells in its status what failed.

Refuses to know why something was decided, and when to try again.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, assert_never

from reconciler.controller.fence import WriteFence
from reconciler.core.decision import (
    Apply,
    Create,
    Decision,
    Delete,
    JsonPatch,
    Patch,
    Step,
    Task,
    status_patch,
)
from reconciler.core.errors import KlutchError, Retry
from reconciler.core.manifest import (
    Manifest,
    finalizers_of,
    get_text,
    identity_of,
    is_deleting,
    put,
    resource_version_of,
)
from reconciler.core.refs import Kind, Ref
from reconciler.kube.cache.read_your_writes import ReadYourWrites
from reconciler.kube.cluster import Preconditions, Propagation, Writer

if TYPE_CHECKING:
    from reconciler.core.conditions import Cause

NOWHERE_ELSE: Final[Mapping[str, Writer]] = MappingProxyType({})


async def carry_out(  # noqa: PLR0913 - each is told by another part of a controller
    cluster: Writer,
    live: Manifest,
    ref: Ref,
    decision: Decision,
    *,
    manager: str,
    now: datetime,
    may_write: WriteFence,
    elsewhere: Mapping[str, Writer] = NOWHERE_ELSE,
    recent: ReadYourWrites | None = None,
) -> None:
    """Attempt all tasks and write the status; then raise the first KlutchError that was met.

    `live` is the object `ref` that was looked at, in `cluster`; steps that name another cluster
    go to that one of `elsewhere`. `recent` is told what writes to the object itself answered. The
    status is written also where a task failed (protocol-bind.md F5), with the condition of the
    task's Cause and the error as its message, but without `decision.fields`.
    A task that met a Conflict was decided on old facts, so nothing is said about it: its
    condition stays as it is until the next look, which is at once. Steps on the object itself
    follow its resourceVersion from one to the next, and so does the status. Raises Stopped as
    soon as nothing may be written any more.
    """
    clusters = {**elsewhere, ref.cluster: cluster}
    work = _Work(clusters, ref, live, manager=manager, fence=may_write, recent=recent)
    for task in decision.tasks:
        await work.attempt(task)
    await work.tell(decision, now)
    if work.errors:
        raise work.errors[0]


class _Work:
    """What became of the tasks so far, and the object as our last write to it left it."""

    def __init__(
        self,
        clusters: Mapping[str, Writer],
        ref: Ref,
        live: Manifest,
        *,
        manager: str,
        fence: WriteFence,
        recent: ReadYourWrites | None,
    ) -> None:
        self._clusters, self._ref, self._manager, self._fence = clusters, ref, manager, fence
        self._recent = recent
        self._decided_on = resource_version_of(live)
        self._live: Manifest | None = live
        self._only_ours = True  # whether nobody else wrote between what was seen and `_live`
        self._failed: list[tuple[Cause, str]] = []
        self._outdated: set[str] = set()
        self.errors: list[KlutchError] = []

    async def attempt(self, task: Task) -> None:
        """Do the steps in order, up to the first that fails."""
        try:
            for step in task.steps:
                await self._do(step)
        except KlutchError as error:
            self.errors.append(error)
            if task.failure is None:
                return
            if error.retry is Retry.NOW:
                self._outdated.add(task.failure.type)
            else:
                self._failed.append((task.failure, str(error)))

    async def tell(self, decision: Decision, now: datetime) -> None:
        """Write the status, if the object is still there and does not say all of that."""
        if self._live is None:
            return
        certain = tuple(one for one in decision.conditions if one.type not in self._outdated)
        fields = {} if self.errors else decision.fields
        patch = status_patch(
            self._live,
            self._ref,
            replace(decision, conditions=certain, fields=fields),
            failed=self._failed,
            now=now,
        )
        if patch is not None:
            await self.attempt(Task((patch,)))

    async def _do(self, step: Step) -> None:
        clusters, manager = self._clusters, self._manager
        match step:
            case Create(kind, manifest, where):
                writer = clusters[where or self._ref.cluster]
                await self._fence.write(lambda: writer.create(manifest, kind, manager=manager))
            case Apply(kind, manifest, where):
                place = where or self._ref.cluster
                answer = await self._fence.write(
                    lambda: clusters[place].apply(manifest, kind, manager=manager, force=True)
                )
                self._note(_ref_of(place, kind, manifest), answer, stated="")
            case Patch(ref, body, subresource):
                await self._patch(ref, body, subresource)
            case JsonPatch(ref, operations):
                answer = await self._fence.write(
                    lambda: clusters[ref.cluster].json_patch(ref, operations, manager=manager)
                )
                self._note(ref, answer, stated="")
            case Delete():
                await self._delete(step)
            case _:
                assert_never(step)

    async def _patch(self, ref: Ref, body: Manifest, subresource: str) -> None:
        stated = self._current(ref, get_text(body, "metadata", "resourceVersion"))
        patch = put(body, stated, "metadata", "resourceVersion") if stated else body
        answer = await self._fence.write(
            lambda: self._clusters[ref.cluster].merge_patch(
                ref, patch, manager=self._manager, subresource=subresource
            )
        )
        self._note(ref, answer, stated=stated)

    async def _delete(self, step: Delete) -> None:
        version = self._current(step.ref, step.resource_version)
        conditions = Preconditions(step.uid, version or None)
        await self._fence.write(
            lambda: self._clusters[step.ref.cluster].delete(
                step.ref, preconditions=conditions, propagation=Propagation.BACKGROUND
            )
        )
        if step.ref == self._ref:
            self._live = None

    def _current(self, ref: Ref, stated: str) -> str:
        """Return the resourceVersion that a step means which was decided on `stated`."""
        if ref != self._ref or self._live is None or not self._only_ours:
            return stated
        return resource_version_of(self._live) if stated == self._decided_on else stated

    def _note(self, ref: Ref, answer: Manifest, *, stated: str) -> None:
        """Take what a write to the object itself answered as the object."""
        if ref != self._ref or self._live is None:
            return
        if self._recent is not None:
            self._recent.wrote(answer)
        before = resource_version_of(self._live)
        self._only_ours &= before in (stated, resource_version_of(answer))
        gone = is_deleting(answer) and not finalizers_of(answer)
        self._live = None if gone else answer


def _ref_of(cluster: str, kind: Kind, manifest: Manifest) -> Ref:
    return Ref(cluster, kind, *identity_of(manifest))
