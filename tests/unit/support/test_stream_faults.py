"""Watches through the HTTP proxy: passed on as they come, and spoilt at any point."""

import asyncio
import json

import pytest

from tests.support.cues import Gate
from tests.support.http_faults import Body, Cut, Inject, gone, on, status_object
from tests.unit.support.small_server import CUTS, patch, watching


async def test_a_stream_passes_line_by_line_as_it_comes(client, server):
    async with watching(client) as lines:
        for line in (b"one\n", b"two\n"):
            server.lines.put_nowait(line)
            assert await lines.readline() == line
        server.lines.put_nowait(None)
        assert await lines.read() == b""


CUT_POINTS = {
    "before the first byte": (Body(), b""),
    "between two lines": (Body(lines=1), b"one\n"),
    "within a line": (Body(lines=1, octets=2), b"one\ntw"),
    "in one that comes in pieces": (Body(lines=2, octets=3), b"one\ntwo\nthr"),
    "counted in octets alone": (Body(octets=5), b"one\nt"),
}


@pytest.mark.parametrize(("at", "seen"), CUT_POINTS.values(), ids=CUT_POINTS.keys())
async def test_a_stream_is_cut_at_any_point(at, seen, client, server, proxy):
    proxy.add(on("GET", query="watch=true"), Cut("fin"), at=at)
    for piece in (b"one\ntwo", b"\nth", b"ree\n"):
        server.lines.put_nowait(piece)
    async with watching(client) as lines:
        if seen:
            assert await lines.readexactly(len(seen)) == seen
        with pytest.raises(CUTS):
            await lines.read()
    await server.left.wait()


async def test_a_point_beyond_the_end_is_never_reached(client, server, proxy):
    proxy.add(on("GET"), Cut(), at=Body(lines=3))
    server.lines.put_nowait(b"one\ntwo\n")
    server.lines.put_nowait(None)
    async with watching(client) as lines:
        assert await lines.read() == b"one\ntwo\n"


async def test_a_watch_is_told_that_it_is_too_old_and_ends_properly(client, server, proxy):
    proxy.add(on(query="watch=true"), gone(), at=Body(lines=1))
    server.lines.put_nowait(b"one\n")
    async with watching(client) as lines:
        assert await lines.readline() == b"one\n"
        event = json.loads(await lines.readline())
        assert event == {"type": "ERROR", "object": status_object(410)}
        assert await lines.read() == b""
    await server.left.wait()
    assert (await patch(client))[0] == 201
    assert proxy.connections == 1


async def test_a_line_is_put_into_a_stream_that_goes_on(client, server, proxy):
    proxy.add(on(query="watch=true"), Inject(b"{not json"), at=Body(lines=1))
    server.lines.put_nowait(b"one\ntwo\n")
    server.lines.put_nowait(None)
    async with watching(client) as lines:
        assert await lines.read() == b"one\n{not json\ntwo\n"


async def test_a_stream_falls_silent_until_the_gate_opens(client, server, proxy):
    gate = Gate()
    proxy.add(on(query="watch=true"), gate, at=Body(lines=1))
    server.lines.put_nowait(b"one\ntwo\n")
    async with watching(client) as lines:
        assert await lines.readline() == b"one\n"
        await gate.reached.wait()
        rest = asyncio.create_task(lines.readline())
        gate.open()
        assert await rest == b"two\n"


async def test_the_server_hears_when_a_client_leaves_a_stream(client, server):
    async with watching(client):
        pass
    await server.left.wait()
