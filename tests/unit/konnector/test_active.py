"""S9: which of two konnectors of one space may write, from what either writes (identity.md 7)."""

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from konnector.space import active
from konnector.space.active import Standing
from reconciler.core import conditions
from reconciler.core.conditions import Condition
from tests.support.space_objects import NOW

MINE, OTHER, THIRD = "a 1", "b 2", "c 3"
NEW = Standing(MINE)
ACTIVE = active.follow(NEW, MINE, 0.0)


def met(times: int, *, answered: bool = True, since: float = 0.0) -> Standing:
    return replace(ACTIVE, met=times, other=OTHER, since=since, answered=answered)


FOLLOWS = {
    "the mark of a predecessor says nothing": (NEW, OTHER, 1, NEW),
    "nor does none, as the original leaves it": (ACTIVE, "", 1, ACTIVE),
    "one's own": (ACTIVE, MINE, 1, ACTIVE),
    "another's after one's own is met": (ACTIVE, OTHER, 1, met(1, answered=False, since=1)),
    "once": (met(1, answered=False), OTHER, 1, met(1, answered=False)),
    "and counts again after an answer": (met(1), OTHER, 2, met(2, answered=False, since=2)),
    "whoever it is": (
        met(2), THIRD, 2, replace(met(3, answered=False, since=2), other=THIRD),
    ),
    "for less than a minute nobody is alone": (met(3), MINE, 59, met(3)),
    "then it goes on": (met(3), MINE, 60, ACTIVE),
    "not beside a mark that it has not answered": (
        met(3, answered=False), OTHER, 90, met(3, answered=False),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "found", "now", "after"), FOLLOWS.values(), ids=FOLLOWS)
def test_what_a_mark_changes(before: Standing, found: str, now: float, after: Standing) -> None:
    followed = active.follow(before, found, now)
    assert (followed.met, followed.answered) == (after.met, after.answered)
    assert followed == after


WRITES = {
    "a new one": (NEW, OTHER, 0, True),
    "not at rest": (ACTIVE, MINE, 999, False),
    "where none is": (ACTIVE, "", 1, True),
    "an answer": (met(1, answered=False), OTHER, 0, True),
    "also the one that both have stopped": (met(3, answered=False), OTHER, 0, True),
    "from then on now and then": (met(4, answered=False), OTHER, 19, False),
    "each twenty seconds": (met(4, answered=False), OTHER, 20, True),
}


@pytest.mark.parametrize(("standing", "found", "now", "writes"), WRITES.values(), ids=WRITES)
def test_when_a_mark_is_written(standing: Standing, found: str, now: float, writes: bool) -> None:
    assert active.writes(standing, found, now) is writes
    assert bool(active.report(standing, found, now).conditions) is (writes or found == MINE)


WAITS = {
    "before its mark is written": (NEW, 100.0, 5.0),
    "for five seconds": (ACTIVE, 2.0, 3.0),
    "and no longer": (ACTIVE, 5.0, None),
    "also after an answer": (active.follow(met(1, answered=False), MINE, 4.0), 5.0, None),
}


@pytest.mark.parametrize(("standing", "now", "left"), WAITS.values(), ids=WAITS)
def test_how_long_deletions_wait(standing: Standing, now: float, left: float | None) -> None:
    expected = None if left is None else timedelta(seconds=left)
    assert active.deletes_in(standing, now) == expected


def test_what_stops_names_both() -> None:
    decision = active.report(met(3), MINE, 1.0)
    (said,) = decision.conditions
    (note,) = decision.notes
    assert (said.status, said.reason, note.reason) == ("False", "TwoKonnectors", "TwoKonnectors")
    assert MINE in said.message
    assert OTHER in said.message
    assert active.why_stopped(met(3)) == said.message
    assert active.why_stopped(met(2)) == ""


@dataclass
class Space:
    """The condition that two processes write, as a ClusterBinding keeps it."""

    stands: conditions.Conditions = ()
    writes: int = 0

    @property
    def mark(self) -> str:
        return active.mark_in({"status": {"conditions": conditions.dump(self.stands)}})

    def say(self, said: tuple[Condition, ...]) -> None:
        for one in said:
            before, self.stands = (self.stands, conditions.set_condition(self.stands, one, now=NOW))
            self.writes += before != self.stands


def look(space: Space, before: Standing, now: float) -> Standing:
    """Let a process look once, and write what follows."""
    found = space.mark
    standing = active.follow(before, found, now)
    space.say(active.report(standing, found, now).conditions)
    return active.follow(standing, space.mark, now)


def test_two_that_run_stop_both_and_the_one_that_stays_goes_on() -> None:
    first, second = look(space := Space(), NEW, 0), Standing(OTHER)
    for _ in range(4):
        second = look(space, second, 1)
        first = look(space, first, 1)
    assert (first.stopped, second.stopped) == (True, True)
    assert space.writes < 9
    for second_of in range(2, 120):
        second = look(space, second, second_of)
        first = look(space, first, second_of)
        assert (first.stopped, second.stopped) == (True, True)
    assert space.writes < 20
    for second_of in range(120, 200):
        first = look(space, first, second_of)
    assert not first.stopped
    assert space.mark == MINE
    (said,) = space.stands
    assert said.status == "True"


def test_a_successor_stops_nothing() -> None:
    look(space := Space(), NEW, 0)
    second = look(space, Standing(OTHER), 1)
    for now in range(2, 100):
        second = look(space, second, now)
    assert (second.met, space.writes, space.mark) == (0, 2, OTHER)
