"""What a plan means to a script: one exit code out of all that hold (product.md, exit codes)."""

from collections.abc import Iterable, Iterator
from typing import Final

from klutchctl.exit_codes import ExitCode
from reconciler.apply.outcomes import GOOD, Report, Status
from reconciler.planning.changes import Action, Plan

PRECEDENCE: Final = (
    ExitCode.TERMINATED,
    ExitCode.INTERRUPTED,
    ExitCode.USAGE,
    ExitCode.INVALID,
    ExitCode.DENIED,
    ExitCode.STALE,
    ExitCode.LOCKED,
    ExitCode.HELD_BACK,
    ExitCode.FAILED,
    ExitCode.PARTIAL,
    ExitCode.UNHEALTHY,
    ExitCode.CHANGES,
    ExitCode.SUCCESS,
)

# The files say so themselves: what is meant is no failure.
_MEANT: Final = frozenset({"report", "suspended"})


# What was skipped or cut short is told by what caused it.
_OF_OUTCOMES: Final = {
    Status.DONE: ExitCode.SUCCESS,
    Status.UNCHANGED: ExitCode.SUCCESS,
    Status.STALE: ExitCode.STALE,
    Status.HELD: ExitCode.HELD_BACK,
    Status.FAILED: ExitCode.PARTIAL,
    Status.SKIPPED: ExitCode.SUCCESS,
    Status.UNCONFIRMED: ExitCode.UNHEALTHY,
    Status.INTERRUPTED: ExitCode.SUCCESS,
}


def first(codes: Iterable[ExitCode]) -> ExitCode:
    """Return the code that wins where several hold; SUCCESS where none does."""
    return min(codes, key=PRECEDENCE.index, default=ExitCode.SUCCESS)


def exit_code(plan: Plan, *, detailed: bool, allow_unreachable: bool) -> ExitCode:
    """Return the exit code of a plan that was made. `detailed` tells changes from none.

    A plan that does not know every cluster is never a success, unless `allow_unreachable`; one
    that knows none never is.
    """
    return first(_holding(plan, detailed=detailed, allow_unreachable=allow_unreachable))


def apply_code(report: Report, *, allow_unreachable: bool, signalled: ExitCode | None) -> ExitCode:
    """Return the exit code of an apply: what its plan could not do counts as well."""
    planned = exit_code(report.plan, detailed=False, allow_unreachable=allow_unreachable)
    codes = {
        _OF_OUTCOMES[one.status]
        for one in report.outcomes
        if not (one.change.held and _MEANT.issuperset(one.change.held))
    }
    failed = {one.change.cluster for one in report.outcomes if one.status is Status.FAILED}
    done = any(one.status in GOOD for one in report.outcomes)
    if failed and not done and failed >= report.plan.sections.keys():
        codes.add(ExitCode.FAILED)
    if report.not_ready:
        codes.add(ExitCode.UNHEALTHY)
    if report.lock_lost:
        codes.add(ExitCode.LOCKED)
    if signalled is not None:
        codes.add(signalled)
    return first({planned, *codes})


def _holding(plan: Plan, *, detailed: bool, allow_unreachable: bool) -> Iterator[ExitCode]:
    actions = {change.action for change in plan.changes}
    if Action.BLOCKED in actions or any(one.guard not in _MEANT for one in plan.held):
        yield ExitCode.HELD_BACK
    if _knows_nothing(plan):
        yield ExitCode.FAILED
    if (plan.unseen or Action.UNKNOWN in actions) and not allow_unreachable:
        yield ExitCode.PARTIAL
    if detailed and actions - {Action.NOOP}:
        yield ExitCode.CHANGES


def _knows_nothing(plan: Plan) -> bool:
    """Tell whether there are clusters and none was read; those behind control planes count."""
    unseen = {one.name for one in plan.unseen}
    if plan.sections:
        return plan.sections.keys() <= unseen
    return bool(unseen) and len(unseen) >= plan.clusters_total
