"""The list of keys that may sign: what its lines mean, and which are not understood."""

import base64
import contextlib
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.source.signature import Refused
from reconciler.source.sshsig import matches, parse
from tests.support.signing import ed25519, mpint, security_key, string

KEY = ed25519().line
OTHER = ed25519(2).line


def refusal(text):
    with pytest.raises(Refused) as caught:
        parse(text if isinstance(text, bytes) else text.encode())
    return caught.value.why


def test_comments_blank_lines_and_whitespace():
    found = parse(
        f"# who may sign\n\n  \t\n\t a@x,b@x \t{KEY} laptop of a\r\n#\nc@x {OTHER}".encode()
    )
    assert [(one.line, one.principals) for one in found] == [(4, "a@x,b@x"), (6, "c@x")]
    assert [one.blob for one in found] == [ed25519().blob, ed25519(2).blob]


def test_quotes_hold_blanks_together():
    [found] = parse(f'"a b@x" namespaces="g it,\\"q" {KEY}'.encode())
    assert (found.principals, found.namespaces) == ("a b@x", 'g it,"q')


@pytest.mark.parametrize(
    ("written", "meant"),
    {
        "20261126Z": datetime(2026, 11, 26, tzinfo=UTC),
        "202611261359Z": datetime(2026, 11, 26, 13, 59, tzinfo=UTC),
        "20261126135958Z": datetime(2026, 11, 26, 13, 59, 58, tzinfo=UTC),
        "202611261359": datetime(2026, 11, 26, 13, 59).astimezone(UTC),
    }.items(),
)
def test_times(written, meant):
    [found] = parse(f'a@x valid-after="{written}" {KEY}'.encode())
    assert found.valid_after == meant


def test_a_time_without_z_is_in_the_time_zone_of_the_machine(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        [found] = parse(f'a@x valid-before="20261126" {KEY}'.encode())
    finally:
        monkeypatch.undo()
        time.tzset()
    assert found.valid_before == datetime(2026, 11, 25, 15, tzinfo=UTC)


def rsa_line(modulus, exponent=65_537):
    blob = string(b"ssh-rsa") + mpint(exponent) + mpint(modulus)
    return f"ssh-rsa {base64.b64encode(blob).decode()}"


def line_of(*parts):
    return f"{parts[0].decode()} {base64.b64encode(b''.join(map(string, parts))).decode()}"


REFUSED = {
    "nothing": ("", "lists no key"),
    "comments alone": ("# a\n", "lists no key"),
    "no text": (b"\xff\xfe", "is not text in UTF-8"),
    "too much": (b"#" * ((1 << 20) + 1), "has more than 1 MiB"),
    "a key without principals": (KEY, "line 1 is not `principals [options] type"),
    "no key": ("a@x", "line 1 is not `principals"),
    "half a key": (f"a@x {KEY[:-9]}", "line 1 is not `principals"),
    "a bad line after good ones": (f"a@x {KEY}\nb@x {KEY[:30]}", "line 2 is not `principals"),
    "an authority": (f"a@x cert-authority {KEY}", "line 1 is a cert-authority: certificates are"),
    "an authority among others": (
        f'a@x namespaces="git",CERT-Authority {KEY}',
        "line 1 is a cert-authority",
    ),
    "an unknown option": (f"a@x no-touch-required {KEY}", "line 1 has option 'no-touch-required'"),
    "an unknown one with a value": (f'a@x verify="x" {KEY}', "line 1 has option 'verify'"),
    "an option without value": (f"a@x namespaces {KEY}", "line 1 has option 'namespaces'"),
    "an option without quotes": (f"a@x namespaces=git {KEY}", "line 1 has options that are not"),
    "an option twice": (f'a@x namespaces="a",namespaces="b" {KEY}', "option 'namespaces'"),
    "a comma at the end": (f'a@x namespaces="a", {KEY}', "line 1 has options that are not"),
    "a quote without an end": (f'a@x namespaces="git {KEY}', "line 1 has a quote without an end"),
    "no time": (f'a@x valid-after="today" {KEY}', "has valid-after that is not YYYYMMDD[HHMM"),
    "no day": (f'a@x valid-before="20260230" {KEY}', "has valid-before that is not YYYYMMDD"),
    "an end before the start": (
        f'a@x valid-after="20260102Z",valid-before="20260102Z" {KEY}',
        "ends the time of its key before that begins",
    ),
    "RSA of 2047 bits": (f"a@x {rsa_line((1 << 2047) - 1)}", "is an RSA key of 2047 bits"),
    "RSA, even exponent": (f"a@x {rsa_line((1 << 2048) - 1, 4)}", "is no key of its type"),
    "DSA": (
        f"a@x {line_of(b'ssh-dss', b'x')}",
        "is a key of type 'ssh-dss', which is not accepted",
    ),
    "a certificate": (
        f"a@x {line_of(b'ssh-ed25519-cert-v01@openssh.com', b'x')}",
        "is a certificate, which is not accepted; list the key itself",
    ),
    "a short key": (f"a@x {line_of(b'ssh-ed25519', b'x')}", "is no key of its type"),
    "a point beside the curve": (
        f"a@x {line_of(b'ecdsa-sha2-nistp256', b'nistp256', b'x' * 65)}",
        "is no key of its type",
    ),
    "another curve": (
        f"a@x {line_of(b'ecdsa-sha2-nistp256', b'nistp384', b'x')}",
        "is no key of its type",
    ),
    "more in the key": (f"a@x {line_of(b'ssh-ed25519', b'x' * 32, b'y')}", "is no key of its type"),
}


@pytest.mark.parametrize(("text", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_lists_that_are_refused_whole(text, why):
    assert why in refusal(text)


MATCHES = [
    ("a@x", "a@x", True),
    ("a@x", "A@x", False),
    ("a@x", "a@xy", False),
    ("a@xy", "a@x", False),
    ("a@acme.example", "*@acme.example", True),
    ("a@acmexexample", "*@acme.example", False),
    ("ab@x", "?@x", False),
    ("b@x", "?@x", True),
    ("b@x", "a@x,b@x", True),
    ("mallory@x", "*@x,!mallory@x", False),
    ("mallory@x", "!mallory@x,*@x", False),
    ("alice@x", "!mallory@x,*@x", True),
    ("alice@x", "!mallory@x", False),  # what only refuses allows nothing
    ("a\n@x", "*@x", True),
    ("", "*", True),
    ("a@x", "", False),
]


@pytest.mark.parametrize(("text", "patterns", "expected"), MATCHES)
def test_patterns(text, patterns, expected):
    assert matches(text, patterns) is expected


@given(st.text('!*?,ab"=\\ \tnamespaces\x00\u20ac') | st.binary())
def test_any_text_is_a_list_or_refused_in_words(noise):
    with contextlib.suppress(Refused):
        assert parse(noise if isinstance(noise, bytes) else f"{noise} {KEY}".encode())


@given(st.binary(max_size=200))
def test_any_bytes_as_a_key_are_one_or_refused_in_words(noise):
    for name in (b"ssh-ed25519", b"ssh-rsa", b"ecdsa-sha2-nistp521", security_key().name):
        line = base64.b64encode(string(name) + noise).decode()
        with contextlib.suppress(Refused):
            assert parse(f"a@x {name.decode()} {line}".encode())
