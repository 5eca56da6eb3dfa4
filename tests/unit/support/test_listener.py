"""A listener that is closed leaves no connection behind, however young."""

import asyncio
import contextlib
import gc
import socket

import pytest

from tests.support.listener import Listener


async def never(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    raise AssertionError("was served")


@pytest.mark.parametrize("known", [0, 1], ids=["before it is known", "before it is served"])
async def test_a_connection_that_nobody_served_yet_ends_too(known: int) -> None:
    listener = Listener(never)
    await listener.accept()
    # The kernel connects; the loop hears of it in its next turns.
    with socket.create_connection(("127.0.0.1", listener.port), timeout=60) as client:
        while listener.accepted < known:  # noqa: ASYNC110 -- each turn of the loop counts here
            await asyncio.sleep(0)
        await listener.close()
        # What was left open would warn now, and a warning is an error here.
        gc.collect()
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(client.recv, 1) == b""


async def test_nobody_else_gets_a_port_that_is_refused_for_a_while() -> None:
    listener = Listener(never)
    await listener.accept()
    port = listener.port
    listener.refuse()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    await listener.accept()
    assert listener.port == port
    await listener.close()


async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


@pytest.mark.parametrize("turns", range(5))
async def test_in_whichever_turn_of_the_loop_it_is_closed_no_connection_stays(turns: int) -> None:
    listener = Listener(silent)
    await listener.accept()
    with socket.create_connection(("127.0.0.1", listener.port), timeout=60) as client:
        for _ in range(turns):
            await asyncio.sleep(0)
        await listener.close()
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(client.recv, 1) == b""
        gc.collect()
