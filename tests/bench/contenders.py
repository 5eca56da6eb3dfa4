"""The same work done by three clients: ours, bare aiohttp + orjson, and the official one.

Each contender runs in a process of its own, so that CPU time and peak memory are its alone.
Ours and the bare one run on uvloop.
"""

import asyncio
import concurrent.futures
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Final

import aiohttp
import orjson

from reconciler.core.refs import CONFIG_MAP
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection
from reconciler.kube.limits import Limits
from tests.support.raw import http_session

MANAGER: Final = "bench"
PAGE: Final = 500


def config_map(namespace: str, name: str, value: str = "x" * 200) -> dict[str, Any]:
    """Return the object that is written: about 300 bytes on the wire."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "bench"}},
        "data": {"value": value},
    }


class Contender(ABC):
    """One client at work. All methods block until the work is done."""

    @abstractmethod
    def create(self, namespace: str, names: Sequence[str], concurrency: int) -> None:
        """Create a ConfigMap per name."""

    @abstractmethod
    def apply(self, namespace: str, names: Sequence[str], concurrency: int) -> None:
        """Server-side apply a ConfigMap per name."""

    @abstractmethod
    def list(self, namespace: str) -> int:
        """List all ConfigMaps of a namespace, in pages of 500, and return their number."""

    def close(self) -> None:  # noqa: B027 - most have nothing to close
        """Close what is open."""


class _Async(Contender):
    """Runs one coroutine per object, at most `concurrency` at once."""

    def __init__(self, connection: Connection, runner: asyncio.Runner) -> None:
        self._connection, self._runner = connection, runner

    def create(self, namespace: str, names: Sequence[str], concurrency: int) -> None:
        self._runner.run(self._workers("_create", namespace, names, concurrency))

    def apply(self, namespace: str, names: Sequence[str], concurrency: int) -> None:
        self._runner.run(self._workers("_apply", namespace, names, concurrency))

    def list(self, namespace: str) -> int:
        return self._runner.run(self._list(namespace))

    async def _workers(
        self, verb: str, namespace: str, names: Sequence[str], concurrency: int
    ) -> None:
        call = getattr(self, verb)
        queue = iter(names)

        async def worker() -> None:
            for name in queue:
                await call(namespace, name)

        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(worker())

    def close(self) -> None:
        self._runner.run(self._close())

    @abstractmethod
    async def _list(self, namespace: str) -> int: ...

    @abstractmethod
    async def _close(self) -> None: ...


class Ours(_Async):
    """`KubeCluster`, with the rate limit out of the way."""

    def __init__(self, connection: Connection, runner: asyncio.Runner) -> None:
        super().__init__(connection, runner)
        limits = Limits(qps=1e6, burst=1_000_000, concurrency=64)
        self._cluster = KubeCluster(connection, limits=limits)

    async def _create(self, namespace: str, name: str) -> None:
        await self._cluster.create(config_map(namespace, name), CONFIG_MAP, manager=MANAGER)

    async def _apply(self, namespace: str, name: str) -> None:
        manifest = config_map(namespace, name, "y" * 200)
        await self._cluster.apply(manifest, CONFIG_MAP, manager=MANAGER, force=True)

    async def _list(self, namespace: str) -> int:
        listing = await self._cluster.list(CONFIG_MAP, namespace=namespace, page_size=PAGE)
        return len(listing.items)

    async def _close(self) -> None:
        await self._cluster.close()


class Bare(_Async):
    """The least that aiohttp and orjson can do: no limits, no checks, no errors."""

    _open: aiohttp.ClientSession | None = None

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._open is None:
            self._open = http_session(self._connection)
        return self._open

    async def _create(self, namespace: str, name: str) -> None:
        body = orjson.dumps(config_map(namespace, name))
        async with self._session.post(
            f"/api/v1/namespaces/{namespace}/configmaps?fieldManager={MANAGER}",
            data=body,
            headers={"Content-Type": "application/json"},
        ) as response:
            assert response.status == 201
            orjson.loads(await response.read())

    async def _apply(self, namespace: str, name: str) -> None:
        body = orjson.dumps(config_map(namespace, name, "y" * 200))
        async with self._session.patch(
            f"/api/v1/namespaces/{namespace}/configmaps/{name}?fieldManager={MANAGER}&force=true",
            data=body,
            headers={"Content-Type": "application/apply-patch+yaml"},
        ) as response:
            assert response.status == 200
            orjson.loads(await response.read())

    async def _list(self, namespace: str) -> int:
        items: list[Any] = []
        token = ""
        while True:
            path = f"/api/v1/namespaces/{namespace}/configmaps?limit={PAGE}&continue={token}"
            async with self._session.get(path) as response:
                assert response.status == 200
                page = orjson.loads(await response.read())
            items += page["items"]
            token = page["metadata"].get("continue", "")
            if not token:
                return len(items)

    async def _close(self) -> None:
        await self._session.close()


class Official(Contender):
    """The `kubernetes` package, with as many threads as the concurrency asks for."""

    def __init__(self, kubeconfig: str, context: str) -> None:
        import kubernetes.client
        import kubernetes.config
        import kubernetes.dynamic

        configuration = kubernetes.client.Configuration()
        configuration.connection_pool_maxsize = 64
        kubernetes.config.load_kube_config(
            kubeconfig, context=context, client_configuration=configuration
        )
        client = kubernetes.client.ApiClient(configuration)
        self._api = kubernetes.client.CoreV1Api(client)
        dynamic = kubernetes.dynamic.DynamicClient(client)
        self._config_maps = dynamic.resources.get(api_version="v1", kind="ConfigMap")

    def create(self, namespace: str, names: Sequence[str], concurrency: int) -> None:
        def call(name: str) -> None:
            body: Any = config_map(namespace, name)
            self._api.create_namespaced_config_map(namespace, body, field_manager=MANAGER)

        self._threads(call, names, concurrency)

    def apply(self, namespace: str, names: Sequence[str], concurrency: int) -> None:
        def call(name: str) -> None:
            self._config_maps.server_side_apply(
                config_map(namespace, name, "y" * 200),
                namespace=namespace,
                field_manager=MANAGER,
                force_conflicts=True,
            )

        self._threads(call, names, concurrency)

    def list(self, namespace: str) -> int:
        items: list[Any] = []
        token = None
        while True:
            page: Any = self._api.list_namespaced_config_map(namespace, limit=PAGE, _continue=token)
            items += page.items
            token = page.metadata._continue
            if not token:
                return len(items)

    def _threads(self, call: Any, names: Sequence[str], concurrency: int) -> None:
        with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
            for _ in pool.map(call, names):
                pass
