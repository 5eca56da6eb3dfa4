"""A hostile Open Service Broker on loopback, as osb_broker.py scripts it.

    with scripted() as broker:
        broker.modes.asynchronous = frozenset({"provision", "bind"})
        broker.faults.add("bind", osb_faults.hangs(processed=True), times=1)
        ...
    assert broker.violations == [] and broker.inventory.is_empty

Serves in a thread of its own, so that tests may block; all attributes may be changed meanwhile.
"""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractContextManager

from tests.support import osb_wire
from tests.support.osb_broker import ScriptedBroker
from tests.support.osb_server import LoopbackServer, running
from tests.support.osb_wire import MUTATING, Asked, Members, Said, failure


class ServedBroker(ScriptedBroker, LoopbackServer):
    """A scripted broker that listens."""

    def __init__(self, catalogue: Members | None = None) -> None:
        ScriptedBroker.__init__(self, catalogue)
        LoopbackServer.__init__(self)
        self._open: Counter[str] = Counter()  # changes under way, by instance

    @contextlib.asynccontextmanager
    async def exchanged(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> AsyncIterator[Said]:
        asked = osb_wire.asked(method, target, headers, body)
        if asked is None:
            yield failure(404, "", "there is nothing")
            return
        with self._alone(asked):
            yield self.answer(asked)

    @contextlib.contextmanager
    def _alone(self, asked: Asked) -> Iterator[None]:
        """Note where a platform has two changes of one instance under way."""
        if asked.verb not in MUTATING:
            yield
            return
        if self._open[asked.instance]:
            self.violations.append(f"{asked.method} {asked.path}: another is under way")
        self._open[asked.instance] += 1
        try:
            yield
        finally:
            self._open[asked.instance] -= 1


def scripted(catalogue: Members | None = None) -> AbstractContextManager[ServedBroker]:
    """Run a broker with this catalogue."""
    return running(ServedBroker(catalogue))
