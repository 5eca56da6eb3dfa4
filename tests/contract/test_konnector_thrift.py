"""A konnector asks, sends and keeps no more than it must (H25, H28, H34)."""

import base64
import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.blueprints import objects as spaces
from reconciler.blueprints.objects import build
from reconciler.core import keys
from reconciler.core.manifest import annotations_of
from reconciler.core.refs import NAMESPACE, SECRET
from tests.support.bound_scenes import ACCEPTED, Scene, remove, until
from tests.support.eventually import eventually
from tests.support.fault_proxy import FaultProxy
from tests.support.konnector_claims import End, data, is_idle
from tests.support.konnector_scenes import Side, equals, event, refusal, sides
from tests.support.konnector_ways import listened
from tests.support.replicas import replicas

KONNECTOR = (sys.executable, "-m", "konnector")
LARGE = 400_000
SMALL = 2_000
TOOLS = "kubectl.kubernetes.io/last-applied-configuration"
OTHERS = 60
MIB = 2**20


def text(size: int) -> str:
    """Return what no gzip makes smaller."""
    return base64.b64encode(os.urandom(size * 3 // 4)).decode()


@dataclass
class Account:
    """What passes on the way to one API server about things in one namespace."""

    way: FaultProxy
    namespace: str
    _from: int = 0
    _sent: Counter[str] | None = None

    def begin(self) -> None:
        self._from, self._sent = len(self.way.log), self.way.sent.copy()

    def asked(self) -> list[str]:
        return [
            f"{one.method} {one.path.partition(f'/namespaces/{self.namespace}/')[2]}"
            for one in self.way.log[self._from :]
            if f"/namespaces/{self.namespace}/" in one.path
        ]

    def sent(self) -> int:
        """Return the octets of the bodies that were sent."""
        before = self._sent or Counter()
        found = (self.way.sent - before).items()
        return sum(size for path, size in found if f"/namespaces/{self.namespace}/" in path)


async def test_a_change_is_one_request_that_holds_what_it_must(scene: Scene) -> None:
    """H25, H34: however large the object is, and whatever tools keep in its annotations."""
    async with listened(scene, ACCEPTED) as ways:
        here, there = sides(scene)
        plane = Account(ways.to_plane, scene.service_namespace)
        app = Account(ways.to_app, scene.app_namespace)

        async def begins() -> None:
            await eventually(lambda: is_idle(ways.made))
            plane.begin()
            app.begin()

        async def costs(on_plane: list[str], in_app: list[str]) -> None:
            await eventually(lambda: is_idle(ways.made))
            assert (plane.asked(), app.asked()) == (on_plane, in_app)

        await here.make(
            spec={"notes": text(LARGE)}, metadata={"annotations": {TOOLS: text(LARGE // 2)}}
        )
        await until(lambda: there.read())
        full = {"phase": "Ready", "log": text(LARGE)}
        await there.patch({"status": full}, subresource="status")
        await until(lambda: here.has_status(full))
        await until(lambda: is_marked(here))  # at rest, after its first status

        await begins()
        await there.patch({"status": {"phase": "Busy"}}, subresource="status")
        await until(lambda: here.has_status({**full, "phase": "Busy"}))
        await costs([], ["PATCH databases/orders/status"])
        assert app.sent() < SMALL

        await begins()
        await here.patch({"spec": {"size": "2Gi"}})
        await until(lambda: has(there, "spec", "size", "2Gi"))
        await costs(["PATCH databases/orders"], [])
        # To apply is to state all that is owned: the spec, and neither status nor annotation.
        assert plane.sent() < LARGE + SMALL

        service = End(scene.plane, scene.service_namespace, "provider")
        user = End(scene.app, scene.app_namespace, "developer")
        await service.make(SECRET, "creds", **data("one"))
        await until(lambda: user.holds(SECRET, "creds", "one"))
        await begins()
        await service.patch(SECRET, "creds", **data("two"))
        await until(lambda: user.holds(SECRET, "creds", "two"))
        await costs([], ["PATCH secrets/creds"])


async def is_marked(side: Side) -> bool:
    return keys.BOUND in annotations_of(await side.read() or {})


async def has(side: Side, part: str, field: str, value: str) -> bool:
    return await equals(_field(side, part, field), value)


async def _field(side: Side, part: str, field: str) -> Any:
    return ((await side.read() or {}).get(part) or {}).get(field)


async def test_what_grows_too_large_for_one_side_is_reported(scene: Scene) -> None:
    """H34: a claim has what its copy has, and more; etcd takes 1.5 MiB."""
    async with listened(scene):
        here, there = sides(scene)
        await here.make(
            spec={"notes": text(500_000)}, metadata={"annotations": {TOOLS: text(240_000)}}
        )
        await until(lambda: there.read())
        await there.patch({"status": {"log": text(950_000)}}, subresource="status")
        await until(lambda: event(scene, "orders", "SyncDenied"))
        assert "too large" in await until(lambda: refusal(scene))

        await there.patch({"status": {"log": "short"}}, subresource="status")
        await until(lambda: here.has_status({"log": "short"}))
        await until(lambda: equals(refusal(scene), ""))


async def test_secrets_that_nobody_claimed_are_not_kept(scene: Scene, tmp_path: Path) -> None:
    """H28: neither those that it reads at its start, not all at once, nor those that come later."""
    elsewhere, content = f"{scene.app_namespace}-else", text(MIB * 9 // 10)
    await scene.app.cluster.create(spaces.namespace(elsewhere), NAMESPACE, manager="tests")
    async with (
        scene.backend(),
        replicas(scene.app, scene.app_namespace, tmp_path, command=KONNECTOR) as made,
    ):
        first = await made.start()
        await made.leader(first)
        await scene.bound(ACCEPTED)
        await scene.create_instance("first")
        service = End(scene.plane, scene.service_namespace, "provider")
        await until(lambda: scene.copy("first"))
        await comes_down(scene, service, "before")
        before = first.memory()
        for number in range(OTHERS):
            other = build(SECRET, f"other{number}", namespace=elsewhere, data={"content": content})
            await scene.app.cluster.create(other, SECRET, manager="developer")
        await comes_down(scene, service, "after")
        assert first.memory() - before < OTHERS * MIB / 2

        first.process.terminate()
        assert await first.ended() == 0
        second = await made.start()
        await made.leader(second)
        await comes_down(scene, service, "again")
        assert second.memory() - before < OTHERS * MIB / 2
        assert second.memory(at="VmHWM") - before < OTHERS * MIB * 3 / 2  # a page, thrice
    await remove(scene.app, NAMESPACE, "", elsewhere)


async def comes_down(scene: Scene, service: End, name: str) -> None:
    user = End(scene.app, scene.app_namespace, "developer")
    await service.make(SECRET, name, **data("now"))
    await until(lambda: user.holds(SECRET, name, "now"))
