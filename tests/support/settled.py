"""Waiting until a program has seen all that is in its clusters, and has nothing left to do."""

from typing import Final, Protocol

from reconciler.loop.manager import Manager
from reconciler.loop.meters import Meters
from tests.support.eventually import eventually

_WITHIN: Final = 90.0  # seconds, on a busy machine


class Program(Protocol):
    """A konnector or a backend that runs within a test."""

    @property
    def manager(self) -> Manager:
        """What runs it."""
        ...

    @property
    def meters(self) -> Meters:
        """What knows its queues."""
        ...


async def settled(*programs: Program, within: float = _WITHIN) -> None:
    """Wait until these are at rest, one after the other and all together.

    What a test wrote before has been seen then, and whatever it led to is done.
    """
    while True:
        for one in programs:
            reason = await one.manager.settled(within=within)
            assert not reason, f"not at rest within {within:g} s: {reason}"
        if not any([await one.manager.unsettled() for one in programs[:-1]]):
            return


async def idle(program: Program) -> None:
    """Wait until no key waits and none is worked on.

    It asks no cluster: for those that count requests, or whose clusters do not answer.
    """
    await eventually(lambda: not program.meters.activity.queued(soon=0))
