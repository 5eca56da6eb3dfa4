"""Runs a credential plug-in, without a shell, and leaves no process behind.

A plug-in that fails is an error; we never go on as anonymous.
"""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Mapping
from typing import Any, Final, cast

from reconciler.core.errors import ConfigError
from reconciler.kube.connection import Connection, ExecPlugin
from reconciler.kube.credentials import exec_protocol
from reconciler.kube.credentials.exec_protocol import Issued, place

TIMEOUT: Final = 60.0
# A person may have to find a phone or log in with a browser.
INTERACTIVE_TIMEOUT: Final = 300.0
_OUTPUT_LIMIT: Final = 1 << 20
_TAIL_LIMIT: Final = 8 << 10
_KILL_WAIT: Final = 5.0


async def run(
    plugin: ExecPlugin,
    connection: Connection,
    *,
    environ: Mapping[str, str],
    terminal: bool,
    limit: float | None = None,
) -> Issued:
    """Run a plug-in once and return what it issued.

    `terminal`: a person sits at standard input and may be asked. Raises ConfigError with the
    command, why it failed and the end of its standard error; also after `limit` seconds
    (default: TIMEOUT, or INTERACTIVE_TIMEOUT where a person may be asked).
    """
    interactive = _is_interactive(plugin, terminal)
    path = await asyncio.to_thread(_find, plugin, environ)
    info = exec_protocol.request(plugin, connection, interactive=interactive)
    variables = {name: value.reveal() for name, value in plugin.env}
    env = {**environ, **variables, "KUBERNETES_EXEC_INFO": info}
    seconds = limit or (INTERACTIVE_TIMEOUT if interactive else TIMEOUT)
    process = _Process(plugin, interactive=interactive)
    try:
        async with asyncio.timeout(seconds):
            await process.start(path, env)
            await process.finished
        return exec_protocol.answer(process.output(), plugin)
    except TimeoutError:
        message = f"did not answer within {seconds:g} s and was stopped{process.complaint()}"
        raise ConfigError(message, where=place(plugin)) from None
    finally:
        await process.stop()


def _is_interactive(plugin: ExecPlugin, terminal: bool) -> bool:
    if plugin.interactive_mode == "Always" and not terminal:
        message = "needs a person at a terminal (interactiveMode: Always), and there is none"
        raise ConfigError(message, where=place(plugin))
    return terminal and plugin.interactive_mode != "Never"


def _find(plugin: ExecPlugin, environ: Mapping[str, str]) -> str:
    """Find the command on PATH; never in the current folder, which may be anyone's."""
    folders = environ.get("PATH", os.defpath).split(os.pathsep)
    search = os.pathsep.join(folder for folder in folders if folder.startswith("/"))
    path = shutil.which(plugin.command, path=search)
    if path is None:
        hint = exec_protocol.printable(plugin.install_hint)
        message = "the command is not installed, or not executable"
        raise ConfigError(message, where=place(plugin), hint=hint)
    return path


class _Process(asyncio.SubprocessProtocol):
    """One run of a plug-in. Keeps no more of its output than the limits allow."""

    def __init__(self, plugin: ExecPlugin, *, interactive: bool) -> None:
        loop = asyncio.get_running_loop()
        self.finished = loop.create_future()  # ended, and all its output is here; or too much
        self._exited = loop.create_future()
        self._ended = False
        self._plugin = plugin
        self._interactive = interactive
        self._open = {1} if interactive else {1, 2}
        self._stdout = bytearray()
        self._stderr = bytearray()
        self._starting: asyncio.Future[Any] | None = None
        self._transport: asyncio.SubprocessTransport | None = None

    async def start(self, path: str, env: Mapping[str, str]) -> None:
        """Start the command in a session of its own, unless it needs our terminal."""
        loop = asyncio.get_running_loop()
        pipe = asyncio.subprocess.PIPE
        starting = self._starting = asyncio.ensure_future(
            loop.subprocess_exec(
                lambda: self,
                path,
                *(arg.reveal() for arg in self._plugin.args),
                env=env,
                stdin=None if self._interactive else asyncio.subprocess.DEVNULL,
                stdout=pipe,
                stderr=None if self._interactive else pipe,
                start_new_session=not self._interactive,
            )
        )
        problem: str
        try:
            # Cancelled half-way, asyncio would kill the process but not its children.
            await asyncio.shield(starting)
            return
        except OSError as error:
            problem = error.strerror or "unknown reason"
        raise ConfigError(f"cannot be started: {problem}", where=place(self._plugin))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Before `subprocess_exec` returns, the process may have ended.
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._stderr = (self._stderr + data)[-_TAIL_LIMIT:]
        elif len(self._stdout) <= _OUTPUT_LIMIT:
            self._stdout += data
        self._note()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        self._note()

    def process_exited(self) -> None:
        self._exited.set_result(None)
        self._note()

    def _note(self) -> None:
        if self._exited.done() and not self._ended:
            self._ended = not self._open or self._left_a_helper()
        if (self._ended or len(self._stdout) > _OUTPUT_LIMIT) and not self.finished.done():
            self.finished.set_result(None)

    def _left_a_helper(self) -> bool:
        """Tell whether all is said, though a process that it left behind holds the pipes open.

        Some plug-ins start an agent; under uvloop it inherits the pipes whatever it does.
        """
        return self._status() == 0 and exec_protocol.is_complete(bytes(self._stdout))

    def _status(self) -> int | None:
        return None if self._transport is None else self._transport.get_returncode()

    def output(self) -> bytes:
        """Return what a finished process printed. Raises ConfigError where it failed."""
        status = self._status()
        if len(self._stdout) > _OUTPUT_LIMIT:
            message = f"printed more than {_OUTPUT_LIMIT} bytes and was stopped"
        elif status:
            reason = f"exit status {status}" if status > 0 else f"signal {-status}"
            message = f"failed with {reason}{self.complaint()}"
        else:
            return bytes(self._stdout)
        raise ConfigError(message, where=place(self._plugin))

    def complaint(self) -> str:
        """Return what it wrote to standard error, to go at the end of a sentence."""
        tail = exec_protocol.failure_tail(bytes(self._stderr), self._plugin)
        return f": {tail}" if tail else ""

    async def stop(self) -> None:
        """Unless it ended by itself, kill it with its children and wait for its end."""
        if self._starting is not None and not self._starting.done():
            await asyncio.wait([self._starting], timeout=_KILL_WAIT)
        transport = self._transport
        if transport is None:
            return  # it never started
        try:
            if not self._ended:
                self._kill(transport)
                await asyncio.wait([self._exited], timeout=_KILL_WAIT)
        finally:
            transport.close()

    def _kill(self, transport: asyncio.SubprocessTransport) -> None:
        if not self._interactive:
            # The group lives on while children hold the pipes, also when its leader is gone.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(transport.get_pid(), signal.SIGKILL)
        elif not self._exited.done():  # it shares our group: killing that would be suicide
            with contextlib.suppress(ProcessLookupError):
                transport.kill()
