"""Calls over HTTP/1.1: answers octet by octet, kept connections, and the way through a proxy."""

import asyncio
import base64
import tracemalloc
from dataclasses import replace

import pytest
import uvloop

from reconciler.core import errors
from reconciler.core.manifest import get_text
from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.core.secret import Secret
from reconciler.http.stream import NoAnswer
from reconciler.kube import requests, transport
from reconciler.kube.client import KubeCluster
from reconciler.kube.connection import ClientCertificate, Connection, Token
from reconciler.kube.credentials import Auth, credential_source
from reconciler.kube.limits import Limits
from reconciler.kube.transport import Transport
from tests.support.broker_wire import certified
from tests.support.eventually import eventually
from tests.support.listener import Proxy

WHOLE = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"a"}}'
LENGTH = b"Content-Length: %d\r\n\r\n" % len(WHOLE)
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKS = OK + b"Transfer-Encoding: chunked\r\n\r\n"
FINE = OK + LENGTH + WHOLE
ASKED = Ref("plain", CONFIG_MAP, "a", "x")
QUICK = Limits(connect_timeout=5, read_timeout=0.5, deadline=20, max_body=2**20)


def chunked(*parts, end=b"0\r\n\r\n"):
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + end


class Scripted(Proxy):
    """Sends the same octets for each request, and ends the connection where `ends`."""

    def __init__(self, answer, *, ends=False, tls=None):
        self.answer = answer if isinstance(answer, list) else [answer]
        self.ends, self.scheme = ends, "https" if tls else "http"
        self.requests, self.writers, self.left = [], [], 0
        super().__init__(self._serve, tls=tls)

    @property
    def is_left(self):
        return self.left == self.connections

    @property
    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.port}"

    @property
    def connection(self):
        return Connection("plain", self.url)

    async def _serve(self, reader, writer):
        self.writers.append(writer)
        try:
            while head := await head_of(reader):
                self.requests.append(head)
                for part in self.answer:
                    writer.write(part)
                    await writer.drain()
                if self.ends:
                    return
        finally:
            self.left += 1


async def head_of(reader):
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return b""


def calls_to(connection):
    source = credential_source(connection)
    return Transport(connection, credentials=source, limits=QUICK, agent="tests")


async def ask(connection):
    async with KubeCluster(connection, limits=QUICK) as cluster:
        return await cluster.get(ASKED)


ODD = b"%x;a=b\r\n%s\r\n0\r\nA: b\r\n\r\n" % (len(WHOLE), WHOLE)
READ = {
    "a length": OK + LENGTH + WHOLE,
    "octet by octet": [bytes([octet]) for octet in OK + LENGTH + WHOLE],
    "chunks": CHUNKS + chunked(WHOLE[:9], WHOLE[9:]),
    "an extension and a trailer": CHUNKS + ODD,
    "one that comes after another": b"HTTP/1.1 103 Early\r\nA: b\r\n\r\n" + OK + LENGTH + WHOLE,
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\n" + LENGTH + WHOLE,
    "up to the end of its connection": OK + b"\r\n" + WHOLE,
}


@pytest.mark.parametrize("answer", READ.values(), ids=READ.keys())
async def test_an_answer_is_read(answer):
    async with Scripted(answer, ends=answer == READ["up to the end of its connection"]) as server:
        found = await ask(server.connection)
    assert get_text(found, "metadata", "name") == "x"


LONG = b"x" * 2**20
NO_HTTP = {
    "two lengths": OK + b"Content-Length: 1\r\n" + LENGTH + WHOLE,
    "a length beside chunks": OK + b"Transfer-Encoding: chunked\r\n" + LENGTH + WHOLE,
    "a size that is none": CHUNKS + b"zz\r\n",
    "a length that is none": OK + b"Content-Length: -1\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 On\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    "a TLS alert": b"\x15\x03\x01\x00\x02\x02\x28",
    "a field without an end": OK + b"A: " + LONG,
    "fields without an end": OK + b"A: bcd\r\n" * 2**17,
    "heads without an end": b"HTTP/1.1 103 Early\r\n\r\n" * 2**15,
    "an extension without an end": CHUNKS + b"1;" + LONG,
    "a trailer without an end": CHUNKS + chunked(end=b"0\r\nA: ") + LONG,
}
SHORT = {
    "less than its length": OK + LENGTH + WHOLE[:-1],
    "a last chunk that is missing": CHUNKS + chunked(WHOLE, end=b""),
    "half a head": OK,
}
REFUSED = [
    *((answer, "is not HTTP", False) for answer in NO_HTTP.values()),
    *((answer, "cut", True) for answer in SHORT.values()),
    *((answer, "in time", False) for answer in SHORT.values()),
    (CHUNKS + chunked(*[bytes(2**17)] * 16), "more than 1 MiB", False),
]


@pytest.mark.parametrize(("answer", "reason", "ends"), REFUSED)
async def test_an_answer_is_refused_and_its_connection_ends(answer, reason, ends):
    async with (
        Scripted(answer, ends=ends) as server,
        KubeCluster(server.connection, limits=QUICK) as cluster,
    ):
        with pytest.raises(errors.Unreachable, match=reason):
            await cluster.get(ASKED)
        await eventually(lambda: server.is_left)


UNASKED = {"a second answer": OK + LENGTH + WHOLE, "octets": b"x"}


@pytest.mark.parametrize("more", UNASKED.values(), ids=UNASKED.keys())
@pytest.mark.parametrize("at_once", [True, False])
async def test_octets_that_nobody_asked_for_answer_nothing(more, at_once):
    async with (
        Scripted(FINE + more * at_once) as server,
        KubeCluster(server.connection, limits=QUICK) as cluster,
    ):
        await cluster.get(ASKED)
        if not at_once:
            server.writers[0].write(more)
        await eventually(lambda: server.is_left)
        await cluster.get(ASKED)
        assert server.connections == 2


@pytest.mark.parametrize(("seconds", "connections"), [(30.0, 1), (0.0, 2)])
async def test_a_connection_is_kept_for_some_time(monkeypatch, seconds, connections):
    monkeypatch.setattr(transport, "_IDLE_SECONDS", seconds)
    async with Scripted(FINE) as server, KubeCluster(server.connection, limits=QUICK) as cluster:
        assert await cluster.get(ASKED) == await cluster.get(ASKED)
        assert server.connections == connections


async def test_a_call_that_is_given_up_ends_its_connection():
    async with Scripted(OK) as server, KubeCluster(server.connection) as cluster:
        call = asyncio.create_task(cluster.get(ASKED))
        await eventually(lambda: server.requests)
        call.cancel()
        await eventually(lambda: server.is_left)


# Through a proxy


class HttpProxy(Proxy):
    """Leads to where CONNECT names, or asks by itself, for a user with the right password."""

    def __init__(self, *, tls=None, answer=b"HTTP/1.1 200 Connection established\r\n\r\n"):
        self.answer, self.scheme, self.requests = answer, "https" if tls else "http", []
        super().__init__(self._serve, tls=tls)

    @property
    def url(self):
        return Secret(f"{self.scheme}://klutch:s%40cret@127.0.0.1:{self.port}")

    async def _serve(self, reader, writer):
        head = await head_of(reader)
        self.requests.append(head)
        method, target, _ = head.decode().split(" ", 2)
        if f"Basic {base64.b64encode(b'klutch:s@cret').decode()}" not in head.decode():
            writer.write(b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n")
            return
        host, port = (target if method == "CONNECT" else target.split("/")[2]).split(":")
        there = await asyncio.open_connection(host, int(port))
        if method == "CONNECT":
            writer.write(self.answer)
        else:
            there[1].write(head)
        async with asyncio.TaskGroup() as group:
            group.create_task(pump(reader, there[1]))
            group.create_task(pump(there[0], writer))


async def pump(source, target):
    try:
        while data := await source.read(2**16):
            target.write(data)
    finally:
        target.close()


@pytest.fixture
def known(tmp_path):
    return certified(tmp_path)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("to_proxy", ["http", "https"])
@pytest.mark.parametrize("to_server", ["http", "https"])
async def test_a_proxy_leads_to_the_server(known, loop, to_proxy, to_server):
    def asked():
        with asyncio.Runner(loop_factory=loop) as runner:
            return runner.run(ask(connection))

    async with (
        Scripted(
            OK + LENGTH + WHOLE, tls=known.context if to_server == "https" else None
        ) as server,
        HttpProxy(tls=known.context if to_proxy == "https" else None) as proxy,
    ):
        token = Token(Secret("t0ken"))
        connection = Connection("plain", server.url, token, ca=known.ca, proxy=proxy.url)
        assert await asyncio.to_thread(asked) is not None
        assert b"Bearer t0ken" in server.requests[0]
        assert (b"t0ken" in proxy.requests[0]) is (to_server == "http")
        assert (proxy.connections, server.connections) == (1, 1)


LEADS = b"HTTP/1.1 200 OK\r\n\r\n"
PROXIES = {
    "a refusal": (b"HTTP/1.1 403 No\r\n\r\n", "s%40cret", "the proxy refused with HTTP 403"),
    "no HTTP": (b"SSH-2.0\r\n", "s%40cret", "no connection to the proxy: it is no HTTP proxy"),
    "an endless head": (LEADS[:-2] + b"A: " + b"x" * 2**17, "s%40cret", "no HTTP proxy"),
    "another password": (LEADS, "other", "the proxy refused with HTTP 407"),
}


@pytest.mark.parametrize(("answer", "password", "reason"), PROXIES.values(), ids=PROXIES.keys())
async def test_a_proxy_that_leads_nowhere(known, answer, password, reason):
    async with Scripted(OK, tls=known.context) as server, HttpProxy(answer=answer) as proxy:
        url = Secret(proxy.url.reveal().replace("s%40cret", password))
        with pytest.raises(errors.Unreachable, match=reason) as caught:
            await ask(Connection("plain", server.url, ca=known.ca, proxy=url))
    assert "cret" not in str(caught.value)


# Client certificates


async def test_a_new_client_certificate_has_connections_of_its_own(known):
    pair = ClientCertificate(known.client["tls.crt"], Secret(known.client["tls.key"]))
    first, second = Auth(None, pair), Auth()
    async with Scripted(FINE, tls=known.context) as server:
        calls = calls_to(Connection("plain", server.url, ca=known.ca))
        request = requests.get(ASKED, metadata_only=False)
        for auth in (first, first, second):
            assert (await calls.send(request, auth=auth, within=None)).status == 200
        await eventually(lambda: (server.connections, server.left) == (2, 1))
        await calls.send(request, auth=first, within=None)
        await eventually(lambda: (server.connections, server.left) == (3, 2))
        await calls.close()
        await eventually(lambda: server.is_left)


async def test_a_client_that_retires_ends_watches_and_no_call():
    async with Scripted(OK + LENGTH) as server, KubeCluster(server.connection) as cluster:
        call = asyncio.create_task(cluster.get(ASKED))
        await eventually(lambda: server.requests)
        watching = cluster.watch(replace(ASKED, name=""), resource_version="1")
        async with watching as events:
            cluster.retire()
            with pytest.raises(errors.Unreachable, match="closed by us"):
                await anext(events)
        await eventually(lambda: (server.connections, server.left) == (2, 1))
        server.writers[0].write(WHOLE)
        assert await call is not None
        await eventually(lambda: server.is_left)


async def test_a_time_that_is_over_sends_nothing():
    async with Scripted(FINE) as server:
        calls = calls_to(server.connection)
        request = requests.get(ASKED, metadata_only=False)
        await calls.send(request, auth=Auth(), within=None)
        with pytest.raises(NoAnswer) as late:
            await calls.send(request, auth=Auth(), within=0.0)
        assert (late.value.sent, len(server.requests)) == (False, 1)
        await calls.close()


async def test_trailers_are_not_kept():
    trailers = b"a:b\r\n" * 2**17
    async with Scripted(CHUNKS + chunked(bytes(2**20 - 1), end=b"0\r\n" + trailers)) as server:
        tracemalloc.start()
        with pytest.raises(errors.Unreachable, match="in time"):
            await ask(server.connection)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 8 * 2**20
