"""Runs of `klutchctl` and `kubectl-bind`, each a process that is forked from one with all imports.

Importing costs a run more than half of its time, and tests make hundreds of runs. All else is as
in a shell: arguments, exit code, both streams, signal handlers. Where the start itself is the
matter, tests start the installed script.
"""

import asyncio
import multiprocessing
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing import reduction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from klutchctl import __main__ as starts
from klutchctl.sandbox import addons, credentials, lifecycle, processes, servers
from klutchctl.sandbox.servers import NORMAL, Program
from klutchctl.sandbox.state import Layout, layout_of
from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.kube.client import KubeCluster
from tests.support.http_faults import Reply, Request
from tests.support.replicas import Replica

if TYPE_CHECKING:
    from reconciler.core.manifest import Manifest


_SERVER: Final = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        "__main__",
        "klutchctl.main",
        "klutchctl.binding.kubectl",
        "klutchctl.commands.apply",
        "klutchctl.repository",
        "klutchctl.sandbox.lifecycle",
        "reconciler.apply",
        "reconciler.kube.registry",
        "reconciler.observe",
        "reconciler.run",
        "tests.support.programs",
        "uvloop",
    ]
)


_STARTS: Final = {"klutchctl": starts.main, "kubectl-bind": starts.kubectl_bind}


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
    _STARTS[start.program]()


def _written(file: TextIO) -> str:
    file.seek(0)
    return file.read()


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Machine:
    """A user's machine: folders of its own, and the real executables."""

    home: Path
    environ: Mapping[str, str]

    def layout(self, name: str = "default") -> Layout:
        return layout_of(name, state_home=self.home / "state")

    async def start(self, *arguments: str, cwd: Path | None = None) -> asyncio.subprocess.Process:
        """Start the program, as a process that a test may signal."""
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "klutchctl", "sandbox", *arguments),
            cwd=cwd,
            env=self.environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def klutchctl(self, *arguments: str, cwd: Path | None = None) -> Answer:
        ended = await klutchctl_beside(*arguments, cwd=cwd, environ=self.environ)
        return Answer(ended.returncode, ended.stdout, ended.stderr)

    async def sandbox(self, *arguments: str, cwd: Path | None = None) -> Answer:
        return await self.klutchctl("sandbox", *arguments, cwd=cwd)

    async def up(self, *arguments: str, cwd: Path | None = None) -> Answer:
        answer = await self.sandbox("up", *arguments, cwd=cwd)
        assert answer.code == 0, answer.err
        return answer

    def pids(self, name: str = "default") -> dict[str, int]:
        """The process of each server that runs."""
        layout = self.layout(name)
        state = lifecycle.load(layout)
        observed = processes.observe(layout)
        if state is None:
            return {}
        beside = addons.servers(layout, state)
        expected = (*servers.of_clusters(layout, state, NORMAL), *beside)
        found = {server.name: processes.running(server, observed) for server in expected}
        return {server: process.pid for server, process in found.items() if process}

    def ports(self, name: str = "default") -> tuple[int, ...]:
        state = lifecycle.load(self.layout(name))
        assert state is not None
        return state.ports

    def connect(self, context: str, name: str = "default") -> KubeCluster:
        state = lifecycle.load(self.layout(name))
        assert state is not None
        (member,) = (member for member in state.members if member.context == context)
        return KubeCluster(credentials.connection(self.layout(name), member))

    async def remember(self, context: str, text: str) -> None:
        """Write something down in a cluster."""
        manifest: Manifest = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "memory", "namespace": "default"},
            "data": {"text": text},
        }
        async with self.connect(context) as cluster:
            await cluster.apply(manifest, CONFIG_MAP, manager="tests", force=True)

    async def recall(self, context: str) -> object:
        async with self.connect(context) as cluster:
            found = await cluster.get(Ref(context, CONFIG_MAP, "default", "memory"))
        assert found is not None
        return found["data"]


def furnished(home: Path, executables: Mapping[Program, Path]) -> Machine:
    """Return a machine that has the real executables, and builds none."""
    (home / "assets").mkdir()
    for program, path in executables.items():
        (home / "assets" / program).symlink_to(path)
    ours = {
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "KUBEBUILDER_ASSETS": str(home / "assets"),
    }
    return Machine(home, {**os.environ, **ours})


@dataclass
class Killing:
    """Kills a process whose write has just been done by an API server, before it hears of that.

    Only writes to a path that `where` matches count.
    """

    after: int = 1  # so many writes of its own
    where: str = r"(?<!/events)$"
    process: Replica | None = None
    written: int = 0

    @property
    def is_done(self) -> bool:
        return self.process is None or self.process.process.returncode is not None

    def matches(self, call: Request) -> bool:
        if self.process is None or call.method == "GET":
            return False
        is_write = re.search(self.where, call.path) is not None
        self.written += is_write
        return is_write and self.written == self.after

    async def perform(self, reply: Reply, /) -> bool:
        assert self.process is not None
        self.process.send(signal.SIGKILL)
        reply.cut("rst")
        return True
