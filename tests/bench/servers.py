"""Real API servers for benches, without fsync."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from klutchctl.sandbox import binaries, lifecycle, recipes, state
from klutchctl.sandbox.report import Lines
from klutchctl.sandbox.servers import Program, Tuning
from klutchctl.sandbox.state import Layout, layout_of
from klutchctl.settings import Settings
from tests.support.clusters import LiveCluster
from tests.support.quiet import Quiet

_TIMEOUT: Final = 900.0


async def until(look: Callable[[], Awaitable[bool]], process: psutil.Process) -> None:
    """Wait until `look` finds that a program has converged."""
    end = time.monotonic() + _TIMEOUT
    while not await look():
        if time.monotonic() > end or not process.is_running():
            raise SystemExit("the program does not converge")
        await asyncio.sleep(0.5)


def writes_of(live: LiveCluster, agent: str, mark: int) -> list[tuple[str, str]]:
    return [
        (one.verb, one.resource)
        for one in live.audit.writes_since(mark)
        if one.agent == agent and one.resource not in ("leases", "events")
    ]


def programs() -> Mapping[Program, Path]:
    """Return the executables of the servers; the first time, build them."""
    here = Settings(os.environ)
    own = recipes.of()
    where = binaries.workshop(
        own.recipe, "controlplane", cache_home=here.cache_home, environ=here.environ
    )
    return binaries.provide(own, where, progress=Lines(sys.stderr))


@contextmanager
def sandbox(home: Path, *, app_clusters: int = 0, audit: bool = False) -> Iterator[Layout]:
    """Run a control plane and app clusters, whose audit logs hold every write if asked for."""
    layout = layout_of("bench", state_home=home)
    tuning = Tuning(fsync=False, audit=audit)
    plan = lifecycle.Plan(programs(), state.app_clusters(app_clusters), tuning=tuning)
    try:
        lifecycle.up(layout, plan, progress=Quiet())
        yield layout
    finally:
        lifecycle.down(layout, delete=True, progress=Quiet())
