"""`make demo`: the road from a fleet to bindings, as far as it is built, with real parts.

Stand-ins play the backend and the konnectors until those are built. Every step prints what it
does and how long it took. `KEEP=1` leaves the sandbox running.
"""

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import uvloop

from klutchctl import settings
from klutchctl.exit_codes import ExitCode
from klutchctl.sandbox import lifecycle
from klutchctl.sandbox.layout import Layout, named
from klutchctl.sandbox.state import Member, Role
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.core import names
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Ref
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import Connection
from tests.support import provider
from tests.support.stand_in_backend import StandInBackend
from tests.support.stand_in_konnector import StandInKonnector

NAME = "demo"
FLEET = "fleet-example"
SHOP = "shop-eu-1"
DATABASES = f"postgresqlinstances.{provider.GROUP}"
KLUTCHCTL = str(Path(sys.executable).with_name("klutchctl"))


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print a step, and its time when it is done."""
    print(f"\n== {title}", flush=True)
    begin = time.monotonic()
    yield
    print(f"   done in {time.monotonic() - begin:.1f} s", flush=True)


async def klutchctl(*arguments: str, wanted: int = ExitCode.SUCCESS) -> None:
    """Run the program as a person would; another exit code than `wanted` ends the demo."""
    print(f"$ klutchctl {' '.join(arguments)}", flush=True)
    process = await asyncio.create_subprocess_exec(KLUTCHCTL, *arguments)
    code = await process.wait()
    if code != wanted:
        sys.exit(f"The demo failed: exit code {code} instead of {wanted}")


@asynccontextmanager
async def peers(layout: Layout) -> AsyncIterator[Connection]:
    """Let a backend and a konnector for each app cluster work; yield the shop's connection."""
    plane, apps = members(layout)
    spaces = {one.context: names.direct_space("acme", one.context) for one in apps}
    origin = lifecycle.connection(layout, plane)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(StandInBackend(origin, set(spaces.values())))
        for one in apps:
            reached = lifecycle.connection(layout, one)
            konnector = StandInKonnector(reached, origin, spaces[one.context])
            await stack.enter_async_context(konnector)
        (shop,) = [one for one in apps if one.context == SHOP]
        yield lifecycle.connection(layout, shop)


def members(layout: Layout) -> tuple[Member, Sequence[Member]]:
    """Return the control plane and the app clusters."""
    state = lifecycle.load(layout)
    assert state is not None
    (plane,) = [one for one in state.members if one.role is Role.CONTROL_PLANE]
    return plane, [one for one in state.members if one.role is not Role.CONTROL_PLANE]


async def offer_services(layout: Layout) -> None:
    """Publish on the control plane what the fleet binds."""
    plane, _ = members(layout)
    async with KubeCluster(lifecycle.connection(layout, plane)) as cluster:
        await provider.offer(cluster)
    print(f"   {', '.join(provider.SERVICES)} in group {provider.GROUP}")


async def take_the_claims_away(shop: Connection) -> None:
    """Change a binding by hand, as somebody with kubectl might."""
    async with KubeCluster(shop) as cluster:
        name = f"servicebindings.{provider.GROUP}"
        binding = Ref(cluster.name, API_SERVICE_BINDING, names.KLUTCH_NAMESPACE, name)
        nothing: Manifest = {"spec": {"permissionClaims": []}}
        await cluster.merge_patch(binding, nothing, manager="somebody")
    print(f"   APIServiceBinding {name} in {SHOP} accepts no claims any more")


def without_backups(folder: Path) -> Path:
    """Return a copy of the fleet whose shop has no backups any more."""
    copy = folder / FLEET
    shutil.copytree(FLEET, copy)
    (copy / "bindings" / "team-a" / "backups.yaml").unlink()
    return copy


def raise_budget(fleet: Path) -> None:
    """Let more units leave at once."""
    file = fleet / "fleet.yaml"
    text = file.read_text().replace("maxDeletes: 3", "maxDeletes: 4")
    file.write_text(text.replace("maxDeletePercent: 25", "maxDeletePercent: 50"))


async def road(layout: Layout) -> None:
    """Walk the whole road with the clusters running."""
    reach = ("--kubeconfig", str(layout.kubeconfig))
    approved = ("--auto-approve", "--wait", *reach)
    async with peers(layout) as shop:
        with step("Check the files"):
            await klutchctl("validate", FLEET)
        with step(
            "Plan: what would change on which cluster, and which line of which file wants it"
        ):
            await klutchctl("plan", FLEET, "--detailed-exitcode", *reach, wanted=ExitCode.CHANGES)
        with step("Apply it, and wait until all units are Ready"):
            await klutchctl("apply", FLEET, *approved)
        with step("Apply again: there is nothing to do"):
            await klutchctl("apply", FLEET, *approved)
        with step("Change a binding by hand: drift, repaired by the next apply"):
            await take_the_claims_away(shop)
            await klutchctl("apply", FLEET, *approved)
        with step("How all units are"):
            await klutchctl("status", FLEET, *reach)
        with tempfile.TemporaryDirectory() as folder:
            copy = without_backups(Path(folder))
            with step("Take a Binding out of the files: more units would leave than may at once"):
                await klutchctl("apply", str(copy), *approved, wanted=ExitCode.HELD_BACK)
            with step("Raise the budget: they are released, sync stops, and all data stays"):
                raise_budget(copy)
                await klutchctl("apply", str(copy), *approved)


async def demo() -> None:
    """Run the demo."""
    layout = named(NAME, state_home=settings.read(os.environ).state_home)
    if lifecycle.load(layout) is not None:
        with step("Take down what an earlier demo has left"):
            await klutchctl("sandbox", "down", "--delete", "--name", NAME)
    with step("Start the control plane and the app clusters of fleet-example"):
        await klutchctl("sandbox", "up", "--name", NAME, "--fleet", FLEET)
    with step("Offer four services on the control plane (a stand-in: nothing runs behind them)"):
        await offer_services(layout)
    await road(layout)
    if os.environ.get("KEEP"):
        print(f"\nLeft running: {KLUTCHCTL} sandbox status --name {NAME}")
        print(f"End it with: {KLUTCHCTL} sandbox down --delete --name {NAME}")
        return
    with step("Take everything down"):
        await klutchctl("sandbox", "down", "--delete", "--name", NAME)


uvloop.run(demo())
