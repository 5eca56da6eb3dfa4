"""S4, S8, S11: bytes that are worth 27 times as much in memory, within the limits that are shipped.

Real processes beside what one tenant, and one developer, may write on real servers.
"""

import asyncio
import base64
import json
import os
import resource
import ssl
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from reconciler import api
from reconciler.core import refs
from reconciler.core.refs import Kind
from reconciler.fleet.values import Mode
from reconciler.kube import crds
from tests.support.applying import Fleet
from tests.support.bound_scenes import ACCEPTED, Scene, until
from tests.support.clusters import LiveCluster
from tests.support.controllers import controller, forget, repository
from tests.support.eventually import eventually
from tests.support.konnector_scenes import event
from tests.support.offers import offered
from tests.support.replicas import Replica, memory_of, replicas
from tests.support.served_spaces import a_space, place_of

AGENTS: Final = 512 * 2**20
LONG: Final = 240.0  # seconds: API servers take some for each
# Some 1.3 MB each, as JSON.
WIDE: Final[tuple[Any, ...]] = tuple(
    [{"a": 1}] * 160_000 if n % 5 else [{}] * 430_000 for n in range(15)
)
MANY: Final = len(WIDE)
CONDITIONS: Final[Any] = [
    {
        "type": f"T{n}",
        "status": "True",
        "message": "m" * 12,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    for n in range(11_000)
]


@pytest.fixture
def memory() -> Iterator[None]:
    """Let processes know that they may have as much memory as our manifests give them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_RSS)
    resource.setrlimit(resource.RLIMIT_RSS, (AGENTS, hard))
    yield
    resource.setrlimit(resource.RLIMIT_RSS, (soft, hard))


async def holds(replica: Replica, kind: Kind, count: int) -> bool:
    _, text = await replica.ask("/metrics")
    lines = [one for one in text.splitlines() if one.startswith("klutch_cache_objects")]
    found = [float(one.rpartition(" ")[2]) for one in lines if kind.resource in one]
    return sum(found) >= count


class Stored:
    """Objects as etcd has them: API servers take seconds to let a wide one in, and this is many."""

    def __init__(self, live: LiveCluster) -> None:
        root = live.kubeconfig.parent
        pki = root / "etcd" / "pki"
        self._tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._tls.load_cert_chain(pki / "client.crt", pki / "client.key")
        self._url = (
            f"https://127.0.0.1:{json.loads((root / 'state.json').read_text())['etcd_port']}"
        )

    def _call(self, verb: str, **body: Any) -> Any:
        packed = {
            key: base64.b64encode(value).decode() if isinstance(value, bytes) else value
            for key, value in body.items()
        }
        request = urllib.request.Request(f"{self._url}/v3/kv/{verb}", json.dumps(packed).encode())
        with urllib.request.urlopen(request, context=self._tls, timeout=60) as answer:
            return json.load(answer)

    def copies(self, place: str, count: int, change: Callable[[int, Any], None]) -> None:
        """Change an object by the end of its key, or make so many others like it."""
        found = self._call("range", key=b"/", range_end=b"0", keys_only=True)["kvs"]
        keys = [base64.b64decode(one["key"]) for one in found]
        (key,) = [one for one in keys if one.endswith(place.encode())]
        (kept,) = self._call("range", key=key)["kvs"]
        for number in range(count):
            body = json.loads(base64.b64decode(kept["value"]))
            change(number, body)
            name = body["metadata"]["name"].encode()
            text = json.dumps(body, separators=(",", ":")).encode()
            self._call("put", key=key.rpartition(b"/")[0] + b"/" + name, value=text)


def flooded(_: int, body: Any) -> None:
    body.setdefault("status", {})["conditions"] = CONDITIONS


def widened(field: str) -> Callable[[int, Any], None]:
    def widen(number: int, body: Any) -> None:
        body["metadata"] |= {"name": f"wide-{number}", "uid": str(uuid.uuid4())}
        body["spec"][field] = {"p": WIDE[number]}

    return widen


def plan(live: LiveCluster, folder: Path) -> tuple[int, int]:
    """Return the exit code of a plan, and how many MiB it had at most."""
    command = ["plan", str(folder), f"--kubeconfig={live.kubeconfig}", f"--timeout={LONG:.0f}"]
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "klutchctl", *command], stdout=out, stderr=out
        )
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, used.ru_maxrss // 1024


@pytest.mark.soak  # API servers take seconds for each of these, also afterwards
@pytest.mark.usefixtures("memory")
async def test_of_a_developer(scene: Scene, tmp_path: Path) -> None:
    konnector = (sys.executable, "-m", "konnector")
    async with (
        scene.backend(),
        replicas(scene.app, scene.app_namespace, tmp_path, command=konnector) as made,
    ):
        first = await made.start()
        await made.leader(first)
        await scene.bound(ACCEPTED)
        await scene.create_instance("one")
        await until(lambda: scene.copy("one"))
        first.process.kill()
        one = f"/{scene.offer.kind.plural}/{scene.app_namespace}/one"
        await asyncio.to_thread(Stored(scene.app).copies, one, MANY, widened("wide"))
        second = await made.start()
        await scene.create_instance("small")
        await eventually(lambda: scene.copy("small"), within=LONG)
        await eventually(lambda: event(scene, "wide-0", "TooLarge"), within=LONG)
        assert (
            second.memory(at="VmHWM") < 256 * 2**20
        )  # half of what is shipped: on a quiet machine more come at once


@pytest.mark.soak
@pytest.mark.usefixtures("memory")
async def test_of_a_tenant(control_plane: LiveCluster, namespace: str, tmp_path: Path) -> None:
    cluster, stored = control_plane.cluster, Stored(control_plane)
    async with (
        offered(cluster, namespace=namespace) as offer,
        a_space(cluster, offer) as space,
        replicas(control_plane, namespace, tmp_path) as processes,
    ):
        for ref, count, change in (
            (space.ref(api.API_SERVICE_EXPORT_REQUEST, offer.name), MANY, widened("parameters")),
            (space.binding, 1, flooded),
        ):
            place = f"/{ref.kind.plural}/{space.name}/{ref.name}"
            await asyncio.to_thread(stored.copies, place, count, change)
        backend = await processes.start()
        await eventually(backend.leads, within=LONG)
        await eventually(lambda: holds(backend, api.API_SERVICE_EXPORT_REQUEST, MANY), within=LONG)
        began = time.monotonic()
        async with a_space(cluster, offer) as other:
            await other.has(other.export)
            exported = time.monotonic() - began
            await other.make(api.API_SERVICE_NAMESPACE, "new")
            await place_of(other, "new")
            took = (exported, time.monotonic() - began - exported)
        most_of_backend = backend.memory(at="VmHWM") // 2**20
        assert (max(took) < 2, most_of_backend < 256) == (True, True), (took, most_of_backend)
        backend.process.kill()
        for crd in crds.load(*crds.BROKERS):
            await cluster.apply(crd, refs.CRD, manager="tests", force=True)
        processes.command = (sys.executable, "-m", "bind.osb", f"--namespace={namespace}")
        osb = await processes.start()
        await eventually(osb.leads, within=LONG)
        await eventually(lambda: holds(osb, api.CLUSTER_BINDING, 1), within=LONG)
        assert osb.memory(at="VmHWM") < 256 * 2**20
        osb.process.kill()
        fleet = Fleet(tmp_path, "wide", Mode.DIRECT, offer.group, bound=False, listed=False)
        fleet.write()
        code, held = await asyncio.to_thread(plan, control_plane, tmp_path)
        assert (code, held < 1536) == (0, True), (held, (tmp_path / "out").read_text())
        scene: Any = SimpleNamespace(
            fleet=fleet, plane=control_plane, kubeconfig=control_plane.kubeconfig
        )
        with repository(scene, tmp_path) as followed:
            followed.push()
            async with controller(scene, followed) as running:
                await eventually(lambda: running.condition("Ready"), within=LONG)
                assert memory_of(running.process.pid, "VmHWM") < 1536 * 2**20
        await forget(scene)
