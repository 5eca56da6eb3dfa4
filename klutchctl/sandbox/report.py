"""Prints the progress and the state of a sandbox, as text and JSON."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import IO, Any, Final, Protocol

from klutchctl.sandbox.servers import Program, Server
from klutchctl.sandbox.state import Layout, State
from reconciler.core import times

# Of the JSON: the minor part grows with new fields, the major part with changed ones.
_FORMAT_VERSION: Final = "1.3"
_LINE_EVERY: Final = 10.0


@dataclass(frozen=True, slots=True)
class Health:
    """A server as it is now. `pid` and `started` (seconds since the epoch) are None if gone."""

    server: Server
    pid: int | None
    started: float | None
    ready: bool


@dataclass(frozen=True, slots=True)
class Status:
    """A sandbox as it is now; `details` and `facts` are those of its add-ons."""

    state: State
    servers: tuple[Health, ...]
    details: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def healthy(self) -> bool:
        """Return whether every server runs and is ready."""
        return all(health.ready for health in self.servers)


class Progress(Protocol):
    """A receiver of the sandbox's progress."""

    def note(self, text: str) -> None:
        """Print a lasting line, such as the source of the binaries."""
        ...

    def step(self, text: str) -> AbstractContextManager[Callable[[str], None]]:
        """Show `text` for as long as the block runs; the callable shows how far it is."""
        ...


@dataclass(frozen=True, slots=True)
class Lines:
    """Plain lines, for logs and pipes: at most one every ten seconds about the same step."""

    stream: IO[str]
    clock: Callable[[], float] = field(default=time.monotonic)

    def note(self, text: str) -> None:
        print(text, file=self.stream, flush=True)

    @contextmanager
    def step(self, text: str) -> Iterator[Callable[[str], None]]:
        """Write the start, now and then how far it is, and the end with the time it took."""
        start = last = self.clock()

        def update(detail: str) -> None:
            nonlocal last
            now = self.clock()
            if now - last >= _LINE_EVERY:
                last = now
                self.note(f"{text}: {detail}, {now - start:.0f} s")

        self.note(text)
        yield update
        self.note(f"{text}: done, {self.clock() - start:.1f} s")


@dataclass(frozen=True, slots=True)
class Terminal(Lines):
    """A line that changes in place while a step runs."""

    color: bool = False

    @contextmanager
    def step(self, text: str) -> Iterator[Callable[[str], None]]:
        """Show a spinner, the text, the latest detail and the time since the start."""
        # Only a terminal pays for the import.
        from rich.console import Console
        from rich.progress import Progress as Bar
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            TextColumn("{task.fields[detail]}", markup=False),
        )
        console = Console(file=getattr(self.stream, "plain", self.stream), no_color=not self.color)
        with Bar(*columns, console=console, transient=True) as bar:
            task = bar.add_task(text, detail="", total=None)
            yield lambda detail: bar.update(task, detail=detail)


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
    head = (f"Kubeconfig: {layout.kubeconfig}", f"Logs: {layout.logs}", *status.details)
    return "\n".join((*head, "", *lines))


def as_json(layout: Layout, status: Status) -> str:
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
    return json.dumps({**document, **status.facts}, indent=2)


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
    age = times.age(timedelta(seconds=now - health.started))
    return (context, address, program, _word(health), str(health.pid), age)


def _word(health: Health) -> str:
    if health.pid is None:
        return "stopped"
    return "ready" if health.ready else "not ready"


def _facts(health: Health) -> dict[str, object]:
    started = health.started
    return {
        "program": health.server.program,
        "health": _word(health),
        "pid": health.pid,
        "startedAt": None if started is None else datetime.fromtimestamp(started, UTC).isoformat(),
        "log": str(health.server.log),
    }
