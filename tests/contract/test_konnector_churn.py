"""Random changes on both sides, random faults on both ways, and konnectors that are killed.

In the end each side has what the other has: nothing is lost, nothing that was deleted comes back,
nothing is left over. `SEEDS=20` makes more stories than three, `CHURN_SECONDS` longer ones. Three
run at once, each in a space of its own, served by one konnector.
"""

import asyncio
import contextlib
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import pytest

from reconciler.blueprints.objects import build
from reconciler.core import keys
from reconciler.core.errors import AlreadyExists, Missing
from reconciler.core.manifest import Manifest, name_of
from reconciler.core.refs import NAMESPACE, SECRET, Ref
from reconciler.kube import limits
from tests.support import bound_scenes, churn
from tests.support.accounts import with_token
from tests.support.clusters import LiveCluster
from tests.support.cues import AFTER, BEFORE, Cue, Moment
from tests.support.fault_proxy import FaultProxy
from tests.support.faults import Crash, Faults, deeds
from tests.support.http_faults import Cut, Effect, Request, answer, on
from tests.support.konnector_faults import becomes_alike, restless
from tests.support.konnector_ways import account, fronting
from tests.support.losses import confirm, withdraw

pytestmark = pytest.mark.timeout(7200)

ACTS: Final = 2
SECONDS: Final = float(os.environ.get("CHURN_SECONDS", "12")) / ACTS
AT_ONCE: Final = 3
SEEDS: Final = range(int(os.environ.get("SEEDS", AT_ONCE)))
BATCHES: Final = [tuple(SEEDS[start : start + AT_ONCE]) for start in range(0, len(SEEDS), AT_ONCE)]
_NAMES: Final = 25
_BETWEEN: Final = 0.1  # seconds between two writes of one story
_DEATHS: Final = (5, 60)  # a konnector's last write is one of these, by number


@pytest.fixture
def hasty(monkeypatch):
    """Short pauses, so that the faults meet views at work."""
    monkeypatch.setattr(limits, "_LONGEST_PAUSE", 0.5)


@dataclass
class Story:
    """What developers and the provider do in one space, from a seed."""

    scene: bound_scenes.Scene
    rng: random.Random
    claims: set[str] = field(default_factory=set)
    sent: set[str] = field(default_factory=set)  # Secrets of the provider
    number: int = 0

    async def go_on(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            await asyncio.sleep(self.rng.expovariate(1 / _BETWEEN))
            self.number += 1
            name = f"item-{int(_NAMES * self.rng.random() ** 2)}"
            deeds = (self._claim, self._claim, self._status, self._secret, self._drift)
            with contextlib.suppress(Missing):  # of a copy or a namespace that has not come yet
                await self.rng.choice(deeds)(name)

    async def _claim(self, name: str) -> None:
        scene = self.scene
        ref = Ref("", scene.offer.kind, scene.app_namespace, name)
        spec: Manifest = {"number": self.number, self.rng.choice("ab"): self.number}
        if name not in self.claims:
            made = scene.offer.instance(name, namespace=scene.app_namespace, spec=spec)
            with contextlib.suppress(AlreadyExists):  # the last of that name is still going
                await scene.app.cluster.create(made, ref.kind, manager="developer")
                self.claims.add(name)
        elif self.rng.random() < 0.3:
            await bound_scenes.remove(scene.app, ref.kind, ref.namespace, name)
            self.claims.discard(name)
        else:
            other = {"a": None, "b": None, **spec}
            await scene.app.cluster.merge_patch(ref, {"spec": other}, manager="developer")

    async def _status(self, name: str) -> None:
        body: Manifest = {"status": {"number": self.number}}
        await self._on_copy(name, body, subresource="status")

    async def _drift(self, name: str) -> None:
        await self._on_copy(name, {"spec": {"number": -self.number}})

    async def _on_copy(self, name: str, body: Manifest, *, subresource: str = "") -> None:
        scene = self.scene
        ref = Ref("", scene.offer.kind, scene.service_namespace, name)
        await scene.plane.cluster.merge_patch(
            ref, body, manager="provider", subresource=subresource
        )

    async def _secret(self, name: str) -> None:
        plane, scene = self.scene.plane.cluster, self.scene
        ref = Ref("", SECRET, scene.service_namespace, name)
        if name not in self.sent:
            made = bound_scenes.secret(name, scene.service_namespace)
            await plane.create(made, SECRET, manager="provider")
            self.sent.add(name)
        elif self.rng.random() < 0.4:
            self.sent.discard(name)
            await bound_scenes.remove(scene.plane, SECRET, ref.namespace, name)
        else:
            data: Manifest = {"data": {"password": bound_scenes.b64(str(self.number))}}
            await plane.merge_patch(ref, data, manager="provider")


def faults_of_writes(rng: random.Random) -> Iterator[tuple[Cue[Request], Effect, Moment]]:
    """Yield refusals, conflicts, and answers that are lost, for the next writes."""
    for method in ("POST", "PATCH", "DELETE"):
        code = rng.choice((409, 429, 500, 503))
        yield on(method).nth(rng.randint(1, 5)), answer(code, retry_after=1), BEFORE
        yield on(method).nth(rng.randint(1, 8)), Cut("rst"), rng.choice((BEFORE, AFTER))


async def disturb(proxy: FaultProxy, rng: random.Random, seconds: float) -> None:
    """Let random faults befall one way, and leave it well."""

    async def at_writes() -> None:
        while True:
            for cue, effect, moment in faults_of_writes(rng):
                proxy.add(cue, effect, at=moment)
            await asyncio.sleep(2)

    writing = asyncio.create_task(at_writes())
    try:
        await churn.break_things(proxy, list(churn.faults(rng, seconds)))
    finally:
        writing.cancel()
        proxy.rules.clear()


def deaths(rng: random.Random):
    def faults() -> Faults:
        made = Faults()
        made.add(deeds().nth(rng.randint(*_DEATHS)), Crash(), at=rng.choice((BEFORE, AFTER)))
        return made

    return faults


@contextlib.asynccontextmanager
async def scenes(plane: LiveCluster, app: LiveCluster, namespace: str, seeds):
    """Bind a space for each seed, all of them over ways of their own."""
    async with contextlib.AsyncExitStack() as stack:
        made: list[tuple[bound_scenes.Scene, FaultProxy]] = []
        for seed in seeds:
            name = f"test-s{seed}x{namespace[6:-3]}"
            await plane.cluster.create(build(NAMESPACE, name), NAMESPACE, manager="tests")
            stack.push_async_callback(bound_scenes.remove, plane, NAMESPACE, "", name)
            scene = await stack.enter_async_context(bound_scenes.direct_scene(plane, app, name))
            way = await stack.enter_async_context(fronting(plane))
            led = replace(plane, connection=way.connection)
            await replace(scene, plane=led).make_space()
            await scene.request()
            await scene.bind(bound_scenes.ACCEPTED)
            # Developers delete most of their claims within a minute, and mean it.
            await confirm(scene, keys.CONFIRM_MASS_DELETE)
            made.append((scene, way))
        yield made


FULL = ({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("seeds", BATCHES, ids=str)
async def test_both_sides_end_alike(control_plane, app_cluster, namespace, seeds):
    rng = random.Random(f"deaths {seeds}")
    async with (
        account(app_cluster, FULL) as token,
        fronting(app_cluster) as to_app,
        scenes(control_plane, app_cluster, namespace, seeds) as made,
        made[0][0].backend(),
    ):
        stop = asyncio.Event()
        way = with_token(to_app.connection, token)
        living = asyncio.create_task(restless(way, stop, deaths(rng)))
        try:
            for scene, _ in made:
                await bound_scenes.until(partial(is_ready, scene), within=180)
            stories = [
                Story(scene, random.Random(f"writes {seed}"))
                for seed, (scene, _) in zip(seeds, made, strict=True)
            ]
            for act in range(ACTS):
                async with asyncio.TaskGroup() as group:
                    for story in stories:
                        group.create_task(story.go_on(SECONDS))
                    for number, proxy in enumerate((to_app, *(way for _, way in made))):
                        of_this = random.Random(f"faults {seeds} {act} {number}")
                        group.create_task(disturb(proxy, of_this, SECONDS))
                for seed, story in zip(seeds, stories, strict=True):
                    await ends_as_reported(story, f"seed {seed}, act {act}")
        finally:
            stop.set()
        assert await living > 0, "nobody died"


async def is_ready(scene: bound_scenes.Scene) -> bool:
    return await bound_scenes.says(scene.export(), "Ready")


async def ends_as_reported(story: Story, reported: str) -> None:
    """See that both sides are alike, and hold what was not deleted.

    A Secret of which no konnector saw the end (it was dead, its watch was cut) is an orphan.
    """
    ends = asyncio.create_task(becomes_alike(story.scene, reported))
    while not (await asyncio.wait({ends}, timeout=3))[0]:
        await withdraw(story.scene, keys.CONFIRM_ORPHANS)
        await confirm(story.scene, keys.CONFIRM_ORPHANS, "secrets")
    await ends
    app = story.scene.app.cluster
    held = await app.list(story.scene.offer.kind, namespace=story.scene.app_namespace)
    assert {name_of(one) for one in held.items} == story.claims, reported
    came = await app.list(SECRET, namespace=story.scene.app_namespace)
    assert {name_of(one) for one in came.items} == story.sent, reported
