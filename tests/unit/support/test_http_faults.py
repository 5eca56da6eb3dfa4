"""The HTTP proxy strikes where it is told to; the server behind it here is a small one."""

import asyncio
import ssl
from contextlib import suppress
from datetime import UTC, datetime

import aiohttp
import pytest

from klutchctl.sandbox import certificates
from tests.support.cues import AFTER, BEFORE, Gate
from tests.support.eventually import eventually
from tests.support.fault_proxy import FaultProxy, Passed, serving_tls
from tests.support.http_faults import Body, Cut, Garbage, answer, on, redirect
from tests.unit.support.small_server import CUTS, patch, watching


async def test_without_rules_requests_and_answers_pass_as_they_are(client, server, proxy):
    authorization = {"Authorization": "Bearer abcdef"}
    async with client.patch("/things/x?dry=1", data="1", headers=authorization) as response:
        assert (response.status, response.headers["X-Own"]) == (201, "kept")
        assert await response.json() == {"written": True}
    async with client.get("/long") as response:
        assert await response.text() == "0123456789" * 10
    assert server.writes == ["x=1"]
    assert server.headers[0]["Authorization"] == "Bearer abcdef"
    assert proxy.log == [Passed("PATCH", "/things/x", 201, 1), Passed("GET", "/long", 200, 1)]
    assert "abcdef" not in repr(proxy.log)


async def test_connections_are_kept_alive_on_both_sides(client, server, proxy):
    for _ in range(3):
        await patch(client)
    assert proxy.connections == 1
    assert len(server.connections) == 1


async def test_a_client_that_asks_for_the_end_of_the_connection_gets_it(client, proxy):
    for _ in range(2):
        await patch(client, headers={"Connection": "close"})
    assert [passed.connection for passed in proxy.log] == [1, 2]


ANSWERS = {
    "429 with Retry-After": (answer(429, retry_after=7), 429, "TooManyRequests"),
    "500": (answer(500), 500, "InternalError"),
    "503": (answer(503), 503, "ServiceUnavailable"),
    "410": (answer(410), 410, "Expired"),
    "401": (answer(401), 401, "Unauthorized"),
}


@pytest.mark.parametrize(("effect", "status", "reason"), ANSWERS.values(), ids=ANSWERS.keys())
async def test_a_status_is_answered_on_cue(effect, status, reason, client, server, proxy):
    proxy.add(on("PATCH", r"/things/x$").nth(2), effect)
    assert (await patch(client))[0] == 201
    async with client.patch("/things/x", data="2") as response:
        assert response.status == status
        assert response.headers.get("Retry-After") == ("7" if status == 429 else None)
        told = await response.json()
        assert (told["kind"], told["code"], told["reason"]) == ("Status", status, reason)
    assert (await patch(client, body="3"))[0] == 201
    assert server.writes == ["x=1", "x=3"]
    assert [passed.status for passed in proxy.log] == [201, status, 201]
    assert proxy.connections == 1, "an answer on cue keeps the connection alive"


async def test_answers_need_not_be_those_of_an_api_server(client, proxy):
    proxy.add(on("GET").nth(1), answer(404, "404 page not found", content_type="text/plain"))
    proxy.add(on("GET").nth(2), answer(200, "<html>", content_type="text/html"))
    proxy.add(on("GET").nth(3), redirect("https://elsewhere.example"))
    seen = []
    for _ in range(3):
        async with client.get("/long", allow_redirects=False) as response:
            seen.append((response.status, response.content_type, await response.text()))
    assert seen == [
        (404, "text/plain", "404 page not found"),
        (200, "text/html", "<html>"),
        (302, "text/plain", ""),
    ]
    assert response.headers["Location"] == "https://elsewhere.example"


CUES = {
    "another method": on("POST"),
    "another path": on(path=r"/things/y$"),
    "another query": on(query="dry=2"),
}


@pytest.mark.parametrize("cue", CUES.values(), ids=CUES.keys())
async def test_other_requests_are_spared(cue, client, proxy):
    proxy.add(cue, answer(500))
    assert (await patch(client, params={"dry": "1"}))[0] == 201


async def test_an_answer_afterwards_hides_what_the_server_did(client, server, proxy):
    proxy.add(on("PATCH").nth(1), answer(500), at=AFTER)
    assert (await patch(client, body="1"))[0] == 500
    assert (await patch(client, body="2"))[0] == 201
    assert server.writes == ["x=1", "x=2"]


@pytest.mark.parametrize(("at", "writes"), [(BEFORE, []), (AFTER, ["x=1"])])
@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a_connection_is_cut_before_or_after_the_write(
    how, at, writes, client, server, proxy
):
    proxy.add(on("PATCH").nth(1), Cut(how), at=at)
    with pytest.raises(CUTS):
        await patch(client)
    assert server.writes == writes
    assert (await patch(client, body="2"))[0] == 201
    assert proxy.log == [Passed("PATCH", "/things/x", 0, 1), Passed("PATCH", "/things/x", 201, 2)]


async def given_up(client, gate):
    """Write, and give up once the gate holds the write."""
    writing = asyncio.create_task(patch(client))
    await gate.reached.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing


async def test_a_client_that_gives_up_after_the_write_does_not_know_of_it(client, server, proxy):
    gate = Gate()
    proxy.add(on("PATCH"), gate, at=AFTER)
    await given_up(client, gate)
    assert server.writes == ["x=1"]


async def test_a_request_held_at_a_gate_is_a_late_write(client, server, proxy):
    gate = Gate()
    proxy.add(on("PATCH").nth(1), gate)
    await given_up(client, gate)
    await patch(client, body="2")
    gate.open()
    await eventually(lambda: server.writes == ["x=2", "x=1"])


async def test_an_answer_is_shorter_than_its_content_length(client, proxy):
    proxy.add(on("GET", "/long"), Cut("fin"), at=Body(octets=42))
    async with client.get("/long") as response:
        assert response.content_length == 100
        assert await response.content.readexactly(42) == (b"0123456789" * 5)[:42]
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.content.read()


async def test_garbage_is_no_http(client, server, proxy):
    proxy.add(on("PATCH").nth(1), Garbage())
    with pytest.raises(aiohttp.ClientError):
        await patch(client)
    assert server.writes == []
    assert proxy.log == [Passed("PATCH", "/things/x", 0, 1)]


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_idle_connections_are_dropped_and_busy_ones_are_not(how, client, server, proxy):
    async with watching(client) as lines:
        await patch(client)
        assert proxy.connections == 2
        proxy.drop_idle(how)
        server.lines.put_nowait(b"one\n")
        assert await lines.readline() == b"one\n"
        with suppress(*CUTS):  # where the client has not yet seen that its connection is gone
            await patch(client)
        assert (await patch(client))[0] == 201
        assert proxy.connections == 3


async def test_all_connections_are_cut_at_once(client, server, proxy):
    async with watching(client) as lines:
        proxy.cut("rst")
        with pytest.raises(CUTS):
            await lines.read()
    await server.left.wait()


async def test_connections_are_refused_until_they_are_accepted_again(client, proxy):
    proxy.refuse()
    with pytest.raises(aiohttp.ClientConnectorError):
        await patch(client)
    await proxy.accept()
    assert (await patch(client))[0] == 201


async def test_a_server_that_is_gone_ends_the_connection(upstream):
    async with FaultProxy(upstream) as behind:
        pass
    async with (
        FaultProxy(behind.connection) as before,
        aiohttp.ClientSession(before.url) as session,
    ):
        with pytest.raises(CUTS):
            await patch(session)
        assert before.log == [Passed("PATCH", "/things/x", 0, 1)]


async def test_a_server_that_cuts_its_answer_cuts_it_for_the_client_too(proxy):
    proxy.add(on("GET"), Cut("rst"), at=Body(octets=42))
    async with (
        FaultProxy(proxy.connection) as before,
        aiohttp.ClientSession(before.url) as session,
        session.get("/long") as response,
    ):
        with pytest.raises(CUTS):
            await response.read()


async def test_cleared_rules_strike_no_more(client, proxy):
    proxy.add(on(), answer(500))
    proxy.rules.clear()
    assert (await patch(client))[0] == 201


async def test_a_request_that_waits_does_not_keep_the_proxy_open(upstream):
    gate = Gate()
    async with FaultProxy(upstream) as proxy, aiohttp.ClientSession(proxy.url) as session:
        proxy.add(on("PATCH"), gate)
        waiting = asyncio.create_task(patch(session))
        await gate.reached.wait()
    with pytest.raises(CUTS):
        await waiting


@pytest.fixture
def serving(tmp_path):
    """Return the TLS settings of a server, and those of a client that trusts it."""
    now = datetime.now(UTC)
    authority = certificates.authority("test", now=now)
    pair = certificates.issue(authority, "server", use=certificates.Use.SERVER, now=now)
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    certificate.write_bytes(pair.certificate_pem)
    key.write_bytes(pair.key_pem)
    trusting = ssl.create_default_context(cadata=authority.certificate_pem.decode())
    return serving_tls(certificate, key), trusting


async def test_faults_strike_under_tls_as_well(serving, upstream, server):
    tls, trusting = serving
    connector = aiohttp.TCPConnector(ssl=trusting)
    async with (
        FaultProxy(upstream, tls=tls) as proxy,
        aiohttp.ClientSession(proxy.url, connector=connector) as session,
    ):
        proxy.add(on("PATCH").nth(2), Cut("rst"), at=AFTER)
        proxy.add(on("PATCH").nth(3), Cut("fin"), at=AFTER)
        proxy.add(on("PATCH").nth(4), Garbage())
        assert (await patch(session))[0] == 201
        for _ in range(3):
            with pytest.raises(CUTS):
                await patch(session)
        assert (await patch(session))[0] == 201
        assert proxy.connections == 4
    assert server.writes == ["x=1"] * 4
