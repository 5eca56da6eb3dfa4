"""Whether an agent runs, by its Lease."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from reconciler.api import Heartbeat, leases
from reconciler.api.leases import Behind, LeaseLook, Stopped
from reconciler.core.live import Address, ClusterState, Live, Unavailable
from reconciler.core.refs import CRD
from reconciler.health.survey import KeptDefinitions
from reconciler.observe import Pace
from reconciler.observe.agents import KonnectorPlace, Looked, stops
from reconciler.observe.visits import Visits

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)


def renewed(ago: float, holder: str = "konnector-1") -> LeaseLook:
    return LeaseLook(holder, (NOW - timedelta(seconds=ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))


DOUBTFUL = {
    "it was renewed just now": (renewed(2), False),
    "the next renewal is late": (renewed(19), False),
    "another would have taken it over": (renewed(21), True),
    "its time is of the future": (renewed(-3600), True),
    "it was given back a second ago": (renewed(1, holder=""), True),
    "there is none": (None, False),
}


@pytest.mark.parametrize(("look", "expected"), DOUBTFUL.values(), ids=DOUBTFUL.keys())
def test_another_look_is_needed(look, expected):
    assert leases.is_doubtful(look, NOW) is expected


def beat(ago: float) -> Heartbeat:
    return Heartbeat(NOW - timedelta(seconds=ago), None)


OLD = renewed(60)
STOPPED = Stopped(NOW - timedelta(seconds=60))
LATE, AHEAD = (Behind(timedelta(seconds=one)) for one in (3595, -3605))
TROUBLES = {
    "nothing has changed": (OLD, OLD, None, STOPPED),
    "nothing has changed, and nobody holds it": (renewed(60, ""), renewed(60, ""), None, STOPPED),
    "a clock is behind, and it is renewed": (renewed(3600), renewed(3595), None, LATE),
    "a clock is ahead, and it is renewed": (renewed(-3600), renewed(-3605), None, AHEAD),
    "another took it over": (OLD, renewed(0, "konnector-2"), None, None),
    "another took it over, whose clock is behind": (OLD, renewed(3595, "konnector-2"), None, LATE),
    "it was late": (OLD, renewed(1), None, None),
    "it was given back by a clock that is behind": (renewed(3600), renewed(3595, ""), None, None),
    "it cannot be read any more": (OLD, None, None, None),
    "the last heartbeat was before the end": (OLD, OLD, beat(100), STOPPED),
    "the last heartbeat was sent just before the end": (OLD, OLD, beat(59), STOPPED),
    "the original works on without it": (OLD, OLD, beat(5), None),
}


@pytest.mark.parametrize(("before", "after", "sent", "expected"), TROUBLES.values(), ids=TROUBLES)
def test_a_konnector_is_in_trouble(before, after, sent, expected):
    assert leases.trouble(before, after, sent, NOW) == expected


async def test_an_answer_that_comes_late_shows_no_clock_behind(monkeypatch):
    monkeypatch.setattr(leases, "APART", 0)
    times, no_fleet, places = iter((NOW, NOW, LATER)), cast(Any, None), {"shop": KonnectorPlace("")}

    async def again(_):
        next(times)  # another app cluster takes a minute
        return renewed(0)

    first = Looked({"shop": OLD}, {})
    visits = Visits(no_fleet, Pace())
    found = await stops(no_fleet, places, visits, first, again=again, now=lambda: next(times))
    assert found == leases.Stops()


LOOKS = {
    "one that is held": (
        {"holderIdentity": "a", "renewTime": "2026-11-26T12:00:00.000000Z"},
        LeaseLook("a", "2026-11-26T12:00:00.000000Z"),
    ),
    "one that was given back": (
        {"renewTime": "2026-11-26T12:00:00.000000Z"},
        LeaseLook("", "2026-11-26T12:00:00.000000Z"),
    ),
    "one that nobody ever held": ({}, None),
    "a time that is none": ({"holderIdentity": "a", "renewTime": "noon"}, None),
}


@pytest.mark.parametrize(("spec", "expected"), LOOKS.values(), ids=LOOKS.keys())
def test_what_a_lease_says(spec, expected):
    assert leases.look_of({"spec": spec}) == expected
    assert leases.look_of(None) is None


NAME = "databases.shop.example"


def crd(status="True", uid="u1", **metadata):
    return {
        "metadata": {"name": NAME, "uid": uid, **metadata},
        "spec": {"versions": ["long"]},
        "status": {"conditions": [{"type": "Established", "status": status}]},
    }


def seen(*crds):
    bare = [{"metadata": one["metadata"]} for one in crds]
    return Live({}, {"shop": ClusterState("", Address("", ""), {CRD: bare})})


KEPT = {
    "the same one": (crd(), seen(crd()), True),
    "not established when it was read": (crd(status="False"), seen(crd()), False),
    "absent when it was read": (None, seen(crd()), False),
    "another one of its name": (crd(), seen(crd(uid="u2")), False),
    "gone": (crd(), seen(), False),
    "being deleted": (crd(), seen(crd(deletionTimestamp="2026-11-26T00:00:00Z")), False),
    "a cluster that was not read": (crd(), Live({}, {"shop": Unavailable("")}), False),
}


@pytest.mark.parametrize(("read", "live", "want"), KEPT.values(), ids=KEPT.keys())
def test_what_is_not_read_again(read, live, want):
    kept = KeptDefinitions()
    kept.keep("shop", {NAME: read})
    assert (NAME in kept.of("shop", live)) is want


def test_little_is_kept_of_each():
    kept = KeptDefinitions()
    kept.keep("shop", {NAME: crd()})
    assert kept.of("shop", seen(crd()))[NAME].keys() == {"metadata", "status"}
