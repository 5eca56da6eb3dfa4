"""What a large fleet costs: 500 clusters with 20 bindings each, which is 10,000 units.

Everything runs cold, each time in a new process, against stand-in servers with 20 ms latency.
Trust the ratio more than the figures.
"""

import base64
import json
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from klutchctl import repository
from klutchctl.sandbox import credentials
from klutchctl.sandbox.credentials import Use
from reconciler.core.live import Address
from tests.bench import large_fleet, large_state, stand_in
from tests.bench.stand_in import Ports

RENDER_SECONDS: Final = 2.0
PLAN_SECONDS: Final = 15.0
PLAN_MEMORY: Final = 500  # MiB
HEALTHY_RATIO: Final = 1.1
FLEET: Final = "bench"
ROUNDS: Final = 3
PAIRS: Final = 5
_EVERY_TENTH: Final = 10


def run(task: str, *arguments: Path) -> dict[str, Any]:
    """Run a worker and return what it measured; `total` is with the start of the process."""
    command = [sys.executable, "-m", "tests.bench.plan_worker", task, *map(str, arguments)]
    began = time.perf_counter()
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    facts: dict[str, Any] = json.loads(answer.stdout)
    return {**facts, "total": time.perf_counter() - began}


def median_run(task: str, *arguments: Path) -> dict[str, Any]:
    """Return the run in the middle of some, by its time."""
    runs = sorted((run(task, *arguments) for _ in range(ROUNDS)), key=lambda one: one["total"])
    return runs[ROUNDS // 2]


def prepare(folder: Path) -> None:
    """Write the repository and what the stand-ins serve. The contents are as if applied."""
    now = datetime.now(UTC)
    authority = credentials.authority("bench", now=now)
    server = credentials.issue(authority, "kube-apiserver", use=Use.SERVER, now=now)
    (folder / "ca.crt").write_bytes(authority.certificate_pem)
    (folder / "server.crt").write_bytes(server.certificate_pem)
    (folder / "server.key").write_bytes(server.key_pem)
    large_fleet.write(folder / "repository")
    fleet = repository.fleet_in(folder / "repository", check_owner=True)
    address = Address("https://cp.bench.example.com:6443", authority.certificate_pem.decode())
    state = large_state.state(fleet, address)
    (folder / "state.pickle").write_bytes(pickle.dumps(state))


def kubeconfigs(folder: Path, ports: Ports) -> Mapping[str, Path]:
    """Write a kubeconfig that reaches every cluster, and one with a black hole in every tenth."""
    ca = base64.b64encode((folder / "ca.crt").read_bytes()).decode()
    names = [large_fleet.CONTROL_PLANE, *large_fleet.cluster_names()]
    healthy = {name: f"https://127.0.0.1:{ports.server}/{name}" for name in names}
    holes = {
        name: f"https://127.0.0.1:{ports.black_hole}/{name}"
        for name in large_fleet.cluster_names()[::_EVERY_TENTH]
    }
    files = {"healthy": folder / "healthy", "holes": folder / "holes"}
    files["healthy"].write_text(large_fleet.kubeconfig(healthy, ca=ca))
    files["holes"].write_text(large_fleet.kubeconfig({**healthy, **holes}, ca=ca))
    return files


def verdict(figure: float, limit: float) -> str:
    """Return whether a figure is within its limit, in words."""
    return "within" if figure <= limit else "BEYOND"


def print_stages(result: Mapping[str, Any]) -> None:
    """Print where the time went."""
    for name, seconds in result["stages"].items():
        print(f"  {name:20}{seconds:8.2f} s")
    print(f"  {'CPU time in all':20}{result['cpu']:8.2f} s")


def bench_render(folder: Path) -> None:
    result = median_run("render", folder)
    stages = result["stages"]
    seconds = sum(stages.values()) - stages["imports"]
    print(
        f"\nvalidate and render {result['units']} units, {result['objects']} objects, "
        f"{result['bytes'] / 1e6:.0f} MB of text (median of {ROUNDS}): {seconds:.2f} s, "
        f"{verdict(seconds, RENDER_SECONDS)} {RENDER_SECONDS:g} s"
    )
    print_stages(result)


def bench_plan(folder: Path, kubeconfig: Path) -> None:
    result = median_run("plan", folder, kubeconfig)
    print(
        f"\ncold plan without changes (median of {ROUNDS}): {result['total']:.2f} s, "
        f"{verdict(result['total'], PLAN_SECONDS)} {PLAN_SECONDS:g} s; "
        f"{result['memory']:.0f} MiB at most, {verdict(result['memory'], PLAN_MEMORY)} "
        f"{PLAN_MEMORY} MiB"
    )
    print_stages(result)
    if set(result["actions"]) != {"noop"} or result["unseen"]:
        raise SystemExit(f"the plan was to change nothing: {result}")


def bench_black_holes(folder: Path, files: Mapping[str, Path]) -> None:
    """Measure whether clusters that do not answer hold back the others."""
    ratios = []
    for number in range(PAIRS):
        order = ("healthy", "holes") if number % 2 == 0 else ("holes", "healthy")
        pair = {name: run("plan", folder, files[name]) for name in order}
        if pair["holes"]["unseen"] != large_fleet.CLUSTERS // _EVERY_TENTH:
            raise SystemExit("the black holes were not unseen")
        ratios.append(pair["holes"]["last_healthy"] / pair["healthy"]["last_healthy"])
    ratio = statistics.median(ratios)
    listed = ", ".join(f"{one:.2f}" for one in ratios)
    print(
        f"\nlast healthy cluster done, with 10 % black holes against none "
        f"({PAIRS} alternating pairs: {listed}): {ratio:.2f}x, "
        f"{verdict(ratio, HEALTHY_RATIO)} {HEALTHY_RATIO}x"
    )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="klutchctl-bench-") as name:
        folder = Path(name)
        prepare(folder)
        bench_render(folder)
        with stand_in.running(folder, FLEET) as ports:
            files = kubeconfigs(folder, ports)
            bench_plan(folder, files["healthy"])
            bench_black_holes(folder, files)
