"""A broker's catalogue as it was last read well, and what reading it says of the broker."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from reconciler.blueprints.offering.outcomes import Denied, Done, Outcome, Unknown, Unsent
from reconciler.broker.client import BrokerClient, BrokerFault
from reconciler.broker.gate import Gate

if TYPE_CHECKING:
    from reconciler.blueprints.offering.catalogue import Catalogue

_FRESH: Final = 60.0  # seconds for which it shows that the broker itself answers, no gateway


class KeptCatalogue:
    """The last good catalogue: one that is empty, or cannot be read, changes nothing of it.

    What is there has its ids from it. `latest` is None until one was read; `problem` says why the
    last reading brought none, "" where it did.
    """

    def __init__(self, gate: Gate, *, now: Callable[[], float]) -> None:
        self._gate, self._now = gate, now
        self._read_at: float | None = None
        self.latest: Catalogue | None = None
        self.problem = ""

    @property
    def age(self) -> float:
        """How many seconds ago it was read."""
        return float("inf") if self._read_at is None else self._now() - self._read_at

    @property
    def is_fresh(self) -> bool:
        """Whether it was read a moment ago."""
        return self.age < _FRESH

    async def read(self, client: BrokerClient) -> None:
        """Read it anew, and have the gate note what that came to."""
        outcome: Outcome = Done()
        try:
            catalogue = await client.catalogue()
        except BrokerFault as fault:
            outcome, self.problem = _outcome(fault), fault.problem
        else:
            self._read_at = self._now()
            self.problem = "" if catalogue.offerings else "it offers nothing"
            if catalogue.offerings or self.latest is None:
                self.latest = catalogue
        self._gate.record(outcome, catalogue=True)


def _outcome(fault: BrokerFault) -> Outcome:
    if fault.denied:
        return Denied(401, fault.problem)
    return Unsent(fault.problem) if fault.unsent else Unknown(fault.problem)
