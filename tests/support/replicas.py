"""A program as processes, each a user of its own of one cluster: `klutch-bind`, or `konnector`."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from reconciler.blueprints import objects as spaces
from reconciler.blueprints.objects import UNMARKED
from reconciler.core import names, refs
from reconciler.core.manifest import get_text
from reconciler.core.refs import Ref
from tests.support import removal
from tests.support.accounts import administrator, may_read, token_of, with_token
from tests.support.backend import REGISTRY, USUAL
from tests.support.clusters import LiveCluster, Write
from tests.support.eventually import eventually
from tests.support.observing import context
from tests.support.web import fetch

MANAGER: Final = "tests"
BACKEND: Final = (
    sys.executable,
    "-m",
    "bind",
    "--control-plane-mode",
    f"--konnector-image={USUAL.konnector_image}",
    f"--konnector-image-prefix={REGISTRY}",
)
_PROBES: Final = "probes are served"
_METRICS: Final = "metrics are served"
_LEADS: Final = "klutch_leader_election_master_status"
_START: Final = 60.0  # seconds for a process on a busy machine
_LOG_END: Final = 4_000


def memory_of(pid: int, at: str) -> int:
    """Return the octets of memory of a process, by a word of its status (proc(5))."""
    return int(Path(f"/proc/{pid}/status").read_text().split(f"{at}:")[1].split()[0]) * 1024


@dataclass
class Replica:
    """One process. `user` is what the audit log calls it, `out` has its standard output."""

    process: asyncio.subprocess.Process
    user: str
    log: Path
    out: Path
    plane: LiveCluster

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def memory(self, *, at: Literal["VmRSS", "VmHWM"] = "VmRSS") -> int:
        """Return the octets that the process holds, or held at its peak."""
        return memory_of(self.process.pid, at)

    async def ended(self) -> int:
        async with asyncio.timeout(_START):
            return await self.process.wait()

    async def ask(self, path: str) -> tuple[int, str]:
        reported = _METRICS if path == "/metrics" else _PROBES
        address = await eventually(lambda: self._address(reported))
        return await asyncio.to_thread(fetch, f"{address}{path}")

    async def leads(self) -> bool:
        _, text = await self.ask("/metrics")
        shown = [line for line in text.splitlines() if line.startswith(_LEADS)]
        return any(line.endswith(" 1.0") for line in shown)

    def lines(self) -> list[dict[str, Any]]:
        whole = self.log.read_text().splitlines(keepends=True)
        return [json.loads(one) for one in whole if one.startswith("{") and one.endswith("\n")]

    def writes_since(self, mark: int) -> list[Write]:
        """Return what it has tried to write, but for its lease."""
        found = self.plane.audit.writes_since(mark)
        return [one for one in found if one.user == self.user and one.resource != "leases"]

    def _address(self, served: str) -> str:
        alive = self.process.returncode is None
        assert alive, f"it has ended: {self.log.read_text()}"
        reported = [one for one in self.lines() if one["message"] == served]
        return f"http://{reported[0]['host']}:{reported[0]['port']}" if reported else ""


@dataclass
class Replicas:
    """Starts processes that share a lease in `namespace`. Those that live die at the end.

    All go by `kubeconfig`, where there is one; else each has an account that may do everything.
    """

    plane: LiveCluster
    namespace: str
    folder: Path
    started: list[Replica]
    command: Sequence[str]
    kubeconfig: Path | None = None

    async def start(self, *more: str) -> Replica:
        name = f"replica-{len(self.started)}"
        kubeconfig = self.kubeconfig or await self._kubeconfig(name)
        log, printed = self.folder / f"{name}.log", self.folder / f"{name}.out"
        with log.open("wb") as err, printed.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                *self.command,
                f"--kubeconfig={kubeconfig}",
                f"--lease-namespace={self.namespace}",
                "--probe-address=127.0.0.1:0",
                "--metrics-address=127.0.0.1:0",
                "--logging-format=json",
                *more,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        user = f"system:serviceaccount:{self.namespace}:{name}"
        made = Replica(process, user, log, printed, self.plane)
        self.started.append(made)
        return made

    async def leader(self, replica: Replica) -> None:
        """Wait until this one leads. What all have logged last is said where it does not."""
        try:
            await eventually(replica.leads, within=_START)
        except AssertionError as failure:
            ends = "\n".join(one.log.read_text()[-_LOG_END:] for one in self.started)
            raise AssertionError(f"{failure}\n{await self.holder()} leads\n{ends}") from None

    async def stands_by(self, replica: Replica) -> None:
        """Wait until this one could lead, and does not."""

        async def ready() -> bool:
            return (await replica.ask("/readyz"))[0] == 200

        await eventually(ready, within=_START)
        assert not await replica.leads()

    async def holder(self) -> str:
        of_backend = self.command == BACKEND
        name = names.BACKEND_LEASE if of_backend else names.KONNECTOR_LEASE
        ref = Ref(self.plane.name, refs.LEASE, self.namespace, name)
        return get_text(await self.plane.cluster.get(ref), "spec", "holderIdentity")

    async def _kubeconfig(self, name: str) -> Path:
        """Make an account that may do everything, and return the file that leads there as it."""
        cluster, namespace = self.plane.cluster, self.namespace
        account = spaces.service_account(namespace, name, marks=UNMARKED)
        await cluster.create(account, refs.SERVICE_ACCOUNT, manager=MANAGER)
        made = administrator(namespace, name, name=f"{namespace}-{name}")
        await cluster.create(made, refs.CLUSTER_ROLE_BINDING, manager=MANAGER)
        token, way = await token_of(cluster, namespace, name), self.plane.connection
        await eventually(lambda: may_read(with_token(way, token)))
        path = self.folder / f"{name}.yaml"
        led = {"server": way.server}  # which may be a proxy
        path.write_bytes(context(self.plane, "plane", cluster=led, user={"token": token}))
        return path


@asynccontextmanager
async def replicas(
    plane: LiveCluster,
    namespace: str,
    folder: Path,
    *,
    command: Sequence[str] = BACKEND,
    kubeconfig: Path | None = None,
) -> AsyncIterator[Replicas]:
    made = Replicas(plane, namespace, folder, [], command, kubeconfig)
    try:
        yield made
    finally:
        for one in made.started:
            if one.process.returncode is None:
                one.process.kill()
                await one.process.wait()
        for number in range(len(made.started)):
            ref = Ref(plane.name, refs.CLUSTER_ROLE_BINDING, "", f"{namespace}-replica-{number}")
            await removal.remove(plane.cluster, ref)
