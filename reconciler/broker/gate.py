"""Limits concurrent calls to one broker, with turns for owners, and stops them after failures.

A gate belongs to one broker: one that hangs delays no other. Does not know what is called.
"""

import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final

from reconciler.blueprints.offering import outcomes
from reconciler.blueprints.offering.outcomes import Done, Outcome
from reconciler.broker.client import BrokerClient, BrokerFault
from reconciler.kube.turns import Party, Places
from reconciler.web.issuer import within

if TYPE_CHECKING:
    from reconciler.blueprints.offering.catalogue import Catalogue

_IN_A_ROW: Final = 5
_PAUSE: Final = 30.0  # seconds between two looks at the catalogue of a broker that does not answer
_DENIED: Final = 300.0  # seconds for which denied credentials are not tried


class Gate:
    """Gives four turns at once: three to one owner, two to one of its spaces.

    So one owner leaves a turn to the others, and one of its spaces a turn to its sisters.

    Closed after five calls in a row without a word that can be used, until the catalogue, or any
    other call, has one; and while our credentials are denied, for five minutes or until they
    change. Ask `closed` when the turn has come.
    """

    def __init__(self, *, now: Callable[[], float]) -> None:
        self._now = now
        self._places = Places(4, per_owner=3, per_space=2)
        self._row: list[str] = []  # the spaces of the last calls that failed
        # Whose calls failed while the catalogue answered: it is these calls that do it.
        self._suspects: set[str] = set()
        self._problem = ""
        self._asked_at = -math.inf
        self._denied_at: float | None = None
        self._digest = ""
        self.doubted = False

    def turn(self, party: Party) -> AbstractAsyncContextManager[None]:
        """Wait for a turn, and have it for as long as the block lasts."""
        return self._places.turn(party)

    @property
    def _denied_for(self) -> float:
        """The seconds for which our credentials are not tried."""
        since, now = self._denied_at, self._now()
        return since + _DENIED - now if since is not None and within(_DENIED, since, now) else 0.0

    @property
    def closed(self) -> str:
        """Why no call but that for the catalogue is made; "" where they are."""
        if self._denied_for:
            return f"the broker does not accept our credentials: {self._problem}"
        return f"the broker does not answer: {self._problem}" if len(self._row) >= _IN_A_ROW else ""

    @property
    def pause(self) -> float:
        """The seconds until the catalogue is read again."""
        left = max(self._asked_at + _PAUSE - self._now(), 0.0) if self.closed else 0.0
        return self._denied_for or left

    def use(self, digest: str) -> None:
        """Note new credentials: others than those denied are tried."""
        if digest != self._digest:
            self._digest, self._denied_at, self.doubted = digest, None, False

    def record(
        self, outcome: outcomes.Outcome, *, space: str = "", catalogue: bool = False
    ) -> None:
        """Note a call's outcome. A 403 counts for the `catalogue`; else it sets `doubted`."""
        if catalogue:
            self._asked_at, self.doubted = self._now(), False
        match outcome:
            case outcomes.Unsent() | outcomes.Unknown():
                if catalogue or space not in self._suspects:
                    self._fail(space, outcome.problem)
            case outcomes.Denied(status, problem):
                self._row.clear()
                if status == 401 or catalogue:
                    self._denied_at, self._problem = self._now(), problem
                else:
                    # A call that gets a 403 each time has not the catalogue read each time.
                    self.doubted = not within(_PAUSE, self._asked_at, self._now())
            case outcomes.Done() | outcomes.Accepted() | outcomes.Gone() | outcomes.Progress():
                self._open(space, catalogue=catalogue)
            case _:
                self._row.clear()

    def _fail(self, space: str, problem: str) -> None:
        self._row.append(space)
        self._problem = problem
        if len(self._row) == _IN_A_ROW:
            self._asked_at = self._now()

    def _open(self, space: str, *, catalogue: bool) -> None:
        if catalogue and len(self._row) >= _IN_A_ROW:
            self._suspects |= set(self._row)
        if not catalogue:
            self._suspects.discard(space)
        self._row.clear()
        self._denied_at = None


_FRESH: Final = 60.0  # seconds for which it shows that the broker itself answers, no gateway


class KeptCatalogue:
    """The last good catalogue: one that is empty, or cannot be read, changes nothing of it.

    What is there has its ids from it. `latest` is None until one was read; `problem` says why the
    last reading brought none, "" where it did.
    """

    def __init__(self, gate: Gate, *, now: Callable[[], float]) -> None:
        self._gate, self._now = gate, now
        self._read_at = -math.inf
        self.latest: Catalogue | None = None
        self.problem = ""

    @property
    def is_fresh(self) -> bool:
        """Whether it was read a moment ago."""
        return self._now() - self._read_at < _FRESH

    async def read(self, client: BrokerClient) -> None:
        """Read it again, and have the gate note the outcome."""
        outcome: Outcome = Done()
        try:
            catalogue = await client.catalogue()
        except BrokerFault as fault:
            outcome, self.problem = fault.outcome, fault.problem
        else:
            self._read_at = self._now()
            self.problem = "" if catalogue.offerings else "it offers nothing"
            if catalogue.offerings or self.latest is None:
                self.latest = catalogue
        self._gate.record(outcome, catalogue=True)
