"""Waiting until a program has seen all that is in its clusters, and has nothing left to do."""

from typing import Final, Protocol

from reconciler.controller.manager import Manager

_WITHIN: Final = 90.0  # seconds, on a busy machine


class Program(Protocol):
    """A konnector or a backend that runs within a test."""

    @property
    def manager(self) -> Manager: ...


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
