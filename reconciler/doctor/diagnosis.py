"""Diagnose a cluster by its answers, with a remedy for each finding. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from reconciler import api
from reconciler.api import leases
from reconciler.api.leases import Behind, Stopped, Trouble
from reconciler.core import names
from reconciler.core.times import format_time
from reconciler.doctor.rights import Right, Side, Task
from reconciler.fleet.values import Mode

# Below the first it does no harm; beyond the second, ages and heartbeats are judged wrongly.
CLOCK_WARNING: Final = timedelta(seconds=10)
CLOCK_PROBLEM: Final = timedelta(seconds=60)

# A plan reads no Secret (trust.md T2), and these do.
_NOT_PLANNED: Final = "import, release and drift --credentials need those of an apply"

_CRDS: Final = (
    api.CLUSTER_BINDING,
    api.API_SERVICE_EXPORT,
    api.API_SERVICE_EXPORT_REQUEST,
    api.API_SERVICE_EXPORT_TEMPLATE,
    api.API_SERVICE_NAMESPACE,
)
_CRDS_OF_MODE: Final = {
    Mode.DIRECT: (),
    Mode.APP_CLUSTER_BINDING: (api.API_SERVICE_BINDING, api.APP_CLUSTER_BINDING),
}


class Level(StrEnum):
    """The level of a finding: harmless; may matter; a plan or an apply would not succeed."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Check(StrEnum):
    """The subject of a finding."""

    CONNECTION = "connection"
    CLOCK = "clock"
    CRDS = "crds"
    RIGHTS = "rights"
    POLICIES = "policies"
    AGENTS = "agents"
    KUBECONFIGS = "kubeconfigs"
    GUARDS = "guards"
    CROSSPLANE = "crossplane"


class Mend(StrEnum):
    """The manifests that mend a finding."""

    CRDS = "crds"
    RIGHTS = "rights"


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence about a cluster or an address, and the remedy; `mend`: these manifests do it.

    `check` names for programs what was looked at.
    """

    check: str
    level: Level
    message: str
    remedy: str = ""
    mend: Mend | None = None


def ok(check: str, message: str) -> Finding:
    return Finding(check, Level.OK, message)


def warning(check: str, message: str, remedy: str = "", mend: Mend | None = None) -> Finding:
    return Finding(check, Level.WARNING, message, remedy, mend)


def problem(check: str, message: str, remedy: str = "", mend: Mend | None = None) -> Finding:
    return Finding(check, Level.PROBLEM, message, remedy, mend)


def worst(findings: Iterable[Finding]) -> Level:
    levels = {finding.level for finding in findings}
    return next((one for one in (Level.PROBLEM, Level.WARNING) if one in levels), Level.OK)


@dataclass(frozen=True, slots=True)
class Examination:
    """All about one cluster. `readable`: a plan can read it. `access` is how it was reached."""

    name: str
    side: Side
    access: str
    context: str  # of the kubeconfig, "" where access is by other ways
    findings: tuple[Finding, ...]
    user: str = ""
    server: str = ""
    readable: bool = True

    @property
    def level(self) -> Level:
        return worst(self.findings)


def clock(skew: timedelta | None, doubt: timedelta) -> Finding:
    """Judge how far the server is ahead of us; `doubt` is how wrong that may be. None = unknown."""
    if skew is None:
        return warning(Check.CLOCK, "the API server sends no Date header")
    off = max(abs(skew) - doubt, timedelta())
    if off < CLOCK_WARNING:
        return ok(Check.CLOCK, "its clock agrees with ours")
    way = "ahead of" if skew > timedelta() else "behind"
    return Finding(
        Check.CLOCK,
        Level.PROBLEM if off >= CLOCK_PROBLEM else Level.WARNING,
        f"its clock is {round(off.total_seconds())} s {way} ours",
        "Set both by NTP: ages and heartbeats are compared",
    )


def crds(side: Side, modes: Collection[Mode], there: Collection[str]) -> Finding:
    """Return the finding about Klutch's CRDs in a cluster, by their names."""
    if side is Side.APP_CLUSTER:
        if api.API_SERVICE_BINDING.resource in there or Mode.DIRECT not in modes:
            return ok(Check.CRDS, "no CRD is missing")
        absent = (
            f"{api.API_SERVICE_BINDING.resource} is absent; an apply, or a konnector, installs it"
        )
        return ok(Check.CRDS, absent)
    wanted = [*_CRDS, *(kind for mode in modes for kind in _CRDS_OF_MODE[mode])]
    missing = sorted({kind.resource for kind in wanted} - set(there))
    if not missing:
        return ok(Check.CRDS, "no CRD is missing")
    return problem(
        Check.CRDS,
        f"missing CRDs: {', '.join(missing)}",
        "Install them, or a backend that brings them",
        Mend.CRDS,
    )


@dataclass(frozen=True, slots=True, order=True)
class Question:
    """A verb on a resource, or on one object, as an API server is asked about it."""

    namespace: str
    group: str
    resource: str
    verb: str
    name: str = ""


def questions(rights: Iterable[Right]) -> tuple[Question, ...]:
    """Return the questions about these rights, in order."""
    return tuple(
        sorted(
            Question(right.namespace, right.group, right.resource, verb, name)
            for right in rights
            for verb in right.verbs
            for name in right.only or ("",)
        )
    )


def rights(task: Task, refused: Collection[Question], asked: int) -> Finding:
    """Return the finding about missing rights, of so many that were asked about."""
    purpose, limit = ("a plan", f"; {_NOT_PLANNED}") if task is Task.PLAN else ("an apply", "")
    if not refused:
        return ok(Check.RIGHTS, f"all rights that {purpose} needs{limit}")
    listed = "; ".join(_sentences(refused))
    return problem(
        Check.RIGHTS,
        f"{len(refused)} of {asked} rights that {purpose} needs are missing: {listed}",
        f"Grant them, or use credentials that have them{limit}",
        Mend.RIGHTS,
    )


def policies(missing: Collection[str], *, served: bool = True) -> Finding:
    """Return the findings about admission policies that are absent or differ."""
    if not served:
        return warning(
            Check.POLICIES,
            "this API server has no ValidatingAdmissionPolicies (Kubernetes 1.30 has). "
            "With a stolen token of klutchctl or of a konnector, an attacker may get all "
            "rights",
        )
    if not missing:
        return ok(Check.POLICIES, "no admission policy is missing")
    return warning(
        Check.POLICIES,
        f"admission policies are missing or out of date: {', '.join(sorted(missing))}. "
        "With a stolen token of an account that they limit, an attacker may get all rights",
        "Let an administrator apply them",
        Mend.RIGHTS,
    )


def backend(namespace: str, stopped: datetime | None, task: Task) -> Finding:
    """Judge a backend by its Lease in this namespace; `stopped` is when it did."""
    if stopped is None:
        lease = f"Lease {namespace}/{names.BACKEND_LEASE}"
        return ok(Check.AGENTS, f"{names.BACKEND} runs, and renews {lease}")
    message = leases.backend_stopped(namespace, stopped)
    return _stopped(message, task, "existing bindings continue, and there are no new ones")


def konnector(namespace: str, plane: str, trouble: Trouble | None, task: Task) -> Finding:
    """Judge a konnector by its Lease; `plane` is the control plane that it is on, "" for none."""
    place = f" on control plane {plane}" if plane else ""
    lease = f"Lease {namespace}/{names.KONNECTOR_LEASE}{place}"
    match trouble:
        case None:
            return ok(Check.AGENTS, f"its konnector runs, and renews {lease}")
        case Behind(by):
            way = "behind" if by > timedelta() else "ahead of"
            return warning(
                Check.AGENTS,
                f"its konnector runs, and its clock is {abs(by).total_seconds():.0f} s {way} ours",
                "Set the clock of its node, or ours, by NTP",
            )
        case Stopped(at):
            message = f"its konnector has stopped: {lease} was last renewed at {format_time(at)}"
            return _stopped(message, task, "until then nothing is synced")


def _stopped(message: str, task: Task, effect: str) -> Finding:
    level = Level.WARNING if task is Task.PLAN else Level.PROBLEM
    return Finding(Check.AGENTS, level, message, f"See why it ended, and start it again: {effect}")


def no_backend() -> Finding:
    """Warn of a control plane on which nothing shows that a backend was ever there."""
    return warning(
        Check.AGENTS,
        leases.NO_BACKEND,
        f"Start {names.BACKEND}, or see that it runs: Klutch's own has no such Lease, nor has one "
        "with --leader-election=off or another --lease-namespace",
    )


def _sentences(refused: Iterable[Question]) -> Iterator[str]:
    """Yield `get, list secrets a, b in namespace c`, with verbs and names together."""
    verbs: dict[tuple[str, str, str, str], set[str]] = defaultdict(set)
    for question in refused:
        key = (question.namespace, question.group, question.resource, question.name)
        verbs[key].add(question.verb)
    names: dict[tuple[str, str, str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (namespace, group, resource, name), refused_verbs in sorted(verbs.items()):
        names[namespace, group, resource, tuple(sorted(refused_verbs))].append(name)
    for (namespace, group, resource, alike), objects in names.items():
        kind = f"{resource}.{group}" if group else resource
        listed = ", ".join(name for name in objects if name)
        place = f"in namespace {namespace}" if namespace else ""
        yield " ".join(part for part in (", ".join(alike), kind, listed, place) if part)
