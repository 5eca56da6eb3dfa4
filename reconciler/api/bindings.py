"""The kinds by which an app cluster is bound, and what the rest reads of them (A.2, A.6, A.7).

An APIServiceBinding is named `plural.group`, like the CRD and its export. There is one
ClusterBinding in each binding space, named `cluster`.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from reconciler.core.keys import API_VERSION, KLUTCH_GROUP
from reconciler.core.manifest import Manifest, get_maps, get_text
from reconciler.core.refs import GroupResource, Kind
from reconciler.core.times import moment, parse_duration

# Klutch up to 1.5.0 serves it cluster-scoped: the live CRD decides which path is right.
API_SERVICE_BINDING: Final = Kind(
    KLUTCH_GROUP, API_VERSION, "APIServiceBinding", "apiservicebindings"
)
APP_CLUSTER_BINDING: Final = Kind(
    KLUTCH_GROUP, API_VERSION, "AppClusterBinding", "appclusterbindings"
)


def listed_resource(listed: Manifest) -> GroupResource:
    """Return what one item of spec.apiExports names; blanks around it do not count (C.6)."""
    return GroupResource(get_text(listed, "group").strip(), get_text(listed, "resource").strip())


def listed_resources(app_cluster_binding: Manifest) -> frozenset[GroupResource]:
    """Return what spec.apiExports lists."""
    return frozenset(map(listed_resource, get_maps(app_cluster_binding, "spec", "apiExports")))


CLUSTER_BINDING: Final = Kind(KLUTCH_GROUP, API_VERSION, "ClusterBinding", "clusterbindings")
INTERVAL: Final = timedelta(minutes=5)  # of heartbeats, where the konnector does not say (A.6)
# After so long without a heartbeat nobody counts on a konnector any more (mapping.md 3, 9).
SILENCE: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """When the last one was, and how often the konnector means to send one; None: it does not say.

    The konnector writes both itself, so neither proves anything in its favour.
    """

    time: datetime
    interval: timedelta | None

    @property
    def timeout(self) -> timedelta:
        """How old it may become: a konnector that misses two is not counted on (A.10)."""
        return 2 * (self.interval or INTERVAL)


class Liveness(Enum):
    """What a heartbeat, or its absence, says of a space's konnector."""

    NEVER = "never"  # no konnector has been there
    ALIVE = "alive"
    SILENT = "silent"
    AHEAD = "ahead"  # it is from the future: a clock is wrong, or somebody lies


def heartbeat_of(cluster_binding: Manifest | None) -> Heartbeat | None:
    """Return the last heartbeat, or None where there was none."""
    time = moment(get_text(cluster_binding, "status", "lastHeartbeatTime"))
    if time is None:
        return None
    try:
        interval = parse_duration(get_text(cluster_binding, "status", "heartbeatInterval"))
    except ValueError:
        return Heartbeat(time, None)
    return Heartbeat(time, interval if interval > timedelta() else None)


def liveness(
    heartbeat: Heartbeat | None,
    now: datetime,
    *,
    timeout: timedelta,
    ahead: timedelta | None = None,
) -> Liveness:
    """Return what a heartbeat says of its konnector at the time `now`.

    One of more than `timeout` ago is too old; one of more than `ahead` in the future, where that
    is given, is no sign of life either.
    """
    if heartbeat is None:
        return Liveness.NEVER
    age = now - heartbeat.time
    if ahead is not None and age < -ahead:
        return Liveness.AHEAD
    return Liveness.ALIVE if age <= timeout else Liveness.SILENT
