"""Text encodings, with the vectors of protocol-bind.md G.2."""

import base64
import json

import pytest

from reconciler.core import codec

TEXTS = {
    "base62 of nothing": (codec.base62(b""), "0"),
    "base62 of zero": (codec.base62(bytes(4)), "0"),
    "base62 digits go 0-9, a-z, A-Z": (
        "".join(codec.base62(bytes([n])) for n in (9, 10, 35, 36, 61, 62)),
        "9azAZ10",
    ),
    "base62 without leading zeros": (codec.base62(b"\0\0\x01"), "1"),
    "hash of a uid": (
        codec.hash62(b"b5a0e9c2-1111-4222-8333-0123456789ab"),
        "85FeR5hqg79fsTkRQxiczP5ksY6iChDgaBMKOt",
    ),
    "FNV-1a of nothing": (codec.fnv1a32(b""), "811c9dc5"),
    "FNV-1a of a": (codec.fnv1a32(b"a"), "e40c292c"),
    "FNV-1a of foobar": (codec.fnv1a32(b"foobar"), "bf9cf968"),
    "Go keeps the key order": (
        codec.go_json({"b": 1, "a": [None, True]}),
        '{"b":1,"a":[null,true]}',
    ),
    "Go escapes for HTML": (codec.go_json("<a&b>\u2028"), '"\\u003ca\\u0026b\\u003e\\u2028"'),
    "Go does not escape other text": (codec.go_json("\u00e9"), '"\u00e9"'),
    "state": (
        codec.oauth_state(
            redirect_url="http://localhost:40123/callback", session_id="h3Xk9a", cluster_id="4ceiSr"
        ),
        "eyJyZWRpcmVjdFVSTCI6Imh0dHA6Ly9sb2NhbGhvc3Q6NDAxMjMvY2FsbGJhY2siLCJzaWQiOiJoM1hrOWEi"
        "LCJjaWQiOiI0Y2VpU3IifQ==",
    ),
}


@pytest.mark.parametrize(("got", "want"), TEXTS.values(), ids=TEXTS.keys())
def test_texts(got, want):
    assert got == want


# Encodes to both characters in which the alphabets differ.
VALUE = {"a": "???>>>~~~", "b": "\u00fb\u00ff"}
PLAIN = json.dumps(VALUE, ensure_ascii=False).encode()
SPELLINGS = {
    "standard": base64.b64encode(PLAIN).decode(),
    "standard without padding": base64.b64encode(PLAIN).decode().rstrip("="),
    "URL-safe": base64.urlsafe_b64encode(PLAIN).decode(),
    "URL-safe without padding": base64.urlsafe_b64encode(PLAIN).decode().rstrip("="),
}


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_payloads_of_every_spelling_are_read(text):
    assert codec.decode_payload(text) == VALUE


def test_the_alphabets_differ_in_this_value():
    assert SPELLINGS["standard"] != SPELLINGS["URL-safe"]


def test_a_payload_is_written_so_that_the_original_can_read_it():
    text = codec.encode_payload(VALUE)
    assert json.loads(base64.b64decode(text, validate=True)) == VALUE


NOT_PAYLOADS = {
    "not base64": ("hunter2!!", "not base64"),
    "another script": ("\u0430\u0430\u0430\u0430", "not base64"),
    "a lone character": ("a", "not base64"),
    "not JSON": (base64.b64encode(b"hunter2").decode(), "not of JSON"),
    "not UTF-8": (base64.b64encode(b'"hunter2\xff"').decode(), "not of JSON"),
    "too deep": (base64.b64encode(b"[" * 200_000).decode(), "not of JSON"),
    "empty": ("", "not of JSON"),
    "an array": (base64.b64encode(b'["hunter2"]').decode(), "not an object"),
}


@pytest.mark.parametrize(("text", "why"), NOT_PAYLOADS.values(), ids=NOT_PAYLOADS.keys())
def test_what_is_not_a_payload_is_refused_without_repeating_it(text, why):
    with pytest.raises(ValueError, match=why) as caught:
        codec.decode_payload(text)
    assert "hunter2" not in str(caught.value)
