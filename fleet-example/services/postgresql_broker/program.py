"""The broker as one process: flags, its front, where it says how to reach it, an end on SIGTERM."""

import asyncio
import base64
import hashlib
import logging
import os
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from postgresql_broker.broker import Broker
from postgresql_server.postgres import Postgres, new_password
from reconciler.blueprints.objects import build
from reconciler.controller import flags, process
from reconciler.core.errors import ConfigError
from reconciler.core.refs import SECRET
from reconciler.core.secret import Secret

log = logging.getLogger(__name__)

_NAME: Final = "postgresql-broker"
_USER: Final = "platform"
_KEY: Final = "key"
_DEBUG: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the broker runs. `postgresql` is a file with one line, the URL of an administrator.

    How to reach the broker is written to `secret`, "namespace/name" on the control plane of
    `kubeconfig`, and to the file `credentials`, each where there is one.
    """

    postgresql: Path
    data: Path
    kubeconfig: Path | None = None
    secret: str = ""
    credentials: Path | None = None
    listen: tuple[str, int] = ("127.0.0.1", 0)
    asynchronous: bool = False
    verbosity: int = 2
    log_format: flags.LogFormat = "text"


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code: 0 after a signal, 1 after a failure."""
    return process.exit_code("the broker", lambda: process.until_signal(_serve, parse(arguments)))


def parse(arguments: Sequence[str]) -> Settings:
    """Return the settings that these arguments say. Raises ConfigError, and SystemExit(0)."""
    example = "--postgresql admin.url --data keys --credentials reach.yaml"
    parser = flags.Parser(
        _NAME, "Serves databases by the Open Service Broker API.", example=example
    )
    text = parser.add_argument
    text("--postgresql", required=True, type=Path, help="file with the URL of an administrator")
    text("--data", required=True, type=Path, help="folder for the key that passwords follow from")
    text("--kubeconfig", type=Path, help="file whose current context is the control plane")
    text("--secret", default="", metavar="NAMESPACE/NAME", help="Secret to write on it")
    text("--credentials", type=Path, help="file to write the same to")
    text("--listen", default="127.0.0.1:0", metavar="ADDR:PORT", help="port 0: a free one")
    parser.switch("--asynchronous", default=False, help="operations go on after the answer")
    text("-v", "--v", type=int, default=2, metavar="LEVEL", help="from 4 on: the debug log")
    text("--logging-format", choices=("text", "json"), default="text")
    given = parser.parse_args(list(arguments))
    if bool(given.kubeconfig) != bool(given.secret):
        raise ConfigError("needs --secret, and the other way round", where="--kubeconfig")
    if not given.secret and not given.credentials:
        raise ConfigError("this or --credentials says who may connect", where="--secret")
    return Settings(
        postgresql=given.postgresql,
        data=given.data,
        kubeconfig=given.kubeconfig,
        secret=given.secret,
        credentials=given.credentials,
        listen=flags.address(given.listen, "--listen") or ("127.0.0.1", 0),
        asynchronous=given.asynchronous,
        verbosity=given.v,
        log_format=given.logging_format,
    )


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Mapping[str, str]]:
    """Serve for the length of the block; yield how to reach the broker. Raises KlutchErrors."""
    from postgresql_broker import front  # Flask comes once the flags are known to be good

    key = _key(settings.data)
    postgres = Postgres(settings.postgresql, _NAME)
    broker = Broker(postgres, key, asynchronous=settings.asynchronous)
    await broker.start(hashlib.sha256(key.reveal().encode()).hexdigest())
    account = front.Account(_USER, new_password())
    app = front.application(broker, account, asyncio.get_running_loop())
    host, port = settings.listen
    try:
        async with front.served(app, host, port) as bound:
            way = {"url": f"http://{host}:{bound}", "username": _USER}
            whole = {**way, "password": account.password.reveal()}
            await _announce(settings, whole)
            log.info("the broker is listening", extra=way)
            yield whole
    finally:
        await broker.stop()


async def _serve(settings: Settings, *_: object, stop: asyncio.Event) -> None:
    process.to_stderr(settings.log_format, debug=settings.verbosity >= _DEBUG)
    async with serving(settings):
        await stop.wait()


async def _announce(settings: Settings, way: Mapping[str, str]) -> None:
    """Write how to reach the broker. Raises ClusterErrors and ConfigError."""
    if settings.kubeconfig is not None:
        await _write_secret(settings.kubeconfig, settings.secret, way)
    if settings.credentials is not None:
        _write(settings.credentials, yaml.safe_dump(dict(way)).encode())


async def _write_secret(file: Path, secret: str, way: Mapping[str, str]) -> None:
    from reconciler.kube import kubeconfig
    from reconciler.kube.client import KubeCluster

    namespace, _, name = secret.partition("/")
    to = kubeconfig.load([file], environ=os.environ, name="control-plane")
    data = {key: base64.b64encode(text.encode()).decode() for key, text in way.items()}
    wanted = build(SECRET, name, namespace=namespace, type="Opaque", data=data)
    async with KubeCluster(to, agent=_NAME) as cluster:
        await cluster.apply(wanted, SECRET, manager=_NAME, force=True)


def _key(folder: Path) -> Secret:
    """Return the key that passwords follow from, made where there is none. Raises ConfigError."""
    os.umask(0o077)
    file = folder / _KEY
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            _write(file, secrets.token_urlsafe(32).encode())
        return Secret(file.read_text())
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}", where="--data") from None


def _write(file: Path, content: bytes) -> None:
    """Have a file that is ours alone; whoever reads it finds all of it."""
    draft = file.with_suffix(".part")
    draft.write_bytes(content)
    draft.rename(file)
