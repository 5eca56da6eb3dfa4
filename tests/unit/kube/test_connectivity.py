"""When a cluster counts as back, and who hears of it."""

import time
from email.utils import formatdate

import pytest

from reconciler.kube.cluster import Connectivity


class Reported:
    def __init__(self):
        self.now = 100.0
        self.times = 0
        self.connectivity = Connectivity(clock=lambda: self.now)
        self.unfollow = self.connectivity.follow(self._report)

    def _report(self):
        self.times += 1

    def after(self, calls):
        """Let calls be made: (seconds since the one before, whether it is answered)."""
        for seconds, answered in calls:
            self.now += seconds
            if answered:
                self.connectivity.answered()
            else:
                self.connectivity.failed()
        return self.times


@pytest.mark.parametrize(
    ("calls", "times"),
    [
        pytest.param([(100, True)], 0, id="silence is no outage"),
        pytest.param([(1, False), (4, True)], 1, id="the first answer after an outage"),
        pytest.param([(1, True), (1, False), (3.9, True)], 0, id="a short one needs nobody"),
        pytest.param([(5, False), (0, True), (1, True), (9, True)], 1, id="once for each"),
        pytest.param([(5, False), (5, True), (5, False), (5, True)], 2, id="each of them"),
        pytest.param(
            [(1, answered) for _ in range(50) for answered in (True, False)],
            0,
            id="some calls fail and others do not",
        ),
    ],
)
def test_it_tells_that_the_cluster_is_back(calls, times):
    assert Reported().after(calls) == times


def test_who_does_not_follow_any_more_hears_nothing():
    reported = Reported()
    reported.unfollow()
    assert reported.after([(9, False), (9, True)]) == 0


def test_a_follower_may_leave_when_reported():
    reported = Reported()
    leave = reported.connectivity.follow(lambda: leave())
    assert reported.after([(9, False), (9, True), (9, False), (9, True)]) == 2


def test_how_far_our_clock_is_from_a_clusters():
    there = Connectivity()
    assert there.ahead is None
    there.note_date(formatdate(time.time() - 7200, usegmt=True))
    assert there.ahead == pytest.approx(7200, abs=5)
    there.note_date("yesterday")
    assert there.ahead is None
