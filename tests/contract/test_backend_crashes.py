"""Whatever disturbs the backend, its tenants end as if nothing had.

A story is what befalls a tenant: it asks for exports, binds, is deleted. In each, every write is a
point to die at. Usually one tenant goes through it while each backend dies after its first write,
so that every state between two writes is met by a new backend. `make soak` begins anew for every
write, dies once before and once after it, and lets the next backend do all the rest.
"""

import asyncio
import contextlib
import itertools
import uuid
from collections import Counter

import pytest
import pytest_asyncio

from reconciler.blueprints.objects import build
from reconciler.core.errors import ClusterError
from reconciler.core.refs import NAMESPACE, Ref
from tests.support.apply_runs import remove
from tests.support.backend_runs import (
    comes_to,
    dies_after_every_write,
    undisturbed,
    writes_of_a_start,
)
from tests.support.backend_states import HOSTILE, found, refs_of
from tests.support.backend_stories import STORIES, tenancy
from tests.support.cues import AFTER, BEFORE
from tests.support.faults import Crash, Faults, conflict, deeds, survives
from tests.support.offers import CREDENTIALS, offered

pytestmark = pytest.mark.timeout(1800)

CONFIG = {"group": "", "resource": "configmaps", "version": "v1"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def tell(control_plane):
    """Return a new tenant of the same two services at each call."""
    plane, numbers, base = control_plane.cluster, itertools.count(), uuid.uuid4().hex[:8]
    templates = f"test-w{base}"
    await plane.create(build(NAMESPACE, templates), NAMESPACE, manager="tests")
    claims = [CREDENTIALS, CONFIG]
    async with (
        offered(plane, namespace=templates) as one,
        offered(plane, namespace=templates, claims=claims) as other,
    ):
        yield lambda: tenancy(control_plane, (one, other), f"w{base}{next(numbers):03d}")
    await remove(control_plane, Ref(plane.name, NAMESPACE, "", templates))


def pytest_generate_tests(metafunc):
    if "told" not in metafunc.fixturenames:
        return
    usual = 1 if metafunc.function is test_it_ends_as_if_nobody_else_had_written else 2
    told = [
        pytest.param(story, id=name, marks=pytest.mark.soak if number >= usual else ())
        for number, (name, story) in enumerate(STORIES.items())
    ]
    metafunc.parametrize("told", told, indirect=True, scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def told(request, tell):
    """Return a story, and how each of its acts ends where nothing disturbs."""
    async with tell() as tenant:
        ends = await undisturbed(tenant, request.param)
        assert await writes_of_a_start(tenant) == []
        return request.param, ends


async def test_it_ends_as_if_nobody_had_died(told, tell, pytestconfig):
    if pytestconfig.getoption("--hypothesis-profile") == "soak":
        await with_one_death(told, tell)
        return
    async with tell() as tenant:
        for act, end in zip(*told, strict=True):
            await act.deed(tenant)
            assert await dies_after_every_write(tenant, end) > 0, "the act has no writes"
        assert await writes_of_a_start(tenant) == []


async def with_one_death(told, tell):
    for moment in (BEFORE, AFTER):
        for write in itertools.count(1):
            async with tell() as tenant:
                if not await dies_once(tenant, told, write, moment):
                    break


async def dies_once(tenant, told, write, moment):
    """Tell the story with one death; return whether it has so many writes."""
    faults, died = Faults(), ""
    of_tenant = deeds(of=tenant.word)
    faults.add(of_tenant.nth(write), Crash(), at=moment)
    for act, end in zip(*told, strict=True):
        await act.deed(tenant)
        if died or not await survives(comes_to(tenant, end, faults=faults)):
            at = [call for call in faults.calls if of_tenant.matches(call)][-1]
            died = f"{moment.value} write {write}: {at.verb} {at.ref.object}"
            await comes_to(tenant, end, died)
    assert await writes_of_a_start(tenant) == [], died
    return died != ""


class Storm:
    """An effect: the first tries of each write meet a conflict."""

    def __init__(self, tries):
        self._tries, self._met = tries, Counter[tuple[str, Ref, str]]()

    async def perform(self, call):
        write = call.verb, call.ref, call.subresource
        self._met[write] += 1
        if self._met[write] <= self._tries:
            await conflict().perform(call)


async def annotate_all(tenant):
    """Write to all objects of a tenant, again and again."""
    cluster = tenant.plane.cluster
    for turn in itertools.count():
        for ref in refs_of(cluster.name, await found(cluster, tenant.word)):
            body = {"metadata": {"annotations": {HOSTILE: str(turn)}}}
            with contextlib.suppress(ClusterError):  # what was there is gone
                await cluster.merge_patch(ref, body, manager="hostile")


async def test_it_ends_as_if_nobody_else_had_written(told, tell):
    async with tell() as tenant:
        for act, end in zip(*told, strict=True):
            faults = Faults()
            faults.add(deeds(), Storm(2))
            hostile = asyncio.create_task(annotate_all(tenant))
            try:
                await act.deed(tenant)
                await comes_to(tenant, end, "conflicts", faults=faults, in_peace=False)
            finally:
                hostile.cancel()
                await asyncio.gather(hostile, return_exceptions=True)
        assert await writes_of_a_start(tenant) == []
