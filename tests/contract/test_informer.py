"""An informer before a real API server whose connection, rights and kinds come and go."""

import json
import time
from dataclasses import dataclass

import orjson
import pytest

from reconciler.core.manifest import Manifest, get_map, name_of, put
from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.kube import informer as informers
from reconciler.kube import limits as informer_limits
from reconciler.kube.client import KubeCluster
from reconciler.kube.informer import Informer, ReadYourWrites
from reconciler.kube.limits import Limits
from tests.support import churn, removal
from tests.support.cues import Cue, Delay
from tests.support.eventually import eventually
from tests.support.fault_proxy import FaultProxy
from tests.support.http_faults import Body, Cut, Effect, Inject, Point, Request, answer, gone, on

# What the control plane itself puts into each new namespace, some time after it was made.
ROOT_CA = "kube-root-ca.crt"


@dataclass
class World:
    """ConfigMaps of a namespace as an administrator sees them, and an informer behind a proxy."""

    administrator: KubeCluster
    namespace: str
    proxy: FaultProxy
    cluster: KubeCluster
    consumer: churn.Consumer | None = None

    def informer(self, **options):
        options = {"namespace": self.namespace, "indexes": churn.INDEXES} | options
        informer = Informer(self.cluster, CONFIG_MAP, **options)
        self.consumer = churn.Consumer(informer.store)
        return informer

    @property
    def woken(self):
        """The names that changed since the last `miss`."""
        assert self.consumer is not None
        return {value for index, value in self.consumer.pending if index == "name"}

    def ref(self, name):
        return Ref(self.administrator.name, CONFIG_MAP, self.namespace, name)

    async def create(self, name, **labels):
        metadata = {"name": name, "namespace": self.namespace, "labels": labels}
        manifest: Manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        return await self.administrator.create(manifest, CONFIG_MAP, manager=churn.MANAGER)

    async def patch(self, name, patch):
        return await self.administrator.merge_patch(self.ref(name), patch, manager=churn.MANAGER)

    async def delete(self, name):
        await removal.remove(self.administrator, self.ref(name))

    async def miss(self, informer):
        """Change much while the informer has no connection, and return a tally."""
        self.proxy.refuse()
        self.proxy.cut("rst")
        await eventually(lambda: "no connection" in informer.trouble)
        assert self.consumer is not None
        self.consumer.pending.clear()
        before = churn.seen(informer.store)
        await self.delete("deleted")
        if "moved" in names(informer):
            await self.delete("moved")
            await self.create("moved", team="blue")
            await self.patch("changed", {"data": {"a": "b"}})
            await self.create("new")
        assert churn.seen(informer.store) == before
        return Tally()

    async def shows(self, informer, **selection):
        """Wait until the view is what the server holds, and nothing says otherwise."""

        async def probe():
            there = await churn.truth(self.administrator, CONFIG_MAP, self.namespace, **selection)
            assert churn.seen(informer.store) == there
            return informer.synced and not informer.trouble

        await eventually(probe)


@pytest.fixture
async def cluster(proxy, limits):
    async with KubeCluster(proxy.connection, limits=limits) as cluster:
        yield cluster


@pytest.fixture
def limits():
    return churn.IMPATIENT


@pytest.fixture
async def world(control_plane, namespace, proxy, cluster):
    """A namespace in which nobody but the test changes anything any more."""
    world = World(control_plane.cluster, namespace, proxy, cluster)
    await eventually(lambda: control_plane.cluster.get(world.ref(ROOT_CA)))
    return world


class Tally:
    """An effect that counts."""

    def __init__(self):
        self.count = 0

    async def perform(self, _call):
        self.count += 1


def names(informer):
    return {name_of(one) for one in informer.store.all()} - {ROOT_CA}


# What is followed


async def test_a_view_follows_what_happens(world):
    await world.create("old")
    await world.create("leaving")
    async with churn.following(world.informer()) as informer:
        assert not informer.synced
        await informer.wait_synced()
        assert names(informer) == {"old", "leaving"}
        await world.create("new", team="red")
        await world.patch("old", {"data": {"a": "é"}})
        await world.delete("leaving")
        await world.shows(informer)
        assert world.woken >= {"old", "new", "leaving"}
        assert "managedFields" not in str(informer.store.get(world.namespace, "old"))


async def test_what_leaves_a_selection_leaves_the_view(world):
    await world.create("a", team="red")
    await world.create("b", team="blue")
    async with churn.following(world.informer(labels="team=red")) as informer:
        await informer.wait_synced()
        assert names(informer) == {"a"}
        await world.patch("b", {"metadata": {"labels": {"team": "red"}}})
        await world.patch("a", {"metadata": {"labels": {"team": "blue"}}})
        await world.shows(informer, labels="team=red")
        assert names(informer) == {"b"}


async def test_metadata_alone_is_the_same_from_a_list_and_from_a_watch(world):
    await world.create("listed")
    await world.patch("listed", {"data": {"secret": "text"}})
    async with churn.following(world.informer(metadata_only=True)) as informer:
        await informer.wait_synced()
        await world.create("watched")
        await world.patch("watched", {"data": {"secret": "text"}})
        await eventually(lambda: names(informer) == {"listed", "watched"})
        listed, watched = (informer.store.get(world.namespace, n) for n in ("listed", "watched"))
        assert listed is not None
        assert watched is not None
        assert listed.keys() == watched.keys() == {"apiVersion", "kind", "metadata"}
        assert listed["kind"] == watched["kind"]
        assert get_map(listed, "metadata").keys() == get_map(watched, "metadata").keys()


@pytest.mark.parametrize("limits", [Limits()], ids=["patient"])
async def test_a_later_run_goes_on_where_the_first_ended(world):
    lists = Tally()
    world.proxy.add(on("GET", r"/configmaps$", query=r"limit=(?!1\b)"), lists)
    await world.create("listed")
    informer = world.informer()
    async with churn.following(informer):
        await world.create("a")
        await world.shows(informer)
    pages = lists.count
    await world.create("b")
    await world.delete("a")
    async with churn.following(informer):
        await world.shows(informer)
    assert lists.count == pages > 0


# What befalls the connection


@pytest.fixture
def restless(monkeypatch):
    monkeypatch.setattr(informer_limits, "_LONGEST_PAUSE", 0.3)


@dataclass(frozen=True)
class Fault:
    """What the first requests meet, once the server takes connections again."""

    effects: tuple[Effect, ...]
    at: Point | None = None
    cue: Cue[Request] = churn.WATCHES
    times: int = 2


def fault(*effects, **how):
    return Fault(effects, **how)


def event(kind, **metadata):
    return orjson.dumps({"type": kind, "object": {"metadata": metadata}})


ANOTHER = event("MODIFIED", name="x", resourceVersion="1")
NAMELESS = event("ADDED", resourceVersion="9" * 15)
NO_VERSION = event("BOOKMARK")
LIST = {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "9" * 9}}
NAMELESS_LIST = json.dumps({**LIST, "items": [{}]})
LOST = {"metadata": {"name": "lost", "namespace": "x", "resourceVersion": "9" * 9}}
SET_BACK = json.dumps({**LIST, "items": [LOST]})
NO_JSON = "<html>"

# What the client makes of other answers is one of these: see test_client_faults.
FAULTS = {
    "nothing more": None,
    "the watch is reset inside a line": fault(Cut("rst"), at=Body(octets=1)),
    "410 after an event": fault(gone(), at=Body(lines=1), times=1),
    "410 in place of a watch": fault(answer(410)),
    "403": fault(answer(403)),
    "a 404 of a gateway": fault(answer(404, NO_JSON)),
    "a watch that ends at once": fault(answer(200, "")),
    "silence after an event": fault(Delay(churn.SILENCE + 1), at=Body(lines=1), times=1),
    "another history": fault(Inject(ANOTHER), at=Body()),
    "an object without a name": fault(Inject(NAMELESS), at=Body()),
    "an event without a place": fault(Inject(NO_VERSION), at=Body()),
    "410, and lists are cut": fault(Cut("rst"), at=Body(octets=500), cue=on("GET"), times=4),
}


@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_what_was_missed_is_made_up_for(world, fault):
    for name in ("deleted", "changed", "same", "moved"):
        await world.create(name, team="red")
    async with churn.following(world.informer(silence=churn.SILENCE)) as informer:
        await world.shows(informer)
        met = await world.miss(informer)
        if fault is not None:
            world.proxy.add(fault.cue.first(fault.times), met, *fault.effects, at=fault.at)
        await world.proxy.accept()
        await world.shows(informer)
        assert world.woken == {"deleted", "changed", "moved", "new"}
        assert world.consumer.backwards == []
        # Where all is slow, a client may have left before its turn.
        assert met.count in (range(1, fault.times + 1) if fault else (0,))


BROKEN_LISTS = {
    "410 there too": answer(410),
    "a list of something else": answer(200, '{"kind":"List","items":[]}'),
    "an object without a name": answer(200, NAMELESS_LIST),
}


@pytest.mark.usefixtures("restless")
@pytest.mark.parametrize("broken", BROKEN_LISTS.values(), ids=BROKEN_LISTS.keys())
async def test_a_list_that_cannot_be_had_takes_nothing_away(world, broken):
    await world.create("deleted")
    async with churn.following(world.informer()) as informer:
        await world.shows(informer)
        before = churn.seen(informer.store)
        met = await world.miss(informer)
        world.proxy.add(churn.WATCHES.nth(1), gone(), at=Body())
        world.proxy.add(churn.LISTS, met, broken)
        await world.proxy.accept()
        await eventually(lambda: met.count > 4)
        assert churn.seen(informer.store) == before
        assert informer.synced
        assert "list ConfigMap" in informer.trouble
        world.proxy.rules.clear()
        await world.shows(informer)


@pytest.mark.usefixtures("restless")
async def test_a_server_that_was_set_back_is_read_again(world, caplog, monkeypatch):
    """A watch from a version that is yet to come is silent, also for bookmarks."""
    monkeypatch.setattr(informers, "_WELL_AFTER", 0.0)
    world.proxy.add(churn.LISTS.nth(1), answer(200, SET_BACK))
    recent = ReadYourWrites(informer := world.informer(silence=churn.SILENCE))
    async with churn.following(informer):
        await informer.wait_synced()
        recent.wrote(put(LOST, "8" * 9, "metadata", "resourceVersion"))
        await world.create("new")
        await world.shows(informer)
        assert recent.get("x", "lost") is None
        assert "out of date" in caplog.text


@pytest.mark.parametrize("end", [Delay(churn.SILENCE + 1), Cut("rst")], ids=["silent", "cut"])
async def test_a_watch_that_can_be_resumed_is_no_trouble(world, caplog, monkeypatch, end):
    monkeypatch.setattr(informers, "_WELL_AFTER", 0.0)
    async with churn.following(world.informer(silence=churn.SILENCE)) as informer:
        await world.shows(informer)
        world.proxy.add(churn.WATCHES.first(3), end, at=Body(lines=1))
        for name in ("a", "b", "c"):
            await world.create(name)
            await world.shows(informer)
        await eventually(lambda: informer.restarts > 2)
        assert (informer.trouble, "out of date" in caplog.text) == ("", False)


async def test_a_watch_that_is_always_too_old_is_no_loop_of_lists(world, caplog, monkeypatch):
    monkeypatch.setattr(informers, "_WELL_AFTER", 0.0)
    lists, began = Tally(), time.monotonic()
    world.proxy.add(churn.LISTS, lists)
    world.proxy.add(churn.WATCHES, gone(), at=Body())
    async with churn.following(world.informer()) as informer:
        await eventually(lambda: lists.count == 4)
        assert "out of date" in caplog.text  # until there is a list, the view is of another history
        # The least that the pauses between four of them come to.
        assert time.monotonic() - began >= 0.2 + 0.4 + 0.8
        world.proxy.rules.clear()
        await world.shows(informer)
