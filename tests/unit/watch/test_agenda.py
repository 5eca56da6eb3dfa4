"""What is done next: the files first, then retries, then everything; and what a change concerns."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.apply import Status
from reconciler.core.errors import Origin
from reconciler.fleet import load
from reconciler.fleet.values import Access, DeletionPolicy, Guards, Konnector, UnitKey
from reconciler.planning.changes import Action, Tripped, UnseenCluster
from reconciler.watch import agenda
from reconciler.watch.agenda import Agenda, Left, Task, Terms, Trigger, concerned, union
from tests.support import fleets
from tests.support.reports import change, report

NOTHING: frozenset[str] = frozenset()
SHOP, CAFE = frozenset({"shop"}), frozenset({"cafe"})
TERMS = Terms(interval=300.0, first_retry=2.0)

DUE = {
    "the start is a look at everything": (Agenda(everything_at=10), Task(Trigger.SOURCE, None)),
    "nothing": (Agenda(everything_at=20, changed=NOTHING), None),
    "the files alone": (Agenda(everything_at=20, changed=SHOP), Task(Trigger.SOURCE, SHOP)),
    "the files, and all that is pending, held or not": (
        Agenda(everything_at=20, changed=SHOP, pending=CAFE),
        Task(Trigger.SOURCE, SHOP | CAFE),
    ),
    "the files, with everything pending": (
        Agenda(everything_at=20, changed=SHOP, pending=None),
        Task(Trigger.SOURCE, None),
    ),
    "a retry whose time has come": (
        Agenda(everything_at=20, changed=NOTHING, pending=SHOP, retry_at=10),
        Task(Trigger.RETRY, SHOP),
    ),
    "a retry whose time has not come": (
        Agenda(everything_at=20, changed=NOTHING, pending=SHOP, retry_at=11),
        None,
    ),
    "what waits for people is not tried again by itself": (
        Agenda(everything_at=20, changed=NOTHING, pending=SHOP),
        None,
    ),
    "a look at everything does the retry too": (
        Agenda(everything_at=10, changed=NOTHING, pending=SHOP, retry_at=9),
        Task(Trigger.DRIFT, None),
    ),
    "a look at everything because of the files too": (
        Agenda(everything_at=10, changed=SHOP),
        Task(Trigger.SOURCE, None),
    ),
}


@pytest.mark.parametrize(("given", "want"), DUE.values(), ids=DUE.keys())
def test_what_is_due(given, want):
    assert agenda.due(given, 10.0) == want


def after(task, left, *, before=None, now=100.0, jitter=0.5):
    before = before or Agenda(everything_at=200.0, tries=3)
    return agenda.after(before, task, left, now=now, jitter=jitter, terms=TERMS)


def test_a_round_that_did_everything():
    done = after(Task(Trigger.DRIFT, None), Left())
    assert done == Agenda(everything_at=400.0, changed=NOTHING)
    assert done.next_at == 400.0


def test_a_narrow_round_puts_off_no_look_at_everything():
    assert after(Task(Trigger.SOURCE, SHOP), Left()).everything_at == 200.0


def test_what_is_worth_a_retry_gets_one_and_then_later_ones():
    first = after(Task(Trigger.SOURCE, SHOP), Left(again=SHOP, waiting=CAFE), jitter=1.0)
    assert (first.pending, first.retry_at, first.tries) == (SHOP | CAFE, 102.0, 1)
    assert first.next_at == 102.0
    second = after(Task(Trigger.RETRY, SHOP), Left(again=SHOP), before=first, jitter=1.0)
    assert (second.retry_at, second.tries) == (104.0, 2)


def test_what_waits_for_people_stays_pending():
    left = after(Task(Trigger.DRIFT, None), Left(waiting=CAFE))
    assert (left.pending, left.retry_at) == (CAFE, None)


def test_a_round_that_failed_as_a_whole_is_made_again():
    failed = after(Task(Trigger.SOURCE, None), Left(again=None), now=250.0)
    assert agenda.due(failed, failed.next_at) == Task(Trigger.RETRY, None)


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_a_pause_is_bounded(tries, jitter):
    pause = agenda.pause(tries, jitter, first=2.0, longest=300.0)
    whole = 2.0 * 2**tries if tries < 8 else 300.0
    assert whole / 2 <= pause <= min(whole, 300.0)


@given(st.floats(0, 1))
def test_looks_at_everything_are_spread(jitter):
    assert 370.0 <= after(Task(Trigger.DRIFT, None), Left(), jitter=jitter).everything_at <= 430.0


LEFT = {
    "all done": (report(("shop", Status.DONE), ("cafe", Status.UNCHANGED)), Left()),
    "failed": (report(("shop", Status.FAILED), ("cafe", Status.DONE)), Left(again=SHOP)),
    "stale": (report(("shop", Status.STALE)), Left(again=SHOP)),
    "a peer was late": (report(("shop", Status.UNCONFIRMED)), Left(again=SHOP)),
    "held": (report(("shop", Status.HELD)), Left(waiting=SHOP)),
    "behind what is held": (report(("shop", Status.SKIPPED)), Left(waiting=SHOP)),
    "a guard": (report(held=[Tripped("in-use", "", ("shop",))]), Left(waiting=SHOP)),
    "what lives on another control plane": (
        report(held=[Tripped("moved", "", ("shop",))]),
        Left(waiting=None),
    ),
    "blocked": (report(changes=[change("shop", Action.BLOCKED)]), Left(waiting=SHOP)),
    "not read": (report(unseen=[UnseenCluster("shop", "")]), Left(again=SHOP)),
    "a control plane is no app cluster": (
        report(unseen=[UnseenCluster("shop", ""), UnseenCluster("control-plane/eu", "")]),
        Left(again=SHOP),
    ),
    "the lock was lost": (report(("shop", Status.DONE), lock_lost=True), Left(again=SHOP | CAFE)),
}


@pytest.mark.parametrize(("report", "want"), LEFT.values(), ids=LEFT.keys())
def test_what_a_round_left_undone(report, want):
    fleet = fleets.fleet(control_planes=[fleets.control_plane()], clusters=[])
    assert agenda.left(fleet, report) == want


BEFORE = fleets.fleet(
    control_planes=[fleets.control_plane()],
    clusters=[fleets.app_cluster("shop"), fleets.app_cluster("cafe")],
    units=[fleets.unit("shop"), fleets.unit("cafe")],
)


def with_cluster(**more):
    return with_clusters(replace(BEFORE.clusters["shop"], **more))


def with_clusters(*clusters):
    return replace(BEFORE, clusters={**BEFORE.clusters, **{one.name: one for one in clusters}})


def with_unit(**more):
    key = UnitKey("shop", *fleets.DATABASES)
    return replace(BEFORE, units={**BEFORE.units, key: replace(BEFORE.units[key], **more)})


ELSEWHERE = Origin("other.yaml", 7, 1)
MOVED = replace(fleets.claim(), origin=ELSEWHERE)
FEWER = {name: one for name, one in BEFORE.clusters.items() if name != "cafe"}
CONCERNED = {
    "nothing but a comment": (BEFORE, frozenset()),
    "a unit that only moved in its file": (
        with_unit(origin=ELSEWHERE, claims=(MOVED,)),
        frozenset(),
    ),
    "a document that only moved": (with_cluster(origin=ELSEWHERE), frozenset()),
    "a unit": (with_unit(deletion_policy=DeletionPolicy.BLOCK), {"shop"}),
    "a claim of a unit": (with_unit(claims=()), {"shop"}),
    "a unit that left": (
        replace(BEFORE, units={k: u for k, u in BEFORE.units.items() if k.cluster != "shop"}),
        {"shop"},
    ),
    "the konnector of a cluster": (with_cluster(konnector=Konnector(deploy=True)), {"shop"}),
    "labels of a cluster": (with_cluster(labels={"env": "prod"}), {"shop"}),
    "a new cluster may be another one's twin": (with_clusters(fleets.app_cluster("new")), None),
    "a cluster that left may have a new name": (replace(BEFORE, clusters=FEWER), None),
    "the way to a cluster": (with_cluster(access=Access(context="other")), None),
    "the identity of a cluster": (with_cluster(identity="1"), None),
    "a cluster that is left alone": (with_cluster(suspended="moving"), None),
    "a fleet that is left alone": (replace(BEFORE, suspended="moving"), None),
    "clusters that another process keeps": (replace(BEFORE, elsewhere={"bar": ""}), None),
    "guards": (replace(BEFORE, guards=Guards(max_deletes=1)), None),
    "the name of the fleet": (replace(BEFORE, name="other"), None),
    "a control plane": (
        replace(BEFORE, control_planes={"eu": fleets.control_plane(endpoint="https://x:1")}),
        None,
    ),
}


@pytest.mark.parametrize(("after", "want"), CONCERNED.values(), ids=CONCERNED.keys())
def test_which_clusters_a_change_concerns(after, want):
    assert concerned(BEFORE, replace(after, digest="other")) == want
    assert concerned(replace(after, digest="other"), BEFORE) == want


def test_the_same_files_concern_nobody():
    assert concerned(BEFORE, with_unit(claims=())) == frozenset()


def test_the_same_files_concern_everybody_when_a_suspension_from_outside_ends():
    suspended = load.suspended(BEFORE, "a migration")
    assert concerned(suspended, BEFORE) is concerned(BEFORE, suspended) is None


UNIONS = {
    "some and others": (frozenset("a"), frozenset("b"), frozenset("ab")),
    "everything and some": (None, frozenset("b"), None),
    "some and everything": (frozenset("a"), None, None),
}


@pytest.mark.parametrize(("one", "other", "want"), UNIONS.values(), ids=UNIONS.keys())
def test_union(one, other, want):
    assert union(one, other) == want
