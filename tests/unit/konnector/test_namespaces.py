"""What holds a mapping whose app namespace was deleted, though no sync tells of copies (U1, T3)."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from konnector.claim.copies import Pair
from konnector.claim.orphans import Terms
from konnector.namespace.controller import Namespaces
from konnector.provider import sync_manager
from konnector.provider.sync_manager import Syncs, Wanted
from reconciler.blueprints.objects import namespace
from reconciler.core import keys
from reconciler.core.decision import Delete
from reconciler.core.errors import Forbidden, NotServed
from reconciler.core.refs import Kind, ObjectKey, Ref
from tests.support.space_objects import NOW, SPACE, ago, crd, deleting, export, live_like, mapping

NAME = "databases.shop.example"
EXPORT, WIDE = export(), export(crd(scope="Cluster"))
BINDING = {"metadata": {"name": NAME}}
BOUND = {keys.BOUND: "true", keys.ORPHANED: ago(hours=1)}
RELEASED = {keys.RELEASED: ago(hours=1)}
ENDED = {
    keys.APP_CLUSTER_UID: "app",
    keys.APP_NAMESPACE_UID: "dev",
    keys.APP_NAMESPACE_DELETED: ago(hours=1),
}


class Plane:
    """A control plane that serves databases in some versions, with one copy."""

    name = "control-plane"

    def __init__(self, notes, serves=("v1",), allowed=True, scope="Namespaced"):
        self.notes, self.serves, self.allowed, self.scope = notes, serves, allowed, scope
        self.listed = 0

    async def versions(self, group):
        assert group == "shop.example"
        return self.serves

    async def kind(self, group, version, plural):
        return Kind(group, version, "Database", plural, self.scope == "Namespaced")

    async def list(self, kind, *, namespace, metadata_only):
        assert (kind.group, namespace, metadata_only) == ("shop.example", "cluster-a1-dev", True)
        ref = Ref(self.name, kind, namespace, "")
        self.listed += 1
        if kind.version not in self.serves:
            raise NotServed("not served", ref=ref, verb="list")
        if not self.allowed:
            raise Forbidden("no", ref=ref, verb="list")
        return SimpleNamespace(items=[{"metadata": {"name": "orders", "annotations": self.notes}}])


class World:
    """A space without any sync, and one mapping of an app namespace that was deleted."""

    def __init__(self, plane, *, exports=(), binding=None, bound=(), unfollowed=()):
        self.now, self.decisions, self.notes, self.said = 0.0, list[Any](), list[Any](), set()
        self.unread, self.missing, self.live = True, list[str](), None
        home = live_like(mapping(namespace="cluster-a1-dev"), annotations=ENDED)
        named = {one["metadata"]["name"]: one for one in exports}
        clock = SimpleNamespace(now=lambda: NOW, monotonic=lambda: self.now)
        app = SimpleNamespace(name="app-cluster", get=self.nothing)
        guards = SimpleNamespace(
            kind_guard=lambda _: SimpleNamespace(note=lambda *_, **__: None),
            mismatch=lambda: "", terms=Terms, app_cluster_uid="app", confirmed=False,
            has_orphans=lambda _: False, confirmed_namespace=lambda _: "",
            note_namespace=lambda *_: None, deletes_in=lambda: None,
            look_at_app_cluster=self.nothing, look_at_confirmations=self.nothing,
        )  # fmt: skip
        views = SimpleNamespace(
            space=SPACE,
            cluster_binding=None,
            mappings=SimpleNamespace(get=lambda *_: home),
            exports=SimpleNamespace(names=lambda _: list(named)),
            export=named.get,
        )
        callbacks = SimpleNamespace(
            binding=lambda _: binding,
            bound=lambda: bound,
            unfollowed=lambda _: iter(unfollowed),
            notify_one=self.notes.append,
        )
        link: Any = SimpleNamespace(
            agent=SimpleNamespace(
                namespaces=SimpleNamespace(get=lambda *_: self.live), clock=clock, app=app
            ),
            guards=guards, views=views, plane=plane, callbacks=callbacks, space_uid="space",
            troubles=self, executor=self,
        )  # fmt: skip
        syncs: Any = SimpleNamespace(
            needs=lambda _: False, has_copies=lambda _: False, settled=True, kinds=[],
            runs=lambda _: not self.unread, missing=lambda _: self.missing,
            vouches=lambda _: False, has_brought=lambda _: False, are_stamped=lambda _: False,
        )  # fmt: skip
        self.link, self.guards, self.views, self.plane = link, guards, views, plane
        self.follow(syncs)

    def follow(self, syncs):
        self.namespaces = Namespaces(self.link, syncs)
        return syncs

    async def nothing(self, *_, **__):
        return None

    async def execute(self, decision):
        self.decisions.append(decision)

    def report(self, resource, about, problem):
        assert about == "app namespace dev"
        (self.said.add if problem else self.said.discard)(resource)

    @property
    def deletes(self):
        return any(isinstance(step, Delete) for one in self.decisions for step in one.steps)

    async def looks(self):
        """Look for long enough that a condition names what is held."""
        for seconds in (0, 61, 61):
            self.now += seconds
            await self.namespaces.reconcile("dev")


HOLDING = {
    "an export that is bound": {"exports": [EXPORT], "binding": BINDING, "bound": [NAME]},
    "one whose binding goes": {"exports": [EXPORT], "binding": deleting(BINDING), "bound": [NAME]},
    "one that is not bound, as while its Secret is missing": {"exports": [EXPORT]},
    "one in a version that is served no more": {
        "exports": [EXPORT], "binding": BINDING, "bound": [NAME],
        "plane": Plane(BOUND, serves=["v2"]),
    },
    "a binding that has lost its export": {"binding": BINDING, "bound": [NAME]},
    "also where the rights went along": {
        "binding": BINDING, "bound": [NAME], "plane": Plane({}, allowed=False),
    },
    "one that may lead here, as while its Secret is broken": {"unfollowed": [NAME]},
}  # fmt: skip


@pytest.mark.parametrize("facts", HOLDING.values(), ids=HOLDING)
async def test_what_may_have_copies_holds_and_is_reported(facts):
    world = World(**{"plane": Plane(BOUND), **facts})
    await world.looks()
    assert not world.deletes
    assert world.said == {NAME}
    noted = [] if "binding" in facts else ["CopiesKept"]  # no binding says so
    assert [note.reason for note in world.notes] == noted


async def test_what_no_binding_says_is_reported_once_of_all_kinds_and_again_of_new_ones():
    """Events about other things would not get through else."""
    world = World(Plane(BOUND), unfollowed=(kinds := [NAME]))
    kinds += [f"{one}.shop.example" for one in ("a", "b", "c", "d", "e")]
    for _ in range(3):
        await world.looks()
    (note,) = world.notes
    named = "a.shop.example, b.shop.example, c.shop.example, d.shop.example and 2 more"
    assert f"there may be copies of {named} behind it, and no APIServiceBinding" in note.message
    assert "Bind them again" in note.message
    kinds.append("f.shop.example")
    await world.looks()
    assert len(world.notes) == 2
    world.plane.notes = RELEASED
    await world.looks()
    assert world.deletes


@pytest.mark.parametrize("facts", HOLDING.values(), ids=HOLDING)
async def test_it_goes_once_the_copies_are_gone_or_bound_no_more(facts):
    world = World(**{**facts, "plane": (plane := Plane(BOUND))})
    await world.looks()
    assert not world.deletes
    plane.notes = RELEASED  # which others look for
    await world.looks()
    assert world.deletes
    assert not world.said


FREE = {
    "nothing is exported": {},
    "what is cluster-scoped": {"exports": [WIDE], "binding": BINDING, "bound": [NAME]},
    "also where its export was lost": {
        "binding": BINDING, "bound": [NAME], "plane": Plane({}, allowed=False, scope="Cluster"),
    },
    "what the control plane does not serve": {
        "exports": [EXPORT], "bound": [NAME], "plane": Plane(BOUND, serves=[]),
    },
    "a binding that may be another provider's, of what cannot be told here": {
        "unfollowed": [NAME], "plane": Plane({}, allowed=False),
    },
}  # fmt: skip


@pytest.mark.parametrize("facts", FREE.values(), ids=FREE)
async def test_what_can_have_no_copies_holds_nothing(facts):
    world = World(**{"plane": Plane(BOUND), **facts})
    await world.looks()
    assert world.deletes


@pytest.mark.parametrize("unfollowed", [[], [NAME]], ids=["served", "not served yet"])
async def test_at_first_every_binding_that_may_lead_here_is_waited_for(unfollowed):
    """T3: it may have lost its export, and with it the rights by which its copies show."""
    world = World(Plane({}, allowed=False), unfollowed=unfollowed)
    await world.namespaces.reconcile("dev")
    assert world.deletes is not bool(unfollowed)
    world.now = 61
    await world.namespaces.reconcile("dev")
    assert world.deletes


async def test_nothing_is_listed_while_what_is_bound_may_still_come_to_be_synced():
    world = World(plane := Plane(BOUND), exports=[EXPORT], binding=BINDING, bound=[NAME])
    assert await world.namespaces.reconcile("dev") == timedelta(seconds=1)
    assert not plane.listed
    await world.looks()
    assert plane.listed


async def test_exports_are_not_looked_at_for_a_mapping_that_stays():
    world = World(plane := Plane(BOUND), exports=[EXPORT])
    world.live, world.views.export = live_like(namespace("dev"), uid="dev"), None
    await world.namespaces.reconcile("dev")
    assert not plane.listed
    assert not world.deletes


async def test_other_namespaces_that_come_meanwhile_put_nothing_off():
    """Each sync takes up each of them, and knows by itself which it has not seen yet."""
    world = World(Plane({}), exports=[EXPORT], binding=BINDING, bound=[NAME])
    world.unread = False

    async def come():
        world.missing = ["copies of app namespace prod"]

    world.guards.look_at_confirmations = come
    await world.namespaces.reconcile("dev")
    assert world.deletes


async def test_a_sync_that_ends_meanwhile_is_looked_at_again():
    world = World(Plane(BOUND), exports=[EXPORT], binding=BINDING, bound=[NAME])
    world.unread = False

    async def end():
        world.unread = True

    world.guards.look_at_confirmations = end
    assert await world.namespaces.reconcile("dev") == timedelta(seconds=1)
    await world.looks()
    assert not world.deletes


class Sync:
    """Stands for the sync of a kind with copies behind each mapping; it ends once it may."""

    missing, settled = (), True

    def __init__(self, made, pair, *_, **__):
        made.append(self)
        self.pair, self.kind = pair, pair.kind
        self.stopped, self.may_end = asyncio.Event(), asyncio.Event()

    def has_claims(self, _):
        return False

    def has_copies(self, _):
        return True

    def follow(self, say):
        pass

    def stop(self):
        self.stopped.set()

    async def run(self):
        await self.stopped.wait()
        await self.may_end.wait()


KIND = Kind("shop.example", "v1", "Database", "databases")
PAIR = Pair(KIND, SPACE, "space", has_status=True)
BY = ObjectKey("apps", NAME)
NEXT = {
    "its binding goes": None,
    "its CRD has a status no more": Wanted(BY, replace(PAIR, has_status=False)),
}


@pytest.mark.parametrize("following", NEXT.values(), ids=NEXT)
async def test_what_a_sync_that_ends_knew_of_holds_until_it_has_ended(following, monkeypatch):
    """T3: it has written its last, and nothing tells of its copies meanwhile."""
    made = list[Sync]()
    monkeypatch.setattr(sync_manager, "Claims", partial(Sync, made))
    world = World(Plane(BOUND), exports=[EXPORT], binding=BINDING, bound=[NAME])
    syncs = world.follow(Syncs(world.link))
    running = asyncio.create_task(syncs.run())
    await asyncio.sleep(0)
    await syncs.want(BY, Wanted(BY, PAIR))
    ending, sync = list[Any](), made[0]

    async def end():
        if not ending:
            ending.append(asyncio.create_task(syncs.want(BY, following)))
            await sync.stopped.wait()

    world.guards.look_at_confirmations = end
    assert await world.namespaces.reconcile("dev") == timedelta(seconds=1)
    await world.looks()
    sync.may_end.set()
    await ending[0]
    await world.looks()
    assert not world.deletes
    for one in made:
        one.may_end.set()
    syncs.stop()
    await running
