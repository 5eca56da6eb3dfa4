"""`klutchctl apply --watch`: the clusters are kept as a folder, or a Git ref, says."""

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import typer

from klutchctl import repository
from klutchctl.entry import ending, sentence
from klutchctl.render import apply_report
from klutchctl.settings import Settings, of
from reconciler import apply as applying
from reconciler.apply import Report, Status
from reconciler.apply.run import apply
from reconciler.controller.fence import Stopped, WriteFence
from reconciler.controller.lease import holder_here
from reconciler.controller.process import Liveness
from reconciler.controller.tasks import SystemClock, unless
from reconciler.core.errors import ConfigError, Locked, Problem
from reconciler.fleet.values import Fleet
from reconciler.kube import registry
from reconciler.kube.registry import Registry
from reconciler.run import look
from reconciler.source import following
from reconciler.source.following import Folder, GitRef, GitUrl, Source
from reconciler.watch.agenda import Scope, Task, Terms
from reconciler.watch.loop import Clock, Observer, Signs, Watch, ailment

_DOCUMENTS: Final = (".yaml", ".yml")
_TOKEN_FILE: Final = "KLUTCHCTL_GIT_TOKEN_FILE"
_SSH_KEY_FILE: Final = "KLUTCHCTL_GIT_SSH_KEY_FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is followed, and how. Times are in seconds.

    `path` is a folder on disk; with `ref`, of a Git repository there, or, with `url`, of one on a
    server.
    """

    path: Path
    url: GitUrl | None
    ref: str | None
    poll: float
    interval: float
    listen: tuple[str, int] | None
    wait_timeout: float


def address(text: str | None) -> tuple[str, int] | None:
    """Return host and port of --listen. Raises typer.BadParameter."""
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise typer.BadParameter(
            f"{text!r} is not ADDR:PORT, such as 127.0.0.1:9090", param_hint="'--listen'"
        )
    return host, int(port)


def url(text: str | None) -> GitUrl | None:
    """Return the URL of --git. Raises typer.BadParameter."""
    try:
        return None if text is None else following.git_url(text, where="--git")
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


def run(context: typer.Context, options: Options, *, refused: Mapping[str, object]) -> int:
    """Watch until a signal ends it.

    Raises typer.BadParameter for options that make no sense here, by their values, and for a plan.
    """
    if given := [name for name, value in refused.items() if value]:
        raise typer.BadParameter(f"{', '.join(given)} cannot be given with --watch")
    if options.url is None and options.path.is_file() and options.path.suffix not in _DOCUMENTS:
        raise typer.BadParameter("--watch follows the files of a fleet, not a saved plan")
    import uvloop

    settings = of(context)
    return uvloop.run(_watch(options, settings))


async def _watch(options: Options, settings: Settings) -> int:
    rounds = Rounds(settings, wait_seconds=options.wait_timeout)
    vitals = _Vitals(options.interval)
    pulse = Liveness(SystemClock(), vitals.ailment)
    observers: list[Observer] = [Speaker(), vitals]
    async with AsyncExitStack() as stack:
        stack.push_async_callback(rounds.close)
        received = stack.enter_context(ending(rounds.end))
        beating = asyncio.create_task(pulse.run())
        stack.callback(beating.cancel)
        if options.listen is not None:
            observers.append(stack.enter_context(_listening(options.listen, pulse)))
        watch = Watch(
            await stack.enter_async_context(followed(options, settings)),
            rounds.make,
            terms=Terms(interval=options.interval),
            clock=Clock(now=time.monotonic, jitter=random.random),
            observers=observers,
        )
        await watch.run(rounds.stop)
    return received[0]


def _remote(options: Options, url: GitUrl, settings: Settings) -> Source:
    from reconciler.source.remote import Keys, Remote

    inside = options.path.as_posix().strip("/")
    named = {name: settings.environ.get(name) for name in (_TOKEN_FILE, _SSH_KEY_FILE)}
    token, ssh_key = (Path(path) if path else None for path in named.values())
    return Remote(
        url,
        options.ref or "HEAD",
        folder="" if inside in ("", ".") else f"{inside}/",
        cache=settings.cache_home / "klutchctl" / "git",
        keys=Keys(token=token, ssh_key=ssh_key),
        every=options.poll,
    )


@asynccontextmanager
async def followed(options: Options, settings: Settings) -> AsyncIterator[Source]:
    """Yield the source that the options name: a server's, a ref's, or the folder itself."""
    owner = settings.git_owner_check
    if options.url is not None:
        yield _remote(options, options.url, settings)
        return
    if options.ref is not None:
        yield GitRef(options.path, options.ref, check_owner=owner, every=options.poll)
        return
    async with Folder(options.path, check_owner=owner, every=options.poll) as folder:
        yield folder


@contextmanager
def _listening(address: tuple[str, int], pulse: Liveness) -> Iterator[Observer]:
    """Serve metrics and health, and yield who counts."""
    from reconciler.controller import health_server
    from reconciler.watch.metrics import FleetMetrics

    meters = FleetMetrics(time.time)
    with health_server.served(address, metrics=lambda: meters.registry, ailment=pulse.ailment) as (
        host,
        port,
    ):
        shown = f"[{host}]" if ":" in host else host
        print(f"Listening on http://{shown}:{port}", file=sys.stderr, flush=True)
        yield meters


class Rounds:
    """Makes rounds, one at a time, until it is told to stop."""

    def __init__(self, settings: Settings, *, wait_seconds: float) -> None:
        self._settings = settings
        self._options = applying.Options(
            holder=holder_here(),
            now=lambda: datetime.now(UTC),
            pace=settings.pace(),
            wait_seconds=wait_seconds,
        )
        self._fence: WriteFence | None = None
        self._clusters: Registry | None = None
        self._why = ""
        self.stop = asyncio.Event()

    def end(self, why: str) -> None:
        """Let no further write start; those that were sent are waited for."""
        self._why = self._why or why
        self.stop.set()
        if self._fence is not None:
            self._fence.close(why)

    async def make(self, fleet: Fleet, scope: Scope) -> applying.Report:
        """Plan, and apply what no guard holds back. Raises Stopped, and what an apply raises."""
        only = _both(repository.chosen(fleet, self._settings), scope)
        clusters = await self._ways(fleet, anew=scope is None)
        pace = self._settings.pace()
        found = await unless(
            self.stop, look(fleet, clusters, only=only, credentials=True, pace=pace)
        )
        if found is None:
            raise Stopped(self._why)
        fence = self._fence = WriteFence()
        observer = applying.Observer(
            outcome=apply_report.Lines(sys.stderr).outcome, stage=lambda _stage: None
        )
        try:
            return await apply(
                fleet, found.plan, clusters, options=self._options, fence=fence, observer=observer
            )
        finally:
            self._fence = None

    async def close(self) -> None:
        """Give all connections back."""
        if self._clusters is not None:
            await self._clusters.__aexit__(None, None, None)
            self._clusters = None

    async def _ways(self, fleet: Fleet, *, anew: bool) -> Registry:
        """Return the ways to the clusters.

        They are looked up anew for each look at everything, as kubeconfigs change. A narrow
        round never leads to other control planes.
        """
        if anew or self._clusters is None:
            await self.close()
            self._clusters = registry.of(fleet, self._settings.surroundings())
        return self._clusters


def _both(chosen: Scope, scope: Scope) -> Scope:
    """Return what is in both."""
    if chosen is None or scope is None:
        return scope if chosen is None else chosen
    return chosen & scope


class _Vitals:
    """Notes how rounds go. Asked from another thread, so each note is one new value."""

    def __init__(self, interval: float) -> None:
        self._interval, self._signs = interval, Signs(round_at=time.monotonic())

    def ailment(self) -> str:
        """Return why the watch is not healthy, or ""."""
        return ailment(self._signs, time.monotonic(), interval=self._interval)

    def unreadable(self, error: Exception) -> None:
        """Note it."""
        del error
        self._signs = replace(self._signs, readable=False)

    def read(self, fleet: Fleet, warnings: Sequence[Problem] | None) -> None:
        """Note it."""
        del fleet, warnings
        self._signs = replace(self._signs, readable=True)

    def ended(self, task: Task, report: Report, seconds: float) -> None:
        """Note the time."""
        del task, report, seconds
        self._signs = replace(self._signs, round_at=time.monotonic())

    def failed(self, task: Task, error: Exception, seconds: float) -> None:
        """A round that did not end is no sign of life."""


class Speaker:
    """Tells people what is new; what was said last is not said again."""

    def __init__(self) -> None:
        self._of_source, self._of_rounds = "", ""
        self._trouble: tuple[str, ...] | None = None

    def unreadable(self, error: Exception) -> None:
        """Say so."""
        said = apply_report.fleet_unreadable(sentence(error))
        if said != self._of_source:
            self._of_source = said
            print(said, file=sys.stderr, flush=True)

    def read(self, fleet: Fleet, warnings: Sequence[Problem] | None) -> None:
        """Say what is of use now."""
        if warnings is None and self._of_source.startswith("Fleet "):
            return
        self._of_source = apply_report.fleet_read(fleet, warnings or ())
        print(self._of_source, file=sys.stderr, flush=True)

    def ended(self, task: Task, report: Report, seconds: float) -> None:
        """Say what was done, and what is in the way where that is something else."""
        trouble = apply_report.trouble(report)
        news = any(one.status is Status.DONE for one in report.outcomes)
        if news or trouble != self._trouble:
            now = datetime.now(UTC)
            print(apply_report.round_ended(task, report, seconds, now=now), flush=True)
        self._of_rounds, self._trouble = "", trouble

    def failed(self, task: Task, error: Exception, seconds: float) -> None:
        """Say why."""
        said = sentence(error)
        # How long it has been held is another figure each time.
        about = error.holder if isinstance(error, Locked) else said
        if about != self._of_rounds:
            self._of_rounds = about
            print(apply_report.round_failed(said), file=sys.stderr, flush=True)
