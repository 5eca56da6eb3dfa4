"""What a backend costs on a real control plane: 500 binding spaces with 5 exports each.

From its start until all has converged; how many requests that takes beside the fewest that can
do it; its memory; and that a second start, and a time of idleness, write nothing. It is the
program itself, in a process of its own. Writes are counted by the API server's audit log.
"""

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from reconciler import api
from reconciler.blueprints import objects as spaces_of
from reconciler.blueprints.objects import UNMARKED, build, export_request
from reconciler.core import conditions, names
from reconciler.core.manifest import Manifest, get_list, get_text, name_of, put, ref_of, uid_of
from reconciler.core.refs import CLUSTER_ROLE, CRD, NAMESPACE, SERVICE_ACCOUNT, GroupResource, Kind
from reconciler.kube.client import KubeCluster
from reconciler.kube.limits import Limits
from reconciler.kube.requests import Preconditions, Propagation
from tests.bench.plans import verdict
from tests.bench.servers import sandbox, until, writes_of
from tests.support.clusters import LiveCluster
from tests.support.definitions import definition

SPACES: Final = 500
EXPORTS: Final = 5
IDLE: Final = 600.0  # seconds
GROUP: Final = "bench.example"
_PLURALS: Final = tuple(f"widget{number}s" for number in range(EXPORTS))
_RULES: Final = EXPORTS + 1  # of a space: its exports, and the Secrets that all of them claim
_QUIET: Final = 5.0  # seconds without a write: it is done
_SETTLING: Final = 30.0
_CLAIM: Final[Manifest] = {"group": "", "resource": "secrets", "version": "v1", "required": True}
# Of each export its making and its condition, of each request its answer; of each space its
# RoleBinding, its ClusterRole and the conditions of its ClusterBinding; and one role for all.
FEWEST: Final = SPACES * (3 * EXPORTS + 3) + 1
_PROGRAM: Final = str(Path(sys.executable).with_name("klutch-bind"))
_AGENT: Final = "klutch-bind"
_EVERYTHING: Final = Limits(qps=100_000, burst=100_000, concurrency=64)


def main() -> None:
    asyncio.run(_measure())


async def _measure() -> None:
    async with (
        sandbox(audit=True) as (folder, (live,)),
        KubeCluster(live.connection, limits=_EVERYTHING, agent="bench") as cluster,
    ):
        bench = _Bench(cluster, live, folder)
        await bench.provide()
        await bench.bind()
        print(f"\n{SPACES} binding spaces with {EXPORTS} exports each, on one real API server")
        await bench.first_start()
        await bench.expire_requests()
        await bench.second_start()


class _Bench:
    def __init__(self, cluster: KubeCluster, live: LiveCluster, folder: Path) -> None:
        self._cluster, self._live, self._folder = cluster, live, folder

    async def provide(self) -> None:
        for plural in _PLURALS:
            await self._create(CRD, _crd(plural))
            selector = {"APIServiceSelector": {"group": GROUP, "resource": plural}}
            spec: Manifest = {**selector, "permissionClaims": [_CLAIM]}
            template = build(
                api.API_SERVICE_EXPORT_TEMPLATE, plural, namespace="default", spec=spec
            )
            await self._create(api.API_SERVICE_EXPORT_TEMPLATE, template)

    async def bind(self) -> None:
        """Make the spaces and ask for all exports, as klutchctl does."""
        async with asyncio.TaskGroup() as group:
            for number in range(SPACES):
                group.create_task(self._bind(f"cluster-{number:04}"))

    async def _bind(self, space: str) -> None:
        await self._create(NAMESPACE, spaces_of.namespace(space))
        account = spaces_of.service_account(space, names.BINDER, marks=UNMARKED)
        await self._create(SERVICE_ACCOUNT, account)
        binding = spaces_of.cluster_binding(
            space,
            kubeconfig_name="kubeconfig",
            spec={"providerPrettyName": "bench"},
            marks=UNMARKED,
        )
        await self._create(api.CLUSTER_BINDING, binding)
        for plural in _PLURALS:
            resource = GroupResource(GROUP, plural)
            made = export_request(space, resource, parameters={}, marks=UNMARKED)
            await self._create(api.API_SERVICE_EXPORT_REQUEST, made)

    async def first_start(self) -> None:
        """Measure from the start of a backend until everything is as it has to be."""
        with self._program() as process:
            began, mark = time.monotonic(), self._live.audit.mark()
            await until(self._has_converged, process)
            seconds = time.monotonic() - began
            await until(self._quiet(mark), process)
            cpu = sum(process.cpu_times()[:2])
            memory = process.memory_info().rss / 2**20
        writes = writes_of(self._live, _AGENT, mark)
        print(f"  {'start to converged':34}{seconds:8.1f} s, {cpu:.1f} s of CPU time")
        print(f"  {'memory':34}{memory:8.0f} MiB")
        ratio = len(writes) / FEWEST
        print(f"  {'writes':34}{len(writes):8} ({ratio:.2f} x the fewest, {FEWEST})")
        for (verb, resource), count in sorted(Counter(writes).items()):
            print(f"    {verb:8}{resource:32}{count:6}")

    async def expire_requests(self) -> None:
        """Delete the answered requests, as time would."""
        for one in (await self._cluster.list(api.API_SERVICE_EXPORT_REQUEST)).items:
            ref = ref_of(self._cluster.name, api.API_SERVICE_EXPORT_REQUEST, one)
            await self._cluster.delete(
                ref, preconditions=Preconditions(uid_of(one)), propagation=Propagation.BACKGROUND
            )

    async def second_start(self) -> None:
        """Measure what a start writes where all is right already, and a time of idleness."""
        with self._program() as process:
            mark = self._live.audit.mark()
            await asyncio.sleep(_SETTLING)
            started, cpu = len(writes_of(self._live, _AGENT, mark)), sum(process.cpu_times()[:2])
            await asyncio.sleep(IDLE)
            idle = len(writes_of(self._live, _AGENT, mark)) - started
            used = sum(process.cpu_times()[:2]) - cpu
        print(f"  {'writes of a second start':34}{started:8} {verdict(started, 0)}")
        what = f"writes of {IDLE:.0f} s of idleness"
        print(f"  {what:34}{idle:8} {verdict(idle, 0)}, {used:.2f} s of CPU time")

    async def _has_converged(self) -> bool:
        requests = (await self._cluster.list(api.API_SERVICE_EXPORT_REQUEST)).items
        if any(get_text(one, "status", "phase") != "Succeeded" for one in requests):
            return False
        exports = (await self._cluster.list(api.API_SERVICE_EXPORT)).items
        roles = (await self._cluster.list(CLUSTER_ROLE)).items
        role = names.space_cluster_role("")
        mine = [one for one in roles if name_of(one).startswith(role)]
        whole = [one for one in mine if len(get_list(one, "rules")) == _RULES]
        synced = [one for one in exports if _is_synced(one)]
        return len(synced) == SPACES * EXPORTS and len(whole) == SPACES

    def _quiet(self, mark: int) -> Callable[[], Awaitable[bool]]:
        seen, since = -1, 0.0

        async def quiet() -> bool:
            nonlocal seen, since
            count = len(writes_of(self._live, _AGENT, mark))
            if count != seen:
                seen, since = count, time.monotonic()
            return time.monotonic() - since >= _QUIET

        return quiet

    async def _create(self, kind: Kind, manifest: Manifest) -> None:
        await self._cluster.create(manifest, kind, manager="bench")

    @contextmanager
    def _program(self) -> Iterator[psutil.Process]:
        with (self._folder / "klutch-bind.log").open("a") as log:
            command = [
                _PROGRAM,
                f"--kubeconfig={self._live.kubeconfig}",
                f"--context={self._live.context}",
                "--lease-namespace=default",
                "--metrics-address=",
            ]
            with subprocess.Popen(command, stderr=log) as process:
                try:
                    yield psutil.Process(process.pid)
                finally:
                    process.terminate()


def _crd(plural: str) -> Manifest:
    singular = plural.removesuffix("s")
    fields: Manifest = {f"field{number}": {"type": "string"} for number in range(40)}
    schema: Manifest = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": fields},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    made = definition(Kind(GROUP, "v1", singular.capitalize(), plural), schema, status=True)
    return put(made, singular, "spec", "names", "singular")


def _is_synced(export: Manifest) -> bool:
    held = conditions.parse(get_list(export, "status", "conditions"))
    found = conditions.find(held, conditions.PROVIDER_IN_SYNC)
    return found is not None and found.status == conditions.TRUE
