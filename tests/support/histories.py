"""Two app clusters with equal names at one control plane, with whole programs that come and go."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from bind.settings import Settings
from klutchctl.sandbox.state import Role
from reconciler.blueprints.objects import namespace
from reconciler.controller.program import Term
from reconciler.core import times
from reconciler.core.manifest import get_text, is_deleting, uid_of
from reconciler.core.refs import CONFIG_MAP, NAMESPACE, SECRET, ObjectKey, Ref
from tests.kit import virtual_time
from tests.kit.api_model import ApiModel, Call, Reply
from tests.kit.api_store import Snapshot
from tests.kit.clusters import live_model, model_clusters, model_of
from tests.kit.wire import Wires
from tests.support.backend import USUAL
from tests.support.bound_scenes import Scene, b64, until, well_but_for_claims
from tests.support.clusters import LiveCluster
from tests.support.faults import SimulatedCrash, survives
from tests.support.konnector_claims import claim, ends
from tests.support.konnector_scenes import CLUSTER_WIDE, sides
from tests.support.offers import offered
from tests.support.provenance import PLANE, Record

CLAIMS: Final = (claim("secrets", "Provider"), claim("configmaps", "Consumer"))
_OFFERED: Final = [{key: one[key] for key in one if key != "state"} for one in CLAIMS]
_STEP: Final = 0.5  # seconds
_LONG: Final = 400  # steps
_OUTAGE: Final = 6.0  # seconds
_MARKED_WITHIN: Final = timedelta(seconds=11)
_PROGRAM: Final[ContextVar["Program | None"]] = ContextVar("program", default=None)
Backup = Mapping[str, tuple[Snapshot, Record]]


@dataclass
class Program:
    """A program that runs, dies after a write, or is away for some events."""

    begin: Callable[[], AbstractAsyncContextManager[Term]]
    made: Term | None = None
    writes_left: int = 0  # then it dies; 0: it lives
    is_dead: bool = False
    away: int = 0  # events
    _running: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def start(self) -> None:
        self.writes_left, self.away = 0, 0
        mine = _PROGRAM.set(self)
        try:
            self.made = await self._running.enter_async_context(self.begin())
        finally:
            _PROGRAM.reset(mine)

    async def stop(self) -> None:
        self.made = None
        await survives(self._running.aclose())
        self.is_dead = False

    async def leave(self, *, events: int) -> None:
        await self.stop()
        self.away = events

    def answered(self, call: Call) -> None:
        """Die once a write was done that is the last one."""
        if self.writes_left and call.method in ("POST", "PATCH", "DELETE"):
            self.writes_left -= 1
            self.is_dead = not self.writes_left
        self.still_alive()

    def still_alive(self) -> None:
        if self.is_dead:
            raise SimulatedCrash


@dataclass
class World:
    """The clusters by name, each app cluster's services, and all programs as they began."""

    models: Mapping[str, ApiModel]
    scenes: Sequence[Scene]
    programs: Mapping[str, Program]
    wires: Wires
    record: Record
    first: Backup = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def text(self) -> str:
        """Return a text that is nowhere yet."""
        return b64(f"{next(self._numbers):06}")

    def backup(self) -> Backup:
        record = self.record.copied()
        return {name: (model.store.snapshot(), record) for name, model in self.models.items()}

    async def begin_again(self, record: Record) -> None:
        self.record = record
        for name, (state, _) in self.first.items():
            self.models[name].restore(state)
        for one in self.programs.values():
            await one.start()
        await asyncio.sleep(6)  # a konnector that is new deletes nothing

    async def restore(self, backup: Backup, *names: str, live: bool = False) -> None:
        """Set these clusters back, while the programs that read them are stopped, or `live`.

        A server is out of reach meanwhile. As it is back, its watches are opened again before
        anything is done by hand.
        """
        concerned = [self.programs[one] for one in (self.programs if PLANE in names else names)]
        running = [one for one in concerned if one.made and not live]
        for one in running:
            await one.stop()
        with self.wires.away([self.models[name] for name in names]):
            await asyncio.sleep(_OUTAGE)
            for name in names:
                state, record = backup[name]
                self.models[name].restore(state, live=live)
                self.record.restored(name, record)
        await asyncio.sleep(_OUTAGE)
        for one in running:
            await one.start()

    async def rest(self) -> None:
        """Wait until all that run are at rest, and the provider has answered each claim."""
        for _ in range(_LONG):
            for one in self.programs.values():
                if one.is_dead:
                    await one.stop()
                    await one.start()
            await self._quiet()
            if await self._answer() or any(map(_is_dead, self.programs.values())):
                continue
            if not self._has_new_copies():
                break
            await asyncio.sleep(1)
        else:
            raise AssertionError("copies are made again and again")
        for scene in self.scenes:
            for name, live in self.claims(scene).items():
                copy = self.read(scene, name, at=PLANE)
                if copy and get_text(copy, "status", "text") == get_text(live, "status", "text"):
                    self.record.served.add(uid_of(live))

    async def _quiet(self) -> None:
        """Wait until no queue has work and no server changes; the clock jumps only then.

        A tenth of the CPU time of `settled`, which lists all there is.
        """
        before: list[int] = []
        for _ in range(_LONG):
            now = [model.store.version for model in self.models.values()]
            made = [one.made for one in self.programs.values() if one.made]
            busy = [one.metrics.activity.queued() or one.manager.unready() for one in made]
            if (now == before and not any(busy)) or any(map(_is_dead, self.programs.values())):
                return
            before = now
            await asyncio.sleep(_STEP)
        raise AssertionError(f"not at rest: {busy}")

    async def _answer(self) -> bool:
        """Let the provider say of each copy that its spec is done; return whether it wrote."""
        answered = False
        for scene in {one.offer.name: one for one in self.scenes}.values():
            kind = scene.offer.kind
            for key, copy in self.models[PLANE].store.all((kind.group, kind.plural)):
                done = get_text(copy, "spec", "text")
                if get_text(copy, "status", "done") != done and not is_deleting(copy):
                    status = {"text": self.text(), "done": done}
                    ref = Ref(PLANE, kind, *key)
                    await scene.plane.cluster.merge_patch(
                        ref, {"status": status}, manager="provider", subresource="status"
                    )
                    answered = True
        return answered

    def _has_new_copies(self) -> bool:
        """Return whether a claim may be without its marks yet: a copy lost now was never had."""
        since = virtual_time.now() - _MARKED_WITHIN
        kinds, store = self.record.kinds, self.models[PLANE].store
        copies = (live for kind in kinds for _, live in store.all(kind))
        return any((made := times.created(one)) and made > since for one in copies)

    def read(self, scene: Scene, name: str, *, at: str = "") -> Any:
        """Return a claim, or with PLANE its copy; None where it is absent."""
        side = sides(scene)[at == PLANE]
        ref = side.ref(name)
        store = self.models[side.live.name].store
        return store.get((ref.kind.group, ref.kind.plural), ObjectKey(ref.namespace, ref.name))

    def claims(self, scene: Scene) -> dict[str, Any]:
        kind, store = scene.offer.kind, self.models[scene.app.name].store
        found = store.all((kind.group, kind.plural))
        return {key.name: live for key, live in found if not is_deleting(live)}


def _is_dead(program: Program) -> bool:
    return program.is_dead


@contextlib.asynccontextmanager
async def two_app_clusters(folder: Path, *, wide: bool) -> AsyncIterator[World]:
    """Bind two services in each of two app clusters; `wide`: one is cluster-scoped."""
    settings = CLUSTER_WIDE if wide else USUAL
    async with AsyncExitStack() as stack:
        plane, one, wires = await stack.enter_async_context(model_clusters(folder))
        two = await stack.enter_async_context(
            live_model(wires, "app-2", Role.APP_CLUSTER, Path(plane.kubeconfig))
        )
        await plane.cluster.create(namespace("templates"), NAMESPACE, manager="tests")
        offers = [
            await stack.enter_async_context(
                offered(
                    *(each.cluster for each in (plane, one, two)),
                    namespace="templates",
                    claims=_OFFERED,
                    scope=scope,
                )
            )
            for scope in ("Namespaced", "Cluster" if wide else "Namespaced")
        ]
        scenes = [
            Scene(plane, app, offer, f"cluster-a{end}", "dev")
            for app, end in ((one, ""), (two, "-x"))
            for offer in offers
        ]
        world = _world(wires, plane, scenes, settings)
        for each in world.programs.values():
            await each.start()
        for scene in scenes:
            await _bound(world, scene)
        await world.rest()
        for each in world.programs.values():
            await each.stop()
        world.first = world.backup()
        yield world


def _world(wires: Wires, plane: LiveCluster, scenes: Sequence[Scene], settings: Settings) -> World:
    lives = {live.name: live for live in (plane, *(scene.app for scene in scenes))}
    models = {name: model_of(live) for name, live in lives.items()}
    spaces = {scene.app.name: scene.space for scene in scenes}
    kinds = {(scene.offer.group, scene.offer.resource.plural) for scene in scenes}
    programs = {PLANE: Program(lambda: scenes[0].backend(settings=settings))}
    programs |= {scene.app.name: Program(scene.konnector) for scene in scenes}
    world = World(models, scenes, programs, wires, Record(models, spaces, kinds))
    for name, model in models.items():
        _follow(world, name, model)
    return world


def _follow(world: World, name: str, model: ApiModel) -> None:
    """Let the record have each change with its request, and programs die of theirs."""
    answer = model.answer

    def recorded(call: Call) -> Reply:
        program = _PROGRAM.get()
        if program is not None:
            program.still_alive()
        with world.record.request(call.target.partition("?")[0], by_hand=program is None):
            reply = answer(call)
        if program is not None:
            program.answered(call)
        return reply

    model.answer = recorded  # type: ignore[method-assign]
    model.store.follow(lambda change: world.record.changed(name, change))


async def _bound(world: World, scene: Scene) -> None:
    is_first = scene is next(one for one in world.scenes if one.space == scene.space)
    if is_first:
        for name in ("klutch-bind", scene.app_namespace):
            await scene.app.cluster.create(namespace(name), NAMESPACE, manager="tests")
        await scene.make_space()
    await scene.request()
    await scene.bind(*CLAIMS)
    await until(lambda: well_but_for_claims(scene.binding()))
    here, _ = sides(scene)
    await here.make("orders", spec={"text": world.text()})
    await world.rest()
    if is_first:
        there, below = ends(scene)
        await there.make(SECRET, "creds", data={"key": world.text()})
        await below.make(CONFIG_MAP, "config", data={"key": world.text()})
