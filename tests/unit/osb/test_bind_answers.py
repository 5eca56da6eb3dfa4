"""What follows from each answer about a binding: the design's table 5, cell by cell."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bind.osb.decisions import record, turn
from bind.osb.decisions.record import Verb as Asked
from bind.osb.decisions.view import Ask, ReadSecret
from reconciler.blueprints.offering import messages
from reconciler.blueprints.offering.outcomes import Accepted, Done, Gone, Outcome, Unknown
from reconciler.core import manifest
from reconciler.core.refs import SECRET
from reconciler.core.secret import Secret
from tests.support import osb_faults
from tests.support.osb_bindings import World, catalogue, claimed
from tests.support.osb_faults import Fault
from tests.support.osb_turns import BINDING_KIND
from tests.support.osb_wire import Verb

ASYNC: frozenset[Verb] = frozenset({"bind", "unbind"})
HANG = osb_faults.hangs()
NO_JSON = osb_faults.says(200, b"<html></html>")


def times(world: World, verb: str) -> list[float]:
    """Return when calls were made, in seconds after the first one."""
    at = [entry.at for entry in world.broker.journal if entry.verb == verb]
    return [each - at[0] for each in at]


def message(world: World, condition: str) -> str:
    conditions = manifest.get_maps(world.live(BINDING_KIND, "web"), "status", "conditions")
    return next(manifest.get_text(one, "message") for one in conditions if one["type"] == condition)


# PUT


def bind(fault: Fault, count: int, **span: float) -> World:
    """Return a world whose bind met a fault so often."""
    world = World()
    world.broker.faults.add("bind", fault, times=count)
    world.claim()
    world.run(**span)
    return world


@pytest.mark.parametrize(
    ("fault", "at"), [(osb_faults.says(429), [0, 2, 6, 14]), (osb_faults.busy(), [0, 60, 120, 180])]
)
def test_a_put_that_surely_did_nothing_is_made_again_and_nothing_is_undone(
    fault: Fault, at: list[float]
) -> None:
    world = bind(fault, 3, minutes=10)
    assert times(world, "bind") == at
    assert world.states() == [(0, record.PRESENT)]
    assert world.broker.count("unbind") == 0
    assert world.logs_in()
    assert world.records()[0].intent is None


@pytest.mark.parametrize("processed", [True, False])
@pytest.mark.parametrize(
    "fault",
    [HANG, osb_faults.cuts(), osb_faults.says(500), osb_faults.says(302), osb_faults.says(204)],
)
def test_a_put_of_which_nobody_knows_is_made_again(fault: Fault, processed: bool) -> None:
    world = bind(Fault(fault.said, processed), 3, minutes=3)
    # What is there after an unknown outcome may be half a binding: its credentials prove nothing.
    assert times(world, "bind") == [0, 2, 10, 40, *([100] if processed else [])]
    assert world.states() == [(int(processed), record.PRESENT)]
    assert world.broker.count("unbind") == processed
    assert world.logs_in()


def test_numbers_that_fail_end_after_the_fourth() -> None:
    world = World()
    world.broker.modes.failing["bind"] = 100
    world.claim()
    world.run(hours=3)
    assert world.states() == [(4, record.INTENDED)]
    assert world.condition("Bound") == ("False", "Failed")
    assert world.broker.inventory.bindings == {}
    made = times(world, "bind")
    firsts = [one for number, one in enumerate(made) if number % 4 == 0]
    assert [round(one - before) for before, one in itertools.pairwise(firsts)] == [
        40 + 60,
        40 + 5 * 60,
        40 + 30 * 60,
    ]
    world.broker.modes.failing.clear()
    change_note(world)
    world.run(minutes=1)
    assert world.logs_in()


@pytest.mark.parametrize("status", [400, 402, 404, 410, 412, 422])
def test_a_refusal_stands_until_something_changes(status: int) -> None:
    world = bind(osb_faults.refuses(status, "", "the quota is used up"), 1, hours=3)
    assert world.states() == [(0, record.INTENDED)]
    assert world.condition("Bound") == ("False", "Refused")
    assert "the quota is used up" in message(world, "Bound")
    assert ("2.17" in message(world, "Bound")) == (status == 412)
    assert world.status("phase") == "Failed"
    assert (world.broker.count("bind"), world.broker.count("unbind")) == (1, 0)
    assert world.events == ["BindRefused"]


def change_note(world: World) -> None:
    note = {"klutchctl.dev/osb-retry": "please"}
    world.edit(BINDING_KIND, "web", lambda live: live["metadata"].update(annotations=note))


# DELETE


def unbind(fault: Fault, count: int, **span: float) -> World:
    """Return a world with a deleted claim, whose unbind met a fault so often."""
    world = claimed(minutes=1)
    world.broker.faults.add("unbind", fault, times=count)
    world.delete(BINDING_KIND, "web")
    world.run(**span)
    return world


UNCONFIRMED = [
    *(osb_faults.gateway(404), osb_faults.says(500), osb_faults.says(500, processed=True)),
    *(osb_faults.refuses(status) for status in (400, 409, 412, 422)),
    *(osb_faults.broken_json(200), HANG),
]


@pytest.mark.parametrize("fault", [osb_faults.says(429), *UNCONFIRMED])
def test_an_unbind_is_made_until_it_is_confirmed(fault: Fault) -> None:
    at = [0, 2, 10, 42] if fault in UNCONFIRMED else [0, 2, 6, 14]
    world = unbind(fault, 3, minutes=5)
    assert times(world, "unbind") == at
    assert world.live(BINDING_KIND, "web") is None
    assert world.broker.inventory.bindings == {}


def test_an_unbind_is_made_each_ten_minutes_in_the_end() -> None:
    world = unbind(osb_faults.says(500), 100, hours=1)
    assert times(world, "unbind")[:6] == [0, 2, 10, 42, 170, 682]
    assert {round(one - 682) % 600 for one in times(world, "unbind")[5:]} == {0}
    assert world.condition("DeletesAllowed") == ("False", "NotDeleted")
    assert world.states() == [(0, record.LEAVING)]


def test_a_404_counts_once_the_catalogue_was_read() -> None:
    world = claimed(minutes=1)
    world.is_fresh = False
    world.broker.inventory.lose((world.instance, world.records()[0].id))
    world.broker.modes.unknown_delete = 404
    world.delete(BINDING_KIND, "web")
    world.run(seconds=30)
    assert world.states() == [(0, record.LEAVING)]
    assert world.read_soon > 0
    world.is_fresh = True
    world.run(minutes=1)
    assert world.live(BINDING_KIND, "web") is None


def test_a_busy_broker_is_asked_how_far_it_is_before_another_unbind() -> None:
    world = unbind(osb_faults.busy(), 1, minutes=3)
    assert [one.verb for one in world.broker.journal[1:]] == ["unbind", "poll-binding", "unbind"]
    assert world.live(BINDING_KIND, "web") is None


# GET


def read(fault: Fault, count: int, **span: float) -> World:
    """Return a world whose binding came later, and whose reading met a fault so often."""
    world = World()
    world.broker.modes.asynchronous = ASYNC
    world.broker.faults.add("fetch-binding", fault, times=count)
    world.claim()
    world.run(**span)
    return world


@pytest.mark.parametrize(
    "fault", [HANG, NO_JSON, osb_faults.says(500), osb_faults.refuses(404), osb_faults.refuses(400)]
)
def test_credentials_are_read_again_where_they_did_not_come(fault: Fault) -> None:
    world = read(fault, 3, minutes=3)
    assert times(world, "fetch-binding") == [0, 2, 10, 40]
    assert world.states() == [(0, record.PRESENT)]
    assert world.logs_in()


# last_operation


def late(fault: Fault, count: int) -> World:
    """Return a world whose bind has succeeded, and whose polls met a fault until long after."""
    offered = catalogue()
    offered["services"][0]["plans"][0] |= {"maximum_polling_duration": 120}
    world = World(offered)
    world.broker.modes.asynchronous, world.broker.modes.polls = ASYNC, 0
    world.broker.faults.add("poll-binding", fault, times=count)
    world.claim()
    world.run(minutes=30)
    return world


def rotating(text: str) -> Callable[[dict[str, Any]], None]:
    """Return the edit that asks for new credentials."""
    return lambda live: live["spec"].update(rotation={"request": text})


UNANSWERED = [osb_faults.says(502), osb_faults.gateway(404), osb_faults.busy()]


@pytest.mark.parametrize("fault", UNANSWERED)
def test_a_bind_past_its_deadline_says_so_and_keeps_no_other_waiting(fault: Fault) -> None:
    world = late(fault, 10**6)
    assert "longer than it may" in message(world, "Bound")
    world.broker.modes.asynchronous = frozenset()
    world.claim("other")
    world.run(minutes=5)
    assert world.logs_in("other")
    world.delete(BINDING_KIND, "other")
    world.run(minutes=5)
    assert [one.claim.name for one in world.records()] == ["web"]
    assert world.broker.count("unbind") == 1
    world.delete(BINDING_KIND, "web")
    world.run(minutes=5)
    assert (world.records(), world.broker.inventory.bindings) == ([], {})


@pytest.mark.parametrize("fault", UNANSWERED)
def test_a_rotation_past_its_deadline_says_so_and_the_old_credentials_go(fault: Fault) -> None:
    offered = catalogue()
    offered["services"][0]["plans"][0] |= {"maximum_polling_duration": 120}
    world = World(offered)
    world.claim()
    for text in "12":
        world.run(minutes=5)
        world.edit(BINDING_KIND, "web", rotating(text))
        world.run(minutes=5)
        world.broker.modes.asynchronous, world.broker.modes.polls = ASYNC, 0
        world.broker.faults.add("poll-binding", fault, times=10**6)
    assert world.states() == [(0, record.PRESENT), (1, record.PRESENT), (2, record.INTENDED)]
    assert world.condition("Rotated") == ("False", "Binding")
    world.broker.modes.asynchronous = frozenset()
    world.run(hours=2)
    assert world.states() == [(1, record.PRESENT), (2, record.INTENDED)]
    world.delete(SECRET, "web-creds")
    world.run(minutes=10)
    assert world.logs_in()
    world.broker.faults.clear()
    world.run(minutes=5)
    assert world.states() == [(1, record.PRESENT), (2, record.PRESENT)]
    assert world.condition("Rotated") == ("True", "")


# An answer that comes when its record went on already.

KEY = Secret("task:1")
TARGET = record.Sent("p1")
CALLS: dict[str, messages.Call] = {
    "bind": messages.Bind("i1", "b1", "s1", "p1"),
    "unbind": messages.Unbind("i1", "b1", "s1", "p1"),
    "poll": messages.LastOperation("i1", "s1", "p1", KEY, binding="b1"),
    "fetch": messages.FetchBinding("i1", "b1", "s1", "p1"),
}


@pytest.mark.parametrize(
    ("call", "state", "intent", "works"),
    [
        ("bind", record.PRESENT, None, False),
        ("bind", record.LEAVING, None, False),
        ("bind", record.INTENDED, "Bind", True),
        ("bind", record.INTENDED, None, False),
        ("unbind", record.PRESENT, None, False),
        ("unbind", record.LEAVING, None, True),
        ("unbind", record.ORPHANED, None, False),
        ("poll", record.PRESENT, None, False),
        ("poll", record.INTENDED, "Bind", False),
        ("fetch", record.LEAVING, None, False),
        ("fetch", record.INTENDED, "Bind", False),
    ],
)
@pytest.mark.parametrize(
    "outcome", [Done(credentials=Secret("{}")), Gone(), Unknown("silence"), Accepted(KEY)]
)
def test_an_answer_for_which_nothing_waits_changes_nothing(
    call: str, state: record.State, intent: Asked | None, works: bool, outcome: Outcome
) -> None:
    world = claimed(minutes=1)
    (view,) = world.view().bindings
    asked = replace(
        view.records[0],
        state=state,
        intent=None if intent is None else record.Intent(intent, world.now, TARGET),
        operation=record.Operation(KEY, "p1", world.now, world.now) if works else None,
    )
    view = replace(view, records=(asked,), secret=ReadSecret(world.live(SECRET, "web-creds")))
    ask = Ask(asked.id, CALLS[call])
    next_ = turn.answered(replace(world.view(), bindings=(view,)), ask, outcome).next
    assert next_.decision.tasks == ()
    assert next_.ask is None
