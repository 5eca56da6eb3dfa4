"""What became of bindings, as pages show it. Pure.

A ClusterBinding's status is written by the app cluster's konnector: it is shown, never trusted.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote

from bind.door.pages.views import BindingRow, ConditionRow, Shape
from reconciler import api
from reconciler.api import Liveness
from reconciler.core import conditions, names
from reconciler.core.manifest import Manifest

_READY: Final[Mapping[str, tuple[str, Shape]]] = {
    conditions.TRUE: ("Ready", "good"),
    conditions.FALSE: ("Not ready", "bad"),
}
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60))


@dataclass(frozen=True, slots=True)
class BoundCluster:
    """An app cluster with a space, as pages show it.

    `issuer` is "" until the space says who vouches for it. `services` are the names of its exports.
    """

    space: str
    owner: str
    cid: str
    issuer: str
    is_deleting: bool
    cluster_binding: Manifest | None = field(default=None, repr=False)
    services: tuple[str, ...] = ()


def row(bound: BoundCluster, now: datetime) -> BindingRow:
    """Return a binding space as pages show it."""
    word, shape = _state(bound, now)
    heartbeat = api.heartbeat_of(bound.cluster_binding)
    return BindingRow(
        space=bound.space,
        cid=bound.cid,
        owner=bound.owner,
        services=sorted(bound.services),
        word=word,
        shape=shape,
        heartbeat="never" if heartbeat is None else ago(now - heartbeat.time),
        href=f"/ui/bindings/{quote(bound.space, safe='')}",
        conditions=[
            ConditionRow(one.type, one.status, one.reason, one.message, one.last_transition_time)
            for one in conditions.of(bound.cluster_binding)
        ],
    )


def unbind(bound: BoundCluster) -> list[str]:
    """Return the commands that unbind, for the app cluster."""
    kind = api.API_SERVICE_BINDING
    begin = ["kubectl", "--namespace", names.KLUTCH_NAMESPACE, "delete"]
    return [
        shlex.join([*begin, f"{kind.plural}.{kind.group}", service])
        for service in sorted(bound.services)
    ]


def ago(age: timedelta) -> str:
    """Return how long ago something was, in its largest unit."""
    seconds = int(age.total_seconds())
    if seconds < 0:
        return "in the future"
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def _state(bound: BoundCluster, now: datetime) -> tuple[str, Shape]:
    if bound.is_deleting:
        return "Being deleted", "waiting"
    heartbeat = api.heartbeat_of(bound.cluster_binding)
    timeout = api.SILENCE if heartbeat is None else heartbeat.timeout
    match api.liveness(heartbeat, now, timeout=timeout):
        case Liveness.NEVER:
            return "Waiting for the konnector", "waiting"
        case Liveness.SILENT:
            return "No heartbeat", "silent"
    ready = conditions.said(bound.cluster_binding, conditions.READY)
    return _READY.get(ready.status if ready else "", ("Unknown", "waiting"))
