"""The keys that all replicas share: made once, renewed, revoked, and good without their Secret."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from bind.door.identity import Refused
from bind.door.keyring import KeyRing
from bind.door.sessions import SESSION, Keys
from reconciler.core import manifest, names
from reconciler.core.errors import Unreachable
from reconciler.core.manifest import JSON, Manifest
from reconciler.core.refs import SECRET, Ref
from reconciler.core.secret import Secret
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import Cluster, ClusterWrapper
from reconciler.kube.connection import Connection, Token
from reconciler.kube.requests import Preconditions, Propagation, Request
from tests.kit.api_controllers import CA
from tests.kit.api_model import ApiModel
from tests.kit.wire import Wires
from tests.support.fake_clock import FakeClock

_SERVER: Final = "https://plane.example:6443"
REF: Final = Ref("plane", SECRET, "default", names.DOOR_KEYS)
DAY: Final = 86_400.0


class Plane(ClusterWrapper):
    """A control plane that may be away, and that lets calls of two replicas meet."""

    def __init__(self, real: Cluster) -> None:
        super().__init__(real)
        self.sent = list[str]()
        self.is_away = False
        self.meeting: asyncio.Event | None = None
        self.both = 0

    async def send(self, request: Request) -> Manifest:
        self.sent.append(request.verb)
        if self.is_away:
            raise Unreachable("is away", ref=request.ref, verb=request.verb)
        await asyncio.sleep(0)
        try:
            return await self.inner.send(request)
        finally:
            if self.meeting is not None and request.method == "GET":
                await self._meet(self.meeting)

    async def _meet(self, meeting: asyncio.Event) -> None:
        self.both += 1
        if self.both == 2:  # the one that comes second looks again, alone
            self.meeting = None
            meeting.set()
        await meeting.wait()


@asynccontextmanager
async def planes() -> AsyncIterator[tuple[Plane, FakeClock]]:
    wires, clock = Wires(), FakeClock()
    wires.models[_SERVER] = ApiModel(clock.now)
    with wires.plugged():
        way = Connection("plane", _SERVER, Token(Secret("admin")), ca=CA)
        async with KubeCluster(way) as cluster:
            yield Plane(cluster), clock


def ring(plane: Cluster, clock: FakeClock, namespace: str = "default") -> KeyRing:
    return KeyRing(plane, namespace, clock=clock)


async def sealed_by(of: KeyRing) -> str:
    return (await of.keys()).seal(SESSION, {"a": 1}, 0)


async def opens(of: KeyRing, text: str) -> bool:
    return await of.opened(lambda keys: keys.open(SESSION, text, 0)) is not None


async def change(plane: Plane, **data: JSON) -> None:
    await plane.merge_patch(REF, {"data": data}, manager="test")


async def test_two_replicas_that_make_the_keys_at_once_have_the_same() -> None:
    async with planes() as (plane, clock):
        plane.meeting = asyncio.Event()
        first, second = await asyncio.gather(ring(plane, clock).keys(), ring(plane, clock).keys())
        assert first == second


async def test_two_replicas_that_renew_the_keys_at_once_have_the_same() -> None:
    async with planes() as (plane, clock):
        one, other = ring(plane, clock), ring(plane, clock)
        before = await one.keys()
        assert await other.keys() == before
        clock.jump(31 * DAY)
        plane.meeting = asyncio.Event()
        first, second = await asyncio.gather(one.keys(), other.keys())
        assert first == second == Keys(first.present, (before.present,))
        assert first.present != before.present


async def test_what_another_replica_sealed_with_newer_keys_opens_at_once() -> None:
    async with planes() as (plane, clock):
        one, other = ring(plane, clock), ring(plane, clock)
        await other.keys()
        clock.jump(30 * DAY - 30)
        await other.keys()  # and not again for a minute
        clock.jump(40)
        text = await sealed_by(one)
        assert await opens(other, text)


async def test_the_keys_before_the_last_open_nothing() -> None:
    async with planes() as (plane, clock):
        one = ring(plane, clock)
        text = await sealed_by(one)
        for expected in (True, False):
            clock.jump(31 * DAY)
            assert await opens(one, text) == expected


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_secret_that_is_deleted_revokes_what_was_sealed(replicas: int) -> None:
    async with planes() as (plane, clock):
        rings = [ring(plane, clock) for _ in range(replicas)]
        text = await sealed_by(rings[0])
        assert all([await opens(one, text) for one in rings])
        live = await plane.get(REF)
        assert live is not None
        state = Preconditions(manifest.uid_of(live))
        await plane.delete(REF, preconditions=state, propagation=Propagation.BACKGROUND)
        clock.jump(61)
        assert not any([await opens(one, text) for one in rings])
        assert await plane.get(REF) is not None


@pytest.mark.parametrize("garbage", ["", "!", base64.b64encode(b"short").decode()])
async def test_a_secret_without_a_key_is_refused_and_left_alone(garbage: str) -> None:
    async with planes() as (plane, clock):
        await ring(plane, clock).keys()
        await change(plane, present=garbage)
        with pytest.raises(Refused, match="no keys") as refused:
            await ring(plane, clock).keys()
        assert refused.value.code == "unavailable"
        live = await plane.get(REF)
        assert manifest.get_text(live, "data", "present") == garbage


async def test_a_replica_goes_on_with_its_keys_when_the_secret_becomes_garbage() -> None:
    async with planes() as (plane, clock):
        one = ring(plane, clock)
        text = await sealed_by(one)
        await change(plane, present="!")
        clock.jump(61)
        assert await opens(one, text)


@pytest.mark.parametrize("since", [None, "", base64.b64encode(b"2999-01-01T00:00:00Z").decode()])
async def test_keys_of_unknown_age_are_renewed(since: str | None) -> None:
    async with planes() as (plane, clock):
        before = await ring(plane, clock).keys()
        await change(plane, since=since)
        after = await ring(plane, clock).keys()
        assert after.former == (before.present,)


async def test_keys_that_are_known_do_without_a_control_plane() -> None:
    async with planes() as (plane, clock):
        one = ring(plane, clock)
        text = await sealed_by(one)
        plane.is_away = True
        clock.jump(3_600)
        assert await opens(one, text)


async def test_without_keys_and_control_plane_the_door_is_unavailable() -> None:
    async with planes() as (plane, clock):
        plane.is_away = True
        with pytest.raises(Refused) as refused:
            await ring(plane, clock).keys()
        assert refused.value.code == "unavailable"


async def test_a_namespace_that_is_not_there_ends_in_a_refusal() -> None:
    async with planes() as (plane, clock):
        with pytest.raises(Refused):
            await ring(plane, clock, "absent").keys()


async def test_texts_that_nothing_opens_cost_one_look_in_five_seconds() -> None:
    async with planes() as (plane, clock):
        one = ring(plane, clock)
        await one.keys()
        clock.jump(6)
        plane.sent.clear()
        await asyncio.gather(*(opens(one, "garbage") for _ in range(50)))
        assert plane.sent == ["get"]


async def test_given_keys_need_no_secret() -> None:
    async with planes() as (plane, clock):
        given = [KeyRing(plane, "default", clock=clock, given=b"k" * 32) for _ in range(2)]
        text = await sealed_by(given[0])
        clock.jump(31 * DAY)
        assert await opens(given[1], text)
        assert not plane.sent
