"""The state of a space, as `klutch_spaces` counts it."""

import pytest
from prometheus_client import CollectorRegistry

from bind.cluster_binding.decide import STATES, state_of
from bind.program import spaces
from tests.support.space_objects import NOW, ago, cluster_binding, deleting


def beating(last, interval="5m0s"):
    return cluster_binding(lastHeartbeatTime=last, heartbeatInterval=interval)


ROWS = {
    "no beat yet": (cluster_binding(), "pending"),
    "between beats": (beating(ago(minutes=4)), "connected"),
    "one beat missed": (beating(ago(minutes=9)), "connected"),
    "two beats missed": (beating(ago(minutes=11)), "silent"),
    "a beat from the future": (beating(ago(minutes=-11)), "silent"),
    "a beat without an interval, within the usual": (beating(ago(minutes=4), ""), "connected"),
    "it goes": (deleting(beating(ago(minutes=4))), "deleting"),
}


@pytest.mark.parametrize(("binding", "want"), ROWS.values(), ids=ROWS)
def test_the_state_of_a_space(binding, want):
    assert state_of(binding, NOW) == want


def test_a_space_counts_once_and_no_more_when_it_is_gone():
    registry = CollectorRegistry()
    counts = spaces(registry)

    def shown():
        values = {one: registry.get_sample_value("klutch_spaces", {"state": one}) for one in STATES}
        return {state: value for state, value in values.items() if value}

    for state in ("pending", "connected", "connected", "silent"):
        counts.note("a", state)
    counts.note("b", "connected")
    assert shown() == {"silent": 1, "connected": 1}
    counts.note("b", None)
    counts.note("b", None)
    assert shown() == {"silent": 1}
    counts.clear()
    assert shown() == {}
