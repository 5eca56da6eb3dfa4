"""What our client costs beside bare aiohttp + orjson: calls a second, and CPU for each.

Both take turns in this process, on uvloop and one real API server, so that noise hits both alike;
figures are medians over the rounds. Trust the ratio more than the figures.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import orjson
import uvloop

from reconciler.blueprints.objects import build
from reconciler.core.refs import CONFIG_MAP, NAMESPACE
from reconciler.kube.client import KubeCluster
from reconciler.kube.limits import Limits
from tests.bench.servers import sandbox
from tests.support.raw import http_session

ROUNDS: Final = 7
LISTED: Final = 5_000
PAGE: Final = 500
_MANAGER: Final = "bench"
_LIST: Final = "bench-list"  # a namespace
_UNLIMITED: Final = Limits(qps=1e6, burst=1_000_000, concurrency=64)


@dataclass(frozen=True, slots=True)
class Task:
    """What is measured: `count` calls a round, at most `concurrency` at once."""

    title: str
    verb: str
    concurrency: int
    count: int


TASKS: Final = (
    Task("create, 1 at once", "create", 1, 150),
    Task("create, 16 at once", "create", 16, 400),
    Task("create, 64 at once", "create", 64, 400),
    Task("apply, 16 at once", "apply", 16, 400),
)


def config_map(namespace: str, name: str, filling: str) -> dict[str, Any]:
    """Return the object that is written: about 300 bytes on the wire."""
    metadata = {"name": name, "namespace": namespace, "labels": {"app": "bench"}}
    data = {"value": filling * 200}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


class Client(Protocol):
    """One of the two at work."""

    async def create(self, namespace: str, name: str) -> None:
        """Create a ConfigMap."""

    async def apply(self, namespace: str, name: str) -> None:
        """Apply a ConfigMap on the server's side."""

    async def list(self, namespace: str) -> int:
        """List all ConfigMaps of a namespace, page by page, and return their number."""


class Ours:
    """`KubeCluster`, with the rate limit out of the way."""

    def __init__(self, cluster: KubeCluster) -> None:
        self._cluster = cluster

    async def create(self, namespace: str, name: str) -> None:
        made = config_map(namespace, name, "x")
        await self._cluster.create(made, CONFIG_MAP, manager=_MANAGER)

    async def apply(self, namespace: str, name: str) -> None:
        made = config_map(namespace, name, "y")
        await self._cluster.apply(made, CONFIG_MAP, manager=_MANAGER, force=True)

    async def list(self, namespace: str) -> int:
        listing = await self._cluster.list(CONFIG_MAP, namespace=namespace, page_size=PAGE)
        return len(listing.items)


class Bare:
    """The least that aiohttp and orjson can do: no limits, no checks, no errors."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def create(self, namespace: str, name: str) -> None:
        target = f"{_path(namespace)}?fieldManager={_MANAGER}"
        made = config_map(namespace, name, "x")
        await self._write("POST", target, made, "application/json")

    async def apply(self, namespace: str, name: str) -> None:
        target = f"{_path(namespace)}/{name}?fieldManager={_MANAGER}&force=true"
        made = config_map(namespace, name, "y")
        await self._write("PATCH", target, made, "application/apply-patch+yaml")

    async def list(self, namespace: str) -> int:
        items: list[Any] = []
        token = ""
        while True:
            target = f"{_path(namespace)}?limit={PAGE}&continue={token}"
            async with self._session.get(target) as response:
                page = orjson.loads(await response.read())
            items += page["items"]
            token = page["metadata"].get("continue", "")
            if not token:
                return len(items)

    async def _write(self, method: str, target: str, body: Any, content_type: str) -> None:
        headers = {"Content-Type": content_type}
        async with self._session.request(
            method, target, data=orjson.dumps(body), headers=headers
        ) as response:
            assert response.status < 300
            orjson.loads(await response.read())


def _path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


async def _round(task: Task, client: Client, namespace: str, number: int) -> tuple[float, float]:
    """Return the seconds and the CPU seconds of one round; an apply changes what creates made."""
    call = getattr(client, task.verb)
    queue = iter([f"{task.concurrency}-{number}-{index}" for index in range(task.count)])

    async def work() -> None:
        for name in queue:
            await call(namespace, name)

    async def all_of_it() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(task.concurrency):
                group.create_task(work())

    return await _timed(all_of_it())


async def _timed(work: Awaitable[object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    await work
    return time.perf_counter() - wall, time.process_time() - cpu


def _report(title: str, count: int, rounds: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Print medians, and each client's CPU as a ratio to the bare one's."""
    print(f"\n{title} (median of {ROUNDS} alternating rounds)")
    print(f"  {'':10}{'a second':>10}{'CPU us each':>13}{'CPU / bare':>12}")
    for name, results in rounds.items():
        speed = statistics.median(count / seconds for seconds, _ in results)
        each = statistics.median(cpu for _, cpu in results) / count * 1e6
        pairs = zip(results, rounds["bare"], strict=True)
        ratio = statistics.median(cpu / bare for (_, cpu), (_, bare) in pairs)
        print(f"  {name:10}{speed:10.0f}{each:13.0f}{ratio:12.2f}")


async def _measure() -> None:
    async with (
        sandbox() as (_, (live,)),
        KubeCluster(live.connection, limits=_UNLIMITED) as cluster,
        http_session(live.connection) as session,
    ):
        clients: dict[str, Client] = {"ours": Ours(cluster), "bare": Bare(session)}
        for name in (*clients, _LIST):
            await cluster.create(build(NAMESPACE, name), NAMESPACE, manager=_MANAGER)
        for task in TASKS:
            rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in clients}
            for number in range(ROUNDS + 1):  # the first is not counted
                for name, client in clients.items():
                    rounds[name].append(await _round(task, client, name, number))
            counted = {name: results[1:] for name, results in rounds.items()}
            _report(f"{task.title}, {task.count} a round", task.count, counted)
        await _round(Task("", "create", 16, LISTED), clients["bare"], _LIST, 0)
        lists = {
            name: [await _timed(client.list(_LIST)) for _ in range(ROUNDS)]
            for name, client in clients.items()
        }
        _report(f"list of {LISTED} in pages of {PAGE}", LISTED, lists)


def main() -> None:
    uvloop.run(_measure())
