"""A Secret shows itself nowhere but where it is revealed."""

import copy
import json
import logging
import pickle
import traceback
from dataclasses import dataclass

import pytest

from reconciler.core.secret import HIDDEN, Secret, scrub

TEXT = "hunter2-hunter2"


@dataclass(frozen=True)
class Holder:
    token: Secret


RENDERINGS = {
    "str": str,
    "repr": repr,
    "format": lambda secret: f"{secret} {secret!s:>40} {secret!r}",
    "percent": lambda secret: "%s %r" % (secret, secret),  # noqa: UP031 - as logging does
    "in a container": lambda secret: f"{[secret]} { ({'a': secret}) } {(secret,)}",
    "in a dataclass": lambda secret: repr(Holder(secret)),
    "in an exception": lambda secret: "".join(
        traceback.format_exception(ValueError("refused", secret))
    ),
    "in a log record": lambda secret: logging.LogRecord(
        "n", 20, "p", 1, "token %s", (secret,), None
    ).getMessage(),
}


@pytest.mark.parametrize("render", RENDERINGS.values(), ids=RENDERINGS.keys())
def test_no_rendering_shows_it(render):
    shown = render(Secret(TEXT))
    assert TEXT not in shown
    assert HIDDEN in shown


def test_reveal_is_the_way():
    assert Secret(TEXT).reveal() == TEXT


@pytest.mark.parametrize(
    "write", [pickle.dumps, json.dumps, copy.copy, copy.deepcopy], ids=lambda each: each.__name__
)
def test_it_is_not_written_to_files_or_copied(write):
    with pytest.raises(TypeError) as caught:
        write(Secret(TEXT))
    assert TEXT not in str(caught.value)


def test_it_has_no_attributes_to_dump():
    assert not hasattr(Secret(TEXT), "__dict__")


def test_equality_is_by_value_and_with_secrets_only():
    assert Secret(TEXT) == Secret(TEXT)
    assert Secret(TEXT) != Secret("other")
    assert Secret(TEXT) != TEXT
    assert len({Secret(TEXT), Secret(TEXT)}) == 1


def test_an_empty_one_is_false():
    assert not Secret("")
    assert Secret("x")


SCRUBS = {
    "every occurrence": ("a hunter2 b hunter2", ("hunter2",), f"a {HIDDEN} b {HIDDEN}"),
    "the longer one first": ("hunter2long", ("hunter2", "hunter2long"), HIDDEN),
    "short ones would hide words": ("a cat", ("cat",), "a cat"),
    "an empty one hides nothing": ("text", ("",), "text"),
    "none": ("text", (), "text"),
    "in base64": ("got cEBzcy93MHJk", ("p@ss/w0rd",), f"got {HIDDEN}"),
    "in a URL": ("got p%40ss%2Fw0rd", ("p@ss/w0rd",), f"got {HIDDEN}"),
    "in JSON": (
        r'got {"a":"p\"ss\u00e9"} and p\"ssé',
        ('p"ssé',),
        f'got {{"a":"{HIDDEN}"}} and {HIDDEN}',
    ),
    "on one line": ("got BEGIN KEY abc", ("BEGIN KEY\nabc\n",), f"got {HIDDEN}"),
}


@pytest.mark.parametrize(("text", "secrets", "want"), SCRUBS.values(), ids=SCRUBS.keys())
def test_scrub(text, secrets, want):
    assert scrub(text, secrets) == want
