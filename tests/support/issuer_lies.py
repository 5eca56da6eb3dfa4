"""What a provider says that is not so, and answers that harm their reader."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from aiohttp import web

from tests.support.issuer_tokens import Signing, signed

Reply: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
Members: TypeAlias = dict[str, Any]

MIB = 2**20


@dataclass(slots=True)
class Lies:
    """Members that replace those which are true; None leaves one out. `Lies()` is the truth.

    `header` and `signing` are for ID tokens and access tokens; `replies` are by the name of a
    route: discovery, jwks, authorize, token, device.
    """

    discovery: Members = field(default_factory=dict)
    jwks: Members = field(default_factory=dict)
    redirect: Members = field(default_factory=dict)
    token: Members = field(default_factory=dict)
    id_token: Members = field(default_factory=dict)
    access_token: Members = field(default_factory=dict)
    header: Members = field(default_factory=dict)
    signing: Signing = signed
    device: Members = field(default_factory=dict)
    replies: dict[str, Reply] = field(default_factory=dict)


async def unheard(reply: Reply, request: web.Request) -> web.StreamResponse:
    """Reply, though the peer may go away meanwhile."""
    try:
        return await reply(request)
    except ConnectionError:
        return web.Response()


def redirect(to: str, status: int = 302) -> Reply:
    return _fixed(b"", status, {"Location": to})


def body(content: bytes, status: int = 200, content_type: str = "application/json") -> Reply:
    return _fixed(content, status, {"Content-Type": content_type})


def error(code: str, status: int = 400, **members: Any) -> Reply:
    """Refuse as RFC 6749 5.2 says."""

    async def reply(request: web.Request) -> web.StreamResponse:
        del request
        return web.json_response({"error": code, **members}, status=status)

    return reply


def compressed(content: bytes) -> Reply:
    return _fixed(gzip.compress(content), 200, {"Content-Encoding": "gzip"})


def _fixed(content: bytes, status: int, headers: dict[str, str]) -> Reply:
    async def reply(request: web.Request) -> web.StreamResponse:
        del request
        return web.Response(body=content, status=status, headers=headers)

    return reply


def endless(mebibytes: int = 1024, *, announced: bool = False) -> Reply:
    """Answer with a gigabyte, or as much of it as is taken."""

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if announced:
            response.content_length = mebibytes * MIB
        await response.prepare(request)
        for _ in range(mebibytes):
            await response.write(b"[" * MIB)
            await asyncio.sleep(0)  # over TLS, a write gives nobody a turn
        return response

    return reply


async def hang(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError(request)


async def dripping(request: web.Request) -> web.StreamResponse:
    """Answer an octet at a time, for ever."""
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.1)


async def cut(request: web.Request) -> web.StreamResponse:
    """End the connection instead of an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def cut_within(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    response.content_length = 100
    await response.prepare(request)
    await response.write(b'{"issuer":')
    assert request.transport is not None
    request.transport.abort()
    return response
