"""No Secret crosses between two clusters unless an accepted claim lets it (safety.md 0).

Claims, objects and what claims mean are those of the law in `tests/properties`; here they meet
watches, caches, writes, logs and Events. Each round has claims and objects of its own.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, Final

import pytest
from prometheus_client import generate_latest

from reconciler import api
from reconciler.blueprints import objects as spaces
from reconciler.controller import tracing
from reconciler.controller.tracing import Ended
from reconciler.core.manifest import Manifest
from reconciler.core.refs import CONFIG_MAP, EVENT, NAMESPACE, SECRET, Kind, Ref
from tests.properties import test_canaries as law
from tests.support.bound_scenes import Scene, b64, new, remove, until
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.konnector import konnector
from tests.support.konnector_claims import End, accept, claim, data, mapping_of, offer
from tests.support.settled import settled
from tests.support.spans import Collector

SEED: Final = 20260601
ROUNDS: Final = 40
TEAMS: Final = ("team-a", "team-b", "team-c")
KINDS: Final = (SECRET, CONFIG_MAP)
# Wherever people and programs read what a konnector says.
SPEAKS: Final = (api.CLUSTER_BINDING, api.API_SERVICE_EXPORT, api.API_SERVICE_NAMESPACE, EVENT)
IN_APP: Final = (api.API_SERVICE_BINDING, EVENT)
MARKER: Final = claim("secrets", "Provider", names=["marker"])


class Seen:
    """All that a cluster ever showed of Secrets and ConfigMaps, from the beginning to the end."""

    def __init__(self, live: LiveCluster) -> None:
        self._live = live
        self.texts: list[str] = []

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        listings = [await self._live.cluster.list(kind) for kind in KINDS]
        following = [
            asyncio.create_task(self._follow(kind, listing.resource_version))
            for kind, listing in zip(KINDS, listings, strict=True)
        ]
        try:
            yield
        finally:
            for one in following:
                one.cancel()
            await asyncio.wait(following)

    async def _follow(self, kind: Kind, version: str) -> None:
        cluster = self._live.cluster
        everything = Ref(cluster.name, kind, "", "")
        async with cluster.watch(everything, resource_version=version) as events:
            async for event in events:
                self.texts.append(json.dumps(event.object))

    def shows(self, canary: str, *, of: str) -> bool:
        """Return whether a canary was ever seen in a namespace other than that it was born in."""
        born = f'"namespace": "{of}"'
        return any(_holds(text, canary) and born not in text for text in self.texts)


def _holds(text: str, canary: str) -> bool:
    return canary in text or b64(canary) in text


class Round:
    """Some claims, and a Secret of either name in each team's namespaces, or not."""

    def __init__(self, random: Random, number: int, places: dict[str, tuple[End, End]]) -> None:
        self.claims = [law.claim(random, hostile=False) for _ in range(random.choice((1, 1, 2, 3)))]
        self._places = places
        self.canaries: list[tuple[str, str, Any, Any]] = []
        for team in TEAMS:
            for name in law.NAMES:
                for side, share in ((law.APP, 0.9), (law.PLANE, 0.3)):
                    if random.random() < share:
                        canary = f"canary{number:03}{len(self.canaries):03}"
                        live = law.secret(random, name, team, b64(canary))
                        world = SimpleNamespace(
                            name=name,
                            space=team,
                            asking=self.claims,
                            living=("orders",),
                            reserved=False,
                            is_kubeconfig=False,
                        )
                        self.canaries.append((canary, side, world, live))

    @property
    def wire(self) -> list[Manifest]:
        """The claims, about the namespaces that there are."""
        text = json.dumps(self.claims)
        for team, (_, here) in self._places.items():
            text = text.replace(team, here.namespace)
        wire: list[Manifest] = json.loads(text)
        return wire

    async def make(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _, side, world, live in self.canaries:
                there, here = self._places[world.space]
                end = here if side == law.APP else there
                group.create_task(end.make(SECRET, world.name, **_made(live)))

    async def clear(self) -> None:
        async with asyncio.TaskGroup() as group:
            for ends in self._places.values():
                for end in ends:
                    for name in law.NAMES:
                        group.create_task(end.delete(SECRET, name))

    def kept(self) -> list[tuple[str, str, str]]:
        """Return each canary that no claim lets go, with its side and where it was born."""
        return [
            (canary, side, self._born(side, world))
            for canary, side, world, live in self.canaries
            if not self._may(side, world, live)
        ]

    def owed(self) -> list[tuple[str, str, str]]:
        """Return each canary that nothing hinders to go up, with its side and birthplace."""
        taken = {(w.name, w.space) for _, side, w, _ in self.canaries if side == law.PLANE}
        return [
            (canary, side, self._born(side, world))
            for canary, side, world, live in self.canaries
            if side == law.APP
            and (world.name, world.space) not in taken
            and self._may(side, world, live)
        ]

    def _may(self, side: str, world: Any, live: Any) -> bool:
        let = law.let_up if side == law.APP else law.let_down
        return any(let(one, world, live) for one in self.claims)

    def _born(self, side: str, world: Any) -> str:
        there, here = self._places[world.space]
        return here.namespace if side == law.APP else there.namespace


def _made(live: Any) -> dict[str, Any]:
    """Return a generated Secret as a server takes it; its canary is the name of a key, too."""
    values = dict(live["data"])
    some = live["metadata"]["annotations"][law.NOTE]
    values[f"key-{some}"] = some
    annotations = {**live["metadata"]["annotations"]}
    if live["type"] == "kubernetes.io/tls":
        values |= {"tls.crt": some, "tls.key": some}
    if live["type"] == law.TOKEN:
        annotations["kubernetes.io/service-account.name"] = "default"
    metadata = {"annotations": annotations, "labels": live["metadata"]["labels"]}
    made = {"metadata": metadata, "type": live["type"], "data": values}
    return {**made, **({"immutable": True} if live.get("immutable") else {})}


@contextlib.asynccontextmanager
async def teams(scene: Scene) -> AsyncIterator[dict[str, tuple[End, End]]]:
    app, found = scene.app.cluster, {}
    names = {team: f"{scene.app_namespace}-{team[-1]}" for team in TEAMS}
    for name in names.values():
        await app.create(spaces.namespace(name), NAMESPACE, manager="tests")
    try:
        for name in names.values():
            made = scene.offer.instance("orders", namespace=name, spec={})
            await new(scene.app, made, scene.offer.kind, manager="developer")
        for team, name in names.items():
            service = await until(partial(mapping_of, scene, name))
            found[team] = (End(scene.plane, service, "provider"), End(scene.app, name, "developer"))
        yield found
    finally:
        for team, name in names.items():
            await remove(scene.app, NAMESPACE, "", name)
            if team in found:
                await remove(scene.plane, NAMESPACE, "", found[team][0].namespace)


@pytest.fixture
def spans() -> Iterator[list[Ended]]:
    collector = Collector()
    with tracing.collected(collector):
        yield collector.ended


async def test_canaries_cross_only_where_an_accepted_claim_lets_them(
    scene: Scene, caplog: pytest.LogCaptureFixture, spans: list[Ended]
) -> None:
    caplog.set_level(logging.DEBUG)
    random, kept, owed = Random(SEED), [], []
    seen = {law.APP: Seen(scene.app), law.PLANE: Seen(scene.plane)}
    others = {law.APP: seen[law.PLANE], law.PLANE: seen[law.APP]}
    async with scene.backend(), konnector(scene.app.connection) as made:
        await offer(scene, claim("secrets"), claim("configmaps"))
        await scene.bound(MARKER)
        async with teams(scene) as places, seen[law.APP].watching(), seen[law.PLANE].watching():
            there, here = places[TEAMS[0]]

            async def in_force(number: int, *claims: Manifest) -> None:
                """Let these claims hold, and all that follows from them happen."""
                marker = {"owner": "Provider", "names": [f"marker-{number}"]}
                await accept(scene, *claims, {**MARKER, "selector": marker})
                await until(lambda: here.holds(SECRET, f"marker-{number}", "now"))
                await settled(made)

            for number in range(ROUNDS):
                now = Round(random, number, places)
                await there.make(SECRET, f"marker-{2 * number}", **data("now"))
                await there.make(SECRET, f"marker-{2 * number + 1}", **data("now"))
                await in_force(2 * number)
                await now.clear()
                await now.make()
                await in_force(2 * number + 1, *now.wire)
                for canary, side, born in now.owed():
                    await eventually(partial(others[side].shows, canary, of=born))
                kept += now.kept()
                owed += now.owed()
            await settled(made)

        crossed = [one for one in kept if others[one[1]].shows(one[0], of=one[2])]
        assert crossed == []
        assert sum(side == law.APP for _, side, _ in (*kept, *owed)) >= 200
        assert len(owed) > 15  # or the konnector did nothing
        said = [str([vars(one) for one in caplog.records])]
        said.append(generate_latest(made.metrics.registry).decode())
        said.append(str(spans))
        assert any(span.name == "secret.down" for span in spans)
        said += [await _said(scene.plane, SPEAKS), await _said(scene.app, IN_APP)]
        assert [text for text in said if _holds(text, "canary")] == []


async def _said(live: LiveCluster, kinds: Iterable[Kind]) -> str:
    return json.dumps([(await live.cluster.list(kind)).items for kind in kinds])
