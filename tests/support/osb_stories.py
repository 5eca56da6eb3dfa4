"""What befalls claims of a service broker, act by act, and when each act has come to its end."""

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

import pytest

from reconciler.core import conditions
from reconciler.core.manifest import get_map, get_text
from reconciler.core.refs import SECRET, Kind
from reconciler.kube.requests import Request
from tests.kit.osb import BROKER_CALL
from tests.support.cues import AFTER, Cue
from tests.support.faults import Crash, Faults, deeds, survives
from tests.support.osb_inventory import Modes
from tests.support.osb_scenes import BINDING, INSTANCE, OsbScene
from tests.support.osb_wire import MUTATING

Deed: TypeAlias = Callable[[OsbScene], Awaitable[object]]
Goal: TypeAlias = Callable[[OsbScene], Awaitable[bool]]
Act: TypeAlias = tuple[Deed, Goal]

_MANY_DEATHS: Final = 80
_WITHIN: Final = 4 * 3600.0  # seconds of the loop


def steps() -> Cue[Request]:
    """Return the cue for all writes, and for all calls about an instance, whatever they do."""
    written = deeds().matches

    def matches(call: Request) -> bool:
        if call.ref.kind == BROKER_CALL:
            return call.ref.name != ""  # else nothing would ever come further than the catalogue
        return written(call)

    return Cue(matches)


def cluster_writes() -> Cue[Request]:
    written = deeds().matches
    return Cue(lambda call: call.ref.kind != BROKER_CALL and written(call))


async def dies_on_the_way(scene: OsbScene, goal: Goal, *, is_bound: bool = False) -> int:
    """Let processes live one after the other until one reaches the goal; return how many died.

    By turns they die after one step, two, three and four: what a call came to is known to nobody,
    and then it is. `is_bound`: the Secret logs in at every moment.
    """
    for deaths in range(_MANY_DEATHS):
        faults = Faults()
        faults.add(steps().nth(1 + deaths % 4), Crash(), at=AFTER)
        if await survives(comes_to(scene, goal, faults, is_bound=is_bound)):
            return deaths
    raise AssertionError(f"it has not come to its end after {_MANY_DEATHS} deaths")


async def comes_to(scene: OsbScene, goal: Goal, faults: Faults, *, is_bound: bool = False) -> None:
    """Let klutch-osb work until the goal is reached. Raises SimulatedCrash in a group."""
    scene.wires.faults = faults
    try:
        async with scene.program(faults=faults):
            await _reached(scene, goal, faults, is_bound=is_bound)
    finally:
        scene.wires.faults = Faults()


async def _reached(scene: OsbScene, goal: Goal, faults: Faults, *, is_bound: bool) -> None:
    began = time.monotonic()
    while not await goal(scene):
        faults.still_alive()
        if is_bound and not scene.broker.log_in(await credentials(scene)):
            pytest.fail("the Secret does not log in")
        waited = time.monotonic() - began
        if waited > _WITHIN:
            held = [await scene.all_of(kind) for kind in (INSTANCE, BINDING)]
            raise AssertionError(f"not within {_WITHIN:g} s: {held}, {await scene.records()}")
        await asyncio.sleep(min(0.05 + waited / 50, 20.0))


async def says(scene: OsbScene, kind: Kind, condition: str = conditions.READY) -> str:
    """Return a condition as `status/reason`, "" without it."""
    found = conditions.get(await scene.read(kind), condition)
    return "" if found is None else f"{found.status}/{found.reason}"


async def is_well(scene: OsbScene, kind: Kind) -> bool:
    up_to_date = await says(scene, kind, "UpToDate")
    return await says(scene, kind) == "True/" and up_to_date in ("", "True/")


async def is_provisioned(scene: OsbScene) -> bool:
    held = scene.broker.inventory.instances.values()
    return await is_well(scene, INSTANCE) and [one["state"] for one in held] == ["present"]


def has(**wanted: Any) -> Goal:
    """Return the goal that the one instance has this, as its status says."""

    async def goal(scene: OsbScene) -> bool:
        plans: list[Any] = scene.broker.catalogue["services"][0]["plans"]
        (plan,) = (one["id"] for one in plans if one["name"] == wanted["plan"])
        held = [
            (one["plan_id"], one.get("parameters", {}))
            for one in scene.broker.inventory.instances.values()
        ]
        shown = get_text(await scene.read(INSTANCE) or {}, "status", "plan") == wanted["plan"]
        is_held = held == [(plan, wanted["parameters"])]
        return is_held and shown and await is_well(scene, INSTANCE)

    return goal


async def is_gone(scene: OsbScene) -> bool:
    """Return whether nothing is left: no claim, no record, no Secret, nothing at the broker."""
    kinds = (INSTANCE, BINDING, SECRET)
    left = [one for kind in kinds for one in await scene.all_of(kind)]
    return not left and not await scene.records() and scene.broker.inventory.is_empty


async def credentials(scene: OsbScene, name: str = "orders-creds") -> dict[str, str]:
    """Return what a Secret holds; nothing where it is not there."""
    data = get_map(await scene.read(SECRET, name) or {}, "data")
    return {key: base64.b64decode(str(value)).decode() for key, value in data.items()}


async def is_bound(scene: OsbScene) -> bool:
    """Return whether the binding is Ready, and its Secret logs in with the only credentials."""
    return len(scene.broker.inventory.bindings) == 1 and await is_ready_and_logs_in(scene)


async def is_ready_and_logs_in(scene: OsbScene) -> bool:
    return await says(scene, BINDING) == "True/" and scene.broker.log_in(await credentials(scene))


async def rotate(scene: OsbScene) -> None:
    await scene.change(BINDING, rotation={"request": "1", "overlap": "10m"})


async def overlaps(scene: OsbScene) -> bool:
    """Return whether new credentials are in the Secret, and the old ones still log in."""
    is_new = bool(get_text(await scene.read(BINDING) or {}, "status", "rotatedAt"))
    return is_new and await is_ready_and_logs_in(scene)


async def time_passes(scene: OsbScene) -> None:
    """Nothing is done; the next goal is reached by timers."""
    del scene


async def is_unbound(scene: OsbScene) -> bool:
    gone = await scene.read(BINDING) is None and not await credentials(scene)
    return gone and not scene.broker.inventory.bindings


LIFE: Final[Sequence[Act]] = (
    (lambda scene: scene.claim(parameters={"a": 1}), is_provisioned),
    (lambda scene: scene.bind(parameters={"role": "reader"}), is_bound),
    (lambda scene: scene.change(INSTANCE, plan="big"), has(plan="big", parameters={"a": 1})),
    (
        lambda scene: scene.change(INSTANCE, parameters={"a": 2}),
        has(plan="big", parameters={"a": 2}),
    ),
    (rotate, overlaps),
    (time_passes, is_bound),
    (lambda scene: scene.delete(BINDING), is_unbound),
    (lambda scene: scene.delete(INSTANCE), is_gone),
)
# Of what acts on, while the binding is there, its Secret logs in at every moment.
BOUND: Final = range(2, 6)

WAYS: Final[dict[str, Callable[[], Modes]]] = {
    "at once": Modes,
    "later": lambda: Modes(asynchronous=MUTATING, polls=2),
    "later, without operation": lambda: Modes(
        asynchronous=MUTATING, gives_operation=False, gone_poll=404
    ),
    "each PUT is 202": lambda: Modes(
        repeated=202, asynchronous=frozenset({"provision"}), gone_poll=200
    ),
    "what is there conflicts": lambda: Modes(repeated=409),
    "what is there is made again": lambda: Modes(repeated=201, unknown_delete=200),
    "nothing is aborted": lambda: Modes(asynchronous=MUTATING, aborts=False, unknown_delete=404),
}
