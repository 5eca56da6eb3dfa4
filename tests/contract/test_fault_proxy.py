"""The proxies in front of a real API server: TLS, real clients' credentials, real watches."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from klutchctl.sandbox.layout import Layout
from reconciler.core.errors import AlreadyExists, Expired, Unreachable
from reconciler.core.manifest import get_text, name_of
from reconciler.core.refs import CLUSTER_ROLE, CONFIG_MAP, SERVICE_ACCOUNT, Kind, Ref
from reconciler.core.secret import Secret
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import NoCredential, Token
from reconciler.kube.limits import Limits
from tests.support.cues import AFTER
from tests.support.eventually import eventually
from tests.support.fault_proxy import FaultProxy, serving_tls
from tests.support.http_faults import Body, Cut, gone, on
from tests.support.raw import http_session
from tests.support.tcp_proxy import CLEAR, STALLED, Flow, TcpProxy

MANAGER = "tests"
REVIEW = Kind(
    "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False
)
IMPATIENT = Limits(connect_timeout=2, read_timeout=1, deadline=2)
WATCH = on("GET", r"/configmaps$", query=r"\bwatch=")


@pytest.fixture
def tls(control_plane):
    """The certificate of the real API server, so that clients trust the proxy in its stead."""
    pki = Layout(control_plane.kubeconfig.parent).pki(control_plane.context)
    return serving_tls(pki / "server.crt", pki / "server.key")


@pytest.fixture
async def proxy(control_plane, tls):
    async with FaultProxy(control_plane.connection, tls=tls) as proxy:
        yield proxy


@pytest.fixture
async def cluster(proxy):
    async with KubeCluster(proxy.connection) as cluster:
        yield cluster


async def create(cluster, namespace, name):
    metadata = {"name": name, "namespace": namespace}
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return await cluster.create(manifest, CONFIG_MAP, manager=MANAGER)


async def created(cluster, namespace, name):
    """Create it in as many tries as it takes: the client may be too impatient for a busy server."""

    async def is_there():
        with contextlib.suppress(Unreachable):
            with contextlib.suppress(AlreadyExists):
                await create(cluster, namespace, name)
            return True
        return False

    await eventually(is_there)


async def stored(control_plane, namespace):
    listing = await control_plane.cluster.list(CONFIG_MAP, namespace=namespace)
    return {name_of(item) for item in listing.items} - {"kube-root-ca.crt"}


async def follow(cluster, namespace, seen):
    """Watch from the beginning to the end; `seen` hears of each of our objects that is added."""
    everything = Ref(cluster.name, CONFIG_MAP, namespace, "")
    async with cluster.watch(everything, resource_version="0") as events:
        async for event in events:
            name = name_of(event.object)
            if event.type == "ADDED" and name != "kube-root-ca.crt":
                seen(name)


async def test_a_client_that_trusts_the_server_trusts_the_proxy_and_keeps_its_connection(
    proxy, cluster, control_plane, namespace
):
    assert proxy.url.startswith("https://")
    for name in "abc":
        await create(cluster, namespace, name)
    assert await stored(control_plane, namespace) == {"a", "b", "c"}
    assert proxy.connections == 1


async def test_a_client_authenticates_itself_with_its_own_token(control_plane, tls, namespace):
    metadata = {"name": "agent", "namespace": namespace}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    await control_plane.cluster.create(account, SERVICE_ACCOUNT, manager=MANAGER)
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/agent/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    connection = control_plane.connection
    async with http_session(connection) as session, session.post(path, json=body) as response:
        token = get_text(await response.json(), "status", "token")
    assert token

    anonymous = replace(connection, credential=NoCredential())
    async with FaultProxy(anonymous, tls=tls) as proxy:
        agent = replace(proxy.connection, credential=Token(Secret(token)))
        async with KubeCluster(agent) as cluster:
            review = {"apiVersion": REVIEW.api_version, "kind": REVIEW.kind}
            answer = await cluster.create(review, REVIEW, manager=MANAGER)
    user = get_text(answer, "status", "userInfo", "username")
    assert user == f"system:serviceaccount:{namespace}:agent"
    assert token not in repr(proxy.log)


async def test_a_write_whose_answer_is_cut_has_happened(proxy, cluster, control_plane, namespace):
    proxy.add(on("POST", r"/configmaps$"), Cut("rst"), at=AFTER)
    with pytest.raises(Unreachable) as lost:
        await create(cluster, namespace, "a")
    assert lost.value.outcome_unknown
    assert await stored(control_plane, namespace) == {"a"}


async def test_a_watch_passes_events_as_they_happen(cluster, control_plane, namespace):
    seen: asyncio.Queue[str] = asyncio.Queue()
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(follow(cluster, namespace, seen.put_nowait))
        for name in "abc":
            await create(control_plane.cluster, namespace, name)
            assert await seen.get() == name
        watching.cancel()


async def test_a_watch_is_cut_within_a_line(proxy, cluster, control_plane, namespace):
    proxy.add(WATCH, Cut("fin"), at=Body(lines=1, octets=20))
    for name in "ab":
        await create(control_plane.cluster, namespace, name)
    seen: list[str] = []
    with pytest.raises(Unreachable):
        await follow(cluster, namespace, seen.append)
    assert len(seen) <= 1


async def test_a_watch_is_told_that_it_is_too_old(proxy, cluster, control_plane, namespace):
    proxy.add(WATCH, gone(), at=Body(lines=1))
    await create(control_plane.cluster, namespace, "a")
    with pytest.raises(Expired):
        await follow(cluster, namespace, [].append)


@pytest.fixture
async def line(control_plane):
    async with TcpProxy(control_plane.connection.server) as line:
        yield line


@pytest.fixture
async def distant(control_plane, line):
    """The cluster at the other end of a bad line, TLS from end to end."""
    connection = replace(control_plane.connection, server=line.url)
    async with KubeCluster(connection, limits=IMPATIENT) as cluster:
        yield cluster


async def test_a_silent_line_is_noticed_and_used_again_when_it_clears(
    line, distant, control_plane, namespace
):
    await created(distant, namespace, "a")
    line.let(down=STALLED)
    with pytest.raises(Unreachable) as lost:
        await create(distant, namespace, "b")
    assert lost.value.outcome_unknown
    line.let(down=CLEAR)
    await created(distant, namespace, "c")
    assert await stored(control_plane, namespace) == {"a", "b", "c"}


async def test_a_line_that_breaks_within_an_answer_gives_no_answer(line, distant):
    line.let(down=Flow(limit=10_000, then="rst"))
    with pytest.raises(Unreachable):
        await distant.list(CLUSTER_ROLE)
    line.let(down=CLEAR)

    async def has_an_answer():
        with contextlib.suppress(Unreachable):
            return (await distant.list(CLUSTER_ROLE)).items

    await eventually(has_an_answer)
