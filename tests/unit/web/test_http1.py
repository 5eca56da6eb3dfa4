"""A request of HTTP/1.1: what is read, and what is refused, in whatever pieces it comes."""

from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.web.connections import Limits
from reconciler.web.http1 import Incoming
from reconciler.web.requests import RequestRefused

HEAD = b"POST /a HTTP/1.1\r\nHost: x\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
UPGRADE = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
BLANK = b"Content-Length: 8\r\n\r\n" + 2 * b"\r\n\r\n"
# Octets: the body, or the status of what is refused. What follows a body is another request.
CASES = {
    HEAD + b"\r\n": b"",
    b"\r\n\r\n" + HEAD + b"\r\n": b"",
    HEAD + BLANK: 2 * b"\r\n\r\n",
    HEAD + UPGRADE + BLANK: 2 * b"\r\n\r\n",
    CHUNKED
    + b"4;a=b\r\n\r\n\r\n\r\n1\r\nx\r\n0\r\nA: b\r\nConnection: close\r\n\r\n": b"\r\n\r\nx",
    CHUNKED + 10_000 * b"1\r\nx\r\n" + b"0\r\n\r\n": 10_000 * b"x",
    CHUNKED + 30_000 * b"1\r\nx\r\n": 413,
    CHUNKED + b"1;" + 90_000 * b"a": 413,
    CHUNKED + b"0\r\n" + 20_000 * b"A: b\r\n": 413,
    CHUNKED + b"0\r\nContent-Length: 5\r\n\r\n": 400,
    CHUNKED + b"1;a\nx\r\n0\r\n\r\n": 400,
    CHUNKED.replace(b"\r\n\r\n", b"\r\n" + UPGRADE + b"\r\n") + b"0\r\n\r\n": 400,
    CHUNKED.replace(b"1.1", b"1.0") + b"0\r\n\r\n": 400,
    CHUNKED.replace(b"chunked", b"gzip, chunked"): 501,
    b"GET / HTTP/1.1\r\n\r\n": 400,
    b"GET /\r\n\r\n": 400,
    b"GET / HTTP/2.0\r\nHost: x\r\n\r\n": 400,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": 400,
    b"CONNECT /a HTTP/1.1\r\nHost: x\r\n\r\n": 400,
}


@pytest.mark.parametrize("size", [1, 3, 2**20])
@pytest.mark.parametrize("sent", CASES)
async def test_what_is_read_in_whatever_pieces(sent, size):
    data = sent if isinstance(CASES[sent], int) else sent + HEAD
    pieces = iter([data[start : start + size] for start in range(0, len(data), size)])

    async def read(_):
        return next(pieces)

    connection: Any = SimpleNamespace(reader=SimpleNamespace(read=read), limits=Limits())
    incoming = Incoming(connection)
    await incoming.head()
    if isinstance(CASES[sent], int):
        with pytest.raises(RequestRefused) as refused:
            await incoming.body()
        assert refused.value.status == CASES[sent]
        return
    assert await incoming.body() == CASES[sent]
    assert (incoming.method, incoming.target, incoming.is_kept) == ("POST", "/a", True)
    assert incoming.rest + b"".join(pieces) == HEAD
