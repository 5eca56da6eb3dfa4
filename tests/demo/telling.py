"""What the demo prints: its steps, and where the time went."""

import asyncio
import contextlib
import os
import shlex
import sys
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from klutchctl.entry import ExitCode

KLUTCHCTL = str(Path(sys.executable).with_name("klutchctl"))


class Story:
    """The steps that were taken, and how long each one lasted."""

    def __init__(self) -> None:
        self._times: list[tuple[str, float]] = []

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Print a step, and its time when it is done."""
        print(f"\n== {title}", flush=True)
        begin = time.monotonic()
        yield
        seconds = time.monotonic() - begin
        self._times.append((title, seconds))
        print(f"   done in {seconds:.1f} s", flush=True)

    def where_the_time_went(self) -> None:
        """Print all steps, the longest first."""
        print(f"\n{sum(seconds for _, seconds in self._times):.0f} seconds in all:")
        for title, seconds in sorted(self._times, key=lambda one: -one[1]):
            print(f"{seconds:7.1f} s  {title}")


def fail(why: str) -> None:
    sys.exit(f"The demo failed: {why}\n`make demo KEEP=1` leaves one that fails, with its logs")


def owner_check(checkout: Path) -> tuple[str, ...]:
    """Return the option for a checkout of somebody else, as in a container: its code runs here."""
    owners = {path.stat().st_uid for path in (checkout, checkout / ".git") if path.exists()}
    return () if owners == {os.geteuid()} else ("--git-owner-check=off",)


async def klutchctl(*arguments: str, wanted: int = ExitCode.SUCCESS) -> None:
    """Run the program as a person would; another exit code than `wanted` ends the demo."""
    arguments = (*owner_check(Path()), *arguments)
    print(f"$ klutchctl {shlex.join(arguments)}", flush=True)
    process = await asyncio.create_subprocess_exec(KLUTCHCTL, *arguments)
    try:
        code = await process.wait()
    except BaseException:
        await _ended(process)
        raise
    if code != wanted:
        fail(f"exit code {code} instead of {wanted}")


class Background:
    """A run of the program beside the demo, which prints nothing until somebody waits for it."""

    def __init__(self, arguments: tuple[str, ...], process: Process) -> None:
        self._arguments, self._process = arguments, process

    @classmethod
    @contextlib.asynccontextmanager
    async def running(
        cls, *arguments: str, program: str = KLUTCHCTL
    ) -> AsyncIterator["Background"]:
        """Run it; the end of the block is its end, too."""
        if program == KLUTCHCTL:
            arguments = (*owner_check(Path()), *arguments)
        process = await asyncio.create_subprocess_exec(
            program, *arguments, stdout=PIPE, stderr=STDOUT
        )
        try:
            yield cls(arguments, process)
        finally:
            await _ended(process)

    async def ends(self) -> int:
        """Print what it prints, and return its exit code."""
        print(f"$ klutchctl {shlex.join(self._arguments)}   # began long ago", flush=True)
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            print(line.decode(errors="replace"), end="", flush=True)
        return await self._process.wait()


async def _ended(process: Process) -> None:
    """End a run: what it starts after this could not be taken down."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    await process.wait()
