"""HTTP to servers that lie: what is refused, how soon, and what is never sent."""

import asyncio
import socket
import time
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.web.outbound import Http, OutboundError
from tests.support import issuer_lies as lies
from tests.support.issuer import issuing
from tests.support.listener import Proxy

CANARY = "c4n4ry"


@pytest.fixture(params=["http", "https"])
def provider(request, tmp_path):
    with issuing(tls=tmp_path if request.param == "https" else None) as provider:
        yield provider


@pytest.fixture
def plain():
    with issuing() as provider:
        yield provider


def with_headers(*headers: tuple[str, str]) -> lies.Reply:
    async def reply(request: web.Request) -> web.StreamResponse:
        del request
        return web.Response(headers=headers)

    return reply


REFUSED = {
    "a gigabyte": (lies.endless(), "larger than 64 KiB"),
    "a gigabyte, announced": (lies.endless(announced=True), "larger than 64 KiB"),
    "an octet too many": (lies.body(b" " * (64 * 1024 + 1)), "larger than 64 KiB"),
    "nothing at all": (lies.hang, "no answer in 0.5 s"),
    "an octet now and then": (lies.dripping, "no answer in 0.5 s"),
    "a cut connection": (lies.cut, "cut before the answer"),
    "a cut answer": (lies.cut_within, "cut short"),
    "gzip unasked": (lies.compressed(b"{}"), "compressed"),
    "a long header": (with_headers(("X", "x" * 70_000)), "head is too long"),
    "many headers": (with_headers(*((f"X-{n}", "x") for n in range(10_000))), "head is too long"),
}


@pytest.mark.parametrize(("reply", "sentence"), REFUSED.values(), ids=REFUSED.keys())
async def test_refused(provider, reply, sentence):
    provider.lies.replies["jwks"] = reply
    url = f"{provider.issuer}/jwks?code={CANARY}"
    timeout = 0.5 if "0.5 s" in sentence else 60  # that of no answer is never the reason else
    async with Http(ca_file=provider.ca_file, timeout=timeout) as http:
        began = time.monotonic()
        with pytest.raises(OutboundError, match=sentence) as caught:
            await http.get(url, headers={"Authorization": Secret(CANARY)})
        assert time.monotonic() - began < 30
        assert str(caught.value).startswith(f"{provider.issuer}/jwks: ")
        assert CANARY not in repr(caught.value)
        assert caught.value.__context__ is None

        provider.lies.replies.clear()  # and the next goes on
        assert (await http.get(url)).status == 200


async def test_a_full_answer_is_read(provider):
    provider.lies.replies["jwks"] = lies.body(b" " * 64 * 1024, 418)
    async with Http(ca_file=provider.ca_file) as http:
        answer = await http.get(f"{provider.issuer}/jwks")
    assert (answer.status, len(answer.body)) == (418, 64 * 1024)
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(plain, status):
    plain.lies.replies["token"] = lies.redirect(f"{plain.issuer}/jwks", status)
    async with Http() as http:
        answer = await http.post(f"{plain.issuer}/token", body=b"a=b", headers={})
    assert (answer.status, answer.location) == (status, f"{plain.issuer}/jwks")
    assert plain.requests["jwks"] == 0


async def test_cookies_are_not_kept(plain):
    plain.lies.replies["token"] = with_headers(("Set-Cookie", "a=b; Path=/"))
    async with Http() as http:
        for _ in range(2):
            await http.post(f"{plain.issuer}/token", body=b"a=b", headers={})
    assert ["Cookie" in one.headers for one in plain.received["token"]] == [False, False]


async def test_a_post_is_sent_once_as_it_is(plain):
    kind = "application/x-www-form-urlencoded"
    headers: dict[str, str | Secret] = {"Content-Type": kind, "Authorization": Secret(CANARY)}
    async with Http() as http:
        assert (await http.get(f"{plain.issuer}/jwks")).status == 200  # the connection is kept
        plain.lies.replies["token"] = lies.cut
        with pytest.raises(OutboundError, match="cut before the answer"):
            await http.post(f"{plain.issuer}/token", body=b"code=a%20b", headers=headers)
    [received] = plain.received["token"]
    assert received.form == {"code": "a b"}
    assert received.headers["Authorization"] == CANARY
    assert received.headers["Accept-Encoding"] == "identity"


async def test_a_header_of_two_lines_is_not_sent(plain):
    async with Http() as http:
        with pytest.raises(OutboundError, match="cannot be sent") as caught:
            await http.get(f"{plain.issuer}/jwks", headers={"A": f"{CANARY}\r\nB: c"})
    assert CANARY not in repr(caught.value)
    assert plain.requests["jwks"] == 0


async def test_another_authority_is_not_trusted(tmp_path):
    with issuing(tls=tmp_path) as provider:
        async with Http() as http:
            with pytest.raises(OutboundError, match="certificate is not trusted"):
                await http.get(f"{provider.issuer}/jwks")
    assert provider.requests["jwks"] == 0


@pytest.mark.parametrize(
    ("content", "fault"), [(b"canary", "no PEM file"), (b"", "no PEM file"), (None, "read")]
)
async def test_a_ca_file_that_cannot_be_used(tmp_path, content, fault):
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"{file}: .*{fault}"):
        async with Http(ca_file=file):
            pass


# What a name comes to is the name server's word, and it may be another each time.


@asynccontextmanager
async def names(monkeypatch, **answers: list[str]):
    """Have host names come to these addresses, one after the other."""

    def resolved(host, port, *_, **__):
        found = answers[host.partition(".")[0]]
        address = found.pop(0) if len(found) > 1 else found[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", resolved)
        yield


async def test_a_name_may_not_lead_to_a_forbidden_address(monkeypatch, plain):
    async with (
        names(monkeypatch, evil=["169.254.169.254"], inside=["127.0.0.1"]),
        Http(forbids=lambda address: address.is_loopback) as http,
    ):
        with pytest.raises(OutboundError, match=r"169.254.169.254 is a link-local address"):
            await http.get("https://evil.example/latest/meta-data")
        with pytest.raises(OutboundError, match=r"127.0.0.1 is .* where this URL may not lead"):
            await http.get(f"https://inside.example:{plain.port}/")


async def test_a_name_that_leads_elsewhere_the_second_time(monkeypatch):
    """The first answer is an address that may be connected to; the second is not."""
    async with names(monkeypatch, evil=["127.0.0.1", "169.254.169.254"]), Http() as http:
        with pytest.raises(OutboundError, match="no connection: Connect call failed"):
            await http.get("https://evil.example:1/")
        with pytest.raises(OutboundError, match="link-local"):
            await http.get("https://evil.example:1/")


async def test_nothing_is_sent_in_the_clear_to_another_machine(monkeypatch):
    async with names(monkeypatch, localhost=["10.0.0.1"]), Http() as http:
        with pytest.raises(OutboundError, match=r"10.0.0.1 is not on this machine"):
            await http.get("http://localhost:8080/")


@asynccontextmanager
async def proxy_in_environment(monkeypatch):
    """Run a proxy that refuses; yield the requests to it."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()

    async with Proxy(serve) as proxy:
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, f"http://me:{CANARY}@127.0.0.1:{proxy.port}")
        yield heads


async def test_proxies_of_the_environment_are_used_where_asked_for(monkeypatch, plain):
    async with proxy_in_environment(monkeypatch) as heads:
        async with Http() as http:
            with pytest.raises(OutboundError, match="cannot be resolved"):
                await http.get("https://login.invalid/")
        assert heads == []
        async with Http(trust_env=True, forbids=lambda address: address.is_private) as http:
            with pytest.raises(OutboundError, match="the proxy refused with HTTP 403") as caught:
                await http.get("https://login.invalid/")
            with pytest.raises(OutboundError, match="where no URL may lead"):
                await http.get("https://169.254.169.254/")
            with pytest.raises(OutboundError, match="may not lead"):
                await http.get(f"{plain.issuer}/jwks")  # loopback: directly
        [head] = heads
        assert head.startswith(b"CONNECT login.invalid:443 ")
        assert CANARY not in repr(caught.value)
