"""What counts as an answer of a control plane, and when its silence is told."""

import asyncio
import contextlib
from typing import Any

import pytest

from konnector.kubeconfig import connections
from konnector.kubeconfig.connections import RotatingCluster
from reconciler.core.errors import ClusterError, Forbidden, Missing, Unauthorized, Unreachable
from reconciler.core.refs import CONFIG_MAP, NAMESPACE, Ref
from reconciler.kube.cluster import Connectivity
from tests.support.eventually import eventually
from tests.support.space_objects import NOW

SPACE = Ref("control-plane", NAMESPACE, "", "cluster-a1")


class Plane:
    """A control plane that says what it is told to."""

    name = "control-plane"

    def __init__(self) -> None:
        self.connectivity, self.asked = Connectivity(), 0
        self.outcome: ClusterError | None = None
        self.later: list[ClusterError | None] = []  # outcomes before that one
        self.hangs = False

    async def get(self, ref: Ref, *, metadata_only: bool) -> None:
        assert (ref, metadata_only) == (SPACE, True)
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        outcome = self.later.pop(0) if self.later else self.outcome
        if outcome is not None:
            raise outcome


@pytest.fixture
def quick(monkeypatch):
    for name, seconds in (("SILENCE", 0.2), ("PAUSE", 0.05), ("AGAIN", 0.02), ("TIMEOUT", 0.05)):
        monkeypatch.setattr(connections, f"_{name}", seconds)


@contextlib.asynccontextmanager
async def asking(plane: Any):
    news: list[Any] = []

    def changed() -> None:
        news.append("refused" if made.refused_since else made.since is not None)

    made = connections.Reach(plane, "cluster-a1", now=lambda: NOW, changed=changed)
    task = asyncio.create_task(made.run())
    try:
        yield news
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert plane.connectivity._followers == []


async def become(plane, count):
    before = plane.asked
    await eventually(lambda: plane.asked >= before + count)


def failed(kind: Any, status: int = 0) -> ClusterError:
    error: ClusterError = kind("no", ref=SPACE, verb="get", status=status)
    return error


ANSWERS = [None, failed(Forbidden, 403), failed(Unreachable, 429)]


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
async def test_a_refusal_is_an_answer(quick, answer):
    plane = Plane()
    plane.outcome = answer
    async with asking(plane) as reported:
        await become(plane, 10)
    assert reported == []


@pytest.mark.parametrize("silence", [failed(Unreachable), failed(Unreachable, 503), None], ids=str)
async def test_silence_is_reported_once_and_so_is_its_end(quick, silence):
    plane = Plane()
    async with asking(plane) as reported:
        await become(plane, 2)
        plane.outcome, plane.hangs = silence, silence is None
        await become(plane, 1)
        assert reported == []
        await eventually(lambda: reported == [True])
        await become(plane, 3)
        assert reported == [True]
        plane.outcome, plane.hangs = None, False
        await become(plane, 3)
        assert reported == [True, False]


async def test_a_token_that_is_not_taken_is_reported_once(quick, monkeypatch):
    monkeypatch.setattr(connections, "_PAUSE", 0.2)
    plane = Plane()
    async with asking(plane) as news:
        await become(plane, 1)
        plane.outcome = failed(Unauthorized, 401)
        await eventually(lambda: news == ["refused"])
        await become(plane, 2)
        assert news == ["refused"]
        plane.outcome = None
        await eventually(lambda: news == ["refused", False])


async def test_one_refusal_alone_is_not_reported(quick):
    plane = Plane()
    plane.later = [None, failed(Unauthorized, 401)]
    async with asking(plane) as news:
        await become(plane, 5)
    assert news == []


async def test_it_is_asked_at_once_when_somebody_else_had_an_answer(monkeypatch):
    monkeypatch.setattr(connections, "_PAUSE", 1000.0)
    plane = Plane()
    async with asking(plane):
        await become(plane, 1)
        plane.connectivity.report()
        await become(plane, 1)


# What stands before a cluster costs nothing. The rest needs API servers.


class Server:
    """Answers once it is told to."""

    name = "plane"

    def __init__(self):
        self.connectivity = Connectivity()
        self.is_retired = False
        self.closed = asyncio.Event()
        self.waits = asyncio.Event()

    async def send(self, request):
        await self.waits.wait()
        raise Missing("gone", ref=request.ref, verb=request.verb)

    def retire(self):
        self.is_retired = True

    async def close(self):
        self.closed.set()


def server() -> Any:
    return Server()


async def test_a_new_way_counts_as_a_recovery_and_the_old_one_no_more():
    old, new, reported = server(), server(), []
    cluster = RotatingCluster(old)
    cluster.connectivity.follow(lambda: reported.append("back"))
    old.connectivity.report()
    assert len(reported) == 1
    cluster.rotate(new)
    assert len(reported) == 2
    old.connectivity.report()
    assert len(reported) == 2
    new.connectivity.report()
    assert len(reported) == 3
    await cluster.close()


async def test_an_old_way_ends_by_itself_and_a_call_over_it_goes_on():
    old, new = server(), server()
    cluster = RotatingCluster(old)
    call = asyncio.create_task(cluster.get(Ref("plane", CONFIG_MAP, "here", "one")))
    await asyncio.sleep(0)
    cluster.rotate(new)
    assert old.is_retired
    old.waits.set()
    assert await call is None
    await cluster.close()
    assert (old.closed.is_set(), new.closed.is_set()) == (False, True)
