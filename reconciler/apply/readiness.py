"""Waits until units of one app cluster are Ready (mapping.md 11)."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from reconciler.apply.outcomes import NotReady
from reconciler.apply.writes import Writes
from reconciler.controller.fence import WriteFence
from reconciler.fleet.values import UnitKey
from reconciler.health import Location, health_of
from reconciler.kube.cluster import Reader


class Readiness:
    """The units of one app cluster. `now` is the time in UTC.

    The first look at the control plane is made through `shared_reader`, where there is one.
    """

    def __init__(
        self,
        *,
        location: Location | None,
        control_plane: Writes,
        app: Writes,
        gate: WriteFence,
        now: Callable[[], datetime],
        shared_reader: Reader | None = None,
    ) -> None:
        self.control_plane, self.gate = control_plane, gate
        self._location, self._app, self._now = location, app, now
        self._shared_reader = shared_reader
        self._ready: set[UnitKey] = set()

    async def wait(self, units: Collection[UnitKey], *, seconds: float) -> Sequence[NotReady]:
        """Wait for all of the units; return those that were not Ready in time, and why.

        Raises Stopped.
        """
        late: Sequence[NotReady] = ()

        async def look() -> bool | None:
            nonlocal late
            late = await self._not_ready(units)
            return None if late else True

        await self.gate.until(look, seconds=seconds)
        return late

    async def _not_ready(self, units: Collection[UnitKey]) -> Sequence[NotReady]:
        if self._location is None:
            return [NotReady(str(one), "its cluster leaves the fleet") for one in units]
        open_ = [one for one in units if one not in self._ready]
        if not open_:
            return ()
        plane, self._shared_reader = self._shared_reader or self.control_plane.cluster, None
        found = await health_of(
            open_,
            location=self._location,
            control_plane=plane,
            app=self._app.cluster,
            now=self._now,
        )
        self._ready |= {unit for unit, health in found.items() if health.ready}
        return [
            NotReady(str(unit), f"{health.state.value}: {health.message}")
            for unit, health in sorted(found.items())
            if not health.ready
        ]
