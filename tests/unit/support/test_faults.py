"""The faults of a wrapped cluster strike where they are told to, and nowhere else."""

import asyncio

import pytest

from reconciler.core.errors import (
    AlreadyExists,
    Conflict,
    Expired,
    Forbidden,
    Unauthorized,
    Unreachable,
)
from reconciler.core.refs import CONFIG_MAP, SECRET
from reconciler.kube.requests import Request
from tests.support import faults as f
from tests.support.cues import AFTER, BEFORE, Delay, Gate
from tests.support.faults import Calls, End, Events, on
from tests.support.faulty import FaultyCluster
from tests.unit.support.recorder import MANIFEST, REF, Recorder, apply, follow, numbers


@pytest.fixture
def real():
    return Recorder()


@pytest.fixture
def cluster(real):
    return FaultyCluster(real)


TURNS = {
    "a cue means every call": (on(), [1, 2, 3, 4]),
    "nth means that call only": (on().nth(2), [2]),
    "first means the first ones": (on().first(2), [1, 2]),
    "since means that one and all later ones": (on().since(3), [3, 4]),
}


@pytest.mark.parametrize(("cue", "failing"), TURNS.values(), ids=TURNS.keys())
async def test_turns(cue, failing, cluster):
    cluster.faults.add(cue, f.unreachable())
    failed = []
    for turn in (1, 2, 3, 4):
        try:
            await cluster.get(REF)
        except Unreachable:
            failed.append(turn)
    assert failed == failing


CALL = Request("apply", REF, "PATCH", "/x", subresource="status")
MATCHES: dict[str, tuple[Calls, bool]] = {
    "nothing named means any call": (on(), True),
    "the verb": (on("apply"), True),
    "one of several verbs": (on("get", "apply"), True),
    "another verb": (on("get"), False),
    "all of it": (
        on(
            "apply",
            cluster="here",
            kind=CONFIG_MAP,
            namespace="shop",
            name="x",
            subresource="status",
        ),
        True,
    ),
    "another cluster": (on(cluster="there"), False),
    "another kind": (on(kind=SECRET), False),
    "another namespace": (on(namespace="bank"), False),
    "cluster-scoped only": (on(namespace=""), False),
    "another name": (on(name="y"), False),
    "the object itself only": (on(subresource=""), False),
}


@pytest.mark.parametrize(("cue", "matches"), MATCHES.values(), ids=MATCHES.keys())
def test_a_cue_matches_calls_by_what_they_are_about(cue, matches):
    assert cue.matches(CALL) is matches


@pytest.mark.parametrize(
    ("call", "writes"),
    [
        (Request("apply", REF, "", "/x"), True),
        (Request("delete", REF, "", "/x"), True),
        (Request("apply", REF, "", "/x", dry_run=True), False),
        (Request("list", REF, "", "/x"), False),
    ],
    ids=["an apply", "a delete", "a dry run", "a read"],
)
def test_the_cue_of_writes_matches_what_may_change_the_world(call, writes):
    assert f.writes().matches(call) is writes


ERRORS = {
    "429": (f.throttled(retry_after=2.5), Unreachable, 429, False),
    "500": (f.broken(), Unreachable, 500, True),
    "503": (f.broken(503), Unreachable, 503, True),
    "401": (f.unauthorized(), Unauthorized, 401, False),
    "403": (f.forbidden(), Forbidden, 403, False),
    "409": (f.conflict(), Conflict, 409, False),
    "410": (f.expired(), Expired, 410, False),
    "no connection": (f.unreachable(), Unreachable, 0, False),
    "no answer": (f.lost(), Unreachable, 0, True),
}


@pytest.mark.parametrize(
    ("effect", "error", "status", "in_doubt"), ERRORS.values(), ids=ERRORS.keys()
)
async def test_an_error_is_that_of_a_real_call(effect, error, status, in_doubt, real, cluster):
    cluster.faults.add(on(), effect)
    with pytest.raises(error) as write:
        await apply(cluster)
    with pytest.raises(error) as read:
        await cluster.get(REF)
    assert real.done == []
    assert type(write.value) is error
    assert (write.value.status, write.value.ref, write.value.verb) == (status, REF, "apply")
    assert write.value.retry_after == (2.5 if status == 429 else None)
    assert write.value.outcome_unknown is in_doubt
    assert not read.value.outcome_unknown, "a read changes nothing"


@pytest.mark.parametrize(("at", "done"), [(BEFORE, []), (AFTER, ["apply"])])
async def test_before_nothing_was_done_and_after_it_was(at, done, real, cluster):
    cluster.faults.add(on("apply"), f.lost(), at=at)
    with pytest.raises(Unreachable) as lost:
        await apply(cluster)
    assert lost.value.outcome_unknown
    assert real.verbs == done


async def test_a_refusal_can_be_lost_too(real, cluster):
    real.refusal = AlreadyExists("taken", ref=REF, verb="create")
    cluster.faults.add(on("create").nth(1), f.lost(), at=AFTER)
    with pytest.raises(Unreachable):
        await cluster.create(MANIFEST, CONFIG_MAP, manager="m")
    with pytest.raises(AlreadyExists):
        await cluster.create(MANIFEST, CONFIG_MAP, manager="m")


async def test_several_effects_happen_in_order(real, cluster):
    cluster.faults.add(on("get"), Delay(0), f.expired(), f.forbidden())
    with pytest.raises(Expired):
        await cluster.get(REF)


async def test_cleared_rules_strike_no_more(cluster):
    cluster.faults.add(on(), f.unreachable())
    cluster.faults.clear()
    assert await cluster.get(REF) == {"metadata": {"name": "x"}}


@pytest.mark.parametrize(("at", "done"), [(BEFORE, []), (AFTER, ["apply"])])
async def test_a_gate_holds_a_call_until_it_opens(at, done, real, cluster):
    gate = Gate()
    cluster.faults.add(on("apply"), gate, at=at)
    held = asyncio.create_task(apply(cluster))
    await gate.reached.wait()
    assert real.verbs == done
    assert await cluster.get(REF) == {"metadata": {"name": "x"}}, "other calls pass"
    gate.open()
    assert await held == {"metadata": {"name": "x"}}


async def test_a_watch_is_cut_after_so_many_events(cluster):
    cluster.faults.add(on("watch").nth(1), f.unreachable(), at=Events(2))
    seen: list[int] = []
    with pytest.raises(Unreachable):
        await follow(cluster, seen.append)
    assert seen == [0, 1]
    assert await numbers(cluster) == [0, 1, 2, 3, 4], "the next watch is whole"


async def test_a_watch_ends_quietly_between_two_events(cluster):
    cluster.faults.add(on("watch"), End(), at=Events(3))
    assert await numbers(cluster) == [0, 1, 2]


async def test_a_watch_falls_silent_until_the_gate_opens(cluster):
    gate = Gate()
    cluster.faults.add(on("watch"), gate, at=Events(1))
    watching = asyncio.create_task(numbers(cluster))
    await gate.reached.wait()
    assert not watching.done()
    gate.open()
    assert await watching == [0, 1, 2, 3, 4]


async def test_a_watch_is_refused(real, cluster):
    cluster.faults.add(on("watch"), f.expired())
    with pytest.raises(Expired):
        await numbers(cluster)
    assert real.done == []
