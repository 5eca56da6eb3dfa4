"""Brokers that lie, hang and flood: what each of their answers comes to."""

import base64
import json
import logging
import re
import time

import pytest

from reconciler.blueprints.offering.outcomes import (
    Accepted,
    Done,
    Progress,
    Refused,
    Unknown,
    Unsent,
)
from reconciler.core.secret import Secret
from tests.support.broker_wire import CANARY, POLL, PUT, answer, hang, octets, repeated, scripted

MIB = 2**20
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\n"
UNREADABLE = "no JSON object"
# Sentence: the reply, the type of the outcome, words in it.
LIES = {
    "a redirect": (answer("307 T", b"{}", "Location: http://127.0.0.1:1/"), Unknown, "HTTP 307"),
    "gzip unasked": (answer("200 OK", b"{}", "Content-Encoding: gzip"), Unknown, "compressed"),
    "another coding": (answer("200 OK", b"{}", "Content-Encoding: br"), Unknown, "compressed"),
    "a body without end": (
        repeated(CHUNKED, b"10000\r\n" + b" " * 65536 + b"\r\n"),
        Unknown,
        "larger than 1024 KiB",
    ),
    "a body that ends with the connection": (
        repeated(PLAIN + b"\r\n", b" " * 65536),
        Unknown,
        "larger than 1024 KiB",
    ),
    "an octet too many": (answer(body=b" " * (MIB - 1) + b"{}"), Unknown, "larger than 1024 KiB"),
    "a header without end": (repeated(PLAIN + b"X: ", b"x" * 4096), Unknown, "head is too long"),
    "headers without end": (repeated(PLAIN, b"X: x\r\n"), Unknown, "no answer|head is too long"),
    "an octet now and then": (
        repeated(PLAIN + b"\r\n", b" ", pause=0.1),
        Unknown,
        r"no answer in 0\.7 s",
    ),
    "a header now and then": (repeated(PLAIN, b"X: x\r\n", pause=0.1), Unknown, "no answer"),
    "silence": (hang, Unknown, r"no answer in 0\.7 s"),
    "interim answers for ever": (
        repeated(b"", b"HTTP/1.1 102 Processing\r\n\r\n", pause=0.01),
        Unknown,
        "no answer",
    ),
    "an interim answer first": (
        octets(
            b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + PLAIN + b"Content-Length: 2\r\n\r\n{}"
        ),
        Done(),
        "",
    ),
    "a switch of protocols": (octets(b"HTTP/1.1 101 S\r\nUpgrade: x\r\n\r\n"), Unknown, ""),
    "no content": (octets(b"HTTP/1.1 204 No Content\r\n\r\n"), Unknown, "HTTP 204"),
    "a cut before the answer": (octets(b"", then="fin"), Unknown, "cut"),
    "a reset before the answer": (octets(b"", then="rst"), Unknown, "cut"),
    "a cut head": (octets(b"HTTP/1.1 200", then="fin"), Unknown, "cut|not HTTP"),
    "a cut body": (
        octets(PLAIN + b"Content-Length: 9\r\n\r\n{}", then="fin"),
        Unknown,
        "cut short",
    ),
    "a cut chunk": (octets(CHUNKED + b"9\r\n{}", then="fin"), Unknown, "cut short"),
    "no last chunk": (octets(CHUNKED + b"2\r\n{}\r\n", then="fin"), Unknown, "cut short"),
    "a chunk of no size": (
        octets(CHUNKED + b"x\r\n{}\r\n0\r\n\r\n"),
        Unknown,
        "cut short|not HTTP",
    ),
    "a chunk of less than nothing": (octets(CHUNKED + b"-2\r\n{}\r\n"), Unknown, "cut|not HTTP"),
    "a chunk longer than it says": (
        octets(CHUNKED + b"1\r\n{}\r\n0\r\n\r\n"),
        Unknown,
        "cut|not HTTP",
    ),
    "two lengths": (
        octets(PLAIN + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"),
        Unknown,
        "not HTTP",
    ),
    "a length that is none": (octets(PLAIN + b"Content-Length: +2\r\n\r\n{}"), Unknown, "not HTTP"),
    "no HTTP at all": (octets(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), Unknown, "not HTTP"),
    "broken JSON": (answer(body=b'{"a": '), Unknown, UNREADABLE),
    "an array": (answer(body=b"[{}]"), Unknown, UNREADABLE),
    "a page of a gateway": (answer(body=b"<html>ok</html>"), Unknown, UNREADABLE),
    "deep JSON": (answer(body=b'{"a":' * 10_000 + b"1" + b"}" * 10_000), Unknown, UNREADABLE),
    "deeper JSON": (answer(body=b"[" * MIB), Unknown, UNREADABLE),
    "wide JSON": (answer(body=b'{"a":[' + b"{}," * 300_000 + b"{}]}"), Unknown, UNREADABLE),
    "a key that stands twice": (
        answer("202 A", b'{"operation": 7, "operation": "k"}'),
        Accepted(Secret("k")),
        "",
    ),
    "503 and a time": (answer("503 S", b"{}", "Retry-After: 5"), Unsent, "HTTP 503"),
    "what we sent, as an error": (
        answer("400 B", json.dumps({"description": f"no {CANARY}!"}).encode()),
        Refused,
        "no <redacted>!",
    ),
    "our header, as an error": (
        answer(
            "400 B",
            json.dumps(
                {"description": base64.b64encode(f"me:{CANARY}".encode()).decode()}
            ).encode(),
        ),
        Refused,
        "^<redacted>$",
    ),
}


@pytest.mark.parametrize(("reply", "expected", "words"), LIES.values(), ids=LIES)
async def test_a_broker_answers(reply, expected, words, caplog):
    slow = "no answer" in words
    with caplog.at_level(logging.DEBUG):
        async with scripted(reply, answer(), seconds=0.7 if slow else 20) as (client, server):
            began = time.monotonic()
            found = await client.call(PUT)
            assert time.monotonic() - began < 15
            if isinstance(expected, type):
                assert isinstance(found, expected)
                assert re.search(words, getattr(found, "problem", ""))
            else:
                assert found == expected
            assert len(server.heads) == 1
            assert await client.call(POLL) == Progress("")  # and the next is as ever
    assert CANARY not in repr(found) + caplog.text
