"""`make bench`: our client beside others, a large fleet, a cache, a backend, a konnector.

`make bench ARGS=clients`, `plans`, `applies`, `watches`, `events`, `backends` and `konnectors` run
one part each; the modules named like the last six tell what they measure. The clients are ours,
bare aiohttp + orjson and the official one, in one run on one server. The contenders take turns, so
that noise hits all alike; figures are medians over the rounds. Trust the ratios more than the
figures.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from klutchctl.sandbox.layout import Layout
from reconciler.core.manifest import Manifest
from reconciler.core.refs import NAMESPACE
from reconciler.kube.client import KubeCluster
from tests.bench import applies, backends, events, konnectors, plans, watches
from tests.bench.servers import sandbox
from tests.bench.worker import control_plane

CONTENDERS: Final = ("ours", "bare", "official")
ROUNDS: Final = 7
LIST_SIZE: Final = 5_000
LIST_NAMESPACE: Final = "bench-list"


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


class Worker:
    """A contender's process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def do(self, **command: Any) -> dict[str, float]:
        """Have one command done and return its measurement."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a contender ended early; see its error above")
        answer: dict[str, float] = json.loads(line)
        return answer


@contextmanager
def worker(name: str, home: Path) -> Iterator[Worker]:
    """Start a contender and stop it at the end."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.bench.worker", name, str(home)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Worker(process)
        assert process.stdin is not None
        process.stdin.close()


async def make_namespaces(layout: Layout, names: Sequence[str]) -> None:
    """Create the namespaces that the tasks write to."""
    async with KubeCluster(control_plane(layout)) as cluster:
        for name in names:
            manifest: Manifest = {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name},
            }
            await cluster.create(manifest, NAMESPACE, manager="bench")


def run_task(task: Task, workers: Mapping[str, Worker], namespaces: Mapping[str, str]) -> None:
    """Measure one task, contenders in turn, after a round that is not counted."""
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in workers}
    for number in range(ROUNDS + 1):
        for name, contender in workers.items():
            stem = f"{task.concurrency}-{number}"  # an apply changes what a create made
            result = contender.do(
                do=task.verb,
                namespace=namespaces[name],
                names=[f"{stem}-{index}" for index in range(task.count)],
                concurrency=task.concurrency,
            )
            if number:
                rounds[name].append(result)
    report(task, rounds)


def report(task: Task, rounds: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """Print a task's medians, and each contender's CPU as a ratio to the bare one's."""
    print(f"\n{task.title} ({ROUNDS} rounds of {task.count})")
    print(f"  {'':10}{'ops/s':>8}{'CPU us/op':>11}{'CPU / bare':>12}")
    for name, results in rounds.items():
        speed = statistics.median(task.count / one["seconds"] for one in results)
        cpu = statistics.median(one["cpu"] for one in results)
        pairs = zip(results, rounds["bare"], strict=True)
        ratio = statistics.median(one["cpu"] / bare["cpu"] for one, bare in pairs)
        print(f"  {name:10}{speed:8.0f}{cpu / task.count * 1e6:11.0f}{ratio:12.2f}")


def run_list(home: Path) -> None:
    """List many objects, each time in a new process so that its peak memory is the list's."""
    print(f"\nlist of {LIST_SIZE} in pages of 500 (median of 3 processes each)")
    print(f"  {'':10}{'seconds':>8}{'CPU s':>11}{'peak MiB':>12}")
    results: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for _ in range(3):
        for name in CONTENDERS:
            with worker(name, home) as contender:
                results[name].append(contender.do(do="list", namespace=LIST_NAMESPACE))
    for name, runs in results.items():
        seconds, cpu, memory = (
            statistics.median(one[key] for one in runs) for key in ("seconds", "cpu", "memory")
        )
        print(f"  {name:10}{seconds:8.2f}{cpu:11.2f}{memory:12.0f}")


def bench_clients() -> None:
    """Measure all clients and print it."""
    with tempfile.TemporaryDirectory(prefix="klutchctl-bench-") as folder, ExitStack() as stack:
        home = Path(folder)
        layout = stack.enter_context(sandbox(home))
        namespaces = {name: f"bench-{name}" for name in CONTENDERS}
        asyncio.run(make_namespaces(layout, [*namespaces.values(), LIST_NAMESPACE]))
        workers = {name: stack.enter_context(worker(name, home)) for name in CONTENDERS}
        for task in TASKS:
            run_task(task, workers, namespaces)
        filler = [f"item-{index}" for index in range(LIST_SIZE)]
        workers["bare"].do(do="create", namespace=LIST_NAMESPACE, names=filler, concurrency=16)
        run_list(home)


PARTS: Final = {
    "clients": bench_clients,
    "plans": plans.main,
    "applies": applies.main,
    "watches": watches.main,
    "events": events.main,
    "backends": backends.main,
    "konnectors": konnectors.main,
}


def main() -> None:
    """Run what the arguments name, or everything."""
    chosen = sys.argv[1:] or list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        raise SystemExit(
            f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}"
        )
    for part in chosen:
        PARTS[part]()


main()
