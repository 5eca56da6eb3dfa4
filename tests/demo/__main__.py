"""`make demo`: the road from a fleet to credentials in the applications' namespaces.

klutch-bind serves the control plane, and a konnector each app cluster, all as processes of their
own. Only the provider is played. Every step prints what it does and how long it took. `KEEP=1`
leaves the sandbox running.
"""

import asyncio
import base64
import os
import re
import shutil
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import uvloop
import yaml

from klutchctl import settings
from klutchctl.exit_codes import ExitCode
from klutchctl.sandbox import lifecycle
from klutchctl.sandbox.layout import Layout, named
from klutchctl.sandbox.state import Member, Role
from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.api.export_request import API_SERVICE_EXPORT_REQUEST
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.blueprints.objects import build
from reconciler.core import conditions, names
from reconciler.core.manifest import Manifest, get_list, get_maps, get_text, get_texts, name_of
from reconciler.core.refs import CLUSTER_ROLE, NAMESPACE, SECRET, Kind, Ref
from reconciler.kube.client import KubeCluster
from tests.support import provider
from tests.support.eventually import eventually

NAME = "demo"
FLEET = "fleet-example"
SHOP = "shop-eu-1"
SHOPS = (SHOP, "shop-eu-2")
TEAM = "team-a"
CLAIM = "orders-db"
CREDENTIALS = Kind(provider.GROUP, "v1", "ServiceBinding", "servicebindings")
KLUTCHCTL = str(Path(sys.executable).with_name("klutchctl"))
KLUTCH_BIND = str(Path(sys.executable).with_name("klutch-bind"))
KONNECTOR = str(Path(sys.executable).with_name("konnector"))


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
async def backend(layout: Layout) -> AsyncIterator[None]:
    """Let klutch-bind serve the control plane, once it has read all of it."""
    plane, _ = members(layout)
    where = ("--kubeconfig", str(layout.kubeconfig), "--context", plane.context)
    arguments = (*where, "--control-plane-mode", "--lease-namespace", "default")
    async with program(KLUTCH_BIND, *arguments, log=layout.logs / "klutch-bind.log"):
        yield


@asynccontextmanager
async def konnectors(layout: Layout) -> AsyncIterator[None]:
    """Let a konnector serve each app cluster."""
    _, apps = members(layout)
    async with AsyncExitStack() as stack:
        for one in apps:
            log = layout.logs / f"konnector-{one.context}.log"
            where = ("--kubeconfig", str(kubeconfig(layout, one.context)))
            await stack.enter_async_context(program(KONNECTOR, *where, log=log))
        yield


def kubeconfig(layout: Layout, context: str) -> Path:
    """Write a kubeconfig that leads to one cluster."""
    whole = yaml.safe_load(layout.kubeconfig.read_text())
    path = layout.kubeconfig.with_name(f"kubeconfig-{context}")
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump({**whole, "current-context": context}))
    return path


@asynccontextmanager
async def program(path: str, *arguments: str, log: Path) -> AsyncIterator[None]:
    """Let a program run that tells where it can be asked whether it is ready; it is at first."""
    command = (path, *arguments, "--probe-address", "127.0.0.1:0")
    print(f"$ {' '.join((Path(path).name, *command[1:]))}", flush=True)
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(*command, stderr=file)
    try:
        await eventually(lambda: is_ready(process, log), within=30)
        print(f"   process {process.pid} is ready; its log is {log}", flush=True)
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        code = await process.wait()
    if code != ExitCode.SUCCESS:
        sys.exit(f"The demo failed: {Path(path).name} ended with {code}; its log is {log}")


def is_ready(process: asyncio.subprocess.Process, log: Path) -> bool:
    """Ask a program where it says that it answers."""
    if process.returncode is not None:
        sys.exit(f"The demo failed: a program ended with {process.returncode}; its log is {log}")
    found = re.search(r"metrics are served .*port=(\d+)", log.read_text())
    if found is None:
        return False
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/readyz", timeout=5):
            return True
    except urllib.error.HTTPError:
        return False


def space_of(cluster: str) -> str:
    """Return the binding space of an app cluster."""
    return names.direct_space("acme", cluster)


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


async def show_the_space(layout: Layout) -> None:
    """Print what klutch-bind has made for the shop, and what is said of it."""
    plane, _ = members(layout)
    space = space_of(SHOP)
    async with KubeCluster(lifecycle.connection(layout, plane)) as cluster:
        print(f"   Namespace {space} on the control plane")
        for one in (await cluster.list(API_SERVICE_EXPORT_REQUEST, namespace=space)).items:
            print(f"   APIServiceExportRequest {name_of(one)}: {get_text(one, 'status', 'phase')}")
        for kind in (API_SERVICE_EXPORT, CLUSTER_BINDING):
            for one in (await cluster.list(kind, namespace=space)).items:
                print(f"   {kind} {name_of(one)}: {', '.join(what_holds(one))}")
        role = await cluster.get(
            Ref(cluster.name, CLUSTER_ROLE, "", names.space_cluster_role(space))
        )
        granted = [
            each for rule in get_maps(role, "rules") for each in get_texts(rule, "resources")
        ]
        print(f"   ClusterRole {name_of(role or {})}: {', '.join(granted)}")


def what_holds(live: Manifest) -> list[str]:
    """Return the types of the conditions that are True."""
    told = conditions.parse(get_list(live, "status", "conditions"))
    return [one.type for one in told if one.status == conditions.TRUE]


async def use_the_service(layout: Layout) -> None:
    """Make the same ServiceBinding in two clusters, as developers do, and wait for its status.

    The service sets it by hand.
    """
    plane, _ = members(layout)
    async with KubeCluster(lifecycle.connection(layout, plane)) as service:
        for shop in SHOPS:
            async with app_cluster(layout, shop) as cluster:
                made = build(CREDENTIALS, CLAIM, namespace=TEAM, spec={"instanceRef": "orders"})
                await cluster.apply(build(NAMESPACE, TEAM), NAMESPACE, manager="dev", force=True)
                await cluster.apply(made, CREDENTIALS, manager="dev", force=True)
                copy = Ref(service.name, CREDENTIALS, home_of(shop), CLAIM)
                await eventually(lambda copy=copy: service.get(copy))  # type: ignore[misc]
                print(f"   {CREDENTIALS.kind} {TEAM}/{CLAIM} of {shop} has come up: {copy.object}")
                status: Manifest = {"status": {"phase": "Ready"}}
                await service.merge_patch(copy, status, manager="service", subresource="status")
                claim = Ref(cluster.name, CREDENTIALS, TEAM, CLAIM)
                await eventually(
                    lambda cluster=cluster, claim=claim: is_fulfilled(cluster, claim)  # type: ignore[misc]
                )
                print("   and its status has come down")


async def is_fulfilled(cluster: KubeCluster, claim: Ref) -> bool:
    return get_text(await cluster.get(claim), "status", "phase") == "Ready"


async def hand_credentials_out(layout: Layout) -> None:
    """Write a Secret for each shop by hand on the control plane, and see where they arrive."""
    plane, _ = members(layout)
    async with KubeCluster(lifecycle.connection(layout, plane)) as service:
        for shop in SHOPS:
            data = {"password": base64.b64encode(shop.encode()).decode()}
            made = build(SECRET, f"creds-of-{shop}", namespace=home_of(shop), data=data)
            await service.create(made, SECRET, manager="service")
            print(f"   Secret {home_of(shop)}/creds-of-{shop} on the control plane")
    for shop in SHOPS:
        async with app_cluster(layout, shop) as cluster:
            own = Ref(cluster.name, SECRET, TEAM, f"creds-of-{shop}")
            await eventually(lambda cluster=cluster, own=own: cluster.get(own))  # type: ignore[misc]
    for shop in SHOPS:
        async with app_cluster(layout, shop) as cluster:
            found = [name_of(one) for one in (await cluster.list(SECRET, namespace=TEAM)).items]
            print(f"   Secrets in {TEAM} of {shop}: {', '.join(found)}")
            if found != [f"creds-of-{shop}"]:
                sys.exit(f"The demo failed: {shop} has not its own Secret alone")


def app_cluster(layout: Layout, context: str) -> KubeCluster:
    """Return an app cluster of the sandbox."""
    _, apps = members(layout)
    (found,) = [one for one in apps if one.context == context]
    return KubeCluster(lifecycle.connection(layout, found))


def home_of(cluster: str) -> str:
    """Return the service namespace of the team's app namespace in an app cluster."""
    return names.service_namespace(space_of(cluster), TEAM)


async def take_the_claims_away(layout: Layout) -> None:
    """Change a binding by hand, as somebody with kubectl might."""
    async with app_cluster(layout, SHOP) as cluster:
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
    async with AsyncExitStack() as stack:
        with step("Run klutch-bind: it will serve what the next steps create"):
            await stack.enter_async_context(backend(layout))
        with step("Run a konnector for each app cluster: they wait for bindings"):
            await stack.enter_async_context(konnectors(layout))
        with step("Check the files"):
            await klutchctl("validate", FLEET)
        with step(
            "Plan: what would change on which cluster, and which line of which file wants it"
        ):
            await klutchctl("plan", FLEET, "--detailed-exitcode", *reach, wanted=ExitCode.CHANGES)
        with step("Apply it, and wait until all units are Ready"):
            await klutchctl("apply", FLEET, *approved)
        with step("What klutch-bind has made of it, for one app cluster"):
            await show_the_space(layout)
        with step("Developers use a service in two app clusters"):
            await use_the_service(layout)
        with step("The service hands credentials out: each app cluster gets its own"):
            await hand_credentials_out(layout)
        with step("Apply again: there is nothing to do"):
            await klutchctl("apply", FLEET, *approved)
        with step("Change a binding by hand: drift, repaired by the next apply"):
            await take_the_claims_away(layout)
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
    with step("Offer four services on the control plane (nothing runs behind them)"):
        await offer_services(layout)
    await road(layout)
    if os.environ.get("KEEP"):
        print(f"\nLeft running: {KLUTCHCTL} sandbox status --name {NAME}")
        print(f"End it with: {KLUTCHCTL} sandbox down --delete --name {NAME}")
        return
    with step("Take everything down"):
        await klutchctl("sandbox", "down", "--delete", "--name", NAME)


uvloop.run(demo())
