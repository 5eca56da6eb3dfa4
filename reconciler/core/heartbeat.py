"""The last sign of life of a space's konnector, as its ClusterBinding tells it. Pure."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from reconciler.core.manifest import Manifest, get_text
from reconciler.core.times import moment, parse_duration

INTERVAL: Final = timedelta(minutes=5)  # of beats, where the konnector does not say (A.6)


@dataclass(frozen=True, slots=True)
class Beat:
    """When it was, and how often the konnector means to send one."""

    time: datetime
    interval: timedelta

    @property
    def patience(self) -> timedelta:
        """How old it may become: a konnector that misses two beats is not counted on (A.10)."""
        return 2 * self.interval


def beat_of(cluster_binding: Manifest | None) -> Beat | None:
    """Return the last heartbeat, or None where there was none."""
    time = moment(get_text(cluster_binding, "status", "lastHeartbeatTime"))
    if time is None:
        return None
    try:
        interval = parse_duration(get_text(cluster_binding, "status", "heartbeatInterval"))
    except ValueError:
        interval = INTERVAL
    return Beat(time, interval if interval > timedelta() else INTERVAL)
