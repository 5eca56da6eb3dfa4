"""A process that ends after any write or call leaves what the next one goes on with."""

import itertools

import pytest

from reconciler.core.refs import SECRET
from tests.support.osb_bindings import BINDING_KIND, World, catalogue
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


def live_through(world: Watched) -> int:
    """Let a claim be bound, rotated and deleted; return how many times it could have ended."""
    world.claim()
    world.run(minutes=5)
    assert world.logs_in(), world.steps
    world.edit(BINDING_KIND, "web", lambda live: live["spec"].update(rotation={"request": "1"}))
    world.run(minutes=5)
    assert world.condition("Rotated") == ("True", ""), world.steps
    world.run(hours=2)
    assert len(world.broker.inventory.bindings) == 1, world.steps
    world.delete(BINDING_KIND, "web")
    world.run(minutes=5)
    assert world.live(BINDING_KIND, "web") is None, world.steps
    assert (world.records(), world.secret()) == ([], {}), world.steps
    assert world.broker.inventory.bindings == {}
    assert world.broker.violations == []
    return len(world.steps)


@pytest.mark.parametrize(
    ("is_async", "is_retrievable"), [(False, True), (False, False), (True, True)]
)
def test_the_secret_logs_in_wherever_a_process_ends(is_async: bool, is_retrievable: bool) -> None:
    whole = live_through(Watched(-1, is_async=is_async, is_retrievable=is_retrievable))
    assert whole > 20
    for place in range(whole):
        live_through(Watched(place, is_async=is_async, is_retrievable=is_retrievable))
