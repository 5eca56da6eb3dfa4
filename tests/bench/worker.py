"""One contender in a process of its own: a JSON command a line in, a measurement a line out."""

import asyncio
import gc
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

from klutchctl.sandbox import lifecycle
from klutchctl.sandbox.layout import Layout, named
from reconciler.kube.connection import Connection
from tests.bench.contenders import Bare, Contender, Official, Ours


def control_plane(layout: Layout) -> Connection:
    """Return the connection to the sandbox's only cluster, as its administrator."""
    state = lifecycle.load(layout)
    assert state is not None
    return lifecycle.connection(layout, state.members[0])


def contender(name: str, home: str, runner: asyncio.Runner) -> Contender:
    """Return the contender of that name, connected to the control plane of a sandbox."""
    layout = named("bench", state_home=Path(home))
    if name == "official":
        return Official(str(layout.kubeconfig), "control-plane")
    return {"ours": Ours, "bare": Bare}[name](control_plane(layout), runner)


def peak_memory() -> int:
    """Return the largest resident size of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def measure(client: Contender, command: dict[str, Any]) -> dict[str, float]:
    """Do one command and return its wall and CPU seconds and the peak memory after it."""
    work = getattr(client, command.pop("do"))
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    work(**command)
    return {
        "seconds": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "memory": peak_memory(),
    }


def main() -> None:
    """Serve commands until the input ends."""
    name, home = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        client = contender(name, home, runner)
        for line in sys.stdin:
            print(json.dumps(measure(client, json.loads(line))), flush=True)
        client.close()


if __name__ == "__main__":
    main()
