"""The server that a browser comes back to, called by everybody else first (front-door.md 9)."""

import asyncio
import contextlib
import socket

import pytest
import uvloop

from klutchctl.binding.signed_in import Foreign, listening
from reconciler.core.errors import ConfigError

REFUSED = ("400 Bad Request", "431 Request Header Fields Too Large", "")
LONG = "x" * 50_000  # an original brings its whole response in the line


def accept(query):
    if query.get("state") != "ours":
        raise Foreign("not ours")
    return query["code"]


async def said(port, raw, host="127.0.0.1"):
    """Return the status line of the answer to some bytes, "" where there is none."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(raw)
        return (await reader.readline()).decode().strip()
    except ConnectionError:
        return ""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def call(target, *, port, method="GET", host=None, more=""):
    host = f"localhost:{port}" if host is None else host
    return f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode()


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_the_answer_is_taken_at_both_addresses_once(address):
    if ":" in address and not has_ipv6():
        pytest.skip("this machine has no ::1")
    async with listening(accept) as callback:
        port = callback.port
        good = call(f"/callback?state=ours&code={LONG}", port=port)
        assert await said(port, good, address) == "HTTP/1.1 200 OK"
        assert await callback.answer(seconds=5) == LONG
        other = call("/callback?state=ours&code=late", port=port)
        assert await said(port, other, address) == "HTTP/1.1 200 OK"
        assert await callback.answer(seconds=5) == LONG
    with pytest.raises(ConnectionRefusedError):
        await said(port, b"")


async def test_calls_of_others_are_refused_and_the_wait_goes_on():
    async with listening(accept) as callback:
        port = callback.port
        foreign = {
            "another session": call("/callback?state=theirs&code=1", port=port),
            "nothing": call("/callback", port=port),
            "a name twice": call("/callback?state=ours&state=theirs&code=1", port=port),
            "DNS rebinding": call("/callback?state=ours&code=1", port=port, host="evil.example"),
            "another port": call("/callback?state=ours&code=1", port=port, host="localhost:1"),
            "no host": b"GET /callback?state=ours&code=1 HTTP/1.1\r\n\r\n",
            "two hosts": call("/callback?state=ours&code=1", port=port, more="Host: evil\r\n"),
            "no HTTP": b"hello\r\n\r\n",
            "a long line": call(f"/callback?state=ours&code={'x' * 70_000}", port=port),
            "a long head": call("/callback?state=ours&code=1", port=port,
                                more=5 * f"A: {'a' * 20_000}\r\n"),
        }  # fmt: skip
        for name, raw in foreign.items():
            assert (await said(port, raw)).partition(" ")[2] in REFUSED, name
        assert await said(port, call("/?state=ours&code=1", port=port)) == "HTTP/1.1 404 Not Found"
        posted = call("/callback?state=ours&code=1", port=port, method="POST")
        assert await said(port, posted) == "HTTP/1.1 405 Method Not Allowed"
        with pytest.raises(TimeoutError):
            await callback.answer(seconds=0.01)
        good = call("/callback?state=ours&code=good", port=port)
        assert await said(port, good) == "HTTP/1.1 200 OK"
        assert await callback.answer(seconds=5) == "good"


async def test_connections_that_say_nothing_keep_nobody_out():
    async with listening(accept) as callback, contextlib.AsyncExitStack() as silent:
        for _ in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", callback.port)
            silent.callback(writer.close)
        good = call("/callback?state=ours&code=good", port=callback.port)
        assert await said(callback.port, good) == "HTTP/1.1 200 OK"


def test_a_spare_connection_of_a_browser_leaves_no_traceback(caplog):
    """It is still open, and silent, when the command ends; who asked has the page by then."""

    async def signed_in(spare):
        async with listening(accept) as callback:
            spare.connect(("127.0.0.1", callback.port))
            reader, writer = await asyncio.open_connection("127.0.0.1", callback.port)
            writer.write(call("/callback?state=ours&code=good", port=callback.port))
            assert await callback.answer(seconds=5) == "good"
        page = await reader.read()
        writer.close()
        return page

    with socket.socket() as spare:
        page = uvloop.run(signed_in(spare))
        assert page.startswith(b"HTTP/1.1 200 OK")
        assert spare.recv(1) == b""
    assert caplog.text == ""


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_a_port_that_another_has_on_one_address_is_refused(address):
    if ":" in address and not has_ipv6():
        pytest.skip("this machine has no ::1")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as other:
        other.bind((address, 0))
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match="taken"):
            async with listening(accept, port=port):
                pass
        async with listening(accept) as callback:
            assert callback.port != port
