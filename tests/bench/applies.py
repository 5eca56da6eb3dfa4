"""What a first apply costs: 500 clusters with 20 bindings each, on stand-ins that take writes.

It is the command itself, in a process of its own, with the limits of the product. One control
plane takes no more than `--qps` calls a second, so that is what bounds a first apply: the output
tells how many calls it got, and how long those take at least.
"""

import base64
import json
import os
import pickle
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from klutchctl.settings import Settings
from reconciler.api import API_SERVICE_BINDING, API_SERVICE_EXPORT_TEMPLATE
from reconciler.core.names import KUBE_SYSTEM
from reconciler.core.refs import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CRD,
    EVENT,
    LEASE,
    NAMESPACE,
    SERVICE_ACCOUNT,
    Kind,
)
from tests.bench import large_fleet, plans, stand_in
from tests.bench.large_fleet import CONTROL_PLANE
from tests.bench.plans import FLEET
from tests.bench.stand_in import COUNTS
from tests.bench.store import Item, State

APPLY_SECONDS: Final = 180.0
_SHOWN: Final = 10  # lines that tell of something else than success
BUILT_IN: Final = (SERVICE_ACCOUNT, CLUSTER_ROLE, CLUSTER_ROLE_BINDING, LEASE, EVENT)
_UNITS: Final = large_fleet.CLUSTERS * large_fleet.BINDINGS


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the command. Times are in seconds, `memory` is the peak in MiB."""

    code: int
    seconds: float
    cpu: float
    memory: float
    stages: Mapping[str, float]
    report: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ground:
    """Where the command runs: its folder, and the stand-ins."""

    folder: Path
    port: int

    @property
    def kubeconfig(self) -> Path:
        """The file that leads to all stand-ins."""
        return self.folder / "kubeconfig"

    def counts(self) -> Mapping[str, Any]:
        """Return what the servers counted since the last time."""
        trusted = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        address = f"https://127.0.0.1:{self.port}{COUNTS}"
        with urllib.request.urlopen(address, context=trusted) as answer:
            reported: dict[str, Any] = json.load(answer)
        return reported


def _fresh(cluster: str, kinds: Mapping[Kind, Sequence[Item]]) -> Mapping[Kind, Sequence[Item]]:
    plane = cluster == CONTROL_PLANE
    kept: dict[Kind, Sequence[Item]] = dict.fromkeys((*kinds, *BUILT_IN), ())
    kept[NAMESPACE] = [one for one in kinds[NAMESPACE] if one.name == KUBE_SYSTEM]
    if plane:
        kept[CRD] = kinds[CRD]
        kept[API_SERVICE_EXPORT_TEMPLATE] = kinds[API_SERVICE_EXPORT_TEMPLATE]
    else:
        del kept[API_SERVICE_BINDING]
        kept[CRD] = [one for one in kinds[CRD] if one.name.endswith(".example.org")]
    return kept


def prepare(folder: Path) -> None:
    """Write the repository, and clusters that it has not been applied to."""
    plans.prepare(folder)
    file = folder / "state.pickle"
    clusters = pickle.loads(file.read_bytes()).clusters
    made = State({name: _fresh(name, kinds) for name, kinds in clusters.items()})
    file.write_bytes(pickle.dumps(made))


def write_kubeconfig(ground: Ground) -> None:
    ca = base64.b64encode((ground.folder / "ca.crt").read_bytes()).decode()
    names = [CONTROL_PLANE, *large_fleet.cluster_names()]
    servers = {name: f"https://127.0.0.1:{ground.port}/{name}" for name in names}
    ground.kubeconfig.write_text(large_fleet.kubeconfig(servers, ca=ca))


def apply(ground: Ground) -> Run:
    """Run `klutchctl apply --auto-approve --wait`; the stages are those that it tells."""
    report = ground.folder / "report.json"
    command = [sys.executable, "-m", "klutchctl", "--kubeconfig", str(ground.kubeconfig)]
    command += ["apply", str(ground.folder / "repository"), "--auto-approve", "--wait"]
    command += ["--wait-timeout", "600", "-o", f"json={report}"]
    began = time.monotonic()
    seen = [("read files, plan", began)]
    odd: list[str] = []
    with (ground.folder / "stdout").open("w") as stdout:
        process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        for line in process.stderr:
            if line.endswith(" ...\n"):
                seen.append((line.removesuffix(" ...\n"), time.monotonic()))
            elif ": done: " not in line:
                odd.append(line)
        _, status, used = os.wait4(process.pid, 0)
    print("".join(odd[:_SHOWN]), end="")
    process.returncode = os.waitstatus_to_exitcode(status)
    ended = time.monotonic()
    ends = [*(when for _, when in seen[1:]), ended]
    return Run(
        code=process.returncode,
        seconds=ended - began,
        cpu=used.ru_utime + used.ru_stime,
        memory=used.ru_maxrss / 1024,
        stages={name: end - start for (name, start), end in zip(seen, ends, strict=True)},
        report=json.loads(report.read_text()),
    )


def print_run(run: Run, calls: Mapping[str, int]) -> None:
    """Print where the time went, and what the servers were asked."""
    for name, seconds in run.stages.items():
        print(f"  {name:32}{seconds:8.2f} s")
    print(f"  {'CPU time in all':32}{run.cpu:8.2f} s")
    for name, number in sorted(calls.items()):
        print(f"  {name:48}{number:8}")
    of_plane = sum(number for name, number in calls.items() if name.startswith("control plane"))
    pace = Settings({})
    least = max(of_plane - pace.burst, 0) / pace.qps
    print(f"  {'calls to the control plane alone':32}{least:8.2f} s at {pace.qps:g} a second")


def bench_first(ground: Ground) -> None:
    """Measure the first apply."""
    run = apply(ground)
    counts = ground.counts()
    print(
        f"\nfirst apply of {_UNITS} units on {large_fleet.CLUSTERS} clusters: "
        f"{run.seconds:.1f} s, {plans.verdict(run.seconds, APPLY_SECONDS)} {APPLY_SECONDS:g} s; "
        f"{run.memory:.0f} MiB at most"
    )
    print_run(run, counts["calls"])
    if run.code or run.report.get("ready") != _UNITS:
        raise SystemExit(f"the apply was to bind everything; it ended with {run.code}")


def bench_second(ground: Ground) -> None:
    run = apply(ground)
    counts = ground.counts()
    print(f"\nsecond apply, nothing to do: {run.seconds:.1f} s; {run.memory:.0f} MiB at most")
    print_run(run, counts["calls"])
    if run.code or counts["writes"]:
        raise SystemExit(f"the second apply was to write nothing: {counts['writes'][:3]}")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="klutchctl-bench-") as name:
        folder = Path(name)
        prepare(folder)
        with stand_in.running(folder, FLEET) as ports:
            ground = Ground(folder, ports.server)
            write_kubeconfig(ground)
            bench_first(ground)
            bench_second(ground)
