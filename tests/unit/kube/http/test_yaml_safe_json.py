"""What a parser of YAML reads must be what was meant, whatever texts and keys an object has."""

import json
from typing import Any

import orjson
import pytest

from reconciler.core.refs import CONFIG_MAP
from reconciler.kube import requests
from reconciler.kube.requests import as_yaml

ODD = "\x7f\x80\x85\x9f\u2028\u2029\ufeff\ufffe\uffff"  # no text of YAML, or an end of a line
PLAIN = "ä€\U0001f600\U0001fffe\xa0\ud7ff\ufffd"
LONG = "k" * 1200


@pytest.mark.parametrize("odd", ODD)
def test_what_yaml_reads_otherwise_is_escaped(odd):
    value = {f"a{odd}b": [odd, f" {odd} \\{odd}"]}
    text = as_yaml(orjson.dumps(value))
    assert odd.encode() not in text
    assert json.loads(text) == value


def test_all_else_stays_as_it_is():
    text = orjson.dumps({PLAIN: [PLAIN, 1, 0.5, None, "a: ? b, {", '"', "\\"], "x": LONG})
    assert as_yaml(text) == text


KEYS: dict[str, tuple[Any, bytes]] = {
    "long": ({LONG: 1}, b'{? "%s":1}'),
    "not the first": ({"a,": "b", LONG: {"c": LONG}}, b'{"a,":"b",? "%s":{"c":"%s"}}'),
    "a value is none": ([LONG, LONG], b'["%s","%s"]'),
}


@pytest.mark.parametrize(("value", "form"), KEYS.values(), ids=KEYS.keys())
def test_a_key_that_is_too_long_to_be_one_by_itself_is_announced(value, form):
    text = as_yaml(orjson.dumps(value))
    assert text == form.replace(b"%s", LONG.encode())


def test_a_key_is_as_long_as_its_text():
    key = '"' * 600
    assert as_yaml(orjson.dumps({key: ":"})).startswith(b'{? "')


def test_a_text_that_looks_like_a_key_is_none():
    text = orjson.dumps({"a,": [1] * 1200, ":x": '":' + LONG + '":'})
    assert as_yaml(text) == text


def test_an_apply_is_written_so():
    made = {"metadata": {"name": "x", "namespace": "ns"}, "data": {"a": "\x85"}}
    request = requests.apply(
        "c", made, CONFIG_MAP, manager="m", force=True, subresource="", dry_run=False
    )
    assert b'"a":"\\u0085"' in (request.body or b"")
