"""Whatever disturbs the backend, its tenants end as if nothing had.

A story is what befalls a tenant: it asks for exports, binds, is deleted. Usually one tenant goes
through it while each backend dies after its first write; `make soak` begins anew for every write,
dies once before and once after it, and lets the next backend do all the rest.
"""

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final, TypeAlias

import pytest
import pytest_asyncio

from reconciler import api
from reconciler.core import manifest, refs
from reconciler.core.errors import ClusterError
from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind
from reconciler.kube.cluster import Cluster
from tests.kit.stories import dies_after_every_write, dies_once_at_every_write, disturbed
from tests.support.applying import DROPPED, OF_SPACE, TIME, UID, differences
from tests.support.backend import AGENT, backend
from tests.support.backend_stories import STORIES, Act, Tenant, tenancy
from tests.support.clusters import LiveCluster, Write
from tests.support.eventually import eventually
from tests.support.faults import Faults, deeds, survives
from tests.support.offers import CREDENTIALS, offered
from tests.support.settled import settled

# Of a writer that only disturbs.
HOSTILE: Final = "hostile.example/turn"
_KINDS: Final = (
    refs.NAMESPACE,
    *OF_SPACE,
    api.APP_CLUSTER_BINDING,
    refs.ROLE,
    refs.ROLE_BINDING,
    refs.DEPLOYMENT,
    refs.CLUSTER_ROLE,
    refs.CLUSTER_ROLE_BINDING,
)
_TOKEN: Final = "kubernetes.io/service-account-token"

Found = Sequence[tuple[Kind, Manifest]]
CONFIG = {"group": "", "resource": "configmaps", "version": "v1"}
State: TypeAlias = dict[str, str]
StoryStart: TypeAlias = Callable[[], AbstractAsyncContextManager[Tenant]]
Story: TypeAlias = Sequence[Act]


async def found(cluster: Cluster, word: str) -> Found:
    """Return all objects that bear the word in their name or namespace."""
    listings = await asyncio.gather(*(cluster.list(kind) for kind in _KINDS))
    return [
        (kind, one)
        for kind, listing in zip(_KINDS, listings, strict=True)
        for one in listing.items
        if word in f"{manifest.namespace_of(one)} {manifest.name_of(one)}"
        # A control plane adds one to each new namespace, sooner or later.
        and (kind, manifest.name_of(one)) != (refs.SERVICE_ACCOUNT, "default")
    ]


async def end_state(cluster: Cluster, word: str) -> dict[str, str]:
    """Return the text of each object by its place, without the word.

    Uids, times, versions and tokens differ between tellings and stand as what they are of: a uid as
    the object that bears it. So an owner that is gone shows as a difference.
    """
    held = await found(cluster, word)
    uids = {manifest.uid_of(one): f"<{_title(kind, one)}>" for kind, one in held}

    # By itself: it may stand by chance inside a hash, such as uOw000A6 of a spec.
    own = re.compile(rf"\b{word}\b")

    def reported(text: str) -> str:
        text = UID.sub(lambda match: uids.get(match[0], "<what is gone>"), text)
        return own.sub("<word>", TIME.sub("<time>", text))

    return {reported(_title(kind, one)): reported(_text(kind, one)) for kind, one in held}


def _title(kind: Kind, live: Manifest) -> str:
    return f"{kind.kind} {manifest.namespace_of(live)}/{manifest.name_of(live)}"


def _text(kind: Kind, live: Manifest) -> str:
    reported: dict[str, Any] = json.loads(json.dumps(live))
    metadata = reported["metadata"]
    for key in DROPPED:
        metadata.pop(key, None)
    notes = {key: text for key, text in manifest.annotations_of(live).items() if key != HOSTILE}
    metadata |= {"annotations": notes, "deleting": manifest.is_deleting(live)}
    if kind == refs.SECRET and reported.get("type") == _TOKEN:
        reported["data"] = sorted(reported.get("data", {}))
    return json.dumps(reported, sort_keys=True)


@pytest_asyncio.fixture
async def begun(control_plane: LiveCluster, namespace: str) -> AsyncIterator[StoryStart]:
    """Return a new tenant of the same two services at each call."""
    plane, numbers = control_plane.cluster, itertools.count()
    claims = [CREDENTIALS, CONFIG]
    async with (
        offered(plane, namespace=namespace) as one,
        offered(plane, namespace=namespace, claims=claims) as other,
    ):
        yield lambda: tenancy(control_plane, (one, other), f"w{next(numbers):03d}")


@pytest.fixture(params=[*STORIES.values()], ids=[*STORIES])
def story(request: pytest.FixtureRequest) -> Story:
    acts: Story = request.param
    return acts


@pytest_asyncio.fixture
async def ends(story: Story, begun: StoryStart) -> list[State]:
    """Return how each act ends where nothing disturbs."""
    ends = list[State]()
    async with begun() as tenant:
        async with backend(tenant.plane.connection, clock=tenant.clock) as made:
            for act in story:
                await act.deed(tenant)
                await eventually(partial(act.goal, tenant))
                await settled(made)
                ends.append(await end_state(tenant.plane.cluster, tenant.word))
        assert await writes_of_a_start(tenant) == []
    return ends


async def comes_to(
    tenant: Tenant, end: State, faults: Faults, title: str = "", *, in_peace: bool = True
) -> None:
    """Let a backend work until the tenant is in that state, and nothing is left to do.

    Where it is not left in peace, there is always something to look at. Raises SimulatedCrash
    where the faults say so.
    """
    async with backend(tenant.plane.connection, clock=tenant.clock, faults=faults) as made:

        async def alike() -> bool:
            faults.still_alive()
            if in_peace and made.metrics.activity.queued():
                return False
            other = differences(end, await end_state(tenant.plane.cluster, tenant.word))
            assert not other, "\n".join((title, *other))
            return not in_peace or not made.metrics.activity.queued()

        await eventually(alike, within=180)


async def writes_of_a_start(tenant: Tenant) -> list[Write]:
    """Return what a new backend writes about the tenant until it is idle, Events aside."""
    mark = tenant.plane.audit.mark()
    async with backend(tenant.plane.connection, clock=tenant.clock) as made:
        await settled(made)
    writes = tenant.plane.audit.writes_since(mark)
    return [one for one in writes if one.agent == AGENT and one.resource != "events"]


async def test_it_ends_as_if_nobody_had_died(
    story: Story, ends: list[State], begun: StoryStart, pytestconfig: pytest.Config
) -> None:
    if pytestconfig.getoption("--hypothesis-profile") == "soak":
        await dies_once_at_every_write(partial(with_one_death, story, ends, begun), deeds())
        return
    async with begun() as tenant:
        for act, end in zip(story, ends, strict=True):
            await act.deed(tenant)
            # Others may have left what every backend tries to mend first.
            live = partial(comes_to, tenant, end)
            assert await dies_after_every_write(live, deeds(of=tenant.word)) > 0
        assert await writes_of_a_start(tenant) == []


async def with_one_death(
    story: Story, ends: list[State], begun: StoryStart, faults: Faults, title: str
) -> bool:
    """Tell the story with one death; return whether there was one."""
    died = False
    async with begun() as tenant:
        for act, end in zip(story, ends, strict=True):
            await act.deed(tenant)
            if not await survives(comes_to(tenant, end, Faults() if died else faults, title)):
                died = True
                await comes_to(tenant, end, Faults(), title)
        assert await writes_of_a_start(tenant) == [], title
    return died


async def annotate_all(tenant: Tenant) -> None:
    """Write to all objects of a tenant, again and again."""
    cluster = tenant.plane.cluster
    for turn in itertools.count():
        for kind, one in await found(cluster, tenant.word):
            ref = manifest.ref_of(cluster.name, kind, one)
            body = {"metadata": {"annotations": {HOSTILE: str(turn)}}}
            with contextlib.suppress(ClusterError):  # what was there is gone
                await cluster.merge_patch(ref, body, manager="hostile")
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("disturbance", ["too many requests", "silence"])
async def test_it_comes_to_its_ends_though_its_writes_are_disturbed(
    story: Story, begun: StoryStart, disturbance: str
) -> None:
    """Not quite as if nothing had: a condition that was ever False stays, and is True."""
    async with begun() as tenant:
        for act in story:
            faults = disturbed(deeds(), disturbance)
            await act.deed(tenant)
            way = tenant.plane.connection
            async with backend(way, clock=tenant.clock, faults=faults) as made:
                await eventually(partial(act.goal, tenant), within=180)
                await settled(made)
        assert await writes_of_a_start(tenant) == []


async def test_it_ends_as_if_nobody_else_had_written(
    story: Story, ends: list[State], begun: StoryStart
) -> None:
    async with begun() as tenant:
        for act, end in zip(story, ends, strict=True):
            faults = disturbed(deeds(), "conflicts")
            hostile = asyncio.create_task(annotate_all(tenant))
            try:
                await act.deed(tenant)
                await comes_to(tenant, end, faults, "conflicts", in_peace=False)
            finally:
                hostile.cancel()
                await asyncio.gather(hostile, return_exceptions=True)
        assert await writes_of_a_start(tenant) == []
