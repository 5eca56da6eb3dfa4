"""A process that ends after any write or call leaves what the next one goes on with."""

import itertools

import pytest

from reconciler.core.refs import SECRET
from tests.support import osb_faults
from tests.support.osb_bindings import BINDING_KIND, World, catalogue
from tests.support.osb_faults import Fault
from tests.support.osb_wire import Verb

ASYNC: frozenset[Verb] = frozenset({"bind", "unbind"})


class Watched(World):
    """A world in which the Secret logs in at every moment, and a process ends once."""

    def __init__(self, place: int, *, is_async: bool, is_retrievable: bool) -> None:
        super().__init__(catalogue(bindings_retrievable=is_retrievable))
        self.broker.modes.asynchronous = ASYNC if is_async else frozenset()
        left = itertools.count(place, -1)
        self.dies = lambda: next(left) == 0
        self.check = self.holds

    def holds(self) -> None:
        """Assert what holds after each write and each call."""
        live = self.live(BINDING_KIND, "web")
        is_wanted = live is not None and "deletionTimestamp" not in live["metadata"]
        if is_wanted and self.live(SECRET, "web-creds") is not None:
            assert self.logs_in(), self.steps
        assert self.broker.inventory.bindings.keys() <= {one.id for one in self.records()}
        ended = set()
        for entry in self.broker.journal:
            if entry.verb == "unbind" and entry.status in (200, 410):
                ended.add(entry.binding)
            assert entry.verb != "bind" or entry.binding not in ended, "an id is used again"


def live_through(world: Watched) -> int:
    """Let a claim be bound, rotated and deleted; return how many times it could have ended."""
    world.broker.modes.endpoints = ({"host": "db.example", "ports": ["5432"]},)
    world.claim()
    world.run(minutes=5)
    assert world.logs_in(), world.steps
    first = world.secret()
    is_read = world.broker.catalogue["services"][0]["bindings_retrievable"]
    assert not is_read or world.status("endpoints") == list(world.broker.modes.endpoints)
    world.edit(BINDING_KIND, "web", lambda live: live["spec"].update(rotation={"request": "1"}))
    world.run(minutes=5)
    assert world.condition("Rotated") == ("True", ""), world.steps
    assert world.broker.log_in(first), world.steps
    world.run(hours=2)
    assert len(world.broker.inventory.bindings) == 1, world.steps
    world.delete(BINDING_KIND, "web")
    world.run(minutes=5)
    assert world.live(BINDING_KIND, "web") is None, world.steps
    assert (world.records(), world.secret()) == ([], {}), world.steps
    assert world.broker.inventory.bindings == {}
    assert world.broker.violations == []
    return len(world.steps)


@pytest.mark.parametrize("fails", [0, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("is_async", "is_retrievable"), [(False, True), (False, False), (True, True)]
)
def test_the_secret_logs_in_wherever_a_process_ends(
    is_async: bool, is_retrievable: bool, fails: int
) -> None:
    whole = 30
    for place in itertools.count(-1):
        if place >= whole:
            break
        world = Watched(place, is_async=is_async, is_retrievable=is_retrievable)
        world.broker.modes.failing["bind"] = fails
        steps = live_through(world)
        whole = steps if place < 0 else whole
        asked = {one.binding for one in world.broker.journal if one.verb == "bind"}
        assert len(asked) == 2 + fails, world.steps
    assert whole > 20


class Ended(Exception):
    """A process ended where a test wanted it to."""


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(
    "fault",
    [
        osb_faults.refuses(400, "BadRequest", "it is there"),
        osb_faults.says(500),
        osb_faults.broken_json(201, processed=False),
        osb_faults.says(200),
        osb_faults.refuses(409),
    ],
)
def test_what_the_secret_has_already_is_never_undone(fault: Fault, is_first: bool) -> None:
    world = World(catalogue(bindings_retrievable=False))
    world.claim()
    if not is_first:
        world.run(minutes=1)
        world.edit(BINDING_KIND, "web", lambda live: live["spec"].update(rotation={"request": "1"}))
    before = world.secret()

    def ends() -> None:
        if world.secret() != before:
            raise Ended

    world.check = ends
    with pytest.raises(Ended):
        world.run(minutes=5)
    world.check = lambda: None
    world.restart()
    world.broker.faults.add("bind", fault)
    written = world.secret()
    world.run(hours=2)
    assert world.secret() == written
    assert world.logs_in()
    assert [one.state for one in world.records()] == ["Present"]
