"""Tells from its Lease whether an agent runs: within half a minute, where heartbeats take ten.

Pure. An agent renews its Lease every two seconds, with the time of its own clock. A time that
looks old may be that of a clock which goes wrong, so the Lease is read again: what runs has
renewed it meanwhile. No Lease, or one that may not be read, says nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from reconciler.api import Heartbeat
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.times import moment

APART: Final = 5.0  # seconds between two looks: two renewals, and one that was late
_FRESH: Final = timedelta(seconds=20)  # after which another would have taken it over


@dataclass(frozen=True, slots=True)
class LeaseLook:
    """A Lease as it was read. `holder` is "" where it was given back."""

    holder: str
    renewed: str
    namespace: str = ""

    @property
    def renewed_at(self) -> datetime | None:
        """Return the last renewal, by the clock of its holder."""
        return moment(self.renewed)


def look_of(lease: Manifest | None) -> LeaseLook | None:
    """Return what a Lease says; None where there is none, or one that nobody ever held."""
    renewed = get_text(lease, "spec", "renewTime")
    if moment(renewed) is None:
        return None
    holder = get_text(lease, "spec", "holderIdentity")
    return LeaseLook(holder, renewed, get_text(lease, "metadata", "namespace"))


@dataclass(frozen=True, slots=True)
class Stops:
    """When agents stopped: konnectors by app cluster, backends by control plane."""

    konnectors: Mapping[str, datetime] = field(default_factory=dict)
    backends: Mapping[str, datetime] = field(default_factory=dict)


def is_doubtful(look: LeaseLook | None, now: datetime) -> bool:
    """Tell whether another look is needed to know whether the holder runs."""
    if look is None or look.renewed_at is None:
        return False
    return not look.holder or abs(now - look.renewed_at) > _FRESH


def stopped_at(
    before: LeaseLook, after: LeaseLook | None, beat: Heartbeat | None = None
) -> datetime | None:
    """Return when the holder stopped, by two looks `APART`; None where it runs, for all we know.

    The original's konnector works on after it lost its Lease, and one that was moved leaves its
    Lease behind: a heartbeat after the last renewal shows it.
    """
    at = before.renewed_at
    if after != before or at is None:
        return None
    return None if beat is not None and beat.time > at + _FRESH else at
