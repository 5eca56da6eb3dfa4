"""`klutchctl apply --watch`: keeps clusters in the state of a folder, or of a Git ref."""

import asyncio
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TextIO

import typer

from klutchctl.controller.journal import News, Vitals
from klutchctl.controller.rounds import Rounds
from klutchctl.controller.sources import Followed, followed
from klutchctl.entry import awaited, ending
from klutchctl.render import apply_report
from klutchctl.settings import Settings
from reconciler.apply import Report
from reconciler.controller import tracing
from reconciler.controller.flags import host_and_port
from reconciler.controller.process import Liveness
from reconciler.controller.tasks import SystemClock, now_here
from reconciler.core.errors import Problem
from reconciler.fleet.values import Fleet
from reconciler.source.verification import Verification
from reconciler.watch.agenda import Task, Terms
from reconciler.watch.loop import Clock, Observer, Watch

_DOCUMENTS: Final = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a watch. Times are in seconds."""

    source: Followed
    verification: Verification
    interval: float
    listen: tuple[str, int] | None
    wait_timeout: float


def address(text: str) -> tuple[str, int]:
    """Return host and port of --listen. Raises typer.BadParameter."""
    found = host_and_port(text)
    if found is None or not found[0]:
        raise typer.BadParameter(
            f"{text!r} is not ADDR:PORT, such as 127.0.0.1:9090", param_hint="'--listen'"
        )
    return found


def run(settings: Settings, options: Options, *, refused: Mapping[str, object]) -> int:
    """Watch until a signal ends it.

    Raises typer.BadParameter for options that make no sense here, by their values, and for a plan.
    """
    if given := [name for name, value in refused.items() if value]:
        raise typer.BadParameter(f"{', '.join(given)} cannot be given with --watch")
    source = options.source
    if source.url is None and source.path.is_file() and source.path.suffix not in _DOCUMENTS:
        raise typer.BadParameter("--watch follows the files of a fleet, not a saved plan")
    return awaited(_watch(options, settings))


async def _watch(options: Options, settings: Settings) -> int:
    lines = apply_report.Lines(sys.stderr, now_here)
    rounds = Rounds(settings, wait_seconds=options.wait_timeout, on_outcome=lines.outcome)
    vitals = Vitals(options.interval)
    pulse = Liveness(SystemClock(), vitals.ailment)
    observers: list[Observer] = [Speaker(now_here), vitals]

    def end(why: str) -> None:
        rounds.end(why)
        lines.note(apply_report.ends(why, rounds.sent, fetches=options.source.url is not None))

    async with AsyncExitStack() as stack:
        stack.enter_context(tracing.exported(settings.environ, "klutchctl"))
        stack.push_async_callback(rounds.close)
        received = stack.enter_context(ending(end))
        stack.callback(asyncio.create_task(pulse.run()).cancel)
        if options.listen is not None:
            observers.append(stack.enter_context(_listening(options.listen, pulse, lines.note)))
        watch = Watch(
            await stack.enter_async_context(
                followed(options.source, settings, options.verification)
            ),
            rounds.make,
            terms=Terms(interval=options.interval),
            clock=Clock(now=time.monotonic, jitter=random.random),
            observers=observers,
        )
        await watch.run(rounds.stop)
    return received[0]


@contextmanager
def _listening(
    address: tuple[str, int], pulse: Liveness, note: Callable[[str], None]
) -> Iterator[Observer]:
    """Serve metrics and health, and yield the observer that counts."""
    from klutchctl.controller.metrics import FleetMetrics
    from reconciler.controller import health_server

    meters = FleetMetrics(time.time)
    with health_server.served(address, metrics=lambda: meters.registry, ailment=pulse.ailment) as (
        host,
        port,
    ):
        shown = f"[{host}]" if ":" in host else host
        note(f"Listening on http://{shown}:{port}")
        yield meters


class Speaker(News):
    """An observer that speaks to people, with the time in each line."""

    def __init__(self, now: Callable[[], datetime] = now_here) -> None:
        super().__init__()
        self._now = now

    def cannot_be_used(self, why: str) -> None:
        then = "Nothing is changed until the files can be used again."
        self._show(apply_report.round_failed(why, then), sys.stderr)

    def can_be_used(self, fleet: Fleet, warnings: Sequence[Problem], *, same: bool) -> None:
        self._show(apply_report.fleet_read(fleet, warnings, same=same), sys.stderr)

    def round_ended(self, task: Task, report: Report, seconds: float) -> None:
        self._show(apply_report.round_ended(task, report, seconds, first=self.is_first), sys.stdout)

    def round_failed(self, task: Task, why: str, seconds: float) -> None:
        self._show(apply_report.round_failed(why), sys.stderr)

    def _show(self, text: str, stream: TextIO) -> None:
        print(apply_report.stamped(text, self._now()), file=stream, flush=True)
