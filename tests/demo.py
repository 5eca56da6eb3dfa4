"""`make demo`: the road from a fleet to credentials, as far as it is built, with real parts.

Every step prints what it does and how long it took. `KEEP=1` leaves the sandbox running.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

from klutchctl import settings
from klutchctl.sandbox import lifecycle
from klutchctl.sandbox.layout import named
from klutchctl.sandbox.state import Role
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.core.manifest import get_text
from reconciler.core.refs import CRD
from reconciler.kube.client import KubeCluster

NAME = "demo"
KLUTCHCTL = str(Path(sys.executable).with_name("klutchctl"))


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print a step, and its time when it is done."""
    print(f"\n== {title}", flush=True)
    begin = time.monotonic()
    yield
    print(f"   done in {time.monotonic() - begin:.1f} s", flush=True)


def klutchctl(*arguments: str) -> None:
    """Run the program as a person would; a failure ends the demo with its exit code."""
    print(f"$ klutchctl {' '.join(arguments)}", flush=True)
    done = subprocess.run([KLUTCHCTL, *arguments], check=False)
    if done.returncode:
        sys.exit(done.returncode)


async def show_crds() -> None:
    """Ask every cluster which CRDs of Klutch it serves."""
    layout = named(NAME, state_home=settings.read(os.environ).state_home)
    state = lifecycle.load(layout)
    assert state is not None
    for member in state.members:
        async with KubeCluster(lifecycle.connection(layout, member)) as cluster:
            listing = await cluster.list(CRD, metadata_only=True)
            bindings = await cluster.list(API_SERVICE_BINDING)
        print(f"   {member.context}: {len(bindings.items)} bindings, CRDs:")
        for item in listing.items:
            print(f"     {get_text(item, 'metadata', 'name')}")
        assert member.role is Role.CONTROL_PLANE or len(listing.items) == 1


def main() -> None:
    """Run the road."""
    with step("Start one control plane and two app clusters, with their CRDs"):
        klutchctl("sandbox", "up", "--name", NAME, "--app-clusters", "2")
    with step("Look at them"):
        klutchctl("sandbox", "status", "--name", NAME)
        uvloop.run(show_crds())
    if os.environ.get("KEEP"):
        print(f"\nLeft running. End it with: {KLUTCHCTL} sandbox down --delete --name {NAME}")
        return
    with step("Take everything down"):
        klutchctl("sandbox", "down", "--delete", "--name", NAME)


main()
