"""The operator and the broker of fleet-example, run for a test, and who uses what they serve."""

import asyncio
import base64
import contextlib
import http.client
import json
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import yaml

from klutchctl.sandbox import manifests
from postgresql_broker.catalogue import OFFERING, SMALL
from postgresql_operator import program
from postgresql_operator.wire import BACKUP, BINDING, MANAGER, POSTGRESQL, RESTORE
from reconciler.controller.tasks import SystemClock
from reconciler.core import refs
from reconciler.core.manifest import Manifest, get_maps, get_text, get_text_map, name_of, uid_of
from reconciler.core.refs import Kind, Ref
from reconciler.kube.client import KubeCluster
from reconciler.kube.requests import Preconditions, Propagation
from tests.support import removal
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.faults import Faults, FaultyCluster
from tests.support.postgresql import Server

SERVICES: Final = Path(__file__).parents[2] / "fleet-example" / "services"
KINDS: Final = (RESTORE, BACKUP, BINDING, POSTGRESQL)
GUARDED: Final = "a-row-that-nobody-else-reads"
_LONG: Final = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operator works: a control plane, a server, a folder of its own."""

    plane: LiveCluster
    server: Server
    data: Path
    binaries: Path | None = None


def definitions() -> list[Any]:
    return [
        document
        for path in sorted(SERVICES.glob("crds/*.yaml"))
        for document in yaml.load_all(path.read_text(), yaml.CSafeLoader)
    ]


@asynccontextmanager
async def offered(plane: LiveCluster) -> AsyncIterator[None]:
    """Have the operator's kinds served for the length of the block."""
    crds = definitions()
    await manifests.install_all(plane.cluster, crds)
    try:
        yield
    finally:
        for manifest in crds:
            await _withdrawn(plane, Ref(plane.name, refs.CRD, "", name_of(manifest)))


async def _withdrawn(plane: LiveCluster, crd: Ref) -> None:
    """Have a CRD gone: one that is going would let the next user find it, and lose it."""
    await removal.remove(plane.cluster, crd)

    async def absent() -> bool:
        return await plane.cluster.get(crd) is None

    await eventually(absent, within=_LONG)


@asynccontextmanager
async def operating(place: Place, faults: Faults | None = None) -> AsyncIterator[None]:
    """Let an operator work for the length of the block. With `faults` its calls fail on cue.

    One that dies of them raises SimulatedCrash in a group.
    """
    settings = program.Settings(
        kubeconfig="",
        postgresql=place.server.address,
        binaries=place.binaries or place.server.binaries,
        data=place.data,
    )
    stop = asyncio.Event()
    async with KubeCluster(place.plane.connection, agent=MANAGER) as real:
        cluster = real if faults is None else FaultyCluster(real, faults)
        running = asyncio.create_task(
            program.wired(settings, cluster, clock=SystemClock()).run(stop)
        )
        try:
            yield
        finally:
            stop.set()
            await running


@dataclass(slots=True)
class User:
    """Somebody with a namespace of its own, and how it uses what is served there."""

    plane: LiveCluster
    server: Server
    namespace: str

    async def make(self, kind: Kind, name: str, **spec: Any) -> Manifest:
        return await self.plane.cluster.create(
            {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": spec,
            },
            kind,
            manager="tests",
        )

    async def get(self, kind: Kind, name: str) -> Manifest | None:
        return await self.plane.cluster.get(Ref(self.plane.name, kind, self.namespace, name))

    async def change(self, kind: Kind, name: str, patch: Manifest) -> None:
        ref = Ref(self.plane.name, kind, self.namespace, name)
        await self.plane.cluster.merge_patch(ref, patch, manager="tests")

    async def delete(self, kind: Kind, name: str) -> None:
        await removal.remove(self.plane.cluster, Ref(self.plane.name, kind, self.namespace, name))

    async def gone(self, kind: Kind, name: str) -> None:
        """Return once an object is not there."""

        async def absent() -> bool:
            return await self.get(kind, name) is None

        await eventually(absent, within=_LONG)

    async def phase(self, kind: Kind, name: str, phase: str) -> Manifest:
        """Return an object once it is in that phase and its condition Ready agrees."""
        return await self.said(kind, name, lambda live: get_text(live, "status", "phase") == phase)

    async def said(self, kind: Kind, name: str, probe: Any) -> Manifest:
        """Return an object once its status satisfies the probe."""

        async def look() -> Manifest | None:
            live = await self.get(kind, name)
            assert live is not None
            assert probe(live), live.get("status")
            return live

        found = await eventually(look, within=_LONG)
        assert found is not None
        return found

    async def credentials(self, name: str) -> dict[str, str]:
        """Return what the Secret of a ServiceBinding tells, {} where there is none."""
        secret = await self.get(refs.SECRET, f"{name}-creds")
        data = get_text_map(secret, "data")
        return {key: base64.b64decode(text).decode() for key, text in data.items()}

    def ask(self, reported: Mapping[str, str], query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query, with exactly what a Secret told."""
        return self.server.ask(
            query,
            dbname=reported["database"],
            user=reported["username"],
            password=reported["password"],
        )

    async def shown(self) -> str:
        """Return all that can be read in the namespace but Secrets, as text."""
        listed: list[Manifest] = []
        for kind in (*KINDS, refs.EVENT):
            listing = await self.plane.cluster.list(kind, namespace=self.namespace)
            listed += listing.items
        return json.dumps(listed)


@asynccontextmanager
async def user(plane: LiveCluster, server: Server) -> AsyncIterator[User]:
    """Have a user, and let go of all that it made, whether or not an operator runs."""
    name = f"test-p{uuid.uuid4().hex[:10]}"
    manifest: Manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    made = await plane.cluster.create(manifest, refs.NAMESPACE, manager="tests")
    one = User(plane, server, name)
    try:
        yield one
    finally:
        for kind in KINDS:
            for live in (await plane.cluster.list(kind, namespace=name)).items:
                object_name = get_text(live, "metadata", "name")
                await one.change(kind, object_name, {"metadata": {"finalizers": None}})
                await one.delete(kind, object_name)
        await plane.cluster.delete(
            Ref(plane.name, refs.NAMESPACE, "", name),
            preconditions=Preconditions(uid=uid_of(made)),
            propagation=Propagation.BACKGROUND,
        )


async def bound(one: User, name: str = "orders", **spec: Any) -> dict[str, str]:
    """Have an instance and its credentials, both of that name; return what the Secret tells."""
    await one.make(POSTGRESQL, name, **spec)
    await one.make(BINDING, name, instanceRef=name)
    await one.phase(BINDING, name, "Ready")
    return await one.credentials(name)


def written(one: User, reported: Mapping[str, str], row: str = GUARDED) -> None:
    """Write a row, with exactly what a Secret told."""
    one.ask(reported, "CREATE TABLE IF NOT EXISTS kept (row text)")
    one.ask(reported, f"INSERT INTO kept VALUES ('{row}')")


def rows(one: User, reported: Mapping[str, str]) -> list[str]:
    return [row for (row,) in one.ask(reported, "SELECT row FROM kept")]


def has_reason(wanted: str) -> Callable[[Manifest], bool]:
    """Return what tells whether a condition of an object has this reason."""
    return lambda live: any(
        get_text(one, "reason") == wanted for one in get_maps(live, "status", "conditions")
    )


def is_in_trouble(live: Manifest) -> bool:
    """Return whether the first condition says that the server cannot be used."""
    return get_text(live, "status", "conditions", 0, "reason") == "ServerTrouble"


_LONG_CALL: Final = 60  # seconds
_SPACE: Final = {"organization_guid": "eu", "space_guid": "shop"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a broker answered."""

    status: int
    body: dict[str, Any]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform that knows how to reach a broker."""

    url: str
    username: str
    password: str = field(repr=False)

    def call(self, method: str, path: str, body: Any = None, **query: str) -> Answer:
        """Return the answer to a call of 2.17."""
        place = urlsplit(self.url)
        login = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "X-Broker-API-Version": "2.17"}
        headers |= {"Content-Type": "application/json"} if body is not None else {}
        content = None if body is None else json.dumps(body)
        whole = f"{path}?{urlencode({'accepts_incomplete': 'true'} | query)}"
        connection = http.client.HTTPConnection(place.netloc, timeout=_LONG_CALL)
        with contextlib.closing(connection):
            connection.request(method, whole, content, headers)
            answer = connection.getresponse()
            return Answer(answer.status, json.loads(answer.read()), dict(answer.headers))

    def provision(self, instance: str, plan: str = SMALL, **more: Any) -> Answer:
        return self.call("PUT", _instance(instance), {**_of(plan), **_SPACE, **more})

    def update(self, instance: str, **more: Any) -> Answer:
        """Ask for another plan or other parameters."""
        return self.call("PATCH", _instance(instance), {"service_id": OFFERING, **more})

    def deprovision(self, instance: str, plan: str = SMALL) -> Answer:
        return self.call("DELETE", _instance(instance), **_of(plan))

    def last_operation(self, instance: str, **query: str) -> Answer:
        return self.call("GET", f"{_instance(instance)}/last_operation", **query)

    def fetch(self, instance: str, binding: str = "") -> Answer:
        """Ask for what is known of an instance, or of a binding."""
        return self.call("GET", _binding(instance, binding) if binding else _instance(instance))

    def bind(self, instance: str, binding: str, **more: Any) -> Answer:
        return self.call("PUT", _binding(instance, binding), {**_of(SMALL), **more})

    def unbind(self, instance: str, binding: str) -> Answer:
        return self.call("DELETE", _binding(instance, binding), **_of(SMALL))


@dataclass(frozen=True, slots=True)
class Process:
    """A broker that runs, and the platform that knows it."""

    process: subprocess.Popen[bytes]
    log: Path
    platform: Platform

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def running(server: Server, folder: Path, *flags: str) -> Iterator[Process]:
    """Run a broker for the length of the block.

    Its key is in the folder: all brokers of a server need the same. It ends as it is asked to,
    unless the test has killed it.
    """
    folder.mkdir(exist_ok=True)
    name = fresh()
    credentials, log = folder / f"{name}.yaml", folder / f"{name}.log"
    command = [sys.executable, "-m", "postgresql_broker", f"--credentials={credentials}", "-v=4"]
    command += [f"--postgresql={server.address}", f"--data={folder / 'data'}", *flags]
    with log.open("w") as stream:
        process = subprocess.Popen(command, cwd=SERVICES, stderr=stream)
    try:
        yield Process(process, log, Platform(**_announced(process, credentials, log)))
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(_LONG_CALL) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def fresh() -> str:
    return str(uuid.uuid4())


def _announced(process: subprocess.Popen[bytes], file: Path, log: Path) -> dict[str, str]:
    while not file.exists():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
            raise AssertionError(log.read_text())
    found: dict[str, str] = yaml.safe_load(file.read_text())
    return found


def _instance(instance: str) -> str:
    return f"/v2/service_instances/{instance}"


def _binding(instance: str, binding: str) -> str:
    return f"{_instance(instance)}/service_bindings/{binding}"


def _of(plan: str) -> dict[str, str]:
    return {"service_id": OFFERING, "plan_id": plan}
