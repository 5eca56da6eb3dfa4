"""A process that is killed at its own writes, as a machine that fails does."""

import re
import signal
from dataclasses import dataclass

from tests.support.http_faults import Reply, Request
from tests.support.replicas import Replica


@dataclass
class Killing:
    """Kills a process whose write has just been done by an API server, before it hears of that.

    Only writes to a path that `where` matches count.
    """

    after: int = 1  # so many writes of its own
    where: str = r"(?<!/events)$"
    process: Replica | None = None
    written: int = 0

    @property
    def is_done(self) -> bool:
        return self.process is None or self.process.process.returncode is not None

    def matches(self, call: Request) -> bool:
        if self.process is None or call.method == "GET":
            return False
        is_write = re.search(self.where, call.path) is not None
        self.written += is_write
        return is_write and self.written == self.after

    async def perform(self, reply: Reply, /) -> bool:
        assert self.process is not None
        self.process.send(signal.SIGKILL)
        reply.cut("rst")
        return True
