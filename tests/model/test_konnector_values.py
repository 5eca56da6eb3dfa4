"""Whatever JSON a claim comes to hold, its copy holds the same."""

import asyncio
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import pytest

from reconciler.core.manifest import Manifest, canonical
from tests.support.bound_scenes import Scene, until
from tests.support.fleet_states import kstatus
from tests.support.forward_clock import ForwardClock
from tests.support.konnector import konnector
from tests.support.konnector_scenes import Side, Story, event, redefine, sides, story, working

# What a spec holds, and what comes to stand in its place.
CHANGES: dict[str, tuple[Any, Any]] = {
    "texts-that-yaml-has-not": ("x", "a\x7fb\x80c\ufffed\uffffe"),
    "ends-of-lines": ("x", " a \x85 b \u2028 c \u2029 d \r\n e \ufefff"),
    "characters": ("x", 'ä \xa0\U0001f600 "\\/ \x00\x1b\t'),
    "a-long-key": (1, {"k" * 2000: {"l" * 2000: 1}}),
    "odd-keys": ({".": 1}, {"": 1, ".": 2, "<<": {"a": 1}, "a\u2028b": 1, "true": 1, "~": 1}),
    "large-numbers": (1, [2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1]),
    "fractions": (1, [0.1, 1e300, 5e-324, 0.30000000000000004]),
    "one-is-not-true": (True, 1),
    "an-empty-map": ({}, {"a": {}}),
    "an-empty-list": ({}, {"a": []}),
    "an-empty-map-that-goes": ({"a": {}}, {}),
    "an-empty-list-that-goes": ({"a": []}, {}),
    "one-empty-for-another": ({}, []),
    "an-empty-map-in-an-item": ([{"a": 1}], [{"a": 1, "b": {}}]),
    "what-is-emptied-and-goes": ({"a": {"b": {"c": 1}}, "d": 1}, {"d": 1}),
    "nulls": ({"a": 1}, {"a": None, "b": None, "c": [None, {"d": None}]}),
    "another-type": ({"a": 1}, [{"a": [[1]]}]),
}


async def test_a_change_arrives_as_it_is(scene: Scene) -> None:
    """D.2: both specs are deeply equal."""
    async with story(scene) as account:
        for name, (before, _) in CHANGES.items():
            await account.here.make(name, spec={"size": "1Gi", "value": before})
        for name in CHANGES:
            await until(partial(account.there.read, name))
            assert await is_same(account.here, account.there, name)
        for name, (_, after) in CHANGES.items():
            change = {"op": "replace", "path": "/spec/value", "value": after}
            cluster = account.here.live.cluster
            await cluster.json_patch(account.here.ref(name), (change,), manager="developer")
        for name in CHANGES:
            await until(partial(is_same, account.here, account.there, name))


TYPED: dict[str, list[Any]] = {
    "keyed": [
        [{"name": "a"}, {"name": "b", "labels": {"x": "1"}}],
        [{"name": "b", "labels": {"x": "1"}}, {"name": "a"}],
        [{"name": "c"}, {"name": "b", "labels": {}}],
        [],
    ],
    "whole": [{"a": "1"}, {"b": "1"}, {}, {"c": "1"}],
    "words": [["a", "b"], ["c", "b", "a"], ["a"], []],
}


def typed(version: dict[str, Any]) -> None:
    """Let a version know lists whose items have keys or are a set, and a map that is one value."""
    labels = {"type": "object", "additionalProperties": {"type": "string"}}
    item = {"name": {"type": "string"}, "labels": labels}
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    known = {
        "size": {"type": "string"},
        "labels": labels,
        "whole": {**labels, "x-kubernetes-map-type": "atomic"},
        "words": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "keyed": {
            "type": "array",
            "items": {"type": "object", "properties": item, "required": ["name"]},
            **keyed,
        },
    }
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    properties["spec"] = {"type": "object", "properties": known}


async def test_a_change_of_what_has_a_type_of_its_own_arrives(scene: Scene) -> None:
    """Also what is emptied, of which an apply alone would make null, in an item too."""
    await redefine(scene.plane, scene, typed)
    async with story(scene) as account:
        for field, (first, *_) in TYPED.items():
            await account.here.make(field, spec={field: first})
            await until(partial(account.there.read, field))
        for turn in (1, 2, 3):
            for field, values in TYPED.items():
                change = {"op": "replace", "path": f"/spec/{field}", "value": values[turn]}
                cluster = account.here.live.cluster
                await cluster.json_patch(account.here.ref(field), (change,), manager="developer")
            for field in TYPED:
                await until(partial(is_same, account.here, account.there, field))


async def test_what_a_provider_puts_into_what_is_empty_costs_nothing(scene: Scene) -> None:
    await redefine(scene.plane, scene, typed)
    added: Any = {"labels": {"a": "1"}, "keyed": [{"name": "a"}], "words": ["a"]}
    async with scene.backend():
        async with working(scene) as account:
            await scene.bound()
            await account.settle(spec={"size": "1Gi", "labels": {}, "keyed": [], "words": []})
            await account.there.patch({"spec": added})
            await account.there.patch({"status": {"phase": "Busy"}}, subresource="status")
            await until(lambda: account.here.has_status({"phase": "Busy"}))
            assert "patch there orders" not in await account.writes()
        async with working(scene) as account:
            assert await account.writes() == []
            assert await account.there.spec() == {"size": "1Gi", **added}


def operated(version: dict[str, Any]) -> None:
    """Let a version know a field beside `spec`, as Argo CD has one."""
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    properties["operation"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


async def test_a_field_that_the_provider_takes_away_each_time_becomes_its_own(scene: Scene) -> None:
    await redefine(scene.plane, scene, operated)
    async with story(scene) as account:
        here, there = account.here, account.there

        async def is_up(number: int) -> bool:
            return bool((await there.read()).get("operation") == {"sync": number})

        await account.settle(operation={"sync": 1})
        for number, times in ((1, 4), (2, 3)):  # the first was made so
            await here.patch({"operation": {"sync": number}})
            for _ in range(times):
                await until(partial(is_up, number))
                await there.patch({"operation": None})
            await until(lambda: event(scene, "orders", "FieldLeft"))
            spec = {"size": f"{number}Ti"}
            await here.patch({"spec": spec})
            await until(partial(there.has_spec, spec))
            await account.begin()
            assert "operation" not in await there.read()


async def test_the_claim_is_current_once_the_provider_has_seen_its_newest_spec(
    scene: Scene,
) -> None:
    """After edits of which a konnector brought the last alone; nothing is written at rest."""
    clock = ForwardClock()
    async with scene.backend():
        async with working(scene) as account:
            await scene.bound()
            await account.settle()
        for size in range(12):
            await account.here.patch({"spec": {"size": f"{size}Gi"}})
        async with konnector(scene.app.connection, clock=clock) as made:
            account = Story(scene, made, *sides(scene))
            await until(lambda: account.there.has_spec({"size": "11Gi"}))
            for before in (True, False):
                newest = (await account.there.read())["metadata"]["generation"] - before
                ready = {"type": "Ready", "status": "True", "observedGeneration": newest}
                status: Any = {"observedGeneration": newest, "conditions": [ready]}
                await account.there.patch({"status": status}, subresource="status")
                await until(
                    partial(is_read_as, account.here, "InProgress" if before else "Current")
                )
            await account.begin()
            clock.put_forward(timedelta(seconds=60))
            assert await account.writes() == []


async def is_read_as(here: Side, wanted: str) -> bool:
    live = await here.read()
    (ready,) = live["status"].get("conditions", [{"observedGeneration": 0}])
    is_newest = ready["observedGeneration"] == live["metadata"]["generation"] > 12
    return kstatus(live) == wanted and is_newest == (wanted == "Current")


async def is_same(here: Side, there: Side, name: str) -> bool:
    assert canonical(await there.spec(name)) == canonical(await here.spec(name)), name
    return True


@pytest.mark.parametrize("contested", ["spec", "status"])
async def test_a_value_that_another_program_changes_back_is_written_now_and_then(
    scene: Scene, contested: str
) -> None:
    """Such as an admission webhook with new ciphers each time, or a second controller."""
    async with story(scene) as account:
        await account.settle()
        side = account.there if contested == "spec" else account.here
        wanted = {"size": "1Gi"} if contested == "spec" else {"phase": "Ready"}
        wars = count()
        is_back = partial(side.has_spec if contested == "spec" else side.has_status, wanted)

        async def fight() -> None:
            for war in wars:
                body: Manifest = {contested: {key: str(war) for key in wanted}}
                await side.patch(body, subresource=contested.removeprefix("spec"))
                await until(is_back)

        async with asyncio.TaskGroup() as group:
            fighting = group.create_task(fight())
            await asyncio.sleep(300)
            assert await event(scene, "orders", "SyncWaiting")
            assert 60 < next(wars) < 60 + 60 + 300 // 5  # in two minutes that meet, and then
            fighting.cancel()
        await until(is_back)
