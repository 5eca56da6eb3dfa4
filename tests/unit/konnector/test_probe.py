"""What counts as an answer of a control plane, and when its silence is told."""

import asyncio
import contextlib
from typing import Any

import pytest

from konnector.kubeconfig import connections
from reconciler.core.errors import ClusterError, Forbidden, Unauthorized, Unreachable
from reconciler.core.refs import NAMESPACE, Ref
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
        self.hangs = False

    async def get(self, ref: Ref, *, metadata_only: bool) -> None:
        assert (ref, metadata_only) == (SPACE, True)
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.outcome is not None:
            raise self.outcome


@pytest.fixture
def quick(monkeypatch):
    for name, seconds in (("SILENCE", 0.2), ("PAUSE", 0.05), ("AGAIN", 0.02), ("TIMEOUT", 0.05)):
        monkeypatch.setattr(connections, f"_{name}", seconds)


@contextlib.asynccontextmanager
async def asking(plane: Any):
    told: list[bool] = []
    made = connections.Reach(
        plane, "cluster-a1", now=lambda: NOW, changed=lambda: told.append(made.since is not None)
    )
    task = asyncio.create_task(made.run())
    try:
        yield told
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


ANSWERS = [
    None,
    failed(Forbidden, 403),
    failed(Unauthorized, 401),
    failed(Unreachable, 429),
]


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
async def test_a_refusal_is_an_answer(quick, answer):
    plane = Plane()
    plane.outcome = answer
    async with asking(plane) as told:
        await become(plane, 10)
    assert told == []


@pytest.mark.parametrize("silence", [failed(Unreachable), failed(Unreachable, 503), None], ids=str)
async def test_silence_is_told_once_and_so_is_its_end(quick, silence):
    plane = Plane()
    async with asking(plane) as told:
        await become(plane, 2)
        plane.outcome, plane.hangs = silence, silence is None
        await become(plane, 1)
        assert told == []
        await eventually(lambda: told == [True])
        await become(plane, 3)
        assert told == [True]
        plane.outcome, plane.hangs = None, False
        await become(plane, 3)
        assert told == [True, False]


async def test_it_is_asked_at_once_when_somebody_else_had_an_answer(monkeypatch):
    monkeypatch.setattr(connections, "_PAUSE", 1000.0)
    plane = Plane()
    async with asking(plane):
        await become(plane, 1)
        plane.connectivity.report()
        await become(plane, 1)
