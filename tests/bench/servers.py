"""Real API servers for benches, without fsync."""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import psutil

from klutchctl.sandbox import binaries, lifecycle, recipes, state
from klutchctl.sandbox.report import Lines
from klutchctl.sandbox.servers import Program, Tuning
from klutchctl.sandbox.state import layout_of
from klutchctl.settings import Settings
from tests.support import clusters
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


@asynccontextmanager
async def sandbox(
    *, app_clusters: int = 0, audit: bool = False
) -> AsyncIterator[tuple[Path, list[LiveCluster]]]:
    """Run a control plane and app clusters; yield a folder for the bench, and them.

    Their audit logs have every write if asked for.
    """
    with tempfile.TemporaryDirectory(prefix="klutchctl-bench-") as folder:
        layout = layout_of("bench", state_home=Path(folder))
        tuning = Tuning(fsync=False, audit=audit)
        plan = lifecycle.Plan(programs(), state.app_clusters(app_clusters), tuning=tuning)
        try:
            made = await asyncio.to_thread(lifecycle.up, layout, plan, progress=Quiet())
            async with AsyncExitStack() as stack:
                live = [await clusters.connect(layout, member) for member in made.members]
                for one in live:
                    stack.push_async_callback(one.cluster.close)
                yield Path(folder), live
        finally:
            lifecycle.down(layout, delete=True, progress=Quiet())
