"""Clients of `reconciler.web`, which write bytes or get a page, and a server for them."""

import asyncio
import functools
import urllib.error
import urllib.request
from contextlib import asynccontextmanager

import uvloop

from reconciler.web.connections import Limits
from reconciler.web.requests import Proxies, Response, Router
from reconciler.web.serve import Listening, served

HERE = ("127.0.0.1", 0)
BOUNDLESS = {"rate": 1e6, "burst": 10**6}


def on_uvloop(test):
    """Run a test on the event loop that programs use."""

    @functools.wraps(test)
    def run(*args, **named):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(test(*args, **named))

    return run


async def hello(request):
    return Response(200, f"{request.method} {request.path} {len(request.body)}\n".encode())


@asynccontextmanager
async def serving(handler=None, *, tls=None, trusted=(), **limits):
    """Serve, with short limits; each client may ask as often as it wants."""
    listening = Listening(HERE, tls, Proxies(trusted), Limits(**{**BOUNDLESS, **limits}))
    handler = handler or Router({"/": {"GET": hello, "POST": hello}})
    async with served(listening, handler) as where:
        yield where


@asynccontextmanager
async def connected(where, sent=b"", **options):
    """Connect and write; yield the reader and the writer."""
    reader, writer = await asyncio.open_connection(*where, **options)
    try:
        writer.write(sent)
        yield reader, writer
    finally:
        writer.transport.abort()


async def answered(where, sent=b"", *, within=10.0, **options):
    """Return all that comes until the server closes, which it has to."""
    async with connected(where, sent, **options) as (reader, _), asyncio.timeout(within):
        return await until_closed(reader)


async def until_closed(reader):
    said = b""
    try:
        while some := await reader.read(65536):
            said += some
    except ConnectionError:  # it did not want to read the rest
        pass
    return said.decode()


def request(line="GET / HTTP/1.1", *headers, body=b"", close=True):
    closing = ("Connection: close",) if close else ()
    return "\r\n".join((line, "Host: x", *closing, *headers, "", "")).encode("latin-1") + body


def status(answer):
    return int(answer.split(" ", 2)[1])


def statuses(answers):
    return [int(one.split(" ", 1)[0]) for one in answers.split("HTTP/1.1 ")[1:]]


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
