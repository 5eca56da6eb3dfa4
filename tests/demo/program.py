"""`make demo`: from a line in a fleet's files to a row in a database, on real parts.

klutch-bind serves the control plane, where Crossplane and a service operator work, and a konnector
serves each app cluster, all as processes of their own. Where there is a Java, a pipeline also signs
in at klutch-bind's front door, and binds a cluster that is not in these files. Every step prints
what it does and how long it took. `KEEP=1` leaves all of it running.
"""

import asyncio
import base64
import contextlib
import ctypes
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psycopg
import uvloop

from klutchctl import files
from klutchctl.entry import ExitCode
from klutchctl.sandbox.report import Lines
from klutchctl.sandbox.state import layout_of
from klutchctl.settings import Settings
from reconciler.api import API_SERVICE_BINDING
from reconciler.blueprints.objects import build
from reconciler.core import names
from reconciler.core.errors import KlutchError
from reconciler.core.manifest import Manifest
from reconciler.core.refs import SECRET, Ref
from tests.demo import broker_services, developer, fetching, front_door
from tests.demo.developer import Developer
from tests.demo.place import BROKER, FLEET, NAME, OTHER, OVERLAYS, SHOP, TEAM, Place, home_of
from tests.demo.telling import KLUTCHCTL, Story, fail, klutchctl
from tests.support.eventually import eventually

DATABASE = "orders"
BY_HAND = "written-by-hand"
_STATE = "XDG_STATE_HOME"
_PR_SET_PDEATHSIG = 1


async def use_the_service(place: Place, story: Story) -> None:
    """Do what developers do, with nothing but their app cluster."""
    async with place.app_cluster(SHOP) as shop, place.app_cluster(OTHER) as other:
        mine, theirs = Developer(shop, DATABASE), Developer(other, DATABASE)
        with story.step("A developer asks for a database and for credentials, in an app cluster"):
            await mine.claim_a_database()
        with story.step("A second developer uses the same names in another app cluster"):
            await theirs.claim_a_database()
        with story.step(
            "Crossplane and the operator create the databases; status and credentials arrive"
        ):
            for one in (mine, theirs):
                await one.is_ready(developer.INSTANCE)
                await one.is_ready(developer.BINDING)
            credentials = await mine.credentials()
            others = await theirs.credentials()
        with story.step("Write a row with these credentials"):
            await developer.ask(
                credentials,
                "CREATE TABLE orders (item text)",
                "INSERT INTO orders VALUES ('a bicycle')",
            )
        with story.step("Back up, drop the table, restore"):
            await mine.back_up("before-the-accident")
            await developer.ask(credentials, "DROP TABLE orders")
            await mine.restore("after-the-accident", "before-the-accident")
        with story.step("Read the row back"):
            rows = await developer.ask(credentials, "SELECT item FROM orders")
            print(f"   {', '.join(rows)}")
            if rows != ["a bicycle"]:
                fail("the row did not come back")
        with story.step("The other app cluster has a database of its own"):
            tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
            if await developer.ask(others, tables) != ["0"]:
                fail("two app clusters share a database")


async def write_a_secret_by_hand(place: Place) -> None:
    """Write a Secret beside one app cluster's copies, and see where it arrives."""
    async with (
        place.plane() as plane,
        place.app_cluster(SHOP) as shop,
        place.app_cluster(OTHER) as other,
    ):
        data = {"password": base64.b64encode(b"swordfish").decode()}
        made = build(SECRET, BY_HAND, namespace=home_of(SHOP), data=data)
        await plane.create(made, SECRET, manager="provider")
        print(f"   Secret {home_of(SHOP)}/{BY_HAND} on the control plane")
        await eventually(lambda: shop.get(Ref(shop.name, SECRET, TEAM, BY_HAND)))
        for cluster in (shop, other):
            found = await Developer(cluster, DATABASE).secrets()
            print(f"   Secrets in {TEAM} of {cluster.name}: {', '.join(found)}")
            if (BY_HAND in found) != (cluster is shop):
                fail(f"{cluster.name} has not its own Secrets alone")


async def take_the_claims_away(place: Place) -> None:
    """Change a binding by hand, as somebody with kubectl might."""
    async with place.app_cluster(SHOP) as cluster:
        name = developer.BINDING.resource
        binding = Ref(cluster.name, API_SERVICE_BINDING, names.KLUTCH_NAMESPACE, name)
        nothing: Manifest = {"spec": {"permissionClaims": []}}
        await cluster.merge_patch(binding, nothing, manager="somebody")
    print(f"   APIServiceBinding {name} in {SHOP} accepts no claims any more")


async def use_the_operator(place: Place, story: Story) -> None:
    """Do without Crossplane, in one app cluster."""
    async with place.app_cluster(OTHER) as cluster:
        one = Developer(cluster, "reports")
        with story.step("A developer creates claims of the operator's kinds, without Crossplane"):
            await one.claim_a_database_of_the_operator()
            await one.is_ready(developer.OPERATORS_BINDING)
            await developer.ask(await one.credentials(), "SELECT 'no detour'")


async def use_a_composite_resource(place: Place, story: Story) -> None:
    """Do without claims of Crossplane, in one app cluster."""
    async with place.app_cluster(OTHER) as cluster:
        one = Developer(cluster, "ledger")
        with story.step("A developer creates a composite resource; a label selects its Secret"):
            await one.claim_a_composite_resource()
            await one.is_ready(developer.DATABASE)
            credentials = await one.credentials()
            await developer.ask(credentials, "CREATE TABLE ledger AS SELECT 'an entry' AS item")
            if await developer.ask(credentials, "SELECT item FROM ledger") != ["an entry"]:
                fail("the row did not come back")


def raise_budget(fleet: Path) -> None:
    """Let more units leave at once."""
    file = fleet / "fleet.yaml"
    text = file.read_text().replace("maxDeletes: 3", "maxDeletes: 4")
    file.write_text(text.replace("maxDeletePercent: 25", "maxDeletePercent: 50"))


async def change_the_files(place: Place, story: Story, approved: tuple[str, ...]) -> None:
    """Put files into a copy of the fleet, and take one out of it."""
    fleet = place.changed_fleet
    shutil.copytree(FLEET, fleet)
    with story.step(
        "Bind the operator's own kinds, kinds of a broker, and a kind of Crossplane 2.x"
    ):
        for overlay in OVERLAYS:
            shutil.copytree(overlay, fleet, dirs_exist_ok=True)
        shutil.copytree(f"{BROKER}/fleet", fleet / "templates", dirs_exist_ok=True)
        await klutchctl("apply", str(fleet), *approved)
    await use_the_operator(place, story)
    await use_a_composite_resource(place, story)
    await broker_services.use_the_broker(place, story)
    with story.step("Remove a Binding from the files: a guard stops the release of too many units"):
        (fleet / "bindings" / "team-a" / "backups.yaml").unlink()
        await klutchctl("apply", str(fleet), *approved, wanted=ExitCode.HELD_BACK)
    with story.step("Raise the budget, and plan again"):
        raise_budget(fleet)
        await klutchctl(
            "plan", str(fleet), "--detailed-exitcode", *place.reach, wanted=ExitCode.CHANGES
        )
    with story.step("Apply: sync stops, and all data stays"):
        await klutchctl("apply", str(fleet), *approved)


async def road(place: Place, story: Story) -> None:
    """Walk the whole road with the clusters running."""
    approved = ("--auto-approve", "--wait", *place.reach)
    with story.step("Check the files"):
        await klutchctl("validate", FLEET)
    with story.step(
        "Plan: the changes for each cluster, and the line of the files behind each change"
    ):
        await klutchctl("plan", FLEET, "--detailed-exitcode", *place.reach, wanted=ExitCode.CHANGES)
    with story.step("Apply, and wait until all units are Ready"):
        await klutchctl("apply", FLEET, *approved)
    await use_the_service(place, story)
    with story.step("A Secret written by hand reaches its own app cluster only"):
        await write_a_secret_by_hand(place)
    with story.step("Change a binding by hand; the next apply repairs the drift"):
        await take_the_claims_away(place)
        await klutchctl("apply", FLEET, *approved)
    with story.step("Status of all units"):
        await klutchctl("status", FLEET, *place.reach)
    await change_the_files(place, story, approved)


def look_around(place: Place) -> None:
    """Tell how to go on with what was left running."""
    kubectl = ("kubectl", *place.reach, "--context")
    claims = ("get", "postgresqlinstances,servicebindings,secrets", "-n", TEAM)
    there = ("get", "claim,composite,managed,postgresqls", "-A")
    print("\nLeft running. Look around:")
    print(f"  {typed(KLUTCHCTL, 'sandbox', 'status', '--name', NAME)}")
    print(f"  {shlex.join((KLUTCHCTL, 'status', str(place.changed_fleet), *place.reach))}")
    board = shlex.join((KLUTCHCTL, "board", str(place.changed_fleet), *place.reach))
    print(f"  {board}   # the same in a browser")
    print(f"  {shlex.join((*kubectl, SHOP, *claims))}")
    print(f"  {shlex.join((*kubectl, 'cp-eu', *there))}")
    print(f"  {shlex.join(('ls', str(place.layout.logs)))}   # the log of each program")
    if place.has_a_front_door:
        print(f"  In a browser: {place.catalogue()}")
    print("Stop what you like, also konnectors. This starts again what does not run:")
    print(f"  {typed('make', '-C', str(Path.cwd()), 'again')}")
    print(ending())


def typed(*words: str) -> str:
    """Return a command as one types it: it finds the sandbox where this run was told to have it."""
    printed = f"{_STATE}={shlex.quote(os.environ[_STATE])} " if _STATE in os.environ else ""
    return f"{printed}{shlex.join(words)}"


def ending() -> str:
    return f"End it with: {typed(KLUTCHCTL, 'sandbox', 'down', '--delete', '--name', NAME)}"


def is_kept(environ: Mapping[str, str]) -> bool:
    """Tell whether KEEP asks to leave all of it running."""
    return environ.get("KEEP", "").lower() not in ("", "0", "no", "false", "off")


async def demo(place: Place) -> None:
    story = Story()
    if place.layout.root.exists():
        with story.step("Remove the sandbox of an earlier demo"):
            await klutchctl("sandbox", "down", "--delete", "--name", NAME)
    async with fetching.fetched():
        with story.step(
            "Start a control plane with services and klutch-bind, and app clusters with konnectors"
        ):
            beside = ("--services", "--programs")
            await klutchctl("sandbox", "up", "--name", NAME, "--fleet", FLEET, *beside)
        async with front_door.prepared(place) as preparation:
            await road(place, story)
            await front_door.use_the_front_door(place, story, preparation)
    if not is_kept(os.environ):
        with story.step("Remove the sandbox"):
            await klutchctl("sandbox", "down", "--delete", "--name", NAME)
    story.where_the_time_went()
    if is_kept(os.environ):
        look_around(place)


async def again(place: Place) -> None:
    """Start what does not run any more of a demo that was left running."""
    if not place.layout.root.exists():
        fail("there is no demo that was left running; `make demo KEEP=1` leaves it")
    await klutchctl("sandbox", "up", "--name", NAME)


def interrupt_once() -> None:
    """Let the first SIGINT, SIGTERM or SIGHUP interrupt; those after it leave the clean-up alone.

    Who ends a group of processes, or make, often sends two. `nohup` keeps its word.
    """
    interrupted = False

    def interrupt(_number: int, _frame: object) -> None:
        nonlocal interrupted
        if not interrupted:
            interrupted = True
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, interrupt)


def end_with_make(make: int) -> None:
    """Be interrupted where make dies, so that nobody goes on unseen. Only Linux can do that.

    `make` is its pid. Raises KeyboardInterrupt where it is dead already.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != make:
            raise KeyboardInterrupt


def main(make: int) -> None:
    """Run the demo and end the process, by the exit code of an interruption where there was one.

    `make` is the pid of who started it. What does not come in time, and whoever does not answer, is
    told in a sentence.
    """
    try:
        run(make)
    except (KlutchError, AssertionError, psycopg.Error) as error:
        fail(str(error).strip())
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise SystemExit(ExitCode.INTERRUPTED) from None
    except BrokenPipeError:  # nobody reads any more what it tells
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(ExitCode.INTERRUPTED) from None


def run(make: int) -> None:
    """Run the demo; one that does not come to its end leaves nothing behind, unless told to.

    One at a time: another one waits for the end of this. With the argument `again`, only start what
    does not run of one that was left.
    """
    interrupt_once()
    end_with_make(make)
    place = Place(layout_of(NAME, state_home=Settings(os.environ).state_home))
    folder = place.layout.root.parent
    files.private_folder(folder)
    with files.exclusive(folder / f".{NAME}.demo.lock", "the demo", Lines(sys.stdout)):
        if sys.argv[1:] == ["again"]:
            uvloop.run(again(place))
            return
        try:
            uvloop.run(demo(place))
        except BaseException:
            if is_kept(os.environ):
                leave(place.layout.logs)
            else:
                take_down()
            raise


def leave(logs: Path) -> None:
    """Say what is left of a demo that did not come to its end, if anybody reads it."""
    with contextlib.suppress(OSError):
        print(f"\nThe demo ends early, and is left as it is. Logs: {logs}", flush=True)
        print(ending(), flush=True)


def take_down() -> None:
    """Have nothing of the demo left, also where nobody can be told of it any more."""
    output = None
    try:
        print("\nThe demo ends early: it is taken down", flush=True)
    except OSError:  # the terminal or pipe is gone
        output = subprocess.DEVNULL
    # Somebody may kill the first one, too.
    if not any(_is_down(output) for _ in range(2)) and output is None:
        print(f"It could not be taken down. {ending()}", flush=True)


def _is_down(output: int | None) -> bool:
    """Take the sandbox down, where no Ctrl-C reaches it, and return whether it is."""
    done = subprocess.run(
        [KLUTCHCTL, "sandbox", "down", "--delete", "--name", NAME],
        check=False,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
    )
    return done.returncode == ExitCode.SUCCESS
