"""What renderers print, built by hand: one of everything, with `said` in all free text."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from klutchctl.render.problems import Findings
from klutchctl.sandbox import servers
from klutchctl.sandbox.report import Health
from klutchctl.sandbox.report import Status as SandboxStatus
from klutchctl.sandbox.state import Layout, Member, Role
from klutchctl.sandbox.state import State as SandboxState
from reconciler.apply import NotReady, Outcome, Report, Status
from reconciler.core.decision import FieldChange
from reconciler.core.errors import Origin, Problem, Severity
from reconciler.core.refs import SECRET, Ref
from reconciler.doctor.diagnosis import Check, Examination, Finding, Level, Mend
from reconciler.doctor.rights import Side
from reconciler.fleet.values import UnitKey
from reconciler.health.board import Board, BoundUnit, ClusterHealth
from reconciler.health.verdict import State, UnitHealth
from reconciler.planning.changes import Action, Change, Plan, Tripped, UnseenCluster
from reconciler.reports.pr_diff import Against, Edit, Effect

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
HOSTILE = "\x1b[2J\x9b2J\u202eevil\nnext"


def unit(cluster, state, reason="", message="", ago=timedelta(hours=3), last=None):
    key = UnitKey(cluster, "shop.example", "databases")
    return UnitHealth(key, state, reason, message, NOW - ago, last)


def board(said="it hung up"):
    lost = unit("shop-3", State.UNKNOWN, "NotRead", said, last=State.READY)
    wrong = unit("shop-2", State.DEGRADED, "CRDNotFound", said)
    ready = unit("shop-1", State.READY)
    return Board(
        fleet="acme",
        revision="4c1e9d2",
        time=NOW,
        clusters=(
            ClusterHealth("alone", "eu"),
            ClusterHealth("gone", "eu", (), State.RELEASED, said, NOW - timedelta(days=5)),
            ClusterHealth(
                "shop-1", "eu", (BoundUnit("orders-db", ready), BoundUnit("", ready, leaving=True))
            ),
            ClusterHealth("shop-2", "eu", (BoundUnit(said, wrong),)),
            ClusterHealth("shop-3", "eu", (BoundUnit("db", lost),), State.UNKNOWN, said),
        ),
        unread=(UnseenCluster("shop-3", said, "Look at the network"),),
    )


def sandbox(said="control-plane"):
    layout = Layout(Path("/state/default"))
    state = SandboxState(20001, 20002, (Member(said, Role.CONTROL_PLANE, 20003),))
    etcd, api_server, controllers = servers.of_clusters(layout, state, servers.NORMAL)
    healths = (
        Health(etcd, 11, 1000.0, ready=True),
        Health(api_server, 12, 880.0, ready=False),
        Health(controllers, None, None, ready=False),
    )
    return layout, SandboxStatus(state, healths)


def nothing():
    return Board("acme", "", NOW, ())


def line(name, action=Action.CREATE, reason="new"):
    ref = Ref("shop", SECRET, "ns", name)
    return Change("shop", "orders", ref, action, reason, unit=UnitKey("shop", "g.example", "dbs"))


def report(said="refused"):
    return Report(
        plan=Plan(
            "acme",
            "",
            "",
            (line("blocked", Action.BLOCKED, "no template"),),
            {"shop": "eu"},
            held=(Tripped("max-deletes", said),),
            unseen=(UnseenCluster("web", said),),
        ),
        outcomes=(
            Outcome(line("went-well"), Status.DONE),
            Outcome(line("was-so"), Status.UNCHANGED, "it is so already"),
            Outcome(line("waits"), Status.HELD, "held back: max-deletes"),
            Outcome(line("broke"), Status.FAILED, said),
            Outcome(line("never-came"), Status.SKIPPED, said),
        ),
        not_ready=(NotReady("shop/x", said),),
        ready=2,
        ended=said,
    )


def examination(*findings, name="shop", side=Side.APP_CLUSTER, readable=True, **more):
    return Examination(name, side, f"context/{name}", name, findings, readable=readable, **more)


def examinations(said="it hung up"):
    fine = Finding(Check.CONNECTION, Level.OK, "reached at https://x")
    clock = Finding(Check.CLOCK, Level.WARNING, "its clock is off", said)
    rights = Finding(Check.RIGHTS, Level.PROBLEM, "no rights", "Grant them", Mend.RIGHTS)
    crds = Finding(Check.CRDS, Level.PROBLEM, "no CRDs", "Install them", Mend.CRDS)
    lost = Finding(Check.CONNECTION, Level.PROBLEM, said, "Look at the network")
    return (
        examination(fine, crds, name="eu", side=Side.CONTROL_PLANE, user="alice"),
        examination(fine, clock, rights, user=said),
        examination(lost, name="it's far; `id`", readable=False),
    )


def against(said="main"):
    clusters = ("shop-1", "shop-2", "shop-3", "shop-4", "shop-5")
    secrets = (FieldChange("/claims/secrets", "names [a]", said),)
    name = (FieldChange("/name", "a", "b"),)
    edits = (
        Edit(Effect.DELETE, "Binding", "orders-db", Origin("b.yaml", 3, 1), "pgs.gi.o", clusters),
        Edit(Effect.WIDEN, "Binding", said, Origin("c.yaml", 1, 1), "g", ("shop-1",), secrets),
        Edit(Effect.RIGHTS, "Fleet", "", Origin("fleet.yaml", 1), fields=name),
        Edit(Effect.ADD, "Cluster", "shop-6", Origin(f"clusters/{said}.yaml", 3, 1)),
    )
    limits = [
        Problem(Origin(f"{said}/{n}.yaml", 4, 1), "policy-limit", said, "Ask", Severity.DENIED)
        for n in range(5)
    ]
    denied = Problem(Origin("b.yaml", 3, 1), "policy-denied", "not allowed", "", Severity.DENIED)
    return Against(said, "4c1e9d2" + "0" * 33, edits, (denied, *limits))


def findings(said="there is no such Template"):
    return Findings(
        [
            Problem(Origin(f"a,b:{said}.yaml", 1, 2), "bad-path", f"{said} 100%", said),
            Problem(Origin("b.yaml"), "bad-path", said, severity=Severity.WARNING),
        ],
        "f/",
        "acme",
        (("control plane", 1), ("binding", 0), ("unit", 2)),
    )
