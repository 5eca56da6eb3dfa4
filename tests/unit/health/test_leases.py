"""Whether an agent runs, by its Lease."""

from datetime import UTC, datetime, timedelta

import pytest

from reconciler.api import Heartbeat, leases
from reconciler.api.leases import LeaseLook
from reconciler.core.times import moment

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)


def renewed(ago: float, holder: str = "konnector-1") -> LeaseLook:
    time = NOW - timedelta(seconds=ago)
    return LeaseLook(holder, time.strftime("%Y-%m-%dT%H:%M:%S.%fZ"))


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
STOPPED = {
    "nothing has changed": (OLD, OLD, None, True),
    "nothing has changed, and nobody holds it": (renewed(60, ""), renewed(60, ""), None, True),
    "a clock goes wrong, and it is renewed": (renewed(3600), renewed(3595), None, False),
    "another took it over": (OLD, renewed(0, "konnector-2"), None, False),
    "it cannot be read any more": (OLD, None, None, False),
    "the last heartbeat was before the end": (OLD, OLD, beat(100), True),
    "the last heartbeat was sent just before the end": (OLD, OLD, beat(59), True),
    "the original works on without it": (OLD, OLD, beat(5), False),
}


@pytest.mark.parametrize(("before", "after", "sent", "expected"), STOPPED.values(), ids=STOPPED)
def test_the_holder_has_stopped(before, after, sent, expected):
    assert leases.stopped_at(before, after, sent) == (moment(before.renewed) if expected else None)


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
