"""Bodies piece by piece, and the events of a watch."""

import gzip
import zlib

import orjson
import pytest

from reconciler.core.errors import Expired, Unreachable
from reconciler.core.manifest import Manifest, get, stub_of
from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.http.stream import Excess
from reconciler.kube import requests
from reconciler.kube.answer_stream import Body, events_of
from reconciler.kube.cluster import WatchEvent
from reconciler.kube.limits import Limits, Look
from reconciler.kube.requests import ListQuery


def whole(*parts, encoding="", limit=1000, look=None, seconds=0.0):
    """Read parts that come `seconds` apart."""
    time = [0.0]
    body = Body(encoding, limit=limit, look=look, now=lambda: time[0])
    for part in parts:
        time[0] += seconds
        body.take(part)
    return body.whole()


PACKED = gzip.compress(b"abc" * 300)
READ = {
    "nothing": ((), "", b""),
    "parts": ((b"a", b"b"), "", b"ab"),
    "named as it is": ((b"a",), "identity", b"a"),
    "packed": ((PACKED,), "gzip", b"abc" * 300),
    "packed, in parts": ((PACKED[:7], PACKED[7:]), "GZIP", b"abc" * 300),
    "nothing at all of a compression": ((), "gzip", b""),
    "just as much as is read": ((b"x" * 1000,), "", b"x" * 1000),
}


@pytest.mark.parametrize(("parts", "encoding", "wanted"), READ.values(), ids=READ)
def test_a_body_is_read(parts, encoding, wanted):
    assert whole(*parts, encoding=encoding) == wanted


NOTHING = gzip.compress(b"")
REFUSED = {
    "one octet more": ((b"x" * 1001,), "", "more than 1000 bytes to one call"),
    "a bomb": ((gzip.compress(b"x" * 10**7),), "gzip", "more than 1000 bytes to one call"),
    "much that unpacks to nothing": ((NOTHING, NOTHING), "gzip", "more than one compressed"),
    "more after its end": ((PACKED, b"x"), "gzip", "more than one compressed"),
    "deflate": ((b"x",), "deflate", "compression that was not asked for"),
    "brotli": ((b"x",), "br", "compression that was not asked for"),
}


@pytest.mark.parametrize(("parts", "encoding", "reason"), REFUSED.values(), ids=REFUSED)
def test_more_than_is_read_is_refused(parts, encoding, reason):
    with pytest.raises(Excess, match=reason):
        whole(*parts, encoding=encoding)


@pytest.mark.parametrize("parts", [(b"no gzip",), (PACKED[:-1],)])
def test_what_is_no_gzip_or_not_all_of_it_is_an_error(parts):
    with pytest.raises(zlib.error):
        whole(*parts, encoding="gzip")


SLOW = {
    "a byte a second": ((b"x",) * 9, 1.0, False),
    "200 a second": ((b"x" * 200,) * 9, 1.0, False),
    "256 a second": ((b"x" * 256,) * 9, 1.0, True),
    "slow for a moment": ((b"x", b"x"), 1.0, True),
    "silent, and then enough": ((b"x" * 900, b"x" * 5000), 20.0, True),
}


@pytest.mark.parametrize(("parts", "seconds", "is_read"), SLOW.values(), ids=SLOW)
def test_what_comes_too_slowly_is_not_waited_for(parts, seconds, is_read):
    if is_read:
        assert whole(*parts, limit=10**6, seconds=seconds) == b"".join(parts)
    else:
        with pytest.raises(Excess, match="less than 256 bytes a second"):
            whole(*parts, limit=10**6, seconds=seconds)


def test_all_answers_of_one_look_are_counted_together():
    look = Look(octets=1500)
    assert whole(b"x" * 1000, look=look)
    with pytest.raises(Excess, match="more than 1500 bytes in one look"):
        whole(b"x" * 501, look=look)


REQUEST = requests.watch(Ref("c", CONFIG_MAP, "ns", ""), ListQuery(), resource_version="1")


def line(kind, content):
    return orjson.dumps({"type": kind, "object": content}) + b"\n"


async def chunks(*parts):
    for part in parts:
        yield part


async def read(*parts, limit=1000):
    limits = Limits(max_body=limit)
    return [event async for event in events_of(chunks(*parts), REQUEST, limits)]


A: Manifest = {"metadata": {"name": "a"}}
B: Manifest = {"metadata": {"name": "b", "labels": {"x": "é\u2028"}}}
STREAM = line("ADDED", A) + line("MODIFIED", B) + line("BOOKMARK", A)
EVENTS = [WatchEvent("ADDED", A), WatchEvent("MODIFIED", B), WatchEvent("BOOKMARK", A)]


@pytest.mark.parametrize("size", [1, 2, 7, 50, 10_000])
async def test_chunks_of_any_size_give_the_same_events(size):
    parts = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
    assert await read(*parts) == EVENTS


async def test_the_end_between_two_events_is_quiet():
    assert await read(STREAM) == EVENTS
    assert await read() == []


async def test_an_event_of_any_depth_ends_nothing():
    deep = b'{"a":' * 2000 + b"1" + b"}" * 2000
    part = b'{"type":"ADDED","object":{"metadata":{"name":"d"},"spec":%s}}\n' % deep
    first, second, third = await read(line("ADDED", A), part, line("MODIFIED", B), limit=50_000)
    assert [first, third] == [EVENTS[0], EVENTS[1]]
    assert get(second.object, "metadata") == {"name": "d"}


WIDE = b"[" + b",".join([b"{}"] * 5_000) + b"]"
META = (
    b'{"name":"w","uid":"u","resourceVersion":"7","labels":{"metadata":"object"},'
    b'"managedFields":%s}'
)
WIDE_EVENTS = {
    "as servers write": b'{"type":"MODIFIED","object":{"kind":"X","metadata":%s,"spec":{"p":%s}}}',
    "metadata named before": b'{"type":"MODIFIED","object":{"a":"metadata","b":{"metadata":'
    b'{"name":1}},"metadata" : %s,"spec":%s}}',
    "metadata behind": b'{"type":"MODIFIED","object":{"x":[["metadata"],[{"metadata":{"name":"y"}}'
    b']],"metadata":%s,"z":%s}}',
}
NARROW = Limits(max_body=10**6, max_memory=100_000)


@pytest.mark.parametrize("text", WIDE_EVENTS.values(), ids=WIDE_EVENTS)
@pytest.mark.parametrize("fields", [b"[]", WIDE, WIDE.replace(b"{}", b'{"a":1}')])
async def test_of_an_event_that_is_too_wide_the_name_is_read_and_the_others_go_on(text, fields):
    parts = chunks(line("ADDED", A), text % (META % fields, WIDE) + b"\n", line("MODIFIED", B))
    first, second, third = [event async for event in events_of(parts, REQUEST, NARROW)]
    assert [first, third] == EVENTS[:2]
    metadata = {"name": "w", "uid": "u", "resourceVersion": "7"}
    assert second == WatchEvent("MODIFIED", stub_of({"metadata": metadata}))


@pytest.mark.parametrize(
    "text",
    [
        b'{"type":"ADDED","object":{"metadata":{"name":["w"]},"spec":%s}}' % WIDE,
        b'{"type":"ADDED","object":{"spec":{"metadata":{"name":"w"},"b":%s}}}' % WIDE,
        b'{"type":"ADDED","object":{"metadata":{"name":"w","name":"v"},"b":%s}}' % WIDE,
        b'{"type":"ADDED","object":"metadata","x":{"name":%s}}' % WIDE,
        b"[" + WIDE + b"]",
    ],
)
async def test_an_event_about_nobody_knows_what_ends_the_watch(text):
    with pytest.raises(Unreachable, match="more values than are read"):
        async for _ in events_of(chunks(text + b"\n"), REQUEST, NARROW):
            pass


BROKEN = {
    "cut inside an event": (STREAM[:-5], Unreachable, "cut inside an event"),
    "not JSON": (b"<html>\n", Unreachable, "something else"),
    "JSON that is no event": (b'{"kind":"Status"}\n', Unreachable, "something else"),
    "a type that is no text": (b'{"type":[],"object":{}}\n', Unreachable, "something else"),
    "an unknown type": (line("NEWS", A), Unreachable, "something else"),
    "410 inside the stream": (
        line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}),
        Expired,
        "too old",
    ),
    "500 inside the stream": (
        line("ERROR", {"kind": "Status", "code": 500, "message": "decode"}),
        Unreachable,
        "decode",
    ),
    "an error of any depth": (
        b'{"type":"ERROR","object":{"kind":"Status","message":"no","details":%s}}\n'
        % (b"[" * 400 + b"]" * 400),
        Unreachable,
        "no",
    ),
    "a flood without an end": (b"x" * 2000, Unreachable, "more than 1000 bytes"),
}


@pytest.mark.parametrize(("content", "error", "says"), BROKEN.values(), ids=BROKEN.keys())
async def test_broken_streams(content, error, says):
    with pytest.raises(error, match=says):
        await read(content)
