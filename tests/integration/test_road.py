"""The whole road, with real parts: from claims in app clusters to databases, and back.

Two app clusters, one control plane with Crossplane, a service operator and PostgreSQL, klutch-bind
and two konnectors, all of them processes that can be killed. `SEEDS` says how many random stories
of deaths are lived through.
"""

import asyncio
import os
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
import yaml

from klutchctl.entry import ExitCode
from klutchctl.sandbox import processes
from klutchctl.sandbox.state import layout_of
from klutchctl.settings import Settings
from reconciler.core.manifest import (
    Manifest,
    get_int,
    get_text,
    is_deleting,
    name_of,
    namespace_of,
    uid_of,
)
from reconciler.core.refs import COMPOSITION, SECRET, Kind, Ref
from reconciler.kube.client import KubeCluster
from tests.demo import developer
from tests.demo.developer import BINDING, INSTANCE, Developer
from tests.demo.place import FLEET, OTHER, SHOP, TEAM, Place, home_of
from tests.demo.telling import klutchctl
from tests.support import removal
from tests.support.eventually import eventually

pytestmark = pytest.mark.timeout(900)

SEEDS = range(int(os.environ.get("SEEDS", "3")))
NAME = "road"
MANAGED = Kind("servicebindings.anynines.com", "v1beta3", "ServiceBinding", "servicebindings")
OBJECT = Kind("kubernetes.crossplane.io", "v1alpha2", "Object", "objects", namespaced=False)
ROTATE = "postgresql.anynines.com/rotate"
KILLED = (
    "klutch-bind:cp-eu",
    f"konnector:{SHOP}",
    f"konnector:{OTHER}",
    "crossplane",
    "postgresql-operator",
)
LONG = 240.0  # seconds
# Crossplane's runtime believes in the end of what is younger than half a minute a minute later.
LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class Road:
    """A fleet that is bound, and its clusters."""

    place: Place
    plane: KubeCluster
    shop: KubeCluster
    other: KubeCluster
    crossplane: str  # the line that it began with

    def app_cluster(self, context: str) -> KubeCluster:
        return self.shop if context == SHOP else self.other

    async def repair(self) -> None:
        """Start again whatever was killed."""
        await klutchctl("sandbox", "up", "--name", NAME)

    def kill(self, name: str) -> None:
        """Kill a program of the sandbox, if it runs."""
        layout = self.place.layout
        mark = processes.identity(layout, name)
        for one in processes.observe(layout):
            if one.identity == mark:
                with suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)

    async def objects(self) -> dict[tuple[str, str], str]:
        """Return the uids of composed objects, and of those of the operator."""
        found = {}
        for kind in (developer.OPERATORS_INSTANCE, MANAGED, OBJECT):
            for one in (await self.plane.list(kind)).items:
                found[f"{kind}", f"{namespace_of(one)}/{name_of(one)}"] = uid_of(one)
        return found

    async def databases(self) -> int:
        address = self.place.layout.postgresql_address.read_text().strip()
        async with await psycopg.AsyncConnection.connect(address) as connection:
            found = await connection.execute(
                "SELECT count(*) FROM pg_database WHERE NOT datistemplate AND datname <> 'postgres'"
            )
            row = await found.fetchone()
        assert row is not None
        return int(row[0])


@asynccontextmanager
async def laid(home: Path, fleet: str, crossplane: str) -> AsyncIterator[Road]:
    """Run the sandbox of a fleet that is bound; its logs stay in the folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(Settings(os.environ).cache_home))
        patch.setenv("XDG_STATE_HOME", str(home))
        place = Place(layout_of(NAME, state_home=home))
        try:
            beside = ("--services", f"--crossplane={crossplane}", "--programs")
            await klutchctl("sandbox", "up", "--name", NAME, "--fleet", fleet, *beside)
            async with (
                place.plane() as plane,
                place.app_cluster(SHOP) as shop,
                place.app_cluster(OTHER) as other,
            ):
                await klutchctl("apply", fleet, "--auto-approve", "--wait", *place.reach)
                yield Road(place, plane, shop, other, crossplane)
        finally:
            shutil.copytree(place.layout.logs, home / "logs")
            await klutchctl("sandbox", "down", "--delete", "--name", NAME)


@pytest.fixture(scope="module")
async def road(programs: object, tmp_path_factory: Any) -> AsyncIterator[Road]:
    async with laid(tmp_path_factory.mktemp("road"), FLEET, "1.20") as made:
        await provided(made.shop, LEAVING)
        yield made


async def provided(cluster: KubeCluster, name: str) -> tuple[Developer, dict[str, str]]:
    """Claim a database with credentials, and return those."""
    one = Developer(cluster, name)
    await one.claim_a_database()
    await one.is_ready(INSTANCE)
    return one, dict(await one.credentials())


async def delete(cluster: KubeCluster, kind: Kind, name: str) -> None:
    await removal.remove(cluster, Ref(cluster.name, kind, TEAM, name))


async def gone(cluster: KubeCluster, kind: Kind, name: str) -> bool:
    return await cluster.get(Ref(cluster.name, kind, TEAM, name)) is None


async def test_credentials_that_are_rotated_on_the_control_plane_arrive(road: Road) -> None:
    one, before = await provided(road.shop, "rotated")
    ref = Ref(road.plane.name, MANAGED, home_of(SHOP), "rotated")
    note: Manifest = {"metadata": {"annotations": {ROTATE: "now"}}}
    await road.plane.merge_patch(ref, note, manager="operator")

    async def arrives() -> dict[str, str] | None:
        now = dict(await one.credentials())
        return now if now["password"] != before["password"] else None

    after = await eventually(arrives, within=LONG)
    assert after is not None
    assert await developer.ask(after, "SELECT 1") == ["1"]
    with pytest.raises(psycopg.OperationalError):
        await developer.ask(before, "SELECT 1")


async def test_a_database_goes_only_after_its_policy_allows_it(road: Road) -> None:
    credentials = await Developer(road.shop, LEAVING).credentials()
    count = await road.databases()
    for policy in ("Immediate", None):  # somebody thinks better of it
        claim = Ref(road.shop.name, INSTANCE, TEAM, LEAVING)
        wanted: Manifest = {"spec": {"parameters": {"deletionPolicy": policy}}}
        await road.shop.merge_patch(claim, wanted, manager="developer")
        await eventually(partial(goes_by, road, policy or "WhenUnbound"), within=LONG)
    await delete(road.shop, INSTANCE, LEAVING)

    async def is_reported() -> bool:
        claim = await road.shop.get(Ref(road.shop.name, INSTANCE, TEAM, LEAVING))
        copy = await road.plane.get(Ref(road.plane.name, INSTANCE, home_of(SHOP), LEAVING))
        return claim is not None and copy is not None and is_deleting(claim) and is_deleting(copy)

    await eventually(is_reported, within=LONG)
    assert await developer.ask(credentials, "SELECT 1") == ["1"]
    await delete(road.shop, BINDING, LEAVING)
    await eventually(lambda: gone(road.shop, INSTANCE, LEAVING), within=LONG)
    await eventually(lambda: gone(road.shop, SECRET, f"{LEAVING}-creds"), within=LONG)
    await eventually(lambda: has(road, count - 1), within=LONG)
    with pytest.raises(psycopg.OperationalError):
        await developer.ask(credentials, "SELECT 1")


@pytest.mark.soak
async def test_any_program_may_die_and_all_ends_the_same(road: Road) -> None:
    """Three stories at a time, which share their deaths."""
    seeds = [*SEEDS]
    for three in (seeds[at : at + 3] for at in range(0, len(seeds), 3)):
        before, deaths = await road.databases(), Deaths(road)
        stories = [Story(road, deaths, seed) for seed in three]
        await asyncio.gather(*(one.happens() for one in stories))
        await road.repair()
        for one in stories:
            await one.has_ended_well()
        kept = sum(one.kept for one in stories)
        await eventually(lambda: has(road, before + kept), within=LONG)  # noqa: B023


@pytest.mark.soak
async def test_from_mode_resources_to_crossplane_2_databases_stay_with_all_that_is_written(
    road: Road,
) -> None:
    """As the page has it. The last of all: there is no way back."""
    up = ("sandbox", "up", "--name", NAME)
    looks = ("doctor", FLEET, *road.place.reach)
    sides = ((SHOP, road.shop), (OTHER, road.other))
    before = {side: (await provided(cluster, "moving"))[1] for side, cluster in sides}
    await developer.ask(before[SHOP], "CREATE TABLE t (n serial)")
    await by_resources(road)
    objects = await road.objects()
    async with writing(before[SHOP]) as rows:
        await klutchctl(*looks, wanted=ExitCode.HELD_BACK)
        await klutchctl(*up, "--crossplane=2.4", wanted=ExitCode.FAILED)
        await klutchctl(*up, "--crossplane=1.20")  # converts: it applies the example
        await composed(road, "medium", 40)
        await klutchctl(*looks)
        await klutchctl(*up, "--crossplane=2.4")
        await composed(road, "big", 80)
        await klutchctl(*looks)
        await klutchctl(*up, "--crossplane=1.20", wanted=ExitCode.FAILED)
        await klutchctl(*up, "--crossplane=2.4")
        await provided(road.shop, "later")
    assert objects.items() <= (await road.objects()).items()
    for side, cluster in sides:
        one = Developer(cluster, "moving")
        await one.is_ready(INSTANCE)
        assert dict(await one.credentials()) == before[side]
    assert await developer.ask(before[SHOP], "SELECT count(*) FROM t") == [str(rows.total())]


def without_pipelines() -> Iterator[Manifest]:
    """Yield the compositions of the example as they were once."""
    for path in Path(FLEET, "services", "crossplane").glob("*s.yaml"):
        for document in yaml.safe_load_all(path.read_text("utf-8")):
            if document["kind"] == "Composition":
                [step] = document["spec"].pop("pipeline")
                document["spec"] |= {"mode": "Resources", "resources": step["input"]["resources"]}
                yield document


async def by_resources(road: Road) -> None:
    """Compose as the example did once, and wait until that has happened."""
    for one in without_pipelines():
        await road.plane.apply(one, COMPOSITION, manager="klutchctl", force=True)
    await composed(road, "small", 20)


async def composed(road: Road, size: str, connections: int) -> None:
    """Ask for a plan on both sides, and wait until the operator's objects have it."""
    plan: Manifest = {"spec": {"plan": f"postgresql-single-{size}"}}
    for cluster in (road.shop, road.other):
        ref = Ref(cluster.name, INSTANCE, TEAM, "moving")
        await cluster.merge_patch(ref, plan, manager="developer")

    async def arrived() -> bool:
        found = (await road.plane.list(developer.OPERATORS_INSTANCE)).items
        moving = [get_int(one, "spec", "connections") for one in found if name_of(one) == "moving"]
        return moving == [connections, connections]

    await eventually(arrived, within=LONG)


@asynccontextmanager
async def writing(credentials: dict[str, str]) -> AsyncIterator[Counter[str]]:
    """Insert rows for the length of the block, and count them."""
    rows, ends = Counter[str](), asyncio.Event()

    async def insert() -> None:
        uri = credentials["uri"]
        async with await psycopg.AsyncConnection.connect(uri, autocommit=True) as way:
            while not ends.is_set():
                await way.execute("INSERT INTO t DEFAULT VALUES")
                rows["written"] += 1
                await asyncio.sleep(0.02)

    task = asyncio.create_task(insert())
    yield rows
    ends.set()
    await task


class Deaths:
    """Kills programs at random, and starts them again, one repair at a time."""

    def __init__(self, road: Road) -> None:
        self._road, self._repairing = road, asyncio.Lock()

    async def strike(self, random: Random) -> None:
        self._road.kill(random.choice(KILLED))
        if random.random() < 0.4:
            async with self._repairing:
                await self._road.repair()


class Story:
    """What developers of two app clusters do while programs die.

    One in three of what they claim goes again, on this side for one seed, on that for the next.
    """

    def __init__(self, road: Road, deaths: Deaths, seed: int) -> None:
        self._road, self._deaths, self._random = road, deaths, Random(seed)
        self._leaving = seed % 3
        self._prefix = f"seed-{seed}-"
        self._wanted: dict[str, set[str]] = {SHOP: set(), OTHER: set()}

    @property
    def kept(self) -> int:
        """How many databases are left in the end."""
        return sum(map(len, self._wanted.values()))

    async def happens(self) -> None:
        claimed: list[tuple[str, str]] = []
        for context in (SHOP, OTHER, SHOP):
            await self._deaths.strike(self._random)
            name = f"{self._prefix}{len(claimed)}"
            await Developer(self._road.app_cluster(context), name).claim_a_database()
            claimed.append((context, name))
            self._wanted[context].add(name)
            await self._deaths.strike(self._random)
        context, name = claimed[self._leaving]
        for kind in (BINDING, INSTANCE):
            await delete(self._road.app_cluster(context), kind, name)
        self._wanted[context].discard(name)
        await self._deaths.strike(self._random)

    async def has_ended_well(self) -> None:
        for context, names in self._wanted.items():
            for name in sorted(names):
                one = Developer(self._road.app_cluster(context), name)
                await one.is_ready(INSTANCE)
                assert await developer.ask(await one.credentials(), "SELECT 1") == ["1"]
            await eventually(
                lambda: alike(self._road, context, self._prefix, names),  # noqa: B023
                within=LONG,
            )


async def goes_by(road: Road, policy: str) -> bool:
    made = Ref(road.plane.name, developer.OPERATORS_INSTANCE, home_of(SHOP), LEAVING)
    return get_text(await road.plane.get(made), "spec", "deletionPolicy") == policy


async def has(road: Road, databases: int) -> bool:
    return await road.databases() == databases


async def alike(road: Road, context: str, prefix: str, names: set[str]) -> bool:
    """Return if both sides have just these instances, and the app cluster their credentials."""
    app = road.app_cluster(context)
    here = (await app.list(INSTANCE, namespace=TEAM)).items
    there = (await road.plane.list(INSTANCE, namespace=home_of(context))).items
    secrets = (await app.list(SECRET, namespace=TEAM)).items
    for found in (here, there):
        mine = {name_of(one) for one in found if name_of(one).startswith(prefix)}
        if mine != names:
            return False
    brought = {name_of(one) for one in secrets if name_of(one).startswith(prefix)}
    return brought == {f"{name}-creds" for name in names}
