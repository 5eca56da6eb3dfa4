"""Examines every cluster of a fleet for `doctor`: connection, identity and rights.

Stores nothing: a review is answered and forgotten. No failure of one cluster holds back another.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeAlias

from reconciler import run
from reconciler.api import (
    API_SERVICE_EXPORT_TEMPLATE,
    API_SERVICE_NAMESPACE,
    CLUSTER_BINDING,
    Heartbeat,
    heartbeat_of,
)
from reconciler.blueprints.policies import Policy
from reconciler.controller.tasks import a_few
from reconciler.core import conditions, keys, refs, times
from reconciler.core import names as core_names
from reconciler.core.errors import Forbidden, NotServed, Rejected
from reconciler.core.live import Unavailable
from reconciler.core.manifest import Manifest, get, get_text, labels_of, name_of
from reconciler.core.refs import Kind, Ref
from reconciler.doctor import agents, crossplane, diagnosis, policies, rights
from reconciler.doctor.diagnosis import Check, Examination, Finding, Level, Question
from reconciler.doctor.rights import Right, Scope, Side, Task
from reconciler.fleet.compile import units_by_cluster
from reconciler.fleet.values import Access, Fleet, Mode
from reconciler.kube.cluster import Cluster
from reconciler.kube.registry import Reached
from reconciler.observe import Clusters, Pace
from reconciler.observe.agents import Look, Looks, konnector_in
from reconciler.observe.visits import Visit, Visits, together
from reconciler.planning import preflight
from reconciler.planning.changes import Action, Plan
from reconciler.planning.clusters import is_new_address
from reconciler.planning.site import Site

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

# Without them a status says less, and a plan is the same.
_OF_STATUS: Final = frozenset({refs.LEASE.plural, API_SERVICE_NAMESPACE.plural})
Beats: TypeAlias = Mapping[str, Heartbeat | None]  # by app cluster
_WIDTH: Final = 8  # reviews at once; each takes a connection
_EVERYTHING: Final = Question("", "*", "*", "*")


@dataclass(frozen=True, slots=True)
class _Target:
    """A cluster to examine."""

    name: str
    side: Side
    access: Access
    scope: Scope
    control_plane: str

    @property
    def has_konnector(self) -> bool:
        """Whether it is an app cluster in which its konnector works."""
        return self.side is Side.APP_CLUSTER and Mode.DIRECT in self.scope.modes

    async def visit(
        self, visits: Visits, read: Callable[[Visit], Awaitable[Examination]]
    ) -> Examination | Unavailable:
        if self.side is Side.CONTROL_PLANE:
            return await visits.control_plane(self.name, self.access, read)
        return await visits.app_cluster(
            self.name, self.access, read, control_plane=self.control_plane
        )


async def examine(
    fleet: Fleet,
    clusters: Clusters,
    *,
    task: Task,
    now: Callable[[], datetime],
    only: Collection[str] | None = None,
    pace: Pace,
) -> tuple[Examination, ...]:
    """Examine all control planes and app clusters, or `only` some with those they need.

    A suspended cluster is left alone. `now` gives our own time in UTC.
    """
    visits = Visits(clusters, pace)
    konnectors: dict[str, Look] = {}
    there: list[_Target] = []

    async def look(target: _Target) -> Examination:
        async def read(visit: Visit) -> Examination:
            # Also shows whether the cluster answers at all, before it takes a slot.
            account = await _account(visit.reached.cluster, now)
            async with visit.turn.slot():
                if target.has_konnector:
                    konnectors[target.name] = await konnector_in(visit.reached.cluster)
                made = await _look(target, visit.reached, task, *account)
            there.append(target)
            return made

        found = await target.visit(visits, read)
        if not isinstance(found, Unavailable):
            return found
        return Examination(
            target.name,
            target.side,
            str(target.access),
            target.access.context,
            (Finding(Check.CONNECTION, Level.PROBLEM, found.reason, found.remedy),),
            readable=False,
        )

    made = await asyncio.gather(*map(look, _targets(fleet, only)))
    apps = [one.name for one in made if one.side is Side.APP_CLUSTER and one.readable]
    more, beats = await findings(fleet, clusters, apps, task=task, pace=pace)
    reached = _reached(fleet, there, konnectors, beats)
    found = await agents.findings(fleet, reached, visits, task=task, now=now)
    outdated = {(Side.APP_CLUSTER, name): some for name, some in more.items()}
    return tuple(_with(one, found, outdated.get((one.side, one.name), ())) for one in made)


def _with(examination: Examination, found: agents.Findings, more: Sequence[Finding]) -> Examination:
    of_agent = filter(None, [found.get((examination.side, examination.name))])
    return replace(examination, findings=(*examination.findings, *of_agent, *more))


def _reached(fleet: Fleet, there: Sequence[_Target], in_app: Looks, beats: Beats) -> agents.Reached:
    planes = [one for one in there if one.side is Side.CONTROL_PLANE]
    apps = [one.name for one in there if one.side is Side.APP_CLUSTER]
    return agents.Reached(
        clusters=[fleet.clusters[name] for name in apps],
        planes=[one.name for one in planes],
        served=[one.name for one in planes if one.scope.services],
        in_app={name: in_app[name] for name in apps if name in in_app},
        beats=beats,
    )


def _targets(fleet: Fleet, only: Collection[str] | None) -> Iterator[_Target]:
    chosen = [one for name, one in sorted(fleet.clusters.items()) if only is None or name in only]
    units = units_by_cluster(fleet)
    needed_planes = {cluster.control_plane for cluster in chosen}
    for name, plane in sorted(fleet.control_planes.items()):
        if only is None or name in needed_planes:
            behind = [cluster for cluster in chosen if cluster.control_plane == name]
            served = [unit for cluster in behind for unit in units.get(cluster.name, ())]
            scope = rights.scope_of(fleet, behind, [plane], units=served)
            yield _Target(name, Side.CONTROL_PLANE, plane.access, scope, name)
    for cluster in chosen:
        if cluster.suspended is None:
            plane = fleet.control_planes[cluster.control_plane]
            scope = rights.scope_of(fleet, [cluster], [plane], units=units.get(cluster.name, ()))
            yield _Target(cluster.name, Side.APP_CLUSTER, cluster.access, scope, plane.name)


async def _look(
    target: _Target, reached: Reached, task: Task, user: str, clock: Finding
) -> Examination:
    cluster = reached.cluster
    refused, asked = await _rights(cluster, rights.needed(task, target.side, target.scope))
    to_plan = diagnosis.questions(rights.needed(Task.PLAN, target.side, target.scope))
    missed = {one for one in refused if one in to_plan and one.resource not in _OF_STATUS}
    findings = [
        Finding(Check.CONNECTION, Level.OK, f"reached at {reached.address.server}"),
        clock,
        diagnosis.rights(task, refused, asked),
    ]
    try:
        listing = await cluster.list(refs.CRD, metadata_only=True)
    except Forbidden:
        pass  # the rights tell it
    else:
        there = set(map(name_of, listing.items))
        findings.insert(2, diagnosis.crds(target.side, target.scope.modes, there))
        if target.side is Side.CONTROL_PLANE and refs.COMPOSITION.resource in there:
            findings += crossplane.findings(await crossplane_of(cluster, there))
    if task is Task.APPLY:
        findings += await _policies(cluster, policies.expected(target.side, target.scope, user))
    return Examination(
        target.name,
        target.side,
        str(target.access),
        target.access.context,
        tuple(findings),
        user=user,
        server=reached.address.server,
        readable=not missed,
    )


async def _policies(cluster: Cluster, expected: Sequence[Policy]) -> Sequence[Finding]:
    """Return the findings about these admission policies, nothing where none is expected."""
    missing = list[str]()
    try:
        for one in expected:
            live, binding = [
                await cluster.get(Ref(cluster.name, kind, "", one.name))
                for kind in (refs.ADMISSION_POLICY, refs.ADMISSION_POLICY_BINDING)
            ]
            missing += [] if policies.in_force(one, live, binding) else [one.name]
    except Forbidden:
        return ()  # the rights tell it
    except NotServed:
        return (diagnosis.policies((), served=False),)
    return (diagnosis.policies(missing),) if expected else ()


async def crossplane_of(cluster: Cluster, crds: Collection[str]) -> crossplane.Installation:
    """Return the Crossplane of a cluster with these CRDs, as far as it may be read."""
    unread = list[Kind]()

    async def read(kind: Kind) -> Sequence[Manifest]:
        try:
            return (await cluster.list(kind)).items
        except Forbidden:
            unread.append(kind)
        except NotServed:  # there are none
            pass
        return ()

    found = {kind: await read(kind) for kind in rights.CROSSPLANE if kind.resource in crds}
    old = crossplane.without_pipeline(found.get(refs.COMPOSITION_REVISION, ()))
    definitions = found.get(refs.COMPOSITE_DEFINITION, ())
    used = [one for kind in crossplane.composites(definitions, old) for one in await read(kind)]
    return crossplane.Installation(
        second=crossplane.is_second(await cluster.versions(refs.COMPOSITION.group)),
        version=await _version_of(cluster),
        crds=crds,
        compositions=found.get(refs.COMPOSITION, ()),
        used=crossplane.used(old, used),
        definitions=definitions,
        functions=found.get(refs.FUNCTION_REVISION, ()),
        templates=found.get(API_SERVICE_EXPORT_TEMPLATE, ()),
        unread=unread,
    )


async def _version_of(cluster: Cluster) -> str:
    """Return the version on the Deployment of Crossplane's chart, "" where it cannot be read."""
    place = Ref(cluster.name, refs.DEPLOYMENT, "crossplane-system", rights.CROSSPLANE_DEPLOYMENT)
    try:
        found = await cluster.get(place)
    except Forbidden:
        return ""
    return labels_of(found or {}).get("app.kubernetes.io/version", "").removeprefix("v")


async def _account(cluster: Cluster, now: Callable[[], datetime]) -> tuple[str, Finding]:
    """Ask for our own user there; the answer bears the server's time, in whole seconds."""
    before = now()
    try:
        review = await _review(cluster, SELF_REVIEW, {})
    except (Forbidden, NotServed, Rejected):  # Kubernetes before 1.28
        return "", diagnosis.clock(None, timedelta())
    after = now()
    user = get_text(review, "status", "userInfo", "username")
    try:
        time = times.parse_time(get_text(review, "metadata", "creationTimestamp"))
    except ValueError:
        return user, diagnosis.clock(None, timedelta())
    half = timedelta(seconds=0.5)
    middle = before + (after - before) / 2
    return user, diagnosis.clock(time + half - middle, half + (after - before) / 2)


async def _rights(cluster: Cluster, wanted: Sequence[Right]) -> tuple[tuple[Question, ...], int]:
    """Return the questions that were answered with no, and how many were asked.

    The right to everything is asked for first: it answers all other questions.
    """
    asked = diagnosis.questions(wanted)
    if await _may(cluster, _EVERYTHING):
        return (), len(asked)
    answers = await together(*a_few(_WIDTH, partial(_may, cluster), asked))
    return tuple(one for one, yes in zip(asked, answers, strict=True) if not yes), len(asked)


async def _may(cluster: Cluster, question: Question) -> bool:
    attributes = {key: value for key, value in asdict(question).items() if value}
    spec = {"spec": {"resourceAttributes": attributes}}
    return get(await _review(cluster, ACCESS_REVIEW, spec), "status", "allowed") is True


async def _review(cluster: Cluster, kind: Kind, body: Manifest) -> Manifest:
    typed: Manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}}
    return await cluster.create({**typed, **body}, kind, manager=keys.MANAGER_CLI)


async def findings(
    fleet: Fleet, clusters: Clusters, names: Collection[str], *, task: Task, pace: Pace
) -> tuple[dict[str, list[Finding]], Beats]:
    """Return the plan's findings about kubeconfigs, guards and heartbeats, by these app clusters.

    Who only plans knows of Secrets what is noted of them. Nothing is said of what was not read.
    """
    if not names:
        return {}, {}
    look = await run.look(fleet, clusters, only=names, pace=pace, credentials=task is Task.APPLY)
    found: dict[str, list[Finding]] = {}
    for name, finding in _findings(look.plan):
        found.setdefault(name, []).append(finding)
    beats: dict[str, Heartbeat | None] = {}
    planes = preflight.control_planes(fleet, look.live)
    for name, site in preflight.preflights(fleet, look.live, planes, sorted(names)).items():
        if not isinstance(site, Site):
            if not site.by_apply:
                message, remedy = f"{site.guard}: {site.reason}", f"klutchctl explain {site.guard}"
                found.setdefault(name, []).append(diagnosis.problem(Check.GUARDS, message, remedy))
            continue
        place = (site.placement.space, core_names.CLUSTER_BINDING)
        live = site.control_plane.get(CLUSTER_BINDING, *place)
        beats[name] = heartbeat_of(live)
        for one in conditions.guards(live):
            message, remedy = f"{one.reason}: {one.message}", f"klutchctl explain {one.reason}"
            found.setdefault(name, []).append(diagnosis.warning(Check.GUARDS, message, remedy))
    return found, beats


def _findings(plan: Plan) -> Iterator[tuple[str, Finding]]:
    for change in plan.changes:
        kubeconfig = change.wanted is not None and change.wanted.kubeconfig is not None
        if change.action is Action.UPDATE and change.ref.kind == refs.SECRET and kubeconfig:
            # It works until the old address is taken away.
            level = Level.WARNING if is_new_address(change.fields) else Level.PROBLEM
            message = f"{change.ref.object}: {change.reason}"
            yield change.cluster, Finding(Check.KUBECONFIGS, level, message, "Run klutchctl apply")
