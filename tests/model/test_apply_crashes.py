"""Whoever dies between two writes of an apply leaves a state from which the next run goes on.

A story is what a fleet goes through: a first apply, a release, a delete and so on. In each, every
write is a point to die at, and it always ends as if nobody had died. Usually one fleet goes
through it in runs of which each dies after its first write, so that every state between two
writes is met by a new run. `make soak` begins anew for every write, dies once before and once
after it, and lets the next run do all the rest.
"""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from reconciler.api import API_SERVICE_BINDING
from reconciler.apply import GOOD
from reconciler.blueprints.objects import UNMARKED, build
from reconciler.core import keys, names
from reconciler.core.manifest import Manifest, drop, get_map, is_deleting, put, uid_of
from reconciler.core.refs import NAMESPACE, SECRET, Ref
from reconciler.fleet.values import Mode
from reconciler.planning.changes import Action
from tests.kit.stories import dies_after_every_write, dies_once_at_every_write
from tests.support import removal
from tests.support.apply_runs import Runs, inhabit, staged, wipe
from tests.support.applying import CLAIMS, Fleet, Scene, differences, end_state
from tests.support.eventually import eventually
from tests.support.faults import Faults, deeds, survives

pytestmark = pytest.mark.timeout(1800)

_BUDGET = "maxDeletes: 100, maxDeletePercent: 100, allowEmpty: true"


def settled(fleet: Fleet) -> None:
    fleet.listed = fleet.bound = True
    fleet.claims, fleet.policy, fleet.prune = CLAIMS, "Release", _BUDGET


def deletable(fleet: Fleet) -> None:
    settled(fleet)
    fleet.policy = "Delete"
    fleet.prune = f"{_BUDGET}, onClusterLeave: Delete, keepIfInUse: false"


def unbound(fleet: Fleet) -> None:
    settled(fleet)
    fleet.bound = False


def removed(fleet: Fleet) -> None:
    fleet.bound = False


def unlisted(fleet: Fleet) -> None:
    fleet.listed = False


def with_parameters(fleet: Fleet) -> None:
    fleet.claims = CLAIMS + ", parameters: {size: large}"


def unchanged(_fleet: Fleet) -> None: ...


async def lead_astray(scene: Scene) -> None:
    """Let the binding lead through a Secret that is not where ours are."""
    way = Ref(scene.app.name, SECRET, scene.app_namespace, "kubeconfig")
    if await scene.at(way) is None:
        ours = names.kubeconfig_secret(scene.space)
        held = await scene.at(replace(way, namespace=names.KLUTCH_NAMESPACE, name=ours))
        data = get_map(held or {}, "data")
        made = build(SECRET, way.name, namespace=way.namespace, marks=UNMARKED, data=data)
        await scene.app.cluster.create(made, SECRET, manager="someone")
    live = await scene.at(scene.binding)
    assert live is not None
    await removal.remove(scene.app.cluster, scene.binding)

    async def let_go():
        return await scene.at(scene.binding) is None

    await eventually(let_go)  # by the konnector
    kept = ("name", "namespace", "labels", "annotations")
    metadata = {key: get_map(live, "metadata")[key] for key in kept}
    made = put(drop(live, "status"), metadata, "metadata")
    reference = {"name": way.name, "namespace": way.namespace, "key": names.KUBECONFIG}
    made = put(made, reference, "spec", "kubeconfigSecretRef")
    bound = await scene.app.cluster.create(made, API_SERVICE_BINDING, manager=keys.MANAGER_CLI)
    owner: Manifest = {
        "apiVersion": API_SERVICE_BINDING.api_version,
        "kind": API_SERVICE_BINDING.kind,
        "name": scene.binding.name,
        "uid": uid_of(bound),
        "controller": True,
    }
    await scene.app.cluster.merge_patch(
        scene.crd, {"metadata": {"ownerReferences": [owner]}}, manager="someone"
    )


@dataclass(frozen=True, slots=True)
class Story:
    """What the files say before and after it, and what else is so when it begins."""

    before: Callable[[Fleet], None]
    after: Callable[[Fleet], None]
    scenery: Callable[[Scene], Awaitable[None]] | None = None


STORIES = {
    "first apply": Story(unbound, settled),
    "bound again": Story(unbound, settled),
    "release": Story(settled, removed),
    "delete": Story(deletable, removed),
    "cluster leaves": Story(settled, unlisted),
    "cluster is deleted": Story(deletable, unlisted),
    "parameters change": Story(settled, with_parameters),
    "leads elsewhere": Story(deletable, unchanged, lead_astray),
}
_DIRECT_ONLY = ("parameters change", "leads elsewhere")
# Of the others each step is one of these', so they are told in `make soak` only.
_USUAL = {
    *((Mode.DIRECT, name) for name in ("first apply", "release", "delete", "leads elsewhere")),
    (Mode.APP_CLUSTER_BINDING, "release"),
}
CASES = {
    f"{name}, {mode.value}": (mode, name)
    for mode in (Mode.DIRECT, Mode.APP_CLUSTER_BINDING)
    for name in STORIES
    if mode is Mode.DIRECT or name not in _DIRECT_ONLY
}


@pytest.fixture(
    params=[
        pytest.param(case, id=title, marks=() if case in _USUAL else pytest.mark.soak)
        for title, case in CASES.items()
    ]
)
async def telling(request, control_plane, app_cluster, namespace, tmp_path):
    mode, name = request.param
    placed = staged(control_plane, app_cluster, namespace=namespace, mode=mode, folder=tmp_path)
    async with placed as scene:
        yield _Telling(scene, STORIES[name], first=name == "first apply")


async def test_it_ends_as_if_nobody_had_died(telling, pytestconfig):
    if pytestconfig.getoption("--hypothesis-profile") == "soak":
        await telling.with_one_death()
    else:
        await telling.with_a_death_after_every_write()


class _Telling:
    """One story on one scene, told again and again."""

    def __init__(self, scene: Scene, story: Story, *, first: bool) -> None:
        self._scene, self._story, self._first = scene, story, first
        self._runs = Runs(scene)
        self._name, self._fleets = scene.fleet.name, itertools.count()

    async def with_a_death_after_every_write(self) -> None:
        end = await self._undisturbed()
        async with self._begun():
            assert await dies_after_every_write(self._finishes, deeds()) > 0
            await self._comes_to(end, "a death after every write")

    async def _finishes(self, faults: Faults) -> None:
        await eventually(self._nothing_blocks)
        await self._runs.run(faults)
        # Where a konnector writes meanwhile, a run may leave something to the next.
        while await self._runs.todo():
            await eventually(self._nothing_blocks)
            await self._runs.run(faults)

    async def with_one_death(self) -> None:
        end = await self._undisturbed()

        async def retell(faults: Faults, title: str) -> bool:
            async with self._begun():
                if await survives(self._runs.run(faults)):
                    return False
                await eventually(self._nothing_blocks)
                await self._runs.finish()
                await self._comes_to(end, title)
                return True

        await dies_once_at_every_write(retell, deeds())

    @asynccontextmanager
    async def _begun(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Be where the story begins, and let its peers work; yield what waits for their rest."""
        scene, story = self._scene, self._story
        if self._first:  # nothing of it may have been there before
            scene.fleet.name = f"{self._name}-{next(self._fleets)}"
        story.before(scene.fleet)
        async with scene.peers() as rest:
            if not self._first:
                await eventually(self._may_come_back)
                await self._is_vouched_for()
                settled_first = deletable if story.before is deletable else settled
                settled_first(scene.fleet)
                await self._runs.finish()
                await inhabit(scene)
                story.before(scene.fleet)
                await self._runs.finish()
            if story.scenery is not None:
                await story.scenery(scene)
            story.after(scene.fleet)
            yield rest
        if self._first:
            await wipe(scene)
            await removal.remove(scene.app.cluster, scene.crd)
            await eventually(self._is_gone)

    async def _is_vouched_for(self) -> None:
        """Have the files name the app cluster: a released space is given to no other one."""
        system = Ref(self._scene.app.name, NAMESPACE, "", names.KUBE_SYSTEM)
        self._scene.fleet.identity = uid_of(await self._scene.at(system) or {})

    async def _may_come_back(self):
        """Return whether no home of the story's is still on its way out."""
        scene = self._scene
        homes = [await scene.at(ref) for ref in (scene.home, scene.whole)]
        return not any(one is not None and is_deleting(one) for one in homes)

    async def _is_gone(self):
        return await self._scene.at(self._scene.crd) is None

    async def _undisturbed(self) -> dict[str, str]:
        """Return how the story ends where nobody dies."""
        async with self._begun() as rest:
            report = await self._runs.run()
            assert [one.message for one in report.outcomes if one.status not in GOOD] == []
            await eventually(self._nothing_is_left)
            await rest()
            return await end_state(self._scene)

    async def _nothing_blocks(self):
        """Return whether the konnector has let go of what was deleted before a death."""
        lines = (await self._runs.plan()).changes
        return not any(one.action is Action.BLOCKED for one in lines)

    async def _nothing_is_left(self):
        assert await self._runs.todo() == []
        return True

    async def _comes_to(self, end: dict[str, str], reported: str) -> None:
        await eventually(self._nothing_is_left)

        async def alike():
            found = differences(end, await end_state(self._scene))
            assert not found, "\n".join((reported, *found))
            return True

        await eventually(alike)
