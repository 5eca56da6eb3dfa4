"""From bytes as they come to events, and what a cut stream means."""

import orjson
import pytest

from reconciler.core.errors import Expired, Unreachable
from reconciler.core.manifest import Manifest, get
from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.kube import requests
from reconciler.kube.cluster import WatchEvent
from reconciler.kube.http.watch_stream import events_of
from reconciler.kube.limits import Limits
from reconciler.kube.requests import ListQuery

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
