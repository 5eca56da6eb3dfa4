"""Calls to a broker: what is sent, to where alone, and what surely was not."""

import asyncio
import base64
import json
import socket
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from reconciler.blueprints.offering.messages import FetchInstance, OriginatingIdentity
from reconciler.blueprints.offering.outcomes import Accepted, Denied, Done, Gone, Unknown, Unsent
from reconciler.broker.client import BrokerFault
from reconciler.core.secret import Secret
from tests.support.broker_wire import (
    BIND,
    CANARY,
    DELETE,
    POLL,
    PUT,
    answer,
    certified,
    hang,
    octets,
    scripted,
    talking,
    wire,
)
from tests.support.eventually import eventually
from tests.support.listener import Proxy

MIB = 2**20


async def test_a_body_of_a_mebibyte_is_read():
    body = b'{"dashboard_url": "https://d.example"}'
    async with scripted(answer("201 C", b" " * (MIB - len(body)) + body)) as (client, _):
        assert await client.call(PUT) == Done("https://d.example", created=True)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_password_does_not_follow_a_redirect(status):
    async with wire(answer()) as other:
        to = f"Location: http://127.0.0.1:{other.port}/v2/catalog"
        async with scripted(answer(f"{status} Moved", b"{}", to)) as (client, _):
            assert await client.call(PUT) == Unknown(f"HTTP {status}, without a reason", status)
            with pytest.raises(BrokerFault, match=f"HTTP {status}"):
                await client.catalogue()
        assert other.heads == []


@pytest.mark.parametrize("call", [PUT, BIND, DELETE, POLL])
async def test_a_call_is_sent_once_though_its_kept_connection_was_cut(call):
    async with scripted(answer(), octets(b"", then="fin"), answer()) as (client, server):
        assert isinstance(await client.call(FetchInstance("i", "s", "p")), Done)
        assert await client.call(call) == Unknown("the connection was cut before the answer")
        assert len(server.heads) == 2


async def test_what_is_sent():
    identity = OriginatingIdentity({"username": "system:serviceaccount:a:b"})
    async with scripted(answer("202 A", b'{"operation": "k"}')) as (client, server):
        for _ in range(2):
            assert await client.call(BIND, identity=identity) == Accepted(Secret("k"))
        await client.call(DELETE)
    path = "/v2/service_instances/i1/service_bindings/b1?accepts_incomplete=true"
    assert server.heads[0].startswith(f"PUT {path} HTTP/1.1\r\n")
    assert json.loads(server.bodies[0]) == {"service_id": "s1", "plan_id": "p1"}
    login = base64.b64encode(f"me:{CANARY}".encode()).decode()
    assert server.header("Authorization", 0) == f"Basic {login}"
    assert server.header("X-Broker-API-Version", 0) == "2.17"
    assert server.header("X-Broker-API-Originating-Identity", 0) == identity.header()
    assert server.header("X-Broker-API-Originating-Identity", 2) == ""
    assert server.header("Content-Type", 0) == "application/json"
    assert server.header("Accept", 0) == "application/json"
    assert server.header("Content-Type", 2) == ""
    requests = {UUID(server.header("X-Broker-API-Request-Identity", number)) for number in range(3)}
    assert len(requests) == 3


async def test_a_token_and_a_base_path():
    async with wire(answer()) as server:
        url = f"http://127.0.0.1:{server.port}/tenant%2F1"
        async with talking(url, held={"token": CANARY}) as client:
            assert await client.call(DELETE) == Gone()
    assert server.heads[0].startswith("DELETE /tenant%2F1/v2/service_instances/i1?service_id=s1&")
    assert server.header("Authorization") == f"Bearer {CANARY}"


# What surely was not done: there was no connection.


async def refused(client):
    """Return why a call was not sent, and see that the catalogue is not either."""
    found = await client.call(PUT)
    assert isinstance(found, Unsent)
    with pytest.raises(BrokerFault) as fault:
        await client.catalogue()
    assert isinstance(fault.value.outcome, Unsent)
    assert CANARY not in repr(found) + repr(fault.value)
    return found.problem


async def test_nobody_there():
    async with scripted(answer()) as (client, server):
        server.close()
        assert (await refused(client)).startswith("no connection: ")


async def test_certificates_that_are_not_trusted(tmp_path):
    ours, theirs, expired = (tmp_path / name for name in ("ours", "theirs", "expired"))
    for folder in (ours, theirs, expired):
        folder.mkdir()
    trusted, foreign = certified(ours), certified(theirs)
    old = certified(expired, expired=True)
    async with wire(answer(), tls=trusted.context) as server:
        url = f"https://127.0.0.1:{server.port}"
        async with talking(url, ca=foreign.ca) as client:
            assert "certificate is not trusted" in await refused(client)
        async with talking(url) as client:  # the system's authorities
            assert "certificate is not trusted" in await refused(client)
        assert server.heads == []
        async with talking(url, ca=trusted.ca, allow_plain_http=False) as client:
            assert await client.call(DELETE) == Gone()
    async with wire(answer(), tls=old.context) as server:
        async with talking(f"https://127.0.0.1:{server.port}", ca=old.ca) as client:
            assert "certificate has expired" in await refused(client)
        assert server.heads == []


async def test_a_certificate_for_another_name(tmp_path, monkeypatch):
    trusted = certified(tmp_path)
    async with wire(answer(), tls=trusted.context) as server, names(monkeypatch, "127.0.0.1"):
        async with talking(f"https://broker.example:{server.port}", ca=trusted.ca) as client:
            assert "certificate is not trusted" in await refused(client)
        assert server.heads == []


@pytest.mark.parametrize("allowed", [True, False])
async def test_any_certificate_only_where_that_is_allowed(tmp_path, allowed):
    server_side = certified(tmp_path)
    async with wire(answer(), tls=server_side.context) as server:
        url = f"https://127.0.0.1:{server.port}"
        async with talking(url, insecure=True, allow_insecure=allowed) as client:
            if allowed:
                assert await client.call(DELETE) == Gone()
            else:
                assert "--allow-insecure-brokers" in await refused(client)
                assert server.heads == []


async def test_a_client_certificate(tmp_path):
    server_side = certified(tmp_path, demands=True)
    async with wire(answer(), tls=server_side.context) as server:
        url = f"https://127.0.0.1:{server.port}"
        shown = server_side.client
        async with talking(url, ca=server_side.ca, held=shown) as client:
            assert await client.call(DELETE) == Gone()
        assert server.header("Authorization") == ""
        async with talking(url, held=shown) as client:
            assert "certificate is not trusted" in await refused(client)
        assert server.peers[0]["subject"] == ((("commonName", "client"),),)
        async with talking(url, ca=server_side.ca) as client:
            assert isinstance(await client.call(DELETE), Unknown | Unsent)
        assert len(server.heads) == 1


async def test_no_tls_in_time(tmp_path):
    """Nothing is sent before TLS is there: who hangs until then saw nothing."""
    trusted = certified(tmp_path)
    async with (
        Proxy(hang) as server,
        talking(f"https://127.0.0.1:{server.port}", ca=trusted.ca, seconds=0.5) as client,
    ):
        assert await client.call(PUT) == Unsent("no answer in 0.5 s")


async def test_what_is_no_tls(tmp_path):
    trusted = certified(tmp_path)
    async with (
        Proxy(answer("400 Bad Request", b"")) as server,
        talking(f"https://127.0.0.1:{server.port}", ca=trusted.ca) as client,
    ):
        assert "no TLS connection" in await refused(client)


async def test_https_unless_allowed_otherwise():
    async with wire(answer()) as server:
        url = f"http://127.0.0.1:{server.port}"
        async with talking(url, allow_plain_http=False) as client:
            assert "--allow-plain-http" in await refused(client)
        assert server.heads == []


async def test_in_the_clear_to_another_machine_where_that_is_allowed(monkeypatch):
    async with (
        names(monkeypatch, "192.0.2.1"),  # for documents: nobody is there
        talking("http://broker.example:1", seconds=0.3) as client,
    ):
        assert "TLS is off" not in await refused(client)


@asynccontextmanager
async def names(monkeypatch, *addresses):
    """Have every host name come to these addresses, one after the other."""
    found = list(addresses)

    def resolved(host, port, *_, **__):
        address = found.pop(0) if len(found) > 1 else found[0]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        rest = (0, 0) if ":" in address else ()
        return [(family, socket.SOCK_STREAM, 6, "", (address, port, *rest))]

    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", resolved)
        yield


FORBIDDEN = {
    "169.254.169.254": "a link-local address",
    "::ffff:169.254.169.254": "a link-local address",
    "fe80::1": "a link-local address",
    "224.0.0.1": "a multicast address",
    "100.100.100.200": "a metadata service",
    "fd00:ec2::254": "a metadata service",
    "0.0.0.0": "no address of a host",
    "127.0.0.1": "an address where this URL may not lead",
    "::1": "an address where this URL may not lead",
    "::ffff:127.0.0.1": "an address where this URL may not lead",
}


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize(("address", "fault"), FORBIDDEN.items())
async def test_a_name_may_not_lead_to(monkeypatch, scheme, address, fault):
    async with (
        names(monkeypatch, address),
        talking(f"{scheme}://broker.example:1", allow_loopback=False) as client,
    ):
        assert fault in await refused(client)


@pytest.mark.parametrize(("address", "fault"), FORBIDDEN.items())
async def test_nor_may_a_url(address, fault):
    host = f"[{address}]" if ":" in address else address
    async with talking(f"https://{host}:1", allow_loopback=False) as client:
        assert fault in await refused(client)


async def test_the_address_that_was_judged_is_the_one_that_is_used(monkeypatch):
    """A name server that says another address the second time is judged anew."""
    async with (
        wire(answer("200 OK", b"{}", "Connection: close")) as server,
        names(monkeypatch, "127.0.0.1", "169.254.1.1"),
    ):
        async with talking(f"http://broker.example:{server.port}") as client:
            assert await client.call(DELETE) == Gone()
            assert "a link-local address" in await refused(client)
        assert len(server.heads) == 1


async def test_no_proxy_of_the_environment_sees_a_password(monkeypatch):
    async with wire(answer()) as proxy, scripted(answer()) as (client, server):
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert await client.call(DELETE) == Gone()
        assert (len(server.heads), proxy.heads) == (1, [])


# The catalogue.

CATALOGUE = {"services": [{"id": "s", "name": "db", "plans": [{"id": "p", "name": "small"}]}]}


async def test_a_catalogue_of_8_mib_is_read_and_none_that_is_larger():
    text = json.dumps(CATALOGUE).encode()
    full = text + b" " * (8 * MIB - len(text))
    async with scripted(answer(body=full), answer(body=full + b" ")) as (client, server):
        read = await client.catalogue()
        assert [offering.name for offering in read.offerings] == ["db"]
        with pytest.raises(BrokerFault, match="larger than 8192 KiB") as fault:
            await client.catalogue()
        assert isinstance(fault.value.outcome, Unknown)
    assert server.heads[0].startswith("GET /v2/catalog HTTP/1.1")


# Sentence: the reply, the words, (denied, unsent).
NO_CATALOGUE = {
    "a page": (answer(body=b"<html>"), "no JSON object", Unknown),
    "an object of something else": (answer(body=b"{}"), "no list `services`", Unknown),
    "401": (answer("401 U", b'{"description": "who?"}'), "^who\\?$", Denied),
    "403": (answer("403 F", b""), "HTTP 403", Denied),
    "404": (answer("404 N", b""), "HTTP 404", Unknown),
    "500": (answer("500 E", b'{"description": "oh"}'), "^oh$", Unknown),
    "503 and a time": (answer("503 S", b"", "Retry-After: 5"), "HTTP 503", Unsent),
    "204": (answer("204 N", b""), "HTTP 204", Unknown),
    "a cut": (octets(b"", then="fin"), "cut before the answer", Unknown),
    "a secret as a name": (
        answer(body=json.dumps({"services": [{"name": CANARY}]}).encode()),
        "service '<redacted>' has no id",
        Unknown,
    ),
}


@pytest.mark.parametrize(("reply", "words", "kind"), NO_CATALOGUE.values(), ids=NO_CATALOGUE)
async def test_no_catalogue_is_in(reply, words, kind):
    async with scripted(reply) as (client, _):
        with pytest.raises(BrokerFault, match=words) as fault:
            await client.catalogue()
    assert isinstance(fault.value.outcome, kind)
    assert CANARY not in repr(fault.value)


# What is counted.


async def test_each_call_is_observed():
    seen = []
    replies = (answer("201 C"), answer("410 G"), answer("799 X"), octets(b"", then="fin"), hang)

    def observe(verb, code, seconds):
        assert 0 <= seconds < 5
        seen.append((verb, code))

    async with scripted(*replies, seconds=0.5, observe=observe) as (client, _):
        for call in (PUT, DELETE, BIND, FetchInstance("i", "s", "p"), POLL):
            await client.call(call)
    assert seen == [
        ("Provision", "201"),
        ("Deprovision", "410"),
        ("Bind", "other"),
        ("FetchInstance", "none"),
        ("LastOperation", "none"),
    ]


async def test_calls_at_once_do_not_wait_for_each_other():
    async with scripted(hang, answer(), seconds=20) as (client, server):
        hanging = asyncio.create_task(client.call(PUT))
        await eventually(lambda: len(server.heads) == 1)
        assert await client.call(DELETE) == Gone()
        assert not hanging.done()
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
