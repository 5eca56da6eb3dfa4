"""Two processes of the backend serve one control plane, and one of them is killed or stopped.

In `tests/model/test_backend_crashes.py` the same stories are disturbed at every write.
"""

import contextlib
import itertools
import signal
import uuid

import pytest

from reconciler.api import APP_CLUSTER_BINDING
from reconciler.core import names
from reconciler.core.refs import CRD, DEPLOYMENT, ROLE_BINDING, Ref
from tests.support.backend_stories import ACB, STORIES, tenancy
from tests.support.eventually import eventually
from tests.support.offers import offered
from tests.support.replicas import replicas

BOUND = STORIES["an app cluster, released"][:1]
SERVED = STORIES["a space and its app namespace"][:1]


@pytest.fixture
async def begun(control_plane, namespace):
    """Return a new tenant of the same two services at each call."""
    plane, numbers, base = control_plane.cluster, itertools.count(), uuid.uuid4().hex[:8]
    async with (
        offered(plane, namespace=namespace) as one,
        offered(plane, namespace=namespace) as other,
    ):
        yield lambda: tenancy(control_plane, (one, other), f"w{base}{next(numbers):03d}")


@pytest.fixture
async def backends(control_plane, namespace, tmp_path):
    async with replicas(control_plane, namespace, tmp_path) as made:
        yield made


@contextlib.asynccontextmanager
async def unserved(cluster, kind):
    """Let a kind be as if it had no CRD, for the length of the block; no object is lost."""
    ref = Ref(cluster.name, CRD, "", kind.resource)

    async def serve(value):
        patch = [{"op": "replace", "path": "/spec/versions/0/served", "value": value}]
        await cluster.json_patch(ref, patch, manager="tests")

    await serve(False)
    try:
        yield
    finally:
        await serve(True)


async def test_a_killed_leader_is_followed_by_the_other_which_goes_on(
    control_plane, backends, begun
):
    audit, (act,) = control_plane.audit, BOUND
    async with unserved(control_plane.cluster, APP_CLUSTER_BINDING):
        first = await backends.start()

        async def tells():
            code, text = await first.ask("/readyz")
            assert (code, text.count(";")) == (503, 0), text
            return f"does not serve {APP_CLUSTER_BINDING.resource}" in text

        await eventually(tells)
        assert (await first.ask("/healthz")) == (200, "ok\n")
    await backends.leader(first)
    assert await first.ask("/readyz") == (200, "ok\n")
    second = await backends.start()
    await backends.stands_by(second)
    async with begun() as tenant:
        mark = audit.mark()
        await act.deed(tenant)
        await eventually(lambda: len(first.writes_since(mark)) > 2)
        first.send(signal.SIGKILL)
        assert await first.ended() == -signal.SIGKILL
        # It may have been quick: so something is left to do in any case.
        await tenant.remove(DEPLOYMENT, names.konnector_deployment(ACB), tenant.space)
        await eventually(lambda: act.goal(tenant), within=180)
        assert await second.leads()
        assert second.writes_since(mark) != []
        second.send(signal.SIGTERM)
        assert await second.ended() == 0


@pytest.mark.soak  # in `make test` a konnector shows it, with the same lease
async def test_a_leader_that_was_stopped_for_too_long_writes_nothing_any_more(
    control_plane, backends, begun
):
    """Before that, one that ends by itself gives the lease back."""
    first = await backends.start()
    await backends.leader(first)
    second = await backends.start()
    await backends.stands_by(second)
    first.send(signal.SIGTERM)
    assert await first.ended() == 0
    assert f"-{first.process.pid}-" not in await backends.holder()
    await backends.leader(second)

    third = await backends.start()
    await backends.stands_by(third)
    second.send(signal.SIGSTOP)
    await backends.leader(third)
    mark = control_plane.audit.mark()
    (act,) = SERVED
    async with begun() as tenant:
        await act.deed(tenant)
        await eventually(lambda: act.goal(tenant))
        rights = (ROLE_BINDING, names.BINDER, tenant.own_space)
        await tenant.remove(*rights)
        second.send(signal.SIGCONT)
        await eventually(lambda: "waits for the lease again" in second.log.read_text())
        await backends.stands_by(second)
        assert second.writes_since(mark) == []
        assert third.writes_since(mark) != []
        await eventually(lambda: tenant.at(*rights))
