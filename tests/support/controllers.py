"""`klutchctl controller` as real processes, beside a Git server that they follow."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pygit2
import pytest

from reconciler.api.fleet_status import FLEET_STATUS
from reconciler.core import names, refs
from reconciler.core.manifest import Manifest, get_maps, get_text
from reconciler.core.refs import Ref
from tests.support import git_server, removal
from tests.support.applying import Scene
from tests.support.checkouts import commit_work_tree
from tests.support.clusters import Write
from tests.support.eventually import eventually
from tests.support.git_server import GitServer
from tests.support.role_holders import operator
from tests.support.watching import Watcher, started
from tests.support.web import fetch

HOME = "default"  # the namespace of Lease and FleetStatus
SELDOM = ("--poll", "600", "--interval", "600")
OFTEN = ("--poll", "0.5", "--interval", "1")
_KEEPS = frozenset({"leases", "fleetstatuses", "events"})


@dataclass
class Repository:
    """The files of a scene, with the repository on a server that they are pushed to."""

    scene: Scene
    folder: Path
    bare: Path
    server: GitServer

    def push(self) -> str:
        """Write the files of the scene, and push a commit with them; return its id."""
        self.scene.fleet.write()
        repository = pygit2.init_repository(self.scene.fleet.folder, initial_head="main")
        commit_work_tree(repository)
        return self.send(repository)

    def send(self, repository: pygit2.Repository) -> str:
        """Push what a repository holds, over whatever is there."""
        repository.remotes.create_anonymous(str(self.bare)).push(["+refs/heads/main"])
        return str(repository.references["refs/heads/main"].target)

    @property
    def options(self) -> tuple[str, ...]:
        return ("--git", f"{self.server.url}/{self.bare.name}", "--ref", "main")

    @property
    def environ(self) -> Mapping[str, str]:
        return {"SSL_CERT_FILE": str(self.folder / "ca.crt")}


@contextmanager
def repository(scene: Scene, folder: Path) -> Iterator[Repository]:
    """Serve a repository that holds nothing yet."""
    bare = folder / "root" / "fleet.git"
    pygit2.init_repository(str(bare), bare=True, initial_head="main")
    with git_server.served(bare.parent, folder) as server:
        yield Repository(scene, folder, bare, server)


@dataclass
class Running(Watcher):
    """A running controller, which logs as JSON."""

    scene: Scene = field(kw_only=True)

    def lines(self, message: str) -> list[dict[str, Any]]:
        found = (json.loads(line) for line in list(self.said) if line.startswith("{"))
        return [one for one in found if one["message"] == message]

    async def where(self, message: str) -> str:
        """Return where something is served."""
        await eventually(lambda: self.lines(message))
        (found,) = self.lines(message)
        return f"http://{found['host']}:{found['port']}"

    async def get(self, path: str) -> tuple[int, str]:
        """Return status and body of a page beside its metrics."""
        return await asyncio.to_thread(
            fetch, await self.where("probes and metrics are served") + path
        )

    async def leads(self) -> None:
        """Wait until it does."""

        async def ready() -> bool:
            return (await self.get("/readyz"))[0] == 200

        await eventually(ready)

    async def status(self) -> Manifest:
        """Return the FleetStatus, {} where there is none."""
        plane = self.scene.plane
        ref = Ref(plane.name, FLEET_STATUS, HOME, self.scene.fleet.name)
        return await plane.cluster.get(ref) or {}

    async def condition(self, kind: str) -> Mapping[str, Any]:
        found = get_maps(await self.status(), "status", "conditions")
        return next((one for one in found if get_text(one, "type") == kind), {})


@asynccontextmanager
async def controller(
    scene: Scene, followed: Repository, *arguments: str, kubeconfig: Path | None = None
) -> AsyncIterator[Running]:
    """Run a controller for as long as the block lasts."""
    cache = followed.folder / f"cache-{len(list(followed.folder.iterdir()))}"
    command = (
        *("--kubeconfig", str(kubeconfig or scene.kubeconfig), "controller", *followed.options),
        *("--home-context", "control-plane", "--lease-namespace", HOME, "--log-format", "json"),
        *("--listen", "127.0.0.1:0", "--board", "", "--wait-timeout", "20", *arguments),
    )
    environ = {**followed.environ, "XDG_CACHE_HOME": str(cache)}
    async with started(command, environ, lambda process: Running(process, scene=scene)) as running:
        yield running


@pytest.fixture
async def files(scene: Scene, tmp_path: Path) -> AsyncIterator[Repository]:
    """The repository of a scene, and an operator whose writes are known by name."""
    async with operator((scene.plane, scene.app), tmp_path) as somebody:
        scene.kubeconfig, scene.user = somebody
        scene.fleet.folder = tmp_path / "fleet"
        scene.fleet.folder.mkdir()
        with repository(scene, tmp_path) as found:
            yield found
        await forget(scene)


async def bound_with(scene: Scene, number: int) -> None:
    """Wait until the app cluster is bound with so many permission claims."""

    async def probe() -> bool:
        bound = await scene.at(scene.binding)
        return bound is not None and len(get_maps(bound, "spec", "permissionClaims")) == number

    await eventually(probe)


async def forget(scene: Scene, namespace: str = HOME) -> None:
    """Take away what controllers of a scene keep for themselves."""
    plane = scene.plane
    for kind, name in (
        (refs.LEASE, names.controller_lease(scene.fleet.name)),
        (FLEET_STATUS, scene.fleet.name),
    ):
        await removal.remove(plane.cluster, Ref(plane.name, kind, namespace, name))


def deeds(scene: Scene, marks: list[Any]) -> list[Any]:
    """Return what was written since but for what controllers keep for themselves."""
    return [one for one in scene.writes(marks) if one.resource not in _KEEPS]


def writes_of(marks: list[Any], users: Collection[str]) -> list[Write]:
    """Return what these users have written since, cluster by cluster, but for what they keep."""
    return [
        write
        for audit, mark in marks
        for write in audit.writes_since(mark)
        if write.user in users and write.resource not in _KEEPS
    ]
