"""Runs of `klutchctl` and `kubectl-bind`, each a process that is forked from one with all imports.

Importing costs a run more than half of its time, and tests make hundreds of runs. All else is as
in a shell: arguments, exit code, both streams, signal handlers. Where the start itself is the
matter, tests start the installed script.
"""

import asyncio
import multiprocessing
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from multiprocessing import reduction
from pathlib import Path
from typing import Any, Final, TextIO

_SERVER: Final = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        "__main__",
        "klutchctl.main",
        "klutchctl.binding.job",
        "klutchctl.commands.apply",
        "klutchctl.kubectl_bind",
        "klutchctl.repository",
        "klutchctl.sandbox.lifecycle",
        "klutchctl.sandbox.suite",
        "reconciler.apply",
        "reconciler.kube.registry",
        "reconciler.observe",
        "reconciler.run",
        "tests.support.programs",
        "uvloop",
    ]
)


_MODULES: Final = {"klutchctl": "klutchctl.main", "kubectl-bind": "klutchctl.kubectl_bind"}


@dataclass(frozen=True, slots=True)
class Ended:
    """What a run came to."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class _File:
    """An open file, by its number; for the process that is started it is the number there."""

    number: int

    def __reduce__(self) -> tuple[Any, ...]:
        return _passed, (reduction.DupFd(self.number),)


def _passed(file: Any) -> _File:
    return _File(file.detach())


@dataclass(frozen=True)
class _Start:
    """What a run begins with; `streams` are its three files."""

    program: str
    arguments: tuple[str, ...]
    folder: str
    environ: Mapping[str, str]
    streams: tuple[_File, ...]


def klutchctl(
    *arguments: str, cwd: Path | None = None, environ: Mapping[str, str] | None = None
) -> Ended:
    """Run the program to its end, in the folder and with the environment of the test if need be."""
    with (
        open(os.devnull) as nothing,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        files = tuple(_File(one.fileno()) for one in (nothing, out, err))
        process = _started(
            _Start(
                "klutchctl", arguments, str(cwd or Path.cwd()), dict(environ or os.environ), files
            )
        )
        process.join()
        assert process.exitcode is not None
        return Ended(process.exitcode, _written(out), _written(err))


async def klutchctl_beside(*arguments: str, **more: Any) -> Ended:
    """Run the program to its end, while the event loop of the test turns."""
    return await asyncio.to_thread(partial(klutchctl, *arguments, **more))


async def conversed(
    program: str,
    *arguments: str,
    answers: str,
    environ: Mapping[str, str],
    heard: Callable[[str], Awaitable[None]],
) -> Ended:
    """Run a program to its end: all answers are there at once, `heard` gets each line of stderr."""
    asked, answering = os.pipe()
    reading, writing = os.pipe()
    os.write(answering, answers.encode())
    os.close(answering)
    lines: list[str] = []
    with tempfile.TemporaryFile("w+") as out:
        files = tuple(map(_File, (asked, out.fileno(), writing)))
        start = _Start(program, arguments, os.getcwd(), dict(environ), files)
        process = await asyncio.to_thread(_started, start)
        os.close(asked)
        os.close(writing)
        async for line in _lines(reading):
            lines.append(line)
            await heard(line)
        await asyncio.to_thread(process.join)
        assert process.exitcode is not None
        return Ended(process.exitcode, _written(out), "".join(lines))


async def _lines(file: int) -> AsyncIterator[str]:
    """Yield what comes out of a pipe to its end."""
    stream = asyncio.StreamReader()
    loop, pipe = asyncio.get_running_loop(), os.fdopen(file, "rb", buffering=0)
    protocol = asyncio.StreamReaderProtocol(stream)
    transport, _ = await loop.connect_read_pipe(lambda: protocol, pipe)
    try:
        async for line in stream:
            yield line.decode()
    finally:
        transport.close()


def _started(start: _Start) -> Any:
    process = _SERVER.Process(target=_main, args=(start,))
    process.start()
    return process


def _main(start: _Start) -> None:
    for number, file in enumerate(start.streams):
        os.dup2(file.number, number)
        os.close(file.number)
    sys.stdin = os.fdopen(0, closefd=False)  # in place of the one of `multiprocessing`
    os.chdir(start.folder)
    os.environ.clear()
    os.environ.update(start.environ)
    sys.argv = [start.program, *start.arguments]
    import_module(_MODULES[start.program]).main()


def _written(file: TextIO) -> str:
    file.seek(0)
    return file.read()
