"""The live state of all clusters at once: each is seen completely, or unseen with a reason.

No failure of one cluster, not even a defect in its reader, holds back or alters another.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Protocol, TypeAlias

from reconciler.core.errors import ClusterError, ConfigError
from reconciler.core.live import Live, Questions, Seen, Unseen, control_plane_ref_name
from reconciler.core.refs import NAMESPACE, Kind, Ref
from reconciler.fleet.values import Access, AppCluster, Fleet, Mode
from reconciler.kube.limits import one_look
from reconciler.kube.registry import Reached
from reconciler.observe import read_scope, reads, unseen
from reconciler.observe.reading import (
    Incomplete,
    NoIdentity,
    Pace,
    Reading,
    ReadSlots,
    ReadTurn,
    together,
)
from reconciler.observe.removed_clusters import RemovedCluster, removed_clusters

_DEFAULTS: Final = Pace()
# Control planes are few and hold much. Of the many app clusters each answers little, and one more
# handshake costs more than it saves.
_PLANE_WIDTH: Final = 8
_CLUSTER_WIDTH: Final = 1

Verdict: TypeAlias = Seen | Unseen


class Clusters(Protocol):
    """The way to the clusters; `kube.registry.Registry` is one."""

    async def control_plane(self, name: str) -> Reached:
        """Return a control plane of the fleet."""
        ...

    async def app_cluster(self, name: str, access: Access, *, control_plane: str) -> Reached:
        """Return an app cluster, whose kubeconfig may lie on this control plane."""
        ...

    async def close(self, name: str) -> None:
        """Give the connections of a cluster (a `Ref.cluster`) back."""
        ...


_Reader: TypeAlias = Callable[[Reading, Reached, ReadTurn], Awaitable[Seen]]


async def observe(
    fleet: Fleet,
    clusters: Clusters,
    *,
    only: Collection[str] | None = None,
    in_part: bool = False,
    credentials: bool = False,
    pace: Pace = _DEFAULTS,
) -> Live:
    """Read every cluster of a fleet by the reads of mapping.md 12, and write to none.

    `only` names the app clusters to be read, with the control planes that they need; the others
    are not in the answer. In AppClusterBinding mode nothing in an app cluster tells on which
    control plane it is bound already, so all that are in this mode are read. `in_part`: of those
    control planes nothing else need be read than what plans of these app clusters look at. A
    suspended cluster is left alone, so it is unseen. An app cluster behind an unseen control plane
    is unseen. `credentials`: the Secrets with kubeconfigs are read as well.
    """
    observer = _Observer(fleet, clusters, pace)
    look = _Look(fleet, credentials=credentials)
    chosen = [one for one in fleet.clusters.values() if only is None or one.name in only]
    # Which control plane knows a cluster that left is told by no document.
    every = only is None or not fleet.clusters.keys() >= set(only)
    needed = set(fleet.control_planes) if every else _needed(fleet, chosen)
    awake = [one for one in chosen if one.suspended is None]
    parts = read_scope.in_part(fleet, awake) if in_part and not every else {}
    planes, shared, apps = await asyncio.gather(
        _all({one: observer.plane(one, _of_plane(look, one)) for one in needed - parts.keys()}),
        _all({one: observer.plane(one, _of_part(fleet)) for one in parts}),
        _all({one.name: observer.app(one, _of_app(look, one.name)) for one in awake}),
    )
    planes |= shared | await _all(
        {
            name: observer.plane(name, _of_spaces(look, name, seen, parts[name], apps))
            for name, seen in shared.items()
            if isinstance(seen, Seen)
        }
    )
    asleep = {one.name: unseen.asleep(one.suspended) for one in chosen if one.suspended is not None}
    gone = removed_clusters(fleet, planes)
    looked_for = {name: one for name, one in gone.items() if only is None or name in only}
    leaving = await _all(
        {
            name: observer.app(one, _of_app(look, name))
            for name, one in looked_for.items()
            if isinstance(one, RemovedCluster)
        }
    )
    lost = {name: one for name, one in looked_for.items() if isinstance(one, Unseen)}
    return _with_those_behind(fleet, Live(planes, apps | asleep, leaving | lost), gone)


async def answer(
    fleet: Fleet,
    live: Live,
    clusters: Clusters,
    questions: Questions,
    *,
    pace: Pace = _DEFAULTS,
) -> Live:
    """Return `live`, as observed, with the answers in `Seen.in_use` and `Seen.bodies`.

    A cluster that fails to answer becomes unseen, with those behind it. What is unseen already
    is not asked.
    """
    observer = _Observer(fleet, clusters, pace)
    gone = removed_clusters(fleet, live.control_planes)
    asked = _by_cluster(questions)

    def wanted(name: str, verdict: Verdict | None) -> "_Reader | None":
        questions = asked.get(name)
        return _answers(verdict, questions) if questions and isinstance(verdict, Seen) else None

    planes, apps, leaving = await asyncio.gather(
        _all(
            {
                name: observer.plane(name, reader)
                for name, verdict in live.control_planes.items()
                if (reader := wanted(control_plane_ref_name(name), verdict))
            }
        ),
        _all(
            {
                name: observer.app(fleet.clusters[name], reader)
                for name, verdict in live.clusters.items()
                if (reader := wanted(name, verdict))
            }
        ),
        _all(
            {
                name: observer.app(leaver, reader)
                for name, leaver in gone.items()
                if isinstance(leaver, RemovedCluster)
                and (reader := wanted(name, live.leaving.get(name)))
            }
        ),
    )
    answered = Live(
        {**live.control_planes, **planes}, {**live.clusters, **apps}, {**live.leaving, **leaving}
    )
    return _with_those_behind(fleet, answered, gone)


def _needed(fleet: Fleet, chosen: Iterable[AppCluster]) -> set[str]:
    own = {one.control_plane for one in chosen}
    of_mode = {n for n, one in fleet.control_planes.items() if one.mode is not Mode.DIRECT}
    return own | of_mode if own & of_mode else own


class _Observer:
    """Reads clusters one by one, within the lanes of one run."""

    def __init__(self, fleet: Fleet, clusters: Clusters, pace: Pace) -> None:
        self._fleet, self._clusters = fleet, clusters
        self._pace, self._lanes = pace, ReadSlots(pace)

    async def plane(self, name: str, read: _Reader) -> Verdict:
        access = self._fleet.control_planes[name].access
        return await self._guarded(
            access, read, open_=lambda: self._clusters.control_plane(name), width=_PLANE_WIDTH
        )

    async def app(self, cluster: AppCluster | RemovedCluster, read: _Reader) -> Verdict:
        name, access, plane = cluster.name, cluster.access, cluster.control_plane
        try:
            with one_look():
                return await self._guarded(
                    access,
                    read,
                    open_=lambda: self._clusters.app_cluster(name, access, control_plane=plane),
                    width=_CLUSTER_WIDTH,
                )
        finally:
            # There may be very many, and open connections are files and memory.
            await self._clusters.close(name)

    async def _guarded(
        self,
        access: Access,
        read: _Reader,
        *,
        open_: Callable[[], Awaitable[Reached]],
        width: int,
    ) -> Verdict:
        """Let `read` read, and judge whatever comes of it."""
        reached: Reached | None = None
        reading: Reading | None = None
        try:
            async with self._lanes.turn() as turn:
                reached = await open_()
                reading = Reading(reached.cluster, width=width)
                return await read(reading, reached, turn)
        except TimeoutError:
            return unseen.late(reading.waiting if reading else (), self._pace.timeout)
        except Exception as error:
            return _verdict(error, access, reached)


def _verdict(error: Exception, access: Access, reached: Reached | None) -> Unseen:
    address = reached.address if reached else None
    match error:
        case ConfigError():
            return unseen.unusable(error, access)
        case ClusterError():
            return unseen.failed([error], access, address)
        case Incomplete():
            return unseen.failed(error.errors, access, address)
        case NoIdentity():
            return unseen.nameless(access)
        case _:
            return unseen.defect(error)


@dataclass(frozen=True, slots=True)
class _Look:
    """What is read for, and whether its credentials are."""

    fleet: Fleet
    credentials: bool


def _of_plane(look: _Look, name: str) -> _Reader:
    async def read(reading: Reading, reached: Reached, turn: ReadTurn) -> Seen:
        await reads.first_of_control_plane(reading)
        async with turn.slot():
            await reads.rest_of_control_plane(reading)
            if look.credentials:
                await reads.secrets_of_control_plane(reading, look.fleet, name)
        silent = reads.silent_spaces(reading, datetime.now(UTC))
        return reading.seen(reached.address, silent=silent)

    return read


def _of_part(fleet: Fleet) -> _Reader:
    async def read(reading: Reading, reached: Reached, turn: ReadTurn) -> Seen:
        await reads.first_of_part(reading)
        async with turn.slot():
            await reads.shared_part(reading, fleet)
        return reading.seen(reached.address)

    return read


def _of_spaces(
    look: _Look, name: str, seen: Seen, behind: Sequence[AppCluster], apps: Mapping[str, Verdict]
) -> _Reader:
    """Read the rest of a control plane that `_of_part` has begun with."""
    namespaces = seen.objects[NAMESPACE]
    found = [read_scope.spaces(look.fleet, one.name, namespaces, apps[one.name]) for one in behind]
    spaces = frozenset[str]().union(*(some for some in found if some is not None))
    if None in found or len(spaces) > read_scope.MANY_SPACES:
        return _of_plane(look, name)

    async def read(reading: Reading, reached: Reached, turn: ReadTurn) -> Seen:
        reading.take(seen)
        async with turn.slot():
            await reads.spaces_of_control_plane(reading, spaces, credentials=look.credentials)
        silent = reads.silent_spaces(reading, datetime.now(UTC))
        return reading.seen(reached.address, silent=silent)

    return read


def _of_app(look: _Look, name: str) -> _Reader:
    async def read(reading: Reading, reached: Reached, turn: ReadTurn) -> Seen:
        await reads.first_of_app_cluster(reading)
        async with turn.slot():
            await reads.rest_of_app_cluster(reading, reads.konnector_objects(look.fleet, name))
            if look.credentials:
                await reads.secrets_of_app_cluster(reading)
            scope = await reads.binding_scope(reading, reached.cluster)
        return reading.seen(reached.address, bindings_cluster_scoped=scope)

    return read


def _answers(seen: Seen, questions: Iterable[Kind | Ref]) -> _Reader:
    kinds = sorted(one for one in questions if isinstance(one, Kind))
    refs = sorted(one for one in questions if isinstance(one, Ref))

    async def read(reading: Reading, reached: Reached, turn: ReadTurn) -> Seen:
        cluster = reached.cluster
        async with turn.slot():
            counts = await together(*(reads.count(reading, cluster, kind) for kind in kinds))
            bodies = await together(*(reads.export_body(reading, cluster, ref) for ref in refs))
        return replace(
            seen,
            in_use={**seen.in_use, **dict(zip(kinds, counts, strict=True))},
            bodies={**seen.bodies, **dict(zip(refs, bodies, strict=True))},
        )

    return read


def _by_cluster(questions: Questions) -> Mapping[str, Collection[Kind | Ref]]:
    asked: dict[str, set[Kind | Ref]] = defaultdict(set)
    for cluster, kind in questions.in_use:
        asked[cluster].add(kind)
    for ref in questions.bodies:
        asked[ref.cluster].add(ref)
    return asked


def _with_those_behind(
    fleet: Fleet, live: Live, gone: Mapping[str, RemovedCluster | Unseen]
) -> Live:
    """Return `live`, in order, where what is behind an unseen control plane is unseen."""

    def judged(verdict: Verdict, plane: str) -> Verdict:
        of_plane = live.control_planes[plane]
        return verdict if isinstance(of_plane, Seen) else unseen.behind(plane, of_plane)

    apps = {
        name: judged(verdict, fleet.clusters[name].control_plane)
        for name, verdict in sorted(live.clusters.items())
    }
    leaving = {
        name: judged(verdict, leaver.control_plane)
        if isinstance(leaver, RemovedCluster)
        else verdict
        for name, verdict in sorted(live.leaving.items())
        for leaver in (gone[name],)
    }
    return Live(dict(sorted(live.control_planes.items())), apps, leaving)


async def _all(verdicts: Mapping[str, Awaitable[Verdict]]) -> dict[str, Verdict]:
    found = await asyncio.gather(*verdicts.values())
    return dict(zip(verdicts, found, strict=True))
