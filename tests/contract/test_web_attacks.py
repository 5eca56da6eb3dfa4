"""Clients that mean harm to the server of the front door, or to those beside them."""

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

from reconciler.web.requests import Response
from tests.support.eventually import eventually
from tests.support.web import (
    answered,
    connected,
    on_uvloop,
    request,
    serving,
    status,
    statuses,
    until_closed,
)

POST = "POST / HTTP/1.1"
CHUNKED = "Transfer-Encoding: chunked"
CHUNK = b"4000\r\n" + 0x4000 * b"x" + b"\r\n"
INNER = b"GET /inner HTTP/1.1\r\nHost: x\r\n\r\n"


class Seen:
    """A handler that notes what it was asked."""

    def __init__(self):
        self.paths = []

    async def __call__(self, request):
        self.paths.append(request.path)
        return Response(200, b"seen")


@pytest.mark.parametrize(
    "sent",
    [
        request(POST, "Content-Length: 5", CHUNKED, body=b"0\r\n\r\n" + INNER, close=False),
        request(POST, CHUNKED, "Content-Length: 5", body=b"0\r\n\r\n" + INNER, close=False),
        request(POST, "Content-Length: 5", "Content-Length: 0", body=b"hello" + INNER, close=False),
        request(POST, "Content-Length: 5, 5", body=b"hello" + INNER, close=False),
        request(POST, "Content-Length: +5", body=b"hello" + INNER, close=False),
        request(POST, "Content-Length: -1", body=INNER, close=False),
        request(POST, "Content-Length: 0x5", body=b"hello" + INNER, close=False),
        request(POST, "Content-Length : 5", body=b"hello" + INNER, close=False),
        request(POST, CHUNKED, CHUNKED, body=b"0\r\n\r\n" + INNER, close=False),
        request(POST, "Transfer-Encoding: xchunked", body=b"0\r\n\r\n" + INNER, close=False),
        request(POST, "Transfer-Encoding: chunked, identity", body=b"0\r\n\r\n", close=False),
        request(POST, "Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n" + INNER, close=False),
        request(POST, "Transfer-Encoding:\x0bchunked", body=b"0\r\n\r\n" + INNER, close=False),
        request(POST, CHUNKED, body=b"g\r\n" + INNER, close=False),
        request(POST, CHUNKED, body=b"0x0\r\n\r\n" + INNER, close=False),
        request(POST, CHUNKED, body=b"1\nx\n0\n\n" + INNER, close=False),
        request("GET / HTTP/1.1", "A: b\r\n c", body=INNER, close=False),
        request("GET / HTTP/1.1", "A: b\x00", body=INNER, close=False),
        request("GET / HTTP/1.1", "A b", body=INNER, close=False),
        request("GET / HTTP/1.1", ": b", body=INNER, close=False),
        request("GET / HTTP/9.9", body=INNER, close=False),
        request("GET /\x00 HTTP/1.1", body=INNER, close=False),
        b"GET / HTTP/1.1\nHost: x\n\n" + INNER,
    ],
)
@on_uvloop
async def test_no_request_is_hidden_in_another(sent):
    seen = Seen()
    async with serving(seen, head_time=0.5, body_time=0.5) as where:
        answer = await answered(where, sent)
        assert [one for one in statuses(answer.replace("HTTP/1.0", "HTTP/1.1")) if one < 400] == []
        assert seen.paths == []


@pytest.mark.parametrize(
    ("sent", "wanted"),
    [
        (request(f"GET /?{8100 * 'a'} HTTP/1.1"), 200),
        (request(f"GET /?{8200 * 'a'} HTTP/1.1"), 431),
        (request("GET / HTTP/1.1", f"A: {8200 * 'a'}"), 431),
        (request("GET / HTTP/1.1", *(f"A{n}: {3500 * 'a'}" for n in range(4))), 200),
        (request("GET / HTTP/1.1", *(f"A{n}: {3500 * 'a'}" for n in range(5))), 431),
        (request("GET / HTTP/1.1", *(f"A{n}: b" for n in range(120))), 400),
        (request(POST, f"Content-Length: {65536}", body=65536 * b"x"), 200),
        (request(POST, f"Content-Length: {65537}"), 413),
        (request(POST, "Content-Length: 99999999999999999999999"), 400),
        (request(POST, CHUNKED, body=4 * CHUNK + b"0\r\n\r\n"), 200),
        (request(POST, CHUNKED, body=5 * CHUNK), 413),
    ],
)
@on_uvloop
async def test_sizes(sent, wanted):
    async with serving(body_time=0.5) as where:
        assert status(await answered(where, sent)) == wanted


@pytest.mark.parametrize("piece", [1, 1000, 20_000])
@on_uvloop
async def test_a_body_that_comes_in_pieces_is_no_head(piece):
    body = 60_000 * b"x"
    async with serving() as where:
        head = request(POST, f"Content-Length: {len(body)}")
        async with connected(where, head + body[:piece]) as (reader, writer):
            for start in range(piece, len(body), 20_000):
                await writer.drain()
                await asyncio.sleep(0)
                writer.write(body[start : start + 20_000])
            assert status(await until_closed(reader)) == 200


async def stream(where, first, more):
    """Send without end, until the server closes; return its answer, and how much it took."""
    taken = 0
    async with connected(where, first) as (reader, writer):
        answering = asyncio.create_task(until_closed(reader))
        while not answering.done():
            writer.write(more)
            taken += len(more)
            try:
                await asyncio.wait_for(writer.drain(), 0.1)
            except (TimeoutError, ConnectionError):
                await asyncio.wait({answering}, timeout=0.1)
            await asyncio.sleep(0)
        return await answering, taken


@pytest.mark.parametrize(
    ("first", "more"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n", b"A: b\r\n" + b"B: " + 500 * b"c" + b"\r\n"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: ", 1000 * b"a"),
        (b"GET /", 1000 * b"a"),
        (b"", 1000 * b"a"),
        (b"", 1000 * b"\r\n"),
    ],
)
@on_uvloop
async def test_heads_without_end(first, more):
    async with serving() as where:
        began = time.monotonic()
        answer, taken = await stream(where, first, more)
        assert time.monotonic() - began < 5.0
        assert taken < 8 * 2**20  # most of it lies in buffers of the kernel
        assert not answer or statuses(answer.replace("HTTP/1.0", "HTTP/1.1"))[0] in (400, 431)


@pytest.mark.parametrize(
    ("first", "more"),
    [(request(POST, CHUNKED), CHUNK), (request(POST, "Content-Length: 60000000"), 1000 * b"x")],
)
@on_uvloop
async def test_bodies_without_end(first, more):
    async with serving(body_time=0.5) as where:
        began = time.monotonic()
        answer, _ = await stream(where, first, more)
        assert time.monotonic() - began < 5.0
        assert not answer or status(answer) == 413


async def drip(where, first, piece, *, every=0.05):
    """Send a piece now and then; return the answer, and after how long the server closed."""
    began = time.monotonic()
    async with connected(where, first) as (reader, writer):
        answering = asyncio.create_task(until_closed(reader))
        while not answering.done():
            writer.write(piece)
            await asyncio.wait({answering}, timeout=every)
        return await answering, time.monotonic() - began


@pytest.mark.parametrize(
    ("first", "piece", "wanted"),
    [
        (b"", b"", ""),
        (b"", b"\r\n", ""),
        (b"GET /", b"a", ""),
        (b"GET / HTTP/1.1\r\nHost: x\r\n", b"A: b\r\n", ""),
        (request(POST, "Content-Length: 60000"), b"", "HTTP/1.1 408 "),
        (request(POST, "Content-Length: 60000"), b"x", "HTTP/1.1 408 "),
        (request(POST, CHUNKED), b"1\r\nx\r\n", "HTTP/1.1 408 "),
        (request("GET / HTTP/1.1", close=False), b"", "HTTP/1.1 200 "),
        (request("GET / HTTP/1.1", close=False), b"\r\n", "HTTP/1.1 200 "),
    ],
)
@on_uvloop
async def test_silent_and_dripping_clients(first, piece, wanted):
    async with serving(head_time=0.5, body_time=0.5) as where:
        answer, after = await drip(where, first, piece)
        assert answer.startswith(wanted)
        assert bool(answer) == bool(wanted)
        assert 0.3 < after < 4.0


@on_uvloop
async def test_a_client_that_takes_no_answer():
    async def much(request):
        return Response(200, 64 * 2**20 * b"x")

    async with serving(much, take_time=0.3) as where, connected(where, request()) as (reader, _):
        reader._transport.pause_reading()
        await asyncio.sleep(0.6)
        reader._transport.resume_reading()
        assert len(await until_closed(reader)) < 64 * 2**20


@on_uvloop
async def test_requests_beyond_the_rate_on_one_connection():
    seen = Seen()
    async with serving(seen, rate=0.01, burst=3) as where:
        answer = await answered(where, 9 * request(close=False) + request())
        assert statuses(answer) == 3 * [200] + 7 * [429]
        assert len(seen.paths) == 3


async def crowd(stack, where, first, piece, number):
    """Open connections that never come to an end; return what drips into them."""
    writers = []
    for _ in range(number):
        _, writer = await stack.enter_async_context(connected(where, first))
        writers.append(writer)

    async def dripping():
        while piece:
            for writer in writers:
                writer.write(piece)
            await asyncio.sleep(0.1)

    return asyncio.create_task(dripping())


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"", b""),
        (b"GET / HTTP/1.1\r\nA: ", b"a"),
        (request(POST, CHUNKED), b"1\r\nx\r\n"),
        (request(close=False), b""),
    ],
    ids=["silent", "dripping", "endless", "idle"],
)
@on_uvloop
async def test_others_are_served_beside_300_connections(first, piece):
    async with AsyncExitStack() as stack:
        where = await stack.enter_async_context(serving())
        elsewhere = {"local_addr": ("127.0.0.2", 0)}
        reader, writer = await stack.enter_async_context(connected(where, **elsewhere))
        dripping = await crowd(stack, where, first, piece, 300)
        for _ in range(5):
            began = time.monotonic()
            assert status(await answered(where, request())) == 200
            assert status(await answered(where, request(), **elsewhere)) == 200
            assert time.monotonic() - began < 1.0
        # A client with one connection keeps it: those go that have many.
        writer.write(request())
        assert status(await until_closed(reader)) == 200
        dripping.cancel()


@on_uvloop
async def test_no_handler_is_cut_for_another_connection():
    opened, began = asyncio.Event(), []

    async def slow(request):
        began.append(request.path)
        await opened.wait()
        return Response(200)

    async with serving(slow, connections=3) as where, asyncio.TaskGroup() as group:
        asking = [group.create_task(answered(where, request())) for _ in range(3)]
        await eventually(lambda: len(began) == 3)
        assert await answered(where, request()) == ""
        opened.set()
        assert [status(await one) for one in asking] == [200] * 3
        assert status(await answered(where, request())) == 200


@on_uvloop
async def test_handlers_of_clients_that_have_left_count():
    opened, began = asyncio.Event(), []

    async def slow(request):
        began.append(request.path)
        await opened.wait()
        return Response(200)

    async with serving(slow, connections=2) as where:
        async with connected(where, request()):
            await eventually(lambda: len(began) == 1)
        async with connected(where, request()):
            await eventually(lambda: len(began) == 2)
        answer = await answered(where, request())
        assert (status(answer), "Retry-After: 1" in answer) == (503, True)
        assert len(began) == 2
        opened.set()
