"""Watches that share connections over HTTP/2: what befalls one, and what befalls all."""

import asyncio
import contextlib
from dataclasses import replace

import orjson
import pytest
from hyperframe.frame import GoAwayFrame

from reconciler.core import errors
from reconciler.core.manifest import name_of
from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.core.secret import Secret
from reconciler.http import http2
from reconciler.kube.client import KubeCluster
from reconciler.kube.cluster import EVERYTHING
from reconciler.kube.connection import TokenFile
from reconciler.kube.limits import Limits
from reconciler.kube.networks import of_flags
from reconciler.kube.requests import ListQuery
from tests.support.eventually import eventually
from tests.support.kubeconfigs import CERTIFICATE
from tests.support.streams import Streams, event
from tests.support.tcp_proxy import STALLED, TcpProxy

QUICK = Limits(connect_timeout=2, deadline=2, qps=10_000, burst=10_000)


@pytest.fixture
async def server(tmp_path):
    async with Streams(tmp_path) as server:
        yield server


@pytest.fixture
async def cluster(server):
    async with KubeCluster(server.connection, limits=QUICK) as cluster:
        yield cluster


@pytest.fixture
async def watches():
    async with contextlib.AsyncExitStack() as stack:
        yield stack


async def watch(stack, cluster, namespace, *, query=EVERYTHING, version="1", read_timeout=None):
    ref = Ref(cluster.name, CONFIG_MAP, namespace, "")
    watching = cluster.watch(ref, query, resource_version=version, read_timeout=read_timeout)
    return await stack.enter_async_context(watching)


async def names(events):
    return [name_of(one.object) async for one in events]


# Real API servers


async def test_two_hundred_watches_of_a_real_server_take_three_connections(
    control_plane, namespace, watches
):
    async with TcpProxy(control_plane.connection.server) as line:
        connection = replace(control_plane.connection, server=line.url)
        async with KubeCluster(connection, limits=QUICK) as cluster:
            found = await control_plane.cluster.list(CONFIG_MAP, namespace=namespace)

            async def of(name: str):  # the controller-manager makes one as well, at some time
                query, version = ListQuery(fields=f"metadata.name={name}"), found.resource_version
                return await watch(watches, cluster, namespace, query=query, version=version)

            each = {name: await of(name) for name in [f"x-{number}" for number in range(200)]}
            assert line.connections == 3
            for name in ("x-199", "x-0"):
                metadata = {"name": name, "namespace": namespace}
                made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
                await control_plane.cluster.create(made, CONFIG_MAP, manager="tests")
                assert name_of((await anext(each[name])).object) == name
            line.cut()
            for events in each.values():
                with pytest.raises(errors.Unreachable, match="cut short"):
                    await anext(events)
            assert name_of((await anext(await of("x-199"))).object) == "x-199"
            await watches.aclose()


# What befalls one of them


async def test_an_answer_that_ends_between_two_events_is_no_error(server, cluster, watches):
    events = await watch(watches, cluster, "a")
    server.watched("a").say("a", event("one") + event("two"), end=True)
    assert await names(events) == ["one", "two"]


async def test_an_end_inside_an_event_is_an_error(server, cluster, watches):
    events = await watch(watches, cluster, "a")
    server.watched("a").say("a", event("one") + b'{"type"', end=True)
    assert name_of((await anext(events)).object) == "one"
    with pytest.raises(errors.Unreachable, match="cut inside an event"):
        await anext(events)


async def test_a_reset_ends_one_watch_and_no_other(server, cluster, watches):
    one, other = [await watch(watches, cluster, name) for name in "ab"]
    session = server.watched("a")
    session.reset("a")
    with pytest.raises(errors.Unreachable, match="cut short"):
        await anext(one)
    session.say("b", event("goes-on"))
    assert name_of((await anext(other)).object) == "goes-on"


async def test_silence_ends_one_watch_and_frees_its_stream(server, cluster, watches):
    events = await watch(watches, cluster, "a", read_timeout=0.3)
    await watch(watches, cluster, "b")
    with pytest.raises(errors.Unreachable, match="in time"):
        await anext(events)
    session = server.watched("b")
    await eventually(lambda: session.streams["a"] in session.resets)
    assert session.streams["b"] not in session.resets


async def test_a_reader_that_leaves_frees_its_stream(server, cluster, watches):
    await watch(watches, cluster, "b")
    reading = asyncio.create_task(names(await watch(watches, cluster, "a")))
    async with contextlib.AsyncExitStack() as own:
        reading_too = asyncio.create_task(names(await watch(own, cluster, "c")))
        await asyncio.sleep(0)
        reading_too.cancel()
        reading.cancel()
        await asyncio.wait([reading, reading_too])
    session = server.watched("c")
    await eventually(lambda: session.streams["c"] in session.resets)
    assert session.streams["b"] not in session.resets


async def test_a_watch_that_nobody_answers_is_given_up_with_its_stream(server, cluster, watches):
    await watch(watches, cluster, "b")
    server.answer = None
    with pytest.raises(errors.Unreachable, match="in time"):
        await watch(watches, cluster, "a")
    session = server.watched("b")
    await eventually(lambda: session.streams["a"] in session.resets)


REFUSALS = {403: errors.Forbidden, 410: errors.Expired, 429: errors.Unreachable}


@pytest.mark.parametrize(("status", "kind"), REFUSALS.items())
async def test_a_refusal_says_what_it_says_over_http_1(server, cluster, watches, status, kind):
    said = {"kind": "Status", "code": status, "message": "said so"}
    server.answer = status, orjson.dumps(said)
    with pytest.raises(kind, match="said so"):
        await watch(watches, cluster, "a")


async def test_each_watch_has_the_token_of_its_time(server, watches, tmp_path, caplog):
    caplog.set_level("DEBUG")
    file = tmp_path / "token"
    connection = replace(server.connection, credential=TokenFile(file))
    async with KubeCluster(connection, limits=QUICK) as cluster:
        for token in ("old", "new"):
            file.write_text(token)
            server.answer = 200, b""
            await watch(watches, cluster, token)
            server.answer = 401, b"{}"
            with contextlib.suppress(errors.Unauthorized):  # which has the file read again
                await watch(watches, cluster, token)
        sent = {
            one[":path"].split("/")[4]: one["authorization"] for one in server.sessions[0].asked
        }
        await watches.aclose()
    assert sent == {"old": "Bearer old", "new": "Bearer new"}
    assert "Bearer" not in caplog.text


# What befalls a connection


async def test_a_server_that_takes_few_streams_has_more_connections(tmp_path, watches):
    async with Streams(tmp_path, most=2) as server, KubeCluster(server.connection) as cluster:
        server.greets.clear()
        opening = []
        for number in range(5):  # the last ones before the server says how many it takes
            opening.append(asyncio.create_task(watch(watches, cluster, f"n-{number}")))
            await asyncio.sleep(0.1)
        server.greets.set()
        opened = await asyncio.gather(*opening)
        assert [len(one.streams) for one in server.sessions] == [2, 2, 1]
        for number, events in enumerate(opened):
            server.watched(f"n-{number}").say(f"n-{number}", event(f"of-{number}"))
            assert name_of((await anext(events)).object) == f"of-{number}"
        await watches.aclose()


async def test_a_server_that_leaves_ends_what_it_does_not_name(server, cluster, watches):
    kept, lost = [await watch(watches, cluster, name) for name in "ab"]
    leaving = server.watched("a")
    leaving.writer.write(GoAwayFrame(0, last_stream_id=leaving.streams["a"]).serialize())
    with pytest.raises(errors.Unreachable, match="cut short"):
        await anext(lost)
    again = await watch(watches, cluster, "b")
    assert server.watched("b") is not leaving
    for name, events in (("a", kept), ("b", again)):
        server.watched(name).say(name, event("goes-on"))
        assert name_of((await anext(events)).object) == "goes-on"
    leaving.say("a", event("last"), end=True)
    assert await names(kept) == ["last"]
    await eventually(lambda: leaving.is_left)


async def test_slow_readers_hold_nobody_up(server, cluster, watches):
    """What they leave unread is more than all streams of a connection may have on the way."""
    slow = [await watch(watches, cluster, f"slow-{number}") for number in range(70)]
    quick = await watch(watches, cluster, "quick")
    session = server.watched("quick")
    for number in range(70):
        await eventually(lambda: session.h2.outbound_flow_control_window > 2**19)
        session.say(f"slow-{number}", event("much", pad=2**18 - 250))
        session.say(f"slow-{number}", b" " * session.window(f"slow-{number}"))
    session.say("quick", event("now"))
    async with asyncio.timeout(60):
        assert name_of((await anext(quick)).object) == "now"
    assert {session.window(f"slow-{number}") for number in range(70)} == {0}
    assert name_of((await anext(slow[0])).object) == "much"
    await eventually(lambda: session.window("slow-0") > 0)


async def test_a_connection_that_dies_in_silence_is_noticed(server, watches, monkeypatch):
    monkeypatch.setattr(http2, "_PING", 0.3)
    async with TcpProxy(server.connection.server) as line:
        connection = replace(server.connection, server=line.url)
        async with KubeCluster(connection, limits=QUICK) as cluster:
            events = await watch(watches, cluster, "a")
            await eventually(lambda: server.watched("a").pings > 3)
            server.watched("a").say("a", event("alive"))
            assert name_of((await anext(events)).object) == "alive"
            line.let(down=STALLED)
            with pytest.raises(errors.Unreachable, match="cut short"):
                await anext(events)
            await watches.aclose()


async def test_frames_that_break_the_protocol_end_the_connection(server, cluster, watches):
    events = await watch(watches, cluster, "a")
    server.watched("a").writer.write(bytes(9))  # DATA of no stream
    with pytest.raises(errors.Unreachable, match="cut short"):
        await anext(events)
    await eventually(lambda: server.watched("a").is_left)
    await watch(watches, cluster, "a")


async def test_a_client_that_is_closed_ends_its_watches(server, watches):
    cluster = KubeCluster(server.connection, limits=QUICK)
    events = await watch(watches, cluster, "a")
    reading = asyncio.create_task(names(events))
    await asyncio.sleep(0)
    await cluster.close()
    with pytest.raises(errors.Unreachable):
        await reading
    await eventually(lambda: server.watched("a").is_left)
    with pytest.raises(errors.Unreachable, match="closed by us"):
        await watch(watches, cluster, "a")


# Before there is one


async def test_a_server_without_http_2_is_watched_over_http_1(tmp_path, watches):
    async with Streams(tmp_path, protocols=("http/1.1",)) as server:
        async with KubeCluster(server.connection, limits=QUICK) as cluster:
            for _ in range(2):
                assert await names(await watch(watches, cluster, "a")) == ["old"]
            assert server.connections == 3  # it is asked once for HTTP/2
            await watches.aclose()
        assert server.sessions == []


UNREACHED = {
    "an authority that is not the cluster's": ({"ca": CERTIFICATE}, "is not trusted"),
    "one of the system's, which is not": ({"ca": None}, "is not trusted"),
    "another name": ({"tls_server_name": "elsewhere.example"}, "is not trusted"),
    "where no kubeconfig may lead": (
        {"networks": of_flags([], [], in_cluster=True)},
        "refused, as 127.0.0.1",
    ),
    "by a proxy that is not there": ({"proxy": Secret("http://127.0.0.1:9")}, "the proxy"),
    "no such name": ({"server": "https://nowhere.invalid"}, "cannot be resolved"),
}


@pytest.mark.parametrize(("change", "said"), UNREACHED.values(), ids=UNREACHED.keys())
async def test_what_is_not_connected_to(server, watches, change, said):
    async with KubeCluster(replace(server.connection, **change), limits=QUICK) as cluster:
        with pytest.raises(errors.Unreachable, match=said):
            await watch(watches, cluster, "a")
    assert server.sessions == []


async def test_a_server_that_is_away_is_found_again(server, cluster, watches):
    server.refuse()
    waiting = [watch(watches, cluster, f"n-{number}") for number in range(5)]
    for outcome in await asyncio.gather(*waiting, return_exceptions=True):
        assert "no connection: " in str(outcome)
    await server.accept()
    await watch(watches, cluster, "a")
