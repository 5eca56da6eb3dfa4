"""The exit code of an apply: what its plan could not do counts as well as what it did."""

from dataclasses import replace

import pytest

from klutchctl.exit_codes import ExitCode
from klutchctl.exit_status import apply_code
from reconciler.apply.outcomes import NotReady, Outcome, Report, Status
from reconciler.core.refs import SECRET, Ref
from reconciler.planning.changes import Action, Change, Held, Plan, UnseenCluster


def line(cluster="shop", action=Action.CREATE):
    return Change(cluster, "x", Ref(cluster, SECRET, "ns", "x"), action, "")


def report(*statuses, changes=(), clusters=("shop", "web"), **fields):
    held = fields.pop("held", ())
    unseen = tuple(UnseenCluster(name, "no route") for name in fields.pop("unseen", ()))
    plan = Plan(
        "acme",
        "",
        "",
        changes,
        dict.fromkeys(clusters, "eu"),
        held=held,
        unseen=unseen,
        clusters_total=len(clusters) + 1,
    )
    outcomes = tuple(Outcome(line(name), status) for name, status in statuses)
    return Report(plan, outcomes, **fields)


DONE, FAILED = ("shop", Status.DONE), ("web", Status.FAILED)
CODES = {
    "all done": (report(DONE), {}, ExitCode.SUCCESS),
    "nothing to do": (report(), {}, ExitCode.SUCCESS),
    "one cluster failed": (report(DONE, FAILED), {}, ExitCode.PARTIAL),
    "the only change failed, and other clusters had none": (
        report(FAILED),
        {},
        ExitCode.PARTIAL,
    ),
    "all clusters failed": (
        report(("shop", Status.FAILED), FAILED),
        {},
        ExitCode.FAILED,
    ),
    "a stale line wins over a failed one": (
        report(("shop", Status.STALE), FAILED),
        {},
        ExitCode.STALE,
    ),
    "a guard held": (report(DONE, ("web", Status.HELD)), {}, ExitCode.HELD_BACK),
    "a guard held, and a cluster failed": (
        report(DONE, ("web", Status.HELD), FAILED),
        {},
        ExitCode.HELD_BACK,
    ),
    "a unit is blocked": (
        report(DONE, changes=(line(action=Action.BLOCKED),)),
        {},
        ExitCode.HELD_BACK,
    ),
    "a peer did not answer": (report(DONE, ("web", Status.UNCONFIRMED)), {}, ExitCode.UNHEALTHY),
    "not Ready in time": (
        report(DONE, not_ready=(NotReady("shop/x", "Degraded"),)),
        {},
        ExitCode.UNHEALTHY,
    ),
    "a cluster was not read": (report(DONE, unseen=("web",)), {}, ExitCode.PARTIAL),
    "a cluster was not read, and need not be": (
        report(DONE, unseen=("web",)),
        {"allow_unreachable": True},
        ExitCode.SUCCESS,
    ),
    "a line that is only reported, which is meant": (
        Report(report().plan, (Outcome(replace(line(), held=("report",)), Status.HELD),)),
        {},
        ExitCode.SUCCESS,
    ),
    "the lock was lost": (
        report(DONE, ("web", Status.INTERRUPTED), ended="lost", lock_lost=True),
        {},
        ExitCode.LOCKED,
    ),
    "ended by SIGTERM, with all that is so": (
        report(DONE, FAILED, ended="SIGTERM"),
        {"signalled": ExitCode.TERMINATED},
        ExitCode.TERMINATED,
    ),
    "pruning is only reported, which is meant": (
        report(held=(Held("report", "shown, not done"),)),
        {},
        ExitCode.SUCCESS,
    ),
}


@pytest.mark.parametrize(("found", "options", "code"), CODES.values(), ids=CODES.keys())
def test_the_exit_code(found, options, code):
    given = {"allow_unreachable": False, "signalled": None} | options
    assert apply_code(found, **given) is code
