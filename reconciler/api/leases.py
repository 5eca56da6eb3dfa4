"""Finds out from a Lease whether an agent runs: within half a minute, not ten as by heartbeats.

Pure. An agent renews its Lease every two seconds, with the time of its own clock. An old time may
come from a wrong clock, so the Lease is read again: a running agent has renewed it by then. A
missing or unreadable Lease proves nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from reconciler.api import API_SERVICE_EXPORT, Heartbeat
from reconciler.core import names
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.refs import LEASE, Ref
from reconciler.core.times import format_time, moment

APART: Final = 5.0  # seconds between two looks: two renewals, and one that was late
# Of a Pod, and of a process that was started by hand. In no others: whoever may write Leases in a
# space could hide that a backend has stopped.
BACKEND_NAMESPACES: Final = (names.KLUTCH_NAMESPACE, "default")
NO_BACKEND: Final = (
    f"nothing shows that a backend runs: there is no Lease {names.BACKEND_LEASE} in "
    f"{' or '.join(BACKEND_NAMESPACES)}, and no {API_SERVICE_EXPORT.kind}"
)
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

    def manifest(self) -> Manifest:
        """Return as much of the Lease as `look_of` reads."""
        spec: Manifest = {"holderIdentity": self.holder, "renewTime": self.renewed}
        return {"metadata": {"namespace": self.namespace}, "spec": spec}


def of_backend(control_plane: str) -> Ref:
    """Return the Ref of a backend's Lease, without its namespace."""
    return Ref(control_plane, LEASE, "", names.BACKEND_LEASE)


def look_of(lease: Manifest | None) -> LeaseLook | None:
    """Return the holder and the renewal of a Lease; None without one, or if nobody ever held it."""
    renewed = get_text(lease, "spec", "renewTime")
    if moment(renewed) is None:
        return None
    holder = get_text(lease, "spec", "holderIdentity")
    return LeaseLook(holder, renewed, get_text(lease, "metadata", "namespace"))


def backend_stopped(namespace: str, at: datetime) -> str:
    """Return the sentence about a backend, by its Lease in this namespace and the last renewal."""
    lease = f"Lease {namespace}/{names.BACKEND_LEASE}"
    return f"{names.BACKEND} has stopped: {lease} was last renewed at {format_time(at)}"


@dataclass(frozen=True, slots=True)
class Stopped:
    """The agent renews its Lease no more since then, by its own clock."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Behind:
    """The agent runs, and its clock is behind by so much (or ahead): what it dates looks old."""

    by: timedelta


Trouble: TypeAlias = Stopped | Behind


@dataclass(frozen=True, slots=True)
class Stops:
    """The konnectors in trouble, by app cluster; when backends stopped, by control plane."""

    konnectors: Mapping[str, Trouble] = field(default_factory=dict)
    backends: Mapping[str, datetime] = field(default_factory=dict)


def is_doubtful(look: LeaseLook | None, now: datetime) -> bool:
    """Return whether another look is needed to know whether the holder runs."""
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


def trouble(
    before: LeaseLook, after: LeaseLook | None, beat: Heartbeat | None, now: datetime
) -> Trouble | None:
    """Return a konnector's trouble by two looks, the second at `now`; None where all is well."""
    if (at := stopped_at(before, after, beat)) is not None:
        return Stopped(at)
    if after is None or after == before or not after.holder or after.renewed_at is None:
        return None
    by = now - after.renewed_at
    return Behind(by) if abs(by) > _FRESH else None
