"""Runs a credential plug-in, without a shell, and leaves no process behind.

A plug-in that fails is an error; we never go on as anonymous. What is said to it and what it
answers is of the Kubernetes API group client.authentication.k8s.io, v1 and v1beta1.
"""

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, cast

from reconciler.core.documents import one_line
from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.kube.connection import ClientCertificate, Connection, ExecPlugin
from reconciler.kube.kubeconfig import entries

TIMEOUT: Final = 60.0
# A person may have to find a phone or log in with a browser.
INTERACTIVE_TIMEOUT: Final = 300.0
_OUTPUT_LIMIT: Final = 1 << 20
_KILL_WAIT: Final = 5.0
_UNSHOWN: Final = (
    "Run the command by itself: its output may contain a secret, so it is not shown here"
)
_STATUS_FIELDS: Final = ("token", "clientCertificateData", "clientKeyData", "expirationTimestamp")


@dataclass(frozen=True, slots=True)
class Issued:
    """The credentials of a plug-in: a token, a certificate or both. `expires` is in UTC."""

    token: Secret | None
    certificate: ClientCertificate | None
    expires: datetime | None


def place(plugin: ExecPlugin) -> str:
    """Name a plug-in in errors: by its command, for the arguments may hold a password."""
    return f"exec plug-in {plugin.command}"


def request(plugin: ExecPlugin, connection: Connection, *, interactive: bool) -> str:
    """Return the text for KUBERNETES_EXEC_INFO."""
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.provide_cluster_info:
        spec["cluster"] = _cluster(plugin, connection)
    return json.dumps({"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec})


def answer(output: bytes, plugin: ExecPlugin) -> Issued:
    """Parse the output of a plug-in. Raises ConfigError, which never quotes it."""
    credential = _object(output)
    status = credential.get("status")
    problem = ""
    if credential.get("kind") != "ExecCredential" or not isinstance(status, dict):
        problem = "printed no ExecCredential with a status"
    elif credential.get("apiVersion") != plugin.api_version:
        problem = f"did not answer in the version it was asked for, {plugin.api_version}"
    elif any(not isinstance(status.get(key) or "", str) for key in _STATUS_FIELDS):
        problem = "printed a status with values that are not text"
    if problem or not isinstance(status, dict):
        raise ConfigError(problem, where=place(plugin))
    return _issued({key: status.get(key) or "" for key in _STATUS_FIELDS}, plugin)


def _cluster(plugin: ExecPlugin, connection: Connection) -> dict[str, Any]:
    cluster: dict[str, Any] = {"server": connection.server}
    if connection.tls_server_name:
        cluster["tls-server-name"] = connection.tls_server_name
    if connection.insecure:
        cluster["insecure-skip-tls-verify"] = True
    if connection.ca is not None:
        cluster["certificate-authority-data"] = base64.b64encode(connection.ca.encode()).decode()
    if connection.proxy is not None:
        cluster["proxy-url"] = connection.proxy.reveal()
    if plugin.cluster_config is not None:
        cluster["config"] = json.loads(plugin.cluster_config.reveal())
    return cluster


def _object(output: bytes) -> dict[str, Any]:
    try:
        value = json.loads(output)
    except (ValueError, RecursionError):  # these carry the output: let none of them out
        return {}
    return value if isinstance(value, dict) else {}


def _issued(status: dict[str, str], plugin: ExecPlugin) -> Issued:
    token, certificate = status["token"], status["clientCertificateData"]
    key, expiry = status["clientKeyData"], status["expirationTimestamp"]
    expires = _time(expiry) if expiry else None
    problem = ""
    if not (token or certificate or key):
        problem = "gave neither a token nor a certificate"
    elif bool(certificate) != bool(key):
        problem = "gave a certificate without its key, or a key without a certificate"
    elif token and (fault := entries.token_fault(token)):
        problem = f"gave a token that {fault}"
    elif certificate and (fault := entries.certificates_fault(certificate)):
        problem = f"gave clientCertificateData that {fault}"
    elif key and (fault := entries.key_fault(key)):
        problem = f"gave clientKeyData that {fault}"
    elif expiry and expires is None:
        problem = "gave an expirationTimestamp that is not an RFC 3339 time"
    if problem:
        raise ConfigError(problem, where=place(plugin))
    return Issued(
        token=Secret(token) if token else None,
        certificate=ClientCertificate(certificate, Secret(key)) if certificate else None,
        expires=None if expires is None or expires.year == 1 else expires,  # Go's zero time
    )


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
        return None if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


async def run(
    plugin: ExecPlugin,
    connection: Connection,
    *,
    environ: Mapping[str, str],
    terminal: bool,
    limit: float | None = None,
) -> Issued:
    """Run a plug-in once and return the credential that it issued.

    `terminal`: a person sits at standard input and may be asked. Raises ConfigError with the
    command and how it failed; also after `limit` seconds (default: TIMEOUT, or
    INTERACTIVE_TIMEOUT where a person may be asked).
    """
    interactive = _is_interactive(plugin, terminal)
    path = await asyncio.to_thread(_find, plugin, environ)
    info = request(plugin, connection, interactive=interactive)
    variables = {name: value.reveal() for name, value in plugin.env}
    env = {**environ, **variables, "KUBERNETES_EXEC_INFO": info}
    seconds = limit or (INTERACTIVE_TIMEOUT if interactive else TIMEOUT)
    process = _Process(plugin, interactive=interactive)
    try:
        async with asyncio.timeout(seconds):
            await process.start(path, env)
            await process.finished
        return answer(process.output(), plugin)
    except TimeoutError:
        message = f"did not answer within {seconds:g} s and was stopped"
        raise ConfigError(message, where=place(plugin), hint=_UNSHOWN) from None
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
        hint = one_line(plugin.install_hint)
        message = "the command is not installed, or not executable"
        raise ConfigError(message, where=place(plugin), hint=hint)
    return path


class _Process(asyncio.SubprocessProtocol):
    """A run of a plug-in. Keeps no more of its output than the limits allow."""

    def __init__(self, plugin: ExecPlugin, *, interactive: bool) -> None:
        loop = asyncio.get_running_loop()
        self.finished = loop.create_future()  # ended, and all its output is here; or too much
        self._exited = loop.create_future()
        self._ended = False
        self._plugin = plugin
        self._interactive = interactive
        self._open = True
        self._stdout = bytearray()
        self._starting: asyncio.Future[Any] | None = None
        self._transport: asyncio.SubprocessTransport | None = None

    async def start(self, path: str, env: Mapping[str, str]) -> None:
        """Start the command in a session of its own, unless it needs our terminal."""
        loop = asyncio.get_running_loop()
        nowhere = asyncio.subprocess.DEVNULL
        starting = self._starting = asyncio.ensure_future(
            loop.subprocess_exec(
                lambda: self,
                path,
                *(arg.reveal() for arg in self._plugin.args),
                env=env,
                stdin=None if self._interactive else nowhere,
                stdout=asyncio.subprocess.PIPE,
                stderr=None if self._interactive else nowhere,
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
        if len(self._stdout) <= _OUTPUT_LIMIT:
            self._stdout += data
        self._note()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open = False
        self._note()

    def process_exited(self) -> None:
        self._exited.set_result(None)
        self._note()

    def _note(self) -> None:
        if self._exited.done() and not self._ended:
            # Some plug-ins start an agent. Under uvloop it inherits the pipes, and keeps them open.
            is_whole = self._status() == 0 and bool(_object(bytes(self._stdout)))
            self._ended = not self._open or is_whole
        if (self._ended or len(self._stdout) > _OUTPUT_LIMIT) and not self.finished.done():
            self.finished.set_result(None)

    def _status(self) -> int | None:
        return None if self._transport is None else self._transport.get_returncode()

    def output(self) -> bytes:
        """Return the output of a finished process. Raises ConfigError where it failed."""
        status, hint = self._status(), ""
        if len(self._stdout) > _OUTPUT_LIMIT:
            message = f"printed more than {_OUTPUT_LIMIT} bytes and was stopped"
        elif status:
            reason = f"exit status {status}" if status > 0 else f"signal {-status}"
            message, hint = f"failed with {reason}", _UNSHOWN
        else:
            return bytes(self._stdout)
        raise ConfigError(message, where=place(self._plugin), hint=hint)

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
