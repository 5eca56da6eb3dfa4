"""What a front door costs, on a real control plane: `klutch-bind` in a process of its own.

Sign-ins at a steady rate, whether the door keeps up or not: how long each route takes without the
provider's own time; how much CPU time one costs; what is asked of the API server for a bind; and
how much memory the door takes beside a backend without one, in the same run. The browsers and the
provider are in this process, on the same cores.
"""

import asyncio
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import aiohttp
import psutil

from klutchctl.sandbox.processes import PORTS_VARIABLE, free_ports, port_range
from reconciler import api
from reconciler.blueprints.objects import build
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, GroupResource
from tests.bench.plans import verdict
from tests.bench.servers import sandbox
from tests.bench.sign_ins import GROUP, Browsers, TimedProvider, providing
from tests.bench.sync_load import requests_of
from tests.support.clusters import LiveCluster
from tests.support.issuer import WEB
from tests.support.offers import Offer, define_again, publish_template
from tests.support.raw import http_session

SERVICES: Final = 10
KNOWN: Final = 50  # subjects that have a space before the load
RATE: Final = 20.0  # a second
SECONDS: Final = 20
NEW: Final = 10  # each tenth of the load has no space yet
ALL: Final = 1_000
COMMANDS: Final = (("--help",), ("validate", "fleet-example"), ("plan", "--help"))
_AGENT: Final = "klutch-bind"
_PROGRAM: Final = Path(sys.executable).with_name("klutch-bind")
_KLUTCHCTL: Final = Path(sys.executable).with_name("klutchctl")
_SETTLING: Final = 15.0
_WITHIN: Final = 60.0
_ROUNDS: Final = 2
_STARTS: Final = 5
_OK: Final = 200
_MADE: Final = ("namespaces", "clusterbindings", "serviceaccounts", "secrets")
_READ: Final = (*_MADE, "rolebindings", "subjectaccessreviews")

# What is asked for (front-door.md 11, point 10)
_LATENCY: Final = 0.3  # p99, seconds
_MEMORY: Final = 20.0  # MiB
# Namespace, ClusterBinding, ServiceAccount, its token, the kubeconfig.
_FEWEST: Final = 5


def main() -> None:
    _time_commands()
    with providing() as provider:
        asyncio.run(_measure(provider))


def _time_commands() -> None:
    print(f"\ncommands that need no front door (median of {_STARTS})")
    for arguments in COMMANDS:
        took = []
        for _ in range(_STARTS):
            began = time.perf_counter()
            subprocess.run([_KLUTCHCTL, *arguments], check=True, capture_output=True)
            took.append(time.perf_counter() - began)
        print(f"  klutchctl {' '.join(arguments):24}{statistics.median(took):8.2f} s")


async def _measure(provider: TimedProvider) -> None:
    async with sandbox(audit=True) as (folder, (live,)), http_session(live.connection) as session:
        bench = _Bench(live, folder, provider, session)
        await bench.provide()
        await bench.walk()
        await bench.rest()


class _Bench:
    def __init__(
        self,
        live: LiveCluster,
        folder: Path,
        provider: TimedProvider,
        session: aiohttp.ClientSession,
    ) -> None:
        self._live, self._folder, self._provider = live, folder, provider
        self._session = session
        within = port_range(os.environ.get(PORTS_VARIABLE, ""))
        self._port, self._probe = free_ports(2, within=within)
        self._resource = GroupResource("s0.bench.example", "databases")
        self._after = 0.0  # MiB of the door after all sign-ins

    async def provide(self) -> None:
        """Publish the services, and let a group bind them."""
        cluster = self._live.cluster
        for number in range(SERVICES):
            offer = Offer(f"s{number}.bench.example", "Namespaced")
            await define_again(cluster, offer)
            await publish_template(cluster, offer, namespace="default")
        kind = api.API_SERVICE_EXPORT_TEMPLATE
        rule: Manifest = {"apiGroups": [kind.group], "resources": [kind.plural], "verbs": ["bind"]}
        role = build(CLUSTER_ROLE, "binders", rules=[rule])
        await cluster.create(role, CLUSTER_ROLE, manager="bench")
        ref: Manifest = {"apiGroup": CLUSTER_ROLE.group, "kind": "ClusterRole", "name": "binders"}
        group: Manifest = {"apiGroup": CLUSTER_ROLE.group, "kind": "Group", "name": f"oidc:{GROUP}"}
        granted = build(CLUSTER_ROLE_BINDING, "binders", roleRef=ref, subjects=[group])
        await cluster.create(granted, CLUSTER_ROLE_BINDING, manager="bench")

    async def walk(self) -> None:
        async with self._served() as (process, browsers):
            known = [f"user-{number}" for number in range(KNOWN)]
            await self._first_binds(browsers, known)
            browsers.took.clear()
            count = await self._load(process, browsers, known)
            _report_routes(browsers)
            await self._binds_again(process, browsers, known)
            count = KNOWN + count + KNOWN
            again = itertools.islice(itertools.cycle(known), ALL - count)
            await browsers.each(list(again), RATE)
            await asyncio.sleep(_SETTLING)
            self._after = _memory(process)

    async def rest(self) -> None:
        """Measure the memory of a backend that has nothing to do, with a door and without."""
        without, beside = [], []
        for _ in range(_ROUNDS):
            with self._program() as process:
                await _until(self._is_settled)
                await asyncio.sleep(_SETTLING)
                without.append(_memory(process))
            async with self._served() as (process, _browsers):
                await asyncio.sleep(_SETTLING)
                beside.append(_memory(process))
        base, more = statistics.median(without), statistics.median(beside)
        print(f"\nmemory of a backend (median of {_ROUNDS})")
        print(f"  {'without a door':34}{base:8.1f} MiB")
        _print_memory("with one", more, base)
        _print_memory(f"with one, after {ALL} sign-ins", self._after, base)

    async def _first_binds(self, browsers: Browsers, subjects: Sequence[str]) -> None:
        await browsers.sign_in("first")  # makes the keys
        mark, before = self._live.audit.mark(), await self._requests()
        await browsers.each(subjects, RATE / 2)
        after = await self._requests()
        await asyncio.sleep(_SETTLING)
        print(f"\nfirst binds (of {len(subjects)})")
        _print_requests(before, after, len(subjects))
        self._print_writes(mark, len(subjects), _FEWEST)

    async def _load(self, process: psutil.Process, browsers: Browsers, known: Sequence[str]) -> int:
        count = int(RATE * SECONDS)
        subjects = [
            f"new-{number}" if number % NEW == 0 else known[number % len(known)]
            for number in range(count)
        ]
        cpu = _cpu(process)
        await browsers.each(subjects, RATE)
        each = (_cpu(process) - cpu) / count
        print(f"\n{RATE:.0f} sign-ins a second for {SECONDS} s, each {NEW}th the first of somebody")
        print(f"  {'CPU time, with the controllers':34}{each * 1e3:8.1f} ms for each")
        return count

    async def _binds_again(
        self, process: psutil.Process, browsers: Browsers, known: Sequence[str]
    ) -> None:
        await asyncio.sleep(_SETTLING)
        mark, before, cpu = self._live.audit.mark(), await self._requests(), _cpu(process)
        await browsers.each(known, RATE)
        each, after = (_cpu(process) - cpu) / len(known), await self._requests()
        await asyncio.sleep(_SETTLING)
        print(f"\nbinds of those that are bound already (of {len(known)})")
        print(f"  {'CPU time':34}{each * 1e3:8.1f} ms for each")
        _print_requests(before, after, len(known))
        self._print_writes(mark, len(known), 0)

    def _print_writes(self, mark: int, count: int, fewest: int) -> None:
        writes = Counter(
            (one.verb, one.resource)
            for one in self._live.audit.writes_since(mark)
            if one.agent == _AGENT and one.resource != "leases"
        )
        of_door = sum(
            number
            for (verb, resource), number in writes.items()
            if verb == "create" and resource in _MADE
        )
        each = of_door / count
        print(f"  {'writes of the door':34}{each:8.2f} {verdict(each, fewest)} {fewest}")
        for (verb, resource), number in sorted(writes.items()):
            print(f"    {verb:8}{resource:32}{number / count:6.2f}")

    async def _requests(self) -> dict[str, int]:
        return {one: await requests_of(self._session, one, reads=True) for one in _READ}

    @asynccontextmanager
    async def _served(self) -> AsyncIterator[tuple[psutil.Process, Browsers]]:
        door = f"http://127.0.0.1:{self._port}"
        resource = (self._resource.plural, self._resource.group)
        browsers = Browsers(door, self._provider, resource)
        try:
            with self._program(*self._flags(door)) as process:
                await _until(self._is_settled)
                await _until(browsers.is_open)
                yield process, browsers
        finally:
            await browsers.close()

    def _flags(self, door: str) -> Sequence[str]:
        secret = self._folder / "secret"
        secret.write_text(WEB.secret)
        return (
            f"--oidc-issuer-url={self._provider.issuer}",
            f"--oidc-issuer-client-id={WEB.id}",
            f"--oidc-client-secret-file={secret}",
            f"--oidc-callback-url={door}/callback",
            f"--listen-address=127.0.0.1:{self._port}",
            "--trusted-proxies=127.0.0.1/32",
            "--authorization=SubjectAccessReview",
        )

    async def _is_settled(self) -> bool:
        url = f"http://127.0.0.1:{self._probe}/settled"
        try:
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                return answer.status == _OK
        except aiohttp.ClientConnectionError:
            return False

    @contextmanager
    def _program(self, *more: str) -> Iterator[psutil.Process]:
        with (
            (self._folder / "klutch-bind.log").open("a") as log,
            (self._folder / "audit.log").open("a") as audit,
        ):
            command = [
                str(_PROGRAM),
                f"--kubeconfig={self._live.kubeconfig}",
                f"--context={self._live.context}",
                "--lease-namespace=default",
                "--metrics-address=",
                f"--probe-address=127.0.0.1:{self._probe}",
                *more,
            ]
            with subprocess.Popen(command, stdout=audit, stderr=log) as process:
                try:
                    yield psutil.Process(process.pid)
                finally:
                    process.terminate()


async def _until(look: Callable[[], Awaitable[bool]]) -> None:
    end = time.monotonic() + _WITHIN
    while not await look():
        if time.monotonic() > end:
            raise SystemExit("the backend does not start")
        await asyncio.sleep(0.1)


def _report_routes(browsers: Browsers) -> None:
    refused = ", ".join(f"{where}: {count}" for where, count in browsers.refused.items())
    print(f"  {'refused':34}{refused or 'none':>8}")
    print(f"  {'route':34}{'p50':>8}{'p99':>8}  (ms, without the provider)")
    for route, seconds in sorted(browsers.took.items()):
        middle, last = statistics.median(seconds), statistics.quantiles(seconds, n=100)[-1]
        within = verdict(last, _LATENCY)
        print(f"  {route:34}{middle * 1e3:8.1f}{last * 1e3:8.1f} {within} {_LATENCY * 1e3:.0f}")


def _print_requests(before: Mapping[str, int], after: Mapping[str, int], count: int) -> None:
    print(f"  {'requests, with the controllers':34}")
    for resource in _READ:
        print(f"    {resource:34}{(after[resource] - before[resource]) / count:6.2f}")


def _print_memory(what: str, memory: float, base: float) -> None:
    added = memory - base
    print(f"  {what:34}{memory:8.1f} MiB, {added:.1f} more: {verdict(added, _MEMORY)} {_MEMORY:g}")


def _memory(process: psutil.Process) -> float:
    rss: int = process.memory_info().rss
    return rss / 2**20


def _cpu(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:2]))
