"""Visits: which cluster is read now, and what people read about one that could not be read."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from reconciler.core.errors import ClusterError, Expired, Forbidden, Unauthorized, Unreachable
from reconciler.core.live import Address, Unavailable
from reconciler.core.refs import CRD, SECRET, Ref
from reconciler.fleet.values import Access
from reconciler.kube.registry import Reached
from reconciler.observe import observer, visits
from reconciler.observe.visits import Clusters, Pace, ReadSlots, Visit, Visits

ACCESS = Access(context="eu-1")
ADDRESS = Address("https://cp.example:6443", "")
CRDS = Ref("eu-1", CRD, "", "")
SECRETS = Ref("eu-1", SECRET, "klutch-bind", "")


async def test_no_more_than_so_many_read_at_once() -> None:
    lanes = ReadSlots(Pace(parallelism=2), slot_seconds=60)
    inside, most = 0, 0

    async def read() -> None:
        nonlocal inside, most
        async with lanes.turn() as turn, turn.slot():
            inside += 1
            most = max(most, inside)
            for _ in range(5):
                await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(read() for _ in range(10)))
    assert most == 2


async def test_one_that_does_not_answer_at_first_takes_no_slot() -> None:
    lanes = ReadSlots(Pace(parallelism=1), slot_seconds=60)
    never, silent = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        async with lanes.turn():
            silent.set()
            await never.wait()

    hanging = asyncio.create_task(hang())
    await silent.wait()
    async with lanes.turn() as turn, turn.slot():
        assert not hanging.done()
    hanging.cancel()


async def test_one_that_hangs_in_the_middle_gives_its_slot_back_once() -> None:
    lanes = ReadSlots(Pace(parallelism=1), slot_seconds=0)
    never, holding = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        async with lanes.turn() as turn, turn.slot():
            holding.set()
            await never.wait()

    hanging = asyncio.create_task(hang())
    await holding.wait()
    async with lanes.turn() as turn, turn.slot():
        assert not hanging.done()
        never.set()
        await hanging
        inner = ReadSlots(Pace(parallelism=1), slot_seconds=60)
        async with inner.slot():
            pass


async def test_a_slot_comes_back_also_from_one_that_fails() -> None:
    lanes = ReadSlots(Pace(parallelism=1), slot_seconds=60)
    for _ in range(3):
        with pytest.raises(ValueError, match="broken"):
            async with lanes.turn() as turn, turn.slot():
                raise ValueError("broken")


async def test_time_is_up_in_the_middle() -> None:
    lanes = ReadSlots(Pace(parallelism=1, timeout=0.01), slot_seconds=60)
    with pytest.raises(TimeoutError):
        async with lanes.turn() as turn, turn.slot():
            await asyncio.Event().wait()


async def test_waiting_for_others_is_not_a_clusters_own_time() -> None:
    """The second waits for longer than it has, and then still has it."""
    lanes = ReadSlots(Pace(parallelism=1, timeout=1), slot_seconds=60)
    first_may_end, second_waits = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with lanes.slot():
            await first_may_end.wait()

    async def second() -> str:
        async with lanes.turn() as turn:
            second_waits.set()
            async with turn.slot():
                return "read"

    holding = asyncio.create_task(first())
    reading = asyncio.create_task(second())
    await second_waits.wait()
    loop = asyncio.get_running_loop()
    passed = asyncio.Event()
    loop.call_later(1.2, passed.set)
    await passed.wait()
    first_may_end.set()
    await holding
    assert await reading == "read"


class Silent(Clusters):
    """No cluster gives an answer."""

    async def control_plane(self, name: str) -> Reached:
        raise NotImplementedError

    async def app_cluster(self, name: str, access: Access, *, control_plane: str) -> Reached:
        return await asyncio.Event().wait()  # type: ignore[return-value]

    async def close(self, name: str) -> None:
        pass


async def test_all_visits_of_a_cluster_in_a_run_share_its_time() -> None:
    run = Visits(Silent(), Pace(timeout=0.2))

    async def read(_: Visit) -> None:
        raise NotImplementedError

    async def visited(name: str) -> float:
        began = asyncio.get_running_loop().time()
        found = await run.app_cluster(name, ACCESS, read, control_plane="eu")
        assert isinstance(found, Unavailable)
        assert "not read completely in 0.2 s" in found.reason
        return asyncio.get_running_loop().time() - began

    assert await visited("shop") >= 0.2
    assert await visited("shop") < 0.2
    assert await visited("other") >= 0.2


def forbidden(ref: Ref) -> ClusterError:
    return Forbidden("robot may not", ref=ref, verb="list", status=403)


def unreachable(ref: Ref) -> ClusterError:
    return Unreachable("no connection in time", ref=ref, verb="list")


FAILED: Mapping[str, tuple[Sequence[ClusterError], Unavailable]] = {
    "of one cause the first read says it all": (
        [Unreachable("no connection in time", ref=CRDS, verb="create"), unreachable(SECRETS)],
        Unavailable(
            "create CustomResourceDefinition: no connection in time",
            "Check that https://cp.example:6443 runs, and the way to it: DNS, proxy, certificate",
        ),
    ),
    "all that is forbidden is named, also behind another failure": (
        [unreachable(CRDS), forbidden(SECRETS), forbidden(CRDS)],
        Unavailable(
            "list Secret in namespace klutch-bind: robot may not; "
            "list CustomResourceDefinition: robot may not",
            "Grant the user of context/eu-1: list customresourcedefinitions.apiextensions.k8s.io, "
            "list secrets; `klutchctl doctor` has all",
        ),
    ),
    "but not without end": (
        [forbidden(SECRETS)] * 7,
        Unavailable(
            "; ".join(["list Secret in namespace klutch-bind: robot may not"] * 5) + "; and 2 more",
            "Grant the user of context/eu-1: list secrets; `klutchctl doctor` has all",
        ),
    ),
    "credentials": (
        [Unauthorized("HTTP 401", ref=CRDS, verb="list", status=401)],
        Unavailable(
            "list CustomResourceDefinition: HTTP 401", "Renew the credentials of context/eu-1"
        ),
    ),
    "anything else": (
        [Expired("too old", ref=CRDS, verb="list", status=410)],
        Unavailable(
            "list CustomResourceDefinition: too old",
            "Check that https://cp.example:6443 is the right API server",
        ),
    ),
}


@pytest.mark.parametrize(("errors", "verdict"), FAILED.values(), ids=FAILED.keys())
def test_failed_reads(errors: Sequence[ClusterError], verdict: Unavailable) -> None:
    assert visits.failed(errors, ACCESS, ADDRESS) == verdict


def test_a_defect_is_named_by_its_place_and_never_by_its_text() -> None:
    try:
        raise KeyError("canary")
    except KeyError as error:
        verdict = visits.defect(error)
    assert verdict.reason.startswith(f"unexpected KeyError at {__name__}:")
    assert "canary" not in repr(verdict)


def test_an_app_cluster_behind_an_unseen_control_plane_has_the_same_remedy() -> None:
    why = Unavailable("no connection", "Check it")
    assert observer.behind("eu", why) == Unavailable(
        "its control plane eu is unseen: no connection", "Check it"
    )
