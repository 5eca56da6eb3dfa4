"""How far a controller is: what its probes say of it."""

from klutchctl.controller.vitals import Vitals
from reconciler.controller.fence import WriteFence


class Phase:
    """The way from the first look at the files to leading. May be asked from any thread."""

    def __init__(self) -> None:
        self._waits_for = "the files have not been read yet"
        self._vitals: Vitals | None = None
        self._fence: WriteFence | None = None

    def stands_by(self) -> None:
        """Note that it waits for the Lease."""
        self._waits_for = "another process leads, or its lease has not run out"

    def leads(self, vitals: Vitals, fence: WriteFence) -> None:
        """Note that it leads: from now on its rounds count."""
        self._waits_for, self._vitals, self._fence = "", vitals, fence

    def unready(self) -> str:
        """Return why it keeps no clusters, "" if it does."""
        return self._lost() or self._waits_for

    def ailment(self) -> str:
        """Return why it is not healthy, "" if it is. To stand by is."""
        return self._lost() or ("" if self._vitals is None else self._vitals.ailment())

    def _lost(self) -> str:
        lost = self._fence is not None and self._fence.lock_lost
        return "the lease was lost" if lost else ""
