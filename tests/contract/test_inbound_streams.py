"""Answers that go on, on real sockets: how they are sent, and what ends them."""

import asyncio
from contextlib import AsyncExitStack

from reconciler.inbound.messages import Response
from tests.support import inbound
from tests.support.eventually import eventually
from tests.support.inbound import request

KEPT = request(close=False)


class Stream:
    """A handler whose answer is what is put into the queue, until None."""

    def __init__(self):
        self.parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.open = 0

    async def __call__(self, request):
        del request
        return Response(200, content_type="text/event-stream", stream=self.sent)

    async def sent(self):
        self.open += 1
        try:
            while (part := await self.parts.get()) is not None:
                yield part
        finally:
            self.open -= 1


@inbound.on_uvloop
async def test_parts_are_sent_as_they_come_and_the_connection_is_used_again():
    stream = Stream()
    async with inbound.serving(stream) as where, inbound.connected(where, KEPT) as (reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert inbound.status(head) == 200
        assert "\r\nTransfer-Encoding: chunked\r\n" in head
        assert "\r\nServer:" not in head
        for part in (b"one", b"two"):
            stream.parts.put_nowait(part)
            assert await reader.readuntil(b"\r\n") == b"3\r\n"
            assert await reader.readuntil(b"\r\n") == part + b"\r\n"
        stream.parts.put_nowait(None)
        assert await reader.readuntil(b"\r\n\r\n") == b"0\r\n\r\n"
        writer.write(request())
        stream.parts.put_nowait(None)
        assert inbound.status(await inbound.until_closed(reader)) == 200


@inbound.on_uvloop
async def test_a_head_alone_begins_no_stream():
    stream = Stream()
    async with inbound.serving(stream) as where:
        answer = await inbound.answered(where, request("HEAD / HTTP/1.1"))
    assert (inbound.status(answer), answer.endswith("\r\n\r\n"), stream.open) == (200, True, 0)


@inbound.on_uvloop
async def test_a_client_that_leaves_ends_the_stream_although_nothing_is_sent():
    stream = Stream()
    async with inbound.serving(stream) as where:
        async with inbound.connected(where, KEPT) as (reader, _):
            await reader.readuntil(b"\r\n\r\n")
            await eventually(lambda: stream.open == 1)
        await eventually(lambda: stream.open == 0)


@inbound.on_uvloop
async def test_a_client_that_takes_nothing_is_dropped():
    stream = Stream()
    async with (
        inbound.serving(stream, take_time=0.1) as where,
        inbound.connected(where, KEPT) as (reader, writer),
    ):
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()
        for _ in range(64):
            stream.parts.put_nowait(b"x" * (1 << 20))
        await eventually(lambda: stream.open == 0)
        assert stream.parts.qsize() > 32


@inbound.on_uvloop
async def test_a_stream_that_does_not_end_does_not_keep_the_server():
    stream = Stream()
    async with AsyncExitStack() as clients:
        async with inbound.serving(stream, stop_time=0.1) as where:
            reader, _ = await clients.enter_async_context(inbound.connected(where, KEPT))
            await reader.readuntil(b"\r\n\r\n")
            await eventually(lambda: stream.open == 1)
        assert stream.open == 0
        assert await inbound.until_closed(reader) == ""
