"""The server of the front door, on real sockets: what clients get, and what hostile ones do not."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from reconciler.inbound.limits import Limits
from reconciler.inbound.messages import Response
from reconciler.inbound.routes import Router
from reconciler.inbound.server import Listening, served

HERE = ("127.0.0.1", 0)
GET = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def hello(request, parts):
    return Response(200, f"{request.method} {request.path} {dict(parts)}".encode() + request.body)


async def defect(request, parts):
    raise KeyError("a secret")


ROUTES = {
    "/": {"GET": hello, "POST": hello},
    "/offers/{name}": {"GET": hello, "HEAD": hello},
    "/defect": {"GET": defect},
}


@asynccontextmanager
async def serving(handler=None, **limits):
    bounds = Limits(**{"rate": 1e6, "burst": 10**6, **limits})
    async with served(Listening(HERE, limits=bounds), handler or Router(ROUTES)) as where:
        yield where


async def said(where, sent, *, within=10.0):
    """Return all that comes until the server closes."""
    reader, writer = await asyncio.open_connection(*where)
    writer.write(sent)
    try:
        async with asyncio.timeout(within):
            return (await reader.read()).decode()
    finally:
        writer.close()


def request(line="GET / HTTP/1.1", *headers, body=b""):
    head = "\r\n".join((line, "Host: x", "Connection: close", *headers, "", ""))
    return head.encode("latin-1") + body


def status(answer):
    return int(answer.split(" ", 2)[1])


@pytest.mark.parametrize(
    ("sent", "wanted"),
    [
        (request(), 200),
        (request("GET http://evil.example/ HTTP/1.1"), 200),
        (request("POST / HTTP/1.1", "Content-Length: 5", body=b"hello"), 200),
        (request("GET /nowhere HTTP/1.1"), 404),
        (request("PUT / HTTP/1.1", "Content-Length: 0"), 405),
        (request("HEAD / HTTP/1.1"), 405),
        (request("HEAD /offers/x HTTP/1.1"), 200),
        (request("GET /defect HTTP/1.1"), 500),
        (request("GET /?a=1&a=2 HTTP/1.1"), 400),
        (request("GET /?a=%zz HTTP/1.1"), 400),
        (request("GET /?a=%00 HTTP/1.1"), 400),
        (request("GET /?a=%ff HTTP/1.1"), 400),
        (request("GET / HTTP/1.1", "Cookie: klutch-bind-1=a; klutch-bind-1=b"), 400),
        (request("GET / HTTP/1.1", "Authorization: Bearer a", "Authorization: Bearer b"), 400),
        (request("GET / HTTP/1.1", "Host: y"), 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (request("NONSENSE / HTTP/1.1"), 400),
    ],
)
async def test_what_is_answered(sent, wanted):
    async with serving() as where:
        answer = await said(where, sent)
        assert status(answer) == wanted
        assert "\r\nServer:" not in answer
        assert "\r\nX-Content-Type-Options: nosniff\r\n" in answer


async def test_silent_connections_end():
    async with serving(head_time=0.3) as where:
        began = time.monotonic()
        assert await said(where, b"") == ""
        assert time.monotonic() - began < 5.0
