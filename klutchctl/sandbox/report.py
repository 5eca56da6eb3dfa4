"""The status of a sandbox for people and for programs. Pure."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from klutchctl.sandbox.layout import Layout
from klutchctl.sandbox.lifecycle import Health, Status
from klutchctl.sandbox.servers import Program

# Of the JSON: the minor part grows with new fields, the major part with changed ones.
_FORMAT_VERSION: Final = "1.1"


def as_text(layout: Layout, status: Status, *, now: float) -> str:
    """Return a table. `now` is in seconds since the epoch."""
    rows: list[Sequence[str]] = [("CLUSTER", "ADDRESS", "SERVER", "HEALTH", "PID", "AGE")]
    rows.extend(_row("(all)", "", health, now) for health in status.servers if _is_etcd(health))
    for member in status.state.members:
        rows.extend(
            _row(member.context, member.server, health, now)
            for health in _of_cluster(status, member.id)
        )
    rows.extend(_row("(services)", "", health, now) for health in _services(status))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join((f"Kubeconfig: {layout.kubeconfig}", f"Logs: {layout.logs}", "", *lines))


def as_json(layout: Layout, status: Status) -> str:
    """Return one JSON object."""
    document = {
        "formatVersion": _FORMAT_VERSION,
        "name": layout.root.name,
        "healthy": status.healthy,
        "kubeconfig": str(layout.kubeconfig),
        "logs": str(layout.logs),
        "etcd": [_facts(health) for health in status.servers if _is_etcd(health)],
        "clusters": [
            {
                "context": member.context,
                "role": member.role,
                "server": member.server,
                "servers": [_facts(health) for health in _of_cluster(status, member.id)],
            }
            for member in status.state.members
        ],
        "services": [_facts(health) for health in _services(status)],
    }
    return json.dumps(document, indent=2)


def _of_cluster(status: Status, cluster_id: str) -> Iterable[Health]:
    return (health for health in status.servers if health.server.cluster_id == cluster_id)


def _is_etcd(health: Health) -> bool:
    return health.server.program == Program.ETCD


def _services(status: Status) -> Iterable[Health]:
    return (health for health in _of_cluster(status, "") if not _is_etcd(health))


def _row(context: str, address: str, health: Health, now: float) -> Sequence[str]:
    program = str(health.server.program)
    if health.pid is None or health.started is None:
        return (context, address, program, _word(health), "-", "-")
    age = _age(now - health.started)
    return (context, address, program, _word(health), str(health.pid), age)


def _word(health: Health) -> str:
    if health.pid is None:
        return "stopped"
    return "ready" if health.ready else "not ready"


def _age(seconds: float) -> str:
    """As kubectl prints it: the largest unit that says enough."""
    whole = max(0, int(seconds))
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if whole >= 2 * size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def _facts(health: Health) -> dict[str, object]:
    started = health.started
    return {
        "program": health.server.program,
        "health": _word(health),
        "pid": health.pid,
        "startedAt": None if started is None else datetime.fromtimestamp(started, UTC).isoformat(),
        "log": str(health.server.log),
    }
