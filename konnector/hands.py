"""Carries out what was decided about two objects in two clusters, and remembers the answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

from reconciler.controller.fence import WriteFence
from reconciler.core import keys
from reconciler.core.decision import Apply, Create, Decision, Delete, JsonPatch, Patch, Step
from reconciler.core.errors import KlutchError
from reconciler.core.manifest import (
    Manifest,
    get_text,
    identity_of,
    put,
    resource_version_of,
)
from reconciler.core.refs import Kind, Ref
from reconciler.kube.cache.read_your_writes import ReadYourWrites
from reconciler.kube.cluster import Preconditions, Propagation, Writer

_MANAGER: Final = keys.MANAGER_KONNECTOR


@dataclass(frozen=True, slots=True)
class Known:
    """The view of one cluster in which the answers to writes are remembered."""

    cluster: str
    recent: ReadYourWrites


class Hands:
    """Writes to the clusters, by their names, while the fence is open."""

    def __init__(self, clusters: Mapping[str, Writer], fence: WriteFence) -> None:
        self._clusters, self._fence = clusters, fence

    async def carry_out(self, decision: Decision, known: Sequence[Known]) -> None:
        """Attempt all tasks, then raise the first KlutchError that was met, or Stopped.

        Steps on one object follow its resourceVersion from one to the next.
        """
        work = _Work(self._clusters, self._fence, {one.cluster: one.recent for one in known})
        first: KlutchError | None = None
        for task in decision.tasks:
            try:
                for step in task.steps:
                    await work.do(step)
            except KlutchError as error:
                first = first or error
        if first is not None:
            raise first


@dataclass(slots=True)
class _Work:
    clusters: Mapping[str, Writer]
    fence: WriteFence
    known: Mapping[str, ReadYourWrites]
    # What an object's resourceVersion was when it was decided about, and is after our writes.
    moved: dict[Ref, tuple[str, str]] = field(default_factory=dict)

    async def do(self, step: Step) -> None:
        match step:
            case Create(kind, manifest, where):
                writer = self.clusters[where]
                answer = await self.fence.write(
                    lambda: writer.create(manifest, kind, manager=_MANAGER)
                )
                self._wrote(where, answer)
            case Apply(kind, manifest, where):
                await self._apply(kind, manifest, where)
            case Patch(ref, body, subresource):
                await self._patch(ref, body, subresource)
            case JsonPatch(ref, operations):
                writer = self.clusters[ref.cluster]
                answer = await self.fence.write(
                    lambda: writer.json_patch(ref, operations, manager=_MANAGER)
                )
                tested = [one for one in operations if one.get("op") == "test"]
                self._follow(ref, get_text(tested, 0, "value"), answer)
            case Delete():
                await self._delete(step)
            case _:
                assert_never(step)

    async def _apply(self, kind: Kind, manifest: Manifest, where: str) -> None:
        writer, ref = self.clusters[where], Ref(where, kind, *identity_of(manifest))
        body = self._current(ref, manifest)
        answer = await self.fence.write(
            lambda: writer.apply(body, kind, manager=_MANAGER, force=True)
        )
        self._follow(ref, resource_version_of(manifest), answer)

    async def _patch(self, ref: Ref, body: Manifest, subresource: str) -> None:
        writer, patch = self.clusters[ref.cluster], self._current(ref, body)
        answer = await self.fence.write(
            lambda: writer.merge_patch(ref, patch, manager=_MANAGER, subresource=subresource)
        )
        self._follow(ref, resource_version_of(body), answer)

    async def _delete(self, step: Delete) -> None:
        writer = self.clusters[step.ref.cluster]
        version = self._newer(step.ref, step.resource_version)
        await self.fence.write(
            lambda: writer.delete(
                step.ref,
                preconditions=Preconditions(step.uid, version or None),
                propagation=Propagation.BACKGROUND,
            )
        )
        if recent := self.known.get(step.ref.cluster):
            recent.deleted(step.ref.namespace, step.ref.name, version)

    def _current(self, ref: Ref, body: Manifest) -> Manifest:
        stated = resource_version_of(body)
        newer = self._newer(ref, stated)
        return body if newer == stated else put(body, newer, "metadata", "resourceVersion")

    def _newer(self, ref: Ref, stated: str) -> str:
        decided_on, now = self.moved.get(ref, ("", ""))
        return now if stated and stated == decided_on else stated

    def _follow(self, ref: Ref, stated: str, answer: Manifest) -> None:
        if stated:
            decided_on, _ = self.moved.get(ref, (stated, ""))
            self.moved[ref] = (decided_on, resource_version_of(answer))
        self._wrote(ref.cluster, answer)

    def _wrote(self, cluster: str, answer: Manifest) -> None:
        if recent := self.known.get(cluster):
            recent.wrote(answer)
