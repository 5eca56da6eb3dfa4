"""The server of the front door, on real sockets: what clients get."""

import asyncio
import logging
import re
import time
from contextlib import AsyncExitStack
from ipaddress import ip_network

import pytest

from reconciler.web.requests import Response, Router
from reconciler.web.serve import Listening, served
from tests.support import web
from tests.support.eventually import eventually
from tests.support.web import request

KEPT = request(close=False)


async def defect(request):
    if request.query:
        return Response(200, headers=(("Location", request.query["to"]),))
    raise KeyError("a secret")


async def chosen(request):
    READ[request.query["by"]](request)
    return Response()


ROUTES = {
    "/chosen": {"GET": chosen},
    "/": {"GET": web.hello, "POST": web.hello},
    "/offers/{name}": {"GET": web.hello, "HEAD": web.hello},
    "/defect": {"GET": defect},
}


@pytest.mark.parametrize(
    ("sent", "wanted"),
    [
        (request(), 200),
        (request("GET / HTTP/1.0"), 200),
        (request("GET http://evil.example/ HTTP/1.1"), 200),
        (request("POST / HTTP/1.1", "Content-Length: 5", body=b"hello"), 200),
        (
            request("POST / HTTP/1.1", "Transfer-Encoding: chunked", body=b"1\r\nx\r\n0\r\n\r\n"),
            200,
        ),
        (request("GET /nowhere HTTP/1.1"), 404),
        (request("PUT / HTTP/1.1", "Content-Length: 0"), 405),
        (request("HEAD / HTTP/1.1"), 405),
        (request("HEAD /offers/x HTTP/1.1"), 200),
        (request("GET /defect HTTP/1.1"), 500),
        (request("GET /defect?to=a%0D%0AX:b HTTP/1.1"), 500),
        (request("GET /?a=1&a=2 HTTP/1.1"), 400),
        (request("GET /?a=%zz HTTP/1.1"), 400),
        (request("GET / HTTP/1.1", "Cookie: klutch-bind-1=a; klutch-bind-1=b"), 400),
        (request("GET / HTTP/1.1", "Authorization: Bearer a", "Authorization: Bearer b"), 400),
        (request("OPTIONS * HTTP/1.1"), 400),
        (request("CONNECT x:443 HTTP/1.1"), 400),
        (request("POST / HTTP/1.1", "Content-Length: 1", "Content-Encoding: gzip", body=b"x"), 415),
        (request("POST / HTTP/1.1", "Content-Length: 1", "Expect: more", body=b"x"), 417),
    ],
)
async def test_what_is_answered(sent, wanted):
    async with web.serving(Router(ROUTES)) as where:
        answer = await web.answered(where, sent)
        assert web.status(answer) == wanted
        assert "\r\nServer:" not in answer
        assert "\r\nX-Content-Type-Options: nosniff\r\n" in answer


READ = {"Accept": lambda it: it.wants_html, "Cookie": lambda it: it.cookies.get("a"), "": bool}


@pytest.mark.parametrize("varies", READ)
@web.on_uvloop
async def test_an_answer_names_the_headers_that_it_depends_on(varies):
    sent = request(f"GET /chosen?by={varies} HTTP/1.1", "Accept: text/html", "Cookie: a=b")
    async with web.serving(Router(ROUTES)) as where:
        answer = await web.answered(where, sent)
    assert re.findall(r"\r\nVary: (.*)\r\n", answer) == [varies][: bool(varies)]


@web.on_uvloop
async def test_a_connection_is_used_again():
    async with web.serving() as where, web.connected(where) as (reader, writer):
        for _ in range(3):
            writer.write(KEPT)
            assert b" 200 " in await reader.readuntil(b"GET / 0\n")


@web.on_uvloop
async def test_an_answer_to_head_has_no_body():
    async with web.serving(Router(ROUTES)) as where:
        answer = await web.answered(where, request("HEAD /offers/x HTTP/1.1"))
        assert "\r\nContent-Length: 17\r\n" in answer
        assert answer.endswith("\r\n\r\n")
        answer = await web.answered(where, request("PUT /offers/x HTTP/1.1", "Content-Length: 0"))
        assert "\r\nAllow: GET, HEAD\r\n" in answer


@web.on_uvloop
async def test_a_client_that_asks_before_it_sends_a_body():
    head = request("POST / HTTP/1.1", "Content-Length: 5", "Expect: 100-continue")
    async with web.serving() as where, web.connected(where, head) as (reader, writer):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"hello")
        assert "POST / 5" in await web.until_closed(reader)


@web.on_uvloop
async def test_a_defect_is_named_by_its_place(caplog):
    async with web.serving(Router(ROUTES)) as where:
        answer = await web.answered(where, request("GET /defect HTTP/1.1"))
    named = re.search(r"\r\n\r\ninternal error \(request ([0-9a-f]{16})\)\n$", answer)
    assert named is not None
    logged = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert [one.getMessage() for one in logged] == ["a request could not be answered"]
    assert (logged[0].request, logged[0].error) == (named[1], "KeyError")
    assert re.fullmatch(r"tests\.contract\.test_web:\d+|test_web:\d+", logged[0].place)
    assert "a secret" not in str([vars(one) for one in caplog.records])


@web.on_uvloop
async def test_refusals_have_the_form_that_is_wanted():
    def page(request, code, sentence):
        return Response(code, f"<p>{code} {sentence} {request.path}".encode(), "text/html")

    async with served(Listening(("127.0.0.1", 0)), Router(ROUTES), refusal_page=page) as where:
        answer = await web.answered(where, request("PUT / HTTP/1.1", "Content-Length: 0"))
        assert "\r\nContent-Type: text/html\r\n" in answer
        assert "\r\nAllow: GET, POST\r\n" in answer
        assert answer.endswith("\r\n\r\n<p>405 PUT is not allowed here /")


@web.on_uvloop
async def test_requests_of_an_address():
    limits = {"rate": 0.5, "burst": 3}
    async with web.serving(**limits) as where:
        forged = [request("GET / HTTP/1.1", f"X-Forwarded-For: 192.0.2.{n}") for n in range(4)]
        answers = [await web.answered(where, one) for one in forged]
        assert [*map(web.status, answers)] == [200, 200, 200, 429]
        assert "\r\nRetry-After: 2\r\n" in answers[3]
        assert web.status(await web.answered(where, request(), local_addr=("127.0.0.2", 0))) == 200
    async with web.serving(**limits, trusted=(ip_network("127.0.0.1/32"),)) as where:
        for client, wanted in (("192.0.2.1", [200] * 3 + [429]), ("192.0.2.2", [200] * 3)):
            proxied = request("GET / HTTP/1.1", f"X-Forwarded-For: 192.0.2.9, {client}")
            assert [web.status(await web.answered(where, proxied)) for _ in wanted] == wanted


@web.on_uvloop
async def test_what_a_handler_gets():
    given = []

    async def handler(request):
        given.append(request)
        return Response(204)

    async with web.serving(handler, trusted=(ip_network("127.0.0.0/8"),)) as where:
        headers = (
            "Host: y.example",
            "X-Forwarded-For: 2001:db8::1",
            "X-Forwarded-Proto: https",
            "X-Forwarded-Host: evil.example",
            "Cookie: a=1; b=2",
        )
        sent = request("POST /a%20b?c=d HTTP/1.1", *headers, "Content-Length: 1", body=b"x")
        await web.answered(where, sent.replace(b"Host: x\r\n", b""))
    (one,) = given
    assert (one.method, one.path, one.query, one.body) == ("POST", "/a b", {"c": "d"}, b"x")
    assert (one.address, dict(one.cookies), one.secure) == (
        "2001:db8::1",
        {"a": "1", "b": "2"},
        False,
    )
    assert one.headers["host"] == "y.example"
    assert re.fullmatch("[0-9a-f]{16}", one.id)


class Gate:
    """A handler that answers when it may."""

    def __init__(self):
        self.began, self.opened = 0, asyncio.Event()

    async def __call__(self, request):
        self.began += 1
        await self.opened.wait()
        return Response(200, b"at last")


@web.on_uvloop
async def test_a_handler_that_takes_too_long():
    async with web.serving(Gate(), answer_time=0.1) as where:
        answer = await web.answered(where, request())
        assert web.status(answer) == 503
        assert re.search(r"no answer in time \(request [0-9a-f]{16}\)\n$", answer)


@web.on_uvloop
async def test_what_is_under_way_ends_before_the_server_does():
    gate = Gate()
    async with AsyncExitStack() as clients, AsyncExitStack() as stack:
        where = await stack.enter_async_context(web.serving(gate))
        asking = asyncio.create_task(web.answered(where, request(close=False)))
        idle, _ = await clients.enter_async_context(web.connected(where))
        await eventually(lambda: gate.began == 1)
        stopping = asyncio.create_task(stack.pop_all().aclose())
        assert await web.until_closed(idle) == ""
        with pytest.raises(ConnectionRefusedError):
            await web.answered(where, request())
        assert not stopping.done()
        gate.opened.set()
        answer = await asking
        assert (web.status(answer), answer.endswith("\r\n\r\nat last")) == (200, True)
        assert "\r\nConnection: close\r\n" in answer
        await stopping


@web.on_uvloop
async def test_what_does_not_end_is_ended():
    gate = Gate()
    async with web.serving(gate, stop_time=0.2) as where:
        asking = asyncio.create_task(web.answered(where, request()))
        await eventually(lambda: gate.began == 1)
        began = time.monotonic()
    assert time.monotonic() - began < 5.0
    assert await asking == ""


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


@web.on_uvloop
async def test_parts_are_sent_as_they_come_and_the_connection_is_used_again():
    stream = Stream()
    async with web.serving(stream) as where, web.connected(where, KEPT) as (reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        assert web.status(head) == 200
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
        assert web.status(await web.until_closed(reader)) == 200


@web.on_uvloop
@pytest.mark.parametrize("error", [OSError, TimeoutError, ValueError])
async def test_a_stream_that_fails_is_a_defect_and_no_client_that_left(caplog, error):
    async def failing():
        yield b"one"
        raise error("hunter2canary")

    async def handler(request):
        del request
        return Response(200, stream=failing)

    async with web.serving(handler) as where:
        answer = await web.answered(where, request())
    assert answer.endswith("3\r\none\r\n")  # cut: the end of a whole stream is a chunk, too
    (line,) = caplog.records
    assert (line.error, line.place.partition(":")[0]) == (error.__name__, __name__)
    assert "hunter2canary" not in caplog.text


@web.on_uvloop
async def test_a_head_alone_begins_no_stream():
    stream = Stream()
    async with web.serving(stream) as where:
        answer = await web.answered(where, request("HEAD / HTTP/1.1"))
    assert (web.status(answer), answer.endswith("\r\n\r\n"), stream.open) == (200, True, 0)


@web.on_uvloop
async def test_a_client_that_leaves_ends_the_stream_although_nothing_is_sent():
    stream = Stream()
    async with web.serving(stream) as where:
        async with web.connected(where, KEPT) as (reader, _):
            await reader.readuntil(b"\r\n\r\n")
            await eventually(lambda: stream.open == 1)
        await eventually(lambda: stream.open == 0)


@web.on_uvloop
async def test_a_client_that_takes_nothing_is_dropped():
    stream = Stream()
    async with (
        web.serving(stream, take_time=0.1) as where,
        web.connected(where, KEPT) as (reader, writer),
    ):
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()
        for _ in range(64):
            stream.parts.put_nowait(b"x" * (1 << 20))
        await eventually(lambda: stream.open == 0)
        assert stream.parts.qsize() > 32


@web.on_uvloop
async def test_a_stream_that_does_not_end_does_not_keep_the_server():
    stream = Stream()
    async with AsyncExitStack() as clients:
        async with web.serving(stream, stop_time=0.1) as where:
            reader, _ = await clients.enter_async_context(web.connected(where, KEPT))
            await reader.readuntil(b"\r\n\r\n")
            await eventually(lambda: stream.open == 1)
        assert stream.open == 0
        assert await web.until_closed(reader) == ""
