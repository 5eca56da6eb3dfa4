"""The bad line strikes where it is told to; its other end here is a server that echoes."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.support.eventually import eventually
from tests.support.listener import Listener
from tests.support.tcp_proxy import CLEAR, STALLED, Flow, TcpProxy


class Echo:
    """Counts what it received and sends it back."""

    def __init__(self):
        self.received = bytearray()
        self.ended = asyncio.Event()

    async def serve(self, reader, writer):
        while data := await reader.read(100):
            self.received += data
            writer.write(data)
            await writer.drain()
        self.ended.set()


@pytest.fixture
def echo():
    return Echo()


@pytest.fixture
async def line(echo):
    listener = Listener(echo.serve)
    await listener.accept()
    async with TcpProxy(f"http://127.0.0.1:{listener.port}/base") as proxy:
        yield proxy
    await listener.close()


@asynccontextmanager
async def connected(line):
    port = int(line.url.removeprefix("http://127.0.0.1:").removesuffix("/base"))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def silent(reader):
    """Return whether nothing comes, for long enough that it would have."""
    try:
        async with asyncio.timeout(0.2):
            await reader.readexactly(1)
    except TimeoutError:
        return True
    return False


async def test_a_clear_line_passes_bytes_and_ends_both_ways(line, echo):
    async with connected(line) as (reader, writer):
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.write(b" again")
        writer.write_eof()
        assert await reader.read() == b" again"
        await echo.ended.wait()
    assert line.connections == 1


async def test_a_late_line_passes_all_bytes(line):
    line.let(up=Flow(delay=0.01), down=Flow(delay=0.01))
    async with connected(line) as (reader, writer):
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"


async def test_a_line_that_stalls_accepts_and_never_answers_until_it_clears(line, echo):
    line.let(up=STALLED)
    async with connected(line) as (reader, writer):
        writer.write(b"hello")
        assert await silent(reader)
        assert echo.received == b""
        line.let(up=CLEAR)
        assert await reader.readexactly(5) == b"hello"


async def test_an_open_connection_stalls_too(line, echo):
    async with connected(line) as (reader, writer):
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        line.let(down=STALLED)
        writer.write(b"b")
        await eventually(lambda: echo.received == b"ab")
        assert await silent(reader)


async def test_forwarding_stops_after_so_many_bytes(line, echo):
    line.let(up=Flow(limit=3))
    async with connected(line) as (reader, writer):
        writer.write(b"hello")
        assert await reader.readexactly(3) == b"hel"
        assert await silent(reader)
        assert echo.received == b"hel"


async def test_an_answer_is_cut_short_with_an_orderly_end(line, echo):
    line.let(down=Flow(limit=3, then="fin"))
    async with connected(line) as (reader, writer):
        writer.write(b"hello")
        assert await reader.read() == b"hel"
        await eventually(lambda: echo.received == b"hello")


async def test_a_request_is_cut_short_with_a_reset(line, echo):
    line.let(up=Flow(limit=3, then="rst"))
    async with connected(line) as (reader, writer):
        writer.write(b"hello")
        with pytest.raises(ConnectionResetError):
            await read_on(reader)
    await echo.ended.wait()
    assert echo.received == b"hel"


async def read_on(reader):
    """Read to an orderly end, or raise what the end is."""
    while await reader.read(100):
        pass


async def test_open_connections_are_cut_and_new_ones_are_not(line):
    async with connected(line) as (reader, writer):
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"
        line.cut("rst")
        with pytest.raises(ConnectionResetError):
            await reader.read()
    async with connected(line) as (reader, writer):
        writer.write(b"b")
        assert await reader.readexactly(1) == b"b"
        line.cut("fin")
        assert await reader.read() == b""
    assert line.connections == 2


async def test_connections_are_refused_until_the_same_port_accepts_again(line):
    url = line.url
    line.refuse()
    with pytest.raises(ConnectionRefusedError):
        async with connected(line):
            pass
    await line.accept()
    assert line.url == url
    async with connected(line) as (reader, writer):
        writer.write(b"a")
        assert await reader.readexactly(1) == b"a"


async def test_a_server_that_refuses_ends_the_connection():
    listener = Listener(Echo().serve)
    await listener.accept()
    await listener.close()
    async with (
        TcpProxy(f"http://127.0.0.1:{listener.port}/base") as line,
        connected(line) as (reader, _),
    ):
        assert await reader.read() == b""


async def test_a_defect_in_serving_comes_out_when_the_listener_closes():
    async def serve(_reader, _writer):
        raise ValueError("a defect")

    listener = Listener(serve)
    await listener.accept()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    assert await reader.read() == b""
    writer.close()
    with pytest.raises(BaseExceptionGroup) as defects:
        await listener.close()
    assert defects.group_contains(ValueError, match="a defect")
