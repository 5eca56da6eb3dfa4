"""`klutchctl apply --watch`, or another command that goes on, as a process, and what it says."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tests.support.applying import KLUTCHCTL
from tests.support.eventually import eventually
from tests.support.web import fetch

_SERVED = re.compile(r"(?:Listening on|The board is at) (http://[^\s/]+)")

W = TypeVar("W", bound="Watcher")


@dataclass
class Watcher:
    """A running watch; `said` is all of both its streams so far, line by line."""

    process: asyncio.subprocess.Process
    said: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.said)

    async def says(self, text: str, *, times: int = 1) -> None:
        """Wait until a text has been said."""

        def heard() -> bool:
            assert self.text.count(text) >= times, self.text
            return True

        await eventually(heard)

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code."""
        self.process.send_signal(number)
        async with asyncio.timeout(60):
            return await self.process.wait()

    async def get(self, path: str) -> tuple[int, str]:
        """Return status and body of a page that it serves."""
        found = await eventually(lambda: _SERVED.search(self.text))
        assert found is not None
        return await asyncio.to_thread(fetch, found[1] + path)

    async def metric(self, name: str) -> float:
        """Return a metric of the watch, 0 where it is not there yet."""
        _, body = await self.get("/metrics")
        lines = [line.rpartition(" ") for line in body.splitlines()]
        return next((float(v) for key, _, v in lines if key == f"klutchctl_watch_{name}"), 0.0)


@asynccontextmanager
async def watching(
    kubeconfig: Path, *arguments: str, environ: Mapping[str, str] = {}
) -> AsyncIterator[Watcher]:
    """Run a watch for as long as the block lasts, with `environ` beside our own."""
    command = ("--kubeconfig", str(kubeconfig), "apply", "--watch", *arguments)
    async with started(command, environ, Watcher) as watcher:
        yield watcher


@asynccontextmanager
async def going_on(*arguments: str, environ: Mapping[str, str] = {}) -> AsyncIterator[Watcher]:
    """Run a command for as long as the block lasts, with `environ` beside our own."""
    async with started(arguments, environ, Watcher) as watcher:
        yield watcher


@asynccontextmanager
async def started(
    command: Sequence[str],
    environ: Mapping[str, str],
    make: Callable[[asyncio.subprocess.Process], W],
    program: str = KLUTCHCTL,
) -> AsyncIterator[W]:
    """Run a program for as long as the block lasts, with `environ` beside our own."""
    process = await asyncio.create_subprocess_exec(
        program,
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environ},
    )
    watcher = make(process)

    async def listen(stream: asyncio.StreamReader | None) -> None:
        assert stream is not None
        async for line in stream:
            watcher.said.append(line.decode().rstrip("\n"))

    listening = [asyncio.create_task(listen(one)) for one in (process.stdout, process.stderr)]
    try:
        yield watcher
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await asyncio.gather(*listening)
        print(watcher.text)  # pytest shows it where the test fails
