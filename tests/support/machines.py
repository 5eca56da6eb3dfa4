"""`klutchctl sandbox` as a user runs it: a machine with folders of its own."""

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from klutchctl.sandbox import addons, credentials, lifecycle, processes, servers
from klutchctl.sandbox.servers import NORMAL, Program
from klutchctl.sandbox.state import Layout, layout_of
from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.kube.client import KubeCluster
from tests.support import programs

if TYPE_CHECKING:
    from reconciler.core.manifest import Manifest


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
        ended = await programs.klutchctl_beside(*arguments, cwd=cwd, environ=self.environ)
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
