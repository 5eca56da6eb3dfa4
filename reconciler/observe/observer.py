"""Observes all clusters at once: each is read completely, or unread with a reason."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from reconciler.core.live import (
    ClusterState,
    Live,
    Questions,
    Unavailable,
    control_plane_ref_name,
    plane_unseen,
)
from reconciler.core.refs import NAMESPACE, Kind, Ref
from reconciler.fleet.values import AppCluster, Fleet, Mode
from reconciler.observe import read_scope, reads
from reconciler.observe.read_scope import RemovedCluster, removed_clusters
from reconciler.observe.visits import Clusters, Pace, Visit, Visits

_DEFAULTS: Final = Pace()

Verdict: TypeAlias = ClusterState | Unavailable
_Read: TypeAlias = Callable[[Visit], Awaitable[ClusterState]]


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
    visits = Visits(clusters, pace)
    return await observed(fleet, visits, only=only, in_part=in_part, credentials=credentials)


async def observed(
    fleet: Fleet,
    visits: Visits,
    *,
    only: Collection[str] | None = None,
    in_part: bool = False,
    credentials: bool = False,
) -> Live:
    """Read as `observe` does, by the visits of a run that reads more."""
    observer = _Observer(fleet, visits, credentials=credentials)
    chosen = [cluster for name, cluster in fleet.clusters.items() if only is None or name in only]
    awake = [cluster for cluster in chosen if cluster.suspended is None]
    # No document says which control plane knows a cluster that was removed from the files.
    every = only is None or not fleet.clusters.keys() >= set(only)
    needed = set(fleet.control_planes) if every else _needed(fleet, chosen)
    parts = read_scope.in_part(fleet, awake) if in_part and not every else {}
    planes, shared, apps = await asyncio.gather(
        _all({name: observer.control_plane(name) for name in needed - parts.keys()}),
        _all({name: observer.shared_part(name) for name in parts}),
        _all({cluster.name: observer.app_cluster(cluster) for cluster in awake}),
    )
    planes |= shared | await _all(
        {
            name: observer.rest(name, seen, parts[name], apps)
            for name, seen in shared.items()
            if isinstance(seen, ClusterState)
        }
    )
    asleep = {
        cluster.name: Unavailable(
            f"suspended: {cluster.suspended}", "Remove spec.suspend from its document to continue"
        )
        for cluster in chosen
        if cluster.suspended is not None
    }
    removed = removed_clusters(fleet, planes)
    sought = {name: cluster for name, cluster in removed.items() if only is None or name in only}
    leaving = await _all(
        {
            name: observer.app_cluster(cluster)
            for name, cluster in sought.items()
            if isinstance(cluster, RemovedCluster)
        }
    )
    lost = {name: cluster for name, cluster in sought.items() if isinstance(cluster, Unavailable)}
    return _with_those_behind(fleet, Live(planes, apps | asleep, leaving | lost), removed)


async def answer(
    fleet: Fleet, live: Live, clusters: Clusters, questions: Questions, *, pace: Pace = _DEFAULTS
) -> Live:
    """Return `live`, as observed, with the answers in `ClusterState.in_use` and `.bodies`.

    A cluster that fails to answer becomes unseen, with those behind it. Unseen ones are not asked.
    """
    observer = _Observer(fleet, Visits(clusters, pace))
    removed = removed_clusters(fleet, live.control_planes)
    asked = _by_cluster(questions)
    asked_planes = {
        name: asked[ref]
        for name in live.control_planes
        if (ref := control_plane_ref_name(name)) in asked
    }
    known: dict[str, AppCluster | RemovedCluster] = {**fleet.clusters}
    known |= {name: one for name, one in removed.items() if isinstance(one, RemovedCluster)}

    def at_app_cluster(name: str, read: _Read) -> Awaitable[Verdict]:
        return observer.at_app_cluster(known[name], read)

    planes, apps, leaving = await asyncio.gather(
        _answered(live.control_planes, asked_planes, observer.at_control_plane),
        _answered(live.clusters, asked, at_app_cluster),
        _answered(live.leaving, asked, at_app_cluster),
    )
    return _with_those_behind(fleet, Live(planes, apps, leaving), removed)


class _Observer:
    """Reads clusters one by one, within the visits of one run."""

    def __init__(self, fleet: Fleet, visits: Visits, *, credentials: bool = False) -> None:
        self._fleet, self._visits, self._credentials = fleet, visits, credentials

    def at_control_plane(self, name: str, read: _Read) -> Awaitable[Verdict]:
        return self._visits.control_plane(name, self._fleet.control_planes[name].access, read)

    def at_app_cluster(
        self, cluster: AppCluster | RemovedCluster, read: _Read
    ) -> Awaitable[Verdict]:
        return self._visits.app_cluster(
            cluster.name, cluster.access, read, control_plane=cluster.control_plane
        )

    def control_plane(self, name: str) -> Awaitable[Verdict]:
        read = partial(
            reads.control_plane, fleet=self._fleet, name=name, credentials=self._credentials
        )
        return self.at_control_plane(name, read)

    def shared_part(self, name: str) -> Awaitable[Verdict]:
        return self.at_control_plane(name, partial(reads.shared_part, fleet=self._fleet))

    def rest(
        self,
        name: str,
        shared: ClusterState,
        behind: Sequence[AppCluster],
        apps: Mapping[str, Verdict],
    ) -> Awaitable[Verdict]:
        """Read the rest of a control plane after its shared part, for clusters behind it."""
        namespaces = shared.objects[NAMESPACE]
        found = [
            read_scope.spaces(self._fleet, cluster.name, namespaces, apps[cluster.name])
            for cluster in behind
        ]
        spaces = frozenset[str]().union(*(some for some in found if some is not None))
        if None in found or len(spaces) > read_scope.MANY_SPACES:
            return self.control_plane(name)
        read = partial(reads.spaces, shared=shared, spaces=spaces, credentials=self._credentials)
        return self.at_control_plane(name, read)

    def app_cluster(self, cluster: AppCluster | RemovedCluster) -> Awaitable[Verdict]:
        read = partial(
            reads.app_cluster, fleet=self._fleet, name=cluster.name, credentials=self._credentials
        )
        return self.at_app_cluster(cluster, read)


async def _answered(
    verdicts: Mapping[str, Verdict],
    asked: Mapping[str, Collection[Kind | Ref]],
    visit: Callable[[str, _Read], Awaitable[Verdict]],
) -> dict[str, Verdict]:
    """Return the verdicts, with the answers of those clusters that are seen and asked."""
    answers = await _all(
        {
            name: visit(name, partial(reads.answers, seen=verdict, questions=asked[name]))
            for name, verdict in verdicts.items()
            if name in asked and isinstance(verdict, ClusterState)
        }
    )
    return {**verdicts, **answers}


def _needed(fleet: Fleet, chosen: Iterable[AppCluster]) -> set[str]:
    own = {cluster.control_plane for cluster in chosen}
    of_mode = {
        name for name, plane in fleet.control_planes.items() if plane.mode is not Mode.DIRECT
    }
    return own | of_mode if own & of_mode else own


def _by_cluster(questions: Questions) -> Mapping[str, Collection[Kind | Ref]]:
    asked: dict[str, set[Kind | Ref]] = defaultdict(set)
    for cluster, kind in questions.in_use:
        asked[cluster].add(kind)
    for ref in questions.bodies:
        asked[ref.cluster].add(ref)
    return asked


def _with_those_behind(
    fleet: Fleet, live: Live, removed: Mapping[str, RemovedCluster | Unavailable]
) -> Live:
    """Return `live`, in order, where all clusters behind an unseen control plane are unseen."""

    def judged(verdict: Verdict, plane: str) -> Verdict:
        of_plane = live.control_planes[plane]
        return verdict if isinstance(of_plane, ClusterState) else behind(plane, of_plane)

    apps = {
        name: judged(verdict, fleet.clusters[name].control_plane)
        for name, verdict in sorted(live.clusters.items())
    }
    leaving = {
        name: judged(verdict, cluster.control_plane)
        if isinstance(cluster, RemovedCluster)
        else verdict
        for name, verdict in sorted(live.leaving.items())
        for cluster in (removed[name],)
    }
    return Live(dict(sorted(live.control_planes.items())), apps, leaving)


async def _all(verdicts: Mapping[str, Awaitable[Verdict]]) -> dict[str, Verdict]:
    return dict(zip(verdicts, await asyncio.gather(*verdicts.values()), strict=True))


def behind(control_plane: str, why: Unavailable) -> Unavailable:
    """Return the verdict on an app cluster behind an unseen control plane."""
    return Unavailable(plane_unseen(control_plane, why.reason), why.remedy)
