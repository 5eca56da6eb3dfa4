"""What `apply --watch` costs: from a commit that changes one unit to its write, and idle memory.

The fleet is the large one, applied already. It is the command itself, in a process of its own,
following a branch. A commit comes at any time between two polls.
"""

import pickle
import queue
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import pygit2

from klutchctl import repository
from reconciler.api import API_SERVICE_BINDING
from reconciler.core.live import Address
from tests.bench import large_fleet, large_state, plans, stand_in
from tests.bench.applies import BUILT_IN, Ground, write_kubeconfig
from tests.bench.plans import FLEET
from tests.bench.store import State

POLL: Final = 1.0
COMMITS: Final = 30
BEYOND: Final = 2.0  # seconds, P99
MEMORY: Final = 1.0  # MiB for each idle cluster
_BRANCH: Final = "refs/heads/main"
_PERSON: Final = pygit2.Signature("bench", "bench@example.com", 1_780_000_000, 0)
_SECONDS: Final = re.compile(r"\((\d+\.\d) s\)")
_TIMEOUT: Final = 300.0  # seconds for one round
_STEP: Final = 0.05
_REST: Final = 10.0  # seconds of idleness before memory is looked at


def files(policy: str) -> Mapping[str, str]:
    """Return the large fleet; one unit has a Binding of its own, with this deletionPolicy."""
    made = dict(large_fleet.files())
    place = next(one for one in made if one.endswith("/app-000.yaml"))
    made[place] = made[place].replace("labels: {", "labels: {alone: 'yes', ")
    path = min(one for one in made if one.startswith("bindings/"))
    every = made[path]
    others = every.replace(
        "matchExpressions: [", "matchExpressions: [{key: alone, operator: DoesNotExist}, "
    )
    alone = every.replace("name: bind-", "name: alone-").replace(
        "matchLabels: {env: prod}", "matchLabels: {alone: 'yes'}"
    )
    made[path] = f"{others}---\n{alone}  deletionPolicy: {policy}\n"
    return made


class Branch:
    """The fleet repository, as commits on a branch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._repository = pygit2.init_repository(str(folder), initial_head="main")

    def commit(self, policy: str) -> float:
        """Commit the fleet; return when that was done."""
        for path, text in files(policy).items():
            file = self._folder / path
            if not file.exists() or file.read_text() != text:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        index = self._repository.index
        index.add_all()
        index.write()
        known = self._repository.references
        parents = [known[_BRANCH].target] if _BRANCH in known else []
        tree = index.write_tree()
        self._repository.create_commit(_BRANCH, _PERSON, _PERSON, policy, tree, parents)
        return time.monotonic()


class Watch:
    """The running command."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = psutil.Process(process.pid)
        self._stdout = process.stdout
        self._said: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._stdout is not None
        for line in self._stdout:
            self._said.put(line)

    @property
    def memory(self) -> float:
        """Its resident size now, in MiB."""
        return self._process.memory_info().rss / 2**20

    @property
    def cpu(self) -> float:
        """Its CPU time so far, in seconds."""
        times = self._process.cpu_times()
        return times.user + times.system

    def round(self) -> float:
        """Wait for the end of a round; return how many seconds it took by its own words."""
        while True:
            try:
                line = self._said.get(timeout=_TIMEOUT)
            except queue.Empty:
                raise SystemExit("the watch made no round; see its error above") from None
            if found := _SECONDS.search(line):
                return float(found[1])


def prepare(folder: Path) -> Branch:
    """Write the repository, and clusters that it has been applied to."""
    plans.prepare(folder)
    branch = Branch(folder / "repository")
    branch.commit("Release")
    fleet = repository.fleet_in(folder / "repository", check_owner=True)
    authority = (folder / "ca.crt").read_text()
    state = large_state.state(fleet, Address("https://cp.bench.example.com:6443", authority))
    served = {
        name: {**dict.fromkeys(BUILT_IN, ()), **kinds} for name, kinds in state.clusters.items()
    }
    (folder / "state.pickle").write_bytes(pickle.dumps(State(served)))
    return branch


@contextmanager
def watching(ground: Ground) -> Iterator[Watch]:
    """Run `klutchctl apply --watch` for as long as the block lasts."""
    command = [sys.executable, "-m", "klutchctl", "--kubeconfig", str(ground.kubeconfig)]
    command += ["apply", str(ground.folder / "repository"), "--watch", "--ref", "main"]
    command += ["--poll", str(POLL), "--interval", "86400"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Watch(process)
        finally:
            process.terminate()


def written(ground: Ground) -> float:
    """Wait for a write to a binding; return when it came to the server."""
    end = time.monotonic() + _TIMEOUT
    while time.monotonic() < end:
        for when, what in ground.counts()["writes"]:
            if API_SERVICE_BINDING.plural in what:
                moment: float = when
                return moment
        time.sleep(_STEP)
    raise SystemExit("the change was not written")


def bench_memory(watch: Watch) -> None:
    """Measure what an idle watch takes."""
    time.sleep(_REST)
    size = watch.memory
    each = size / large_fleet.CLUSTERS
    print(
        f"\nidle watch of {large_fleet.CLUSTERS} clusters: {size:.0f} MiB in all, "
        f"{each:.2f} MiB a cluster, {plans.verdict(each, MEMORY)} {MEMORY:g} MiB"
    )


def bench_commits(ground: Ground, branch: Branch, watch: Watch) -> None:
    """Measure the time from a commit to the write of the unit that it changes."""
    rng = random.Random(1)
    beyond, rounds, cpu = [], [], []
    for number in range(COMMITS):
        time.sleep(rng.uniform(0, POLL))
        used = watch.cpu
        committed = branch.commit("Release" if number % 2 else "Delete")
        beyond.append(written(ground) - committed - POLL)
        rounds.append(watch.round())
        cpu.append(watch.cpu - used)
        ground.counts()
    most = max(beyond)
    print(
        f"\none changed unit, commit to write, beyond the poll interval of {POLL:g} s "
        f"({COMMITS} commits): P99 {most:.2f} s, {plans.verdict(most, BEYOND)} {BEYOND:g} s; "
        f"median {statistics.median(beyond):.2f} s; of that a round takes "
        f"{statistics.median(rounds):.1f} s; CPU {statistics.median(cpu):.2f} s each"
    )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="klutchctl-bench-") as name:
        folder = Path(name)
        branch = prepare(folder)
        with stand_in.running(folder, FLEET) as ports:
            ground = Ground(folder, ports.server)
            write_kubeconfig(ground)
            with watching(ground) as watch:
                print(f"\nfirst round of a watch: {watch.round():.1f} s")
                if ground.counts()["writes"]:
                    raise SystemExit("the first round was to write nothing")
                bench_memory(watch)
                bench_commits(ground, branch, watch)
