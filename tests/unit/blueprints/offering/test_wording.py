"""A broker's words come into conditions and logs: one line, short, and without secrets."""

import time

import pytest

from reconciler.api.osb import GeneratedKind
from reconciler.blueprints.offering.kinds import Named
from reconciler.blueprints.offering.outcomes import scrub, texts_in
from reconciler.core.manifest import JSON
from reconciler.core.secret import Secret

# Sentence: the text, what is shown.
LINES = {
    "plain words": ("no such plan", "no such plan"),
    "other alphabets": ("größer, 大", "größer, 大"),
    "line breaks": ("a\r\nb\n\n c", "a b c"),
    "escapes of terminals": ("a\x1b[31mb\x00", "a b"),
    "signs that turn a line around": ("a\u202eb\u2028c", "a b c"),
    "512 characters": ("x" * 512, "x" * 512),
    "513 characters": ("x" * 513, "x" * 509 + "..."),
    "a password in a URL": ("cannot reach pg://bob:pw@db/x", "cannot reach pg://<redacted>@db/x"),
    "a slash in it": ("at pg://bob:a/b@c/d@db/x", "at pg://<redacted>@db/x"),
    "a user in a URL": ("at https://tok@db", "at https://<redacted>@db"),
    "a URL without": ("see https://docs.example/a@b", "see https://docs.example/a@b"),
    "a header": ("Authorization: Basic Ym9iOnB3MTIz", "Authorization: <redacted> <redacted>"),
    "a token": ("got bearer abcdef-123456", "got bearer <redacted>"),
    "a JSON web token": ("bad eyJhbGciOiJIUzI1.eyJzdWI.c2ln end", "bad <redacted> end"),
    "a password by its name": ("db_password=hunter2, port=1", "db_password=<redacted>, port=1"),
    "a password in quotes": ('{"password": "a b", "x": 1}', '{"password": <redacted>, "x": 1}'),
    "a key": ("API-Key : 123abc; retry", "API-Key : <redacted>; retry"),
    "words about a password": ("the password is too short", "the password is too short"),
    "basic words": ("only basic monitoring", "only basic monitoring"),
}


@pytest.mark.parametrize(("text", "shown"), LINES.values(), ids=LINES)
def test_a_line_of(text, shown):
    assert scrub(text) == shown


# Sentence: the text, the secret.
SECRETS = {
    "as it is": ("got hunter2-x!", "hunter2-x"),
    "twice": ("hunter2-x hunter2-x", "hunter2-x"),
    "with a line break in it": ("got two\nlines!", "two\nlines"),
    "with blanks in it": ("got two  words!", "two  words"),
    "with what is not printed taken out": ("got a\x00bcd e!", "a bcd e"),
    "beyond what is shown": ("x" * 508 + " hunter2-x", "hunter2-x"),
}


@pytest.mark.parametrize(("text", "secret"), SECRETS.values(), ids=SECRETS)
def test_a_secret_is_hidden(text, secret):
    shown = scrub(text, [Secret("zzzz"), Secret(secret), Secret("")])
    assert not any(part in shown for part in (secret, secret[:4]))


def test_the_longer_secret_goes_first():
    assert scrub("abcd-efgh", [Secret("abcd"), Secret("abcd-efgh")]) == "<redacted>"


def test_texts_inside_of_credentials():
    value: JSON = {
        "a": "long-1",
        "b": ["long-2", {"c": "long-3", "d": "abc", "e": 12345}],
        "f": None,
    }
    assert sorted(texts_in(value)) == ["long-1", "long-2", "long-3"]
    assert texts_in(None) == []


def test_a_flood_is_read_in_no_time():
    flood = [f"secret-{number}" for number in range(50_000)]
    began = time.process_time()
    assert len(texts_in(flood)) == 200
    for text in (
        "password=" * 100_000,
        "://" * 300_000,
        "://a:" * 300_000,
        "eyJ" * 300_000,
        "\n" * 10**6,
        "x" * 10**6,
    ):
        assert len(scrub(text, map(Secret, texts_in(flood)))) <= 512
    assert time.process_time() - began < 1


@pytest.mark.parametrize("broker", ["acme", "a" * 45])
@pytest.mark.parametrize("stem", ["Database", "S" + "a" * 40])
def test_secrets_bear_the_label_that_templates_select(broker, stem):
    named = Named(broker, "services.acme.example", stem)
    for kind in (named.instances, named.bindings):
        served = GeneratedKind(kind, broker, "id", {}, "" if kind == named.instances else "x")
        assert served.service == named.service
        assert len(named.service) <= 63
