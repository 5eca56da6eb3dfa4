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
from klutchctl.exit_codes import ExitCode
from klutchctl.sandbox import lifecycle
from klutchctl.sandbox.layout import Layout, named
from klutchctl.sandbox.state import Role
from reconciler.kube.client import KubeCluster
from tests.support import provider

NAME = "demo"
FLEET = "fleet-example"
KLUTCHCTL = str(Path(sys.executable).with_name("klutchctl"))


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print a step, and its time when it is done."""
    print(f"\n== {title}", flush=True)
    begin = time.monotonic()
    yield
    print(f"   done in {time.monotonic() - begin:.1f} s", flush=True)


def klutchctl(*arguments: str, wanted: int = ExitCode.SUCCESS) -> None:
    """Run the program as a person would; another exit code than `wanted` ends the demo."""
    print(f"$ klutchctl {' '.join(arguments)}", flush=True)
    done = subprocess.run([KLUTCHCTL, *arguments], check=False)
    if done.returncode != wanted:
        sys.exit(f"The demo failed: exit code {done.returncode} instead of {wanted}")


async def offer_services(layout: Layout) -> None:
    """Publish on the control plane what the fleet binds."""
    state = lifecycle.load(layout)
    assert state is not None
    (plane,) = [member for member in state.members if member.role is Role.CONTROL_PLANE]
    async with KubeCluster(lifecycle.connection(layout, plane)) as cluster:
        await provider.offer(cluster)
    print(f"   {', '.join(provider.SERVICES)} in group {provider.GROUP}")


def main() -> None:
    """Run the road."""
    layout = named(NAME, state_home=settings.read(os.environ).state_home)
    reach = ("--kubeconfig", str(layout.kubeconfig))
    with step("Start the control plane and the app clusters of fleet-example"):
        klutchctl("sandbox", "up", "--name", NAME, "--fleet", FLEET)
    with step("Offer four services on the control plane (a stand-in: nothing runs behind them)"):
        uvloop.run(offer_services(layout))
    with step("Check the files"):
        klutchctl("validate", FLEET)
    with step("Plan: what would change on which cluster, and which line of which file wants it"):
        klutchctl("plan", FLEET, "--detailed-exitcode", *reach, wanted=ExitCode.CHANGES)
    if os.environ.get("KEEP"):
        print(f"\nLeft running: {KLUTCHCTL} sandbox status --name {NAME}")
        print(f"End it with: {KLUTCHCTL} sandbox down --delete --name {NAME}")
        return
    with step("Take everything down"):
        klutchctl("sandbox", "down", "--delete", "--name", NAME)


main()
