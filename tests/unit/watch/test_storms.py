"""Storms: what another manager changes back again and again rests, longer each time."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from klutchctl.controller import storms
from reconciler.apply import Outcome, Report, Status
from reconciler.core.decision import FieldChange
from reconciler.core.errors import ConfigError
from reconciler.planning.changes import Action, Plan
from tests.support.reports import change

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
TERMS = storms.Terms()
FLIP = replace(change(), fields=(FieldChange("/spec/x", "theirs", "ours"),))
OTHER = replace(change(), fields=(FieldChange("/spec/x", "others", "ours"),))


def plan(*changes):
    return Plan("acme", "", "", changes, {"shop": "eu"})


class Story:
    """Rounds that find a line, one after another, and repair what is not held."""

    def __init__(self):
        self.storms, self.repairs = storms.Storms(), []

    def round(self, at, line=FLIP):
        now = NOON + at
        found = storms.calmed(self.storms, plan(line), now=now, terms=TERMS)
        self.storms = found.storms
        (planned,) = found.plan.changes
        status = Status.HELD if planned.held else Status.DONE
        if status is Status.DONE:
            self.repairs.append(at)
        report = Report(found.plan, (Outcome(planned, status),))
        self.storms = storms.repaired(self.storms, report, now=now)
        return found.plan

    def every(self, pause, *, until):
        at = timedelta()
        while at < until:
            self.round(at)
            at += pause


@pytest.mark.parametrize("pause", [timedelta(seconds=5), timedelta(minutes=5)], ids=str)
def test_a_field_that_flips_is_repaired_four_times_an_hour_at_most(pause):
    story = Story()
    story.every(pause, until=timedelta(hours=12))
    times = story.repairs
    assert max(sum(one <= other < one + HOUR for other in times) for one in times) <= 4
    assert len(story.repairs) <= 3 + 4  # rests of 1, 2, 4 and 8 hours


def test_a_rest_is_never_longer_than_a_day():
    story = Story()
    story.every(timedelta(minutes=10), until=timedelta(days=6))
    (storm,) = story.storms.resting(NOON + timedelta(days=6))
    assert storm.until - NOON <= timedelta(days=7)
    assert len(story.repairs) > 9


def test_what_rests_says_so_in_the_plan():
    story = Story()
    story.every(timedelta(seconds=1), until=timedelta(seconds=3))
    story.storms = story.storms.named({FLIP.ref: "argocd"})
    held = story.round(timedelta(seconds=4))
    assert [one.guard for one in held.held] == [storms.GUARD]
    assert held.held[0].message == (
        "Namespace x was changed back by argocd after each of 3 repairs; it is left alone until "
        "2026-11-26 13:00:04 UTC"
    )
    assert held.changes[0].held == (storms.GUARD,)
    (storm,) = story.storms.resting(NOON + timedelta(seconds=5))
    assert (storm.cluster, storm.manager, storm.repairs) == ("shop", "argocd", 3)
    assert story.storms.resting(NOON + 2 * HOUR) == ()


def test_another_difference_is_another_story():
    story = Story()
    for second, line in enumerate([FLIP, FLIP, OTHER, FLIP, OTHER, FLIP, FLIP]):
        story.round(timedelta(seconds=second), line)
    assert len(story.repairs) == 7


def test_repairs_long_ago_do_not_count():
    story = Story()
    story.every(timedelta(minutes=31), until=timedelta(hours=9))
    assert len(story.repairs) == 18


def test_what_stays_calm_after_its_rest_begins_anew():
    story = Story()
    story.every(timedelta(seconds=1), until=timedelta(seconds=5))
    assert len(story.repairs) == 3
    later = timedelta(hours=3)
    for second in range(4):
        story.round(later + timedelta(seconds=second))
    assert len(story.repairs) == 6


@pytest.mark.parametrize("action", [Action.RELEASE, Action.DELETE, Action.ADOPT], ids=str)
def test_only_repairs_make_storms(action):
    story = Story()
    for second in range(6):
        story.round(timedelta(seconds=second), replace(FLIP, action=action))
    assert len(story.repairs) == 6


MANAGERS = {
    "nobody": ([], ""),
    "the latest that is not ours": (
        [("klutchctl", "12"), ("argocd", "10"), ("kubectl", "09")],
        "argocd",
    ),
}


@pytest.mark.parametrize(("entries", "want"), MANAGERS.values(), ids=MANAGERS.keys())
def test_which_other_manager_it_is(entries, want):
    fields = [{"manager": name, "time": f"2026-11-26T{hour}:00:00Z"} for name, hour in entries]
    assert storms.other_manager({"metadata": {"managedFields": fields}}) == want
    assert storms.other_manager(None) == ""


def test_terms_as_people_write_them():
    assert storms.parse_terms("3/1h") == storms.Terms()
    assert storms.parse_terms("5/90s") == storms.Terms(5, timedelta(seconds=90))
    for text in ("", "3", "0/1h", "3/25h", "3/2d", "3/0s"):
        with pytest.raises(ConfigError):
            storms.parse_terms(text)
