"""The operator as one process: flags, views, controllers, an end on SIGTERM."""

import asyncio
import logging
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from postgresql_operator.controllers import Context, reconcilers
from postgresql_operator.dumps import TOOLS, Dumps
from postgresql_operator.wire import MANAGER
from postgresql_operator.world import World
from postgresql_server.postgres import Postgres
from reconciler.controller import flags, process
from reconciler.controller.controller import Controller
from reconciler.controller.lease import holder_here
from reconciler.controller.manager import Manager
from reconciler.controller.program import Runtime
from reconciler.controller.tasks import Clock, SystemClock
from reconciler.core.errors import ConfigError
from reconciler.kube import kubeconfig
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import Cluster

log = logging.getLogger(__name__)

_REPORTER: Final = "postgresql.anynines.com/operator"
_DEBUG: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the operator runs. `postgresql` is a file with one line, the URL of an administrator."""

    kubeconfig: str
    postgresql: Path
    binaries: Path
    data: Path
    verbosity: int = 2
    log_format: flags.LogFormat = "text"


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code: 0 after a signal, 1 after a failure."""
    return process.exit_code("the operator", lambda: process.until_signal(_serve, parse(arguments)))


def parse(arguments: Sequence[str]) -> Settings:
    """Return the settings that these arguments say. Raises ConfigError, and SystemExit(0)."""
    about = "Serves databases, credentials, backups and restores."
    example = "--kubeconfig cp.yaml --postgresql admin.url --binaries /usr/bin --data dumps"
    parser = flags.Parser(MANAGER, about, example=example)
    text = parser.add_argument
    text("--kubeconfig", required=True, help="file whose current context is the control plane")
    text("--postgresql", required=True, type=Path, help="file with the URL of an administrator")
    text("--binaries", required=True, type=Path, help="folder of pg_dump and pg_restore")
    text("--data", required=True, type=Path, help="folder for the files of backups")
    text("-v", "--v", type=int, default=2, metavar="LEVEL", help="from 4 on: the debug log")
    text("--logging-format", choices=("text", "json"), default="text")
    given = parser.parse_args(list(arguments))
    return Settings(
        kubeconfig=given.kubeconfig,
        postgresql=given.postgresql,
        binaries=given.binaries,
        data=given.data,
        verbosity=given.v,
        log_format=given.logging_format,
    )


def wired(settings: Settings, cluster: Cluster, *, clock: Clock) -> Manager:
    """Return an operator on this control plane that does not run yet. Raises ConfigError."""
    runtime = Runtime(
        cluster, manager=MANAGER, reporter=_REPORTER, holder=holder_here(), clock=clock
    )
    world, postgres = World(cluster), Postgres(settings.postgresql, MANAGER)
    dumps = Dumps(_folder(settings.data), _tools(settings.binaries), postgres)
    context = Context(world, postgres, dumps, runtime.executor(cluster))
    controllers = {
        kind: Controller(kind.resource, one.reconcile, clock=clock, metrics=runtime.metrics)
        for kind, one in reconcilers(context).items()
    }
    world.subscribe(controllers)
    return Manager(
        views=world.informers,
        workers=(*controllers.values(), runtime.recorder),
        metrics=runtime.metrics,
    )


async def _serve(settings: Settings, *_: object, stop: asyncio.Event) -> None:
    process.to_stderr(settings.log_format, debug=settings.verbosity >= _DEBUG)
    way = kubeconfig.load([Path(settings.kubeconfig)], environ=os.environ, name="control-plane")
    async with KubeCluster(way, agent=MANAGER) as cluster:
        manager = wired(settings, cluster, clock=SystemClock())
        log.info("the operator starts", extra={"server": way.server, "data": str(settings.data)})
        await manager.run(stop)


def _folder(path: Path) -> Path:
    """Return a folder that is ours alone: it holds what is in databases."""
    os.umask(0o077)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", where="--data") from None
    return path


def _tools(folder: Path) -> Path:
    """Return the folder if the tools are in it. Raises ConfigError."""
    for name in TOOLS:
        if shutil.which(name, path=str(folder)) is None:
            raise ConfigError(f"there is no {name} in {folder}", where="--binaries")
    return folder
