"""Look at every cluster of a fleet as `doctor` does: reach it, ask who we are and what we may.

Stores nothing: a review is answered and forgotten. No failure of one cluster holds back another.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from reconciler.blueprints.policies import Policy
from reconciler.core import durations, keys
from reconciler.core.errors import ClusterError, ConfigError, Forbidden, NotServed, Rejected
from reconciler.core.live import Unseen
from reconciler.core.manifest import Manifest, get, get_text, name_of
from reconciler.core.refs import ADMISSION_POLICY, ADMISSION_POLICY_BINDING, CRD, Kind, Ref
from reconciler.fleet.compile import units_by_cluster
from reconciler.fleet.values import Access, AppCluster, ControlPlane, Fleet
from reconciler.health import diagnosis, policies
from reconciler.health.diagnosis import Check, Examination, Finding, Level, Question
from reconciler.health.rights import Right, Scope, Side, Task, needed, scope_of
from reconciler.kube.cluster import Cluster
from reconciler.kube.registry import Reached
from reconciler.observe import Clusters, Pace, unseen
from reconciler.observe.reading import Incomplete, ReadSlots, together

ACCESS_REVIEW: Final = Kind(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
    namespaced=False,
)
SELF_REVIEW: Final = Kind(
    "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False
)

_WIDTH: Final = 8  # reviews at once; each takes a connection
_EVERYTHING: Final = Question("", "*", "*", "*")


@dataclass(frozen=True, slots=True)
class _Patient:
    """One cluster to look at."""

    name: str
    side: Side
    access: Access
    scope: Scope
    open: Callable[[], Awaitable[Reached]]


async def examine(
    fleet: Fleet,
    clusters: Clusters,
    *,
    task: Task,
    now: Callable[[], datetime],
    only: Collection[str] | None = None,
    pace: Pace,
) -> tuple[Examination, ...]:
    """Look at all control planes and app clusters, or `only` some with what they need.

    A suspended cluster is left alone. `now` gives our own time in UTC.
    """
    lanes = ReadSlots(pace)

    async def look(patient: _Patient) -> Examination:
        reached: Reached | None = None
        try:
            async with lanes.turn() as turn:
                reached = await patient.open()
                # Also shows whether the cluster answers at all, before it takes a slot.
                who = await _who(reached.cluster, now)
                async with turn.slot():
                    return await _look(patient, reached, task, *who)
        except TimeoutError:
            return _unreached(patient, unseen.late((), pace.timeout))
        except ConfigError as error:
            return _unreached(patient, unseen.unusable(error, patient.access))
        except ClusterError as error:
            address = reached.address if reached else None
            return _unreached(patient, unseen.failed([error], patient.access, address))
        except Incomplete as error:
            address = reached.address if reached else None
            return _unreached(patient, unseen.failed(error.errors, patient.access, address))
        except Exception as error:
            return _unreached(patient, unseen.defect(error))
        finally:
            if patient.side is Side.APP_CLUSTER:
                await clusters.close(patient.name)

    return tuple(await asyncio.gather(*map(look, _patients(fleet, clusters, only))))


def _patients(fleet: Fleet, clusters: Clusters, only: Collection[str] | None) -> Iterator[_Patient]:
    chosen = [one for name, one in sorted(fleet.clusters.items()) if only is None or name in only]
    units = units_by_cluster(fleet)
    needed_planes = {one.control_plane for one in chosen}
    for name, plane in sorted(fleet.control_planes.items()):
        if only is None or name in needed_planes:
            behind = [one for one in chosen if one.control_plane == name]
            held = [unit for one in behind for unit in units.get(one.name, ())]
            yield _plane(clusters, plane, scope_of(fleet, behind, [plane], units=held))
    for cluster in chosen:
        if cluster.suspended is None:
            plane = fleet.control_planes[cluster.control_plane]
            own = units.get(cluster.name, ())
            yield _app(clusters, cluster, scope_of(fleet, [cluster], [plane], units=own))


def _plane(clusters: Clusters, plane: ControlPlane, scope: Scope) -> _Patient:
    return _Patient(
        plane.name,
        Side.CONTROL_PLANE,
        plane.access,
        scope,
        lambda: clusters.control_plane(plane.name),
    )


def _app(clusters: Clusters, cluster: AppCluster, scope: Scope) -> _Patient:
    return _Patient(
        cluster.name,
        Side.APP_CLUSTER,
        cluster.access,
        scope,
        lambda: clusters.app_cluster(
            cluster.name, cluster.access, control_plane=cluster.control_plane
        ),
    )


async def _look(
    patient: _Patient, reached: Reached, task: Task, user: str, clock: Finding
) -> Examination:
    cluster = reached.cluster
    refused, asked = await _rights(cluster, needed(task, patient.side, patient.scope))
    to_plan = {*diagnosis.questions(needed(Task.PLAN, patient.side, patient.scope))}
    findings = [
        Finding(Check.CONNECTION, Level.OK, f"reached at {reached.address.server}"),
        clock,
        diagnosis.rights(task, refused, asked),
    ]
    try:
        listing = await cluster.list(CRD, metadata_only=True)
    except Forbidden:
        pass  # the rights tell it
    else:
        there = set(map(name_of, listing.items))
        findings.insert(2, diagnosis.crds(patient.side, patient.scope.modes, there))
    if task is Task.APPLY:
        findings += await _policies(cluster, policies.expected(patient.side, patient.scope, user))
    return Examination(
        patient.name,
        patient.side,
        str(patient.access),
        patient.access.context,
        tuple(findings),
        user=user,
        server=reached.address.server,
        readable=not to_plan & {*refused},
    )


async def _policies(cluster: Cluster, expected: Sequence[Policy]) -> Sequence[Finding]:
    """Return what to say of these admission policies, nothing where none is expected."""
    missing = list[str]()
    try:
        for one in expected:
            live, binding = [
                await cluster.get(Ref(cluster.name, kind, "", one.name))
                for kind in (ADMISSION_POLICY, ADMISSION_POLICY_BINDING)
            ]
            missing += [] if policies.in_force(one, live, binding) else [one.name]
    except Forbidden:
        return ()  # the rights tell it
    except NotServed:
        return (diagnosis.policies((), served=False),)
    return (diagnosis.policies(missing),) if expected else ()


def _unreached(patient: _Patient, why: Unseen) -> Examination:
    return Examination(
        patient.name,
        patient.side,
        str(patient.access),
        patient.access.context,
        (Finding(Check.CONNECTION, Level.PROBLEM, why.reason, why.remedy),),
        readable=False,
    )


async def _who(cluster: Cluster, now: Callable[[], datetime]) -> tuple[str, Finding]:
    """Ask who we are there; the answer bears the server's time, in whole seconds."""
    before = now()
    try:
        review = await _review(cluster, SELF_REVIEW, {})
    except (Forbidden, NotServed, Rejected):  # Kubernetes before 1.28
        return "", diagnosis.clock(None, timedelta())
    after = now()
    user = get_text(review, "status", "userInfo", "username")
    try:
        time = durations.parse_time(get_text(review, "metadata", "creationTimestamp"))
    except ValueError:
        return user, diagnosis.clock(None, timedelta())
    half = timedelta(seconds=0.5)
    middle = before + (after - before) / 2
    return user, diagnosis.clock(time + half - middle, half + (after - before) / 2)


async def _rights(cluster: Cluster, wanted: Sequence[Right]) -> tuple[tuple[Question, ...], int]:
    """Return the questions that were answered with no, and how many were asked.

    One question first: whoever may do everything need not be asked more.
    """
    asked = diagnosis.questions(wanted)
    if await _may(cluster, _EVERYTHING):
        return (), len(asked)
    width = asyncio.Semaphore(_WIDTH)

    async def ask(question: Question) -> bool:
        async with width:
            return await _may(cluster, question)

    answers = await together(*map(ask, asked))
    return tuple(one for one, yes in zip(asked, answers, strict=True) if not yes), len(asked)


async def _may(cluster: Cluster, question: Question) -> bool:
    stated = {
        "namespace": question.namespace,
        "group": question.group,
        "resource": question.resource,
        "verb": question.verb,
        "name": question.name,
    }
    attributes = {key: value for key, value in stated.items() if value}
    spec = {"spec": {"resourceAttributes": attributes}}
    answer = await _review(cluster, ACCESS_REVIEW, spec)
    return get(answer, "status", "allowed") is True


async def _review(cluster: Cluster, kind: Kind, body: Manifest) -> Manifest:
    typed: Manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}}
    return await cluster.create({**typed, **body}, kind, manager=keys.MANAGER_CLI)
