"""Objects of any depth are read, and one that was cut cannot be written back."""

import orjson
import pytest

from reconciler.core.manifest import JSON
from reconciler.kube.json_text import loads


def nested(levels: int, inside: str = "1") -> str:
    return '{"a":' * levels + inside + "}" * levels


def depth(value: JSON) -> int:
    found = 0
    while isinstance(value, dict | list):
        (value,) = value.values() if isinstance(value, dict) else value
        found += 1
    return found


SHALLOW = {
    "an object": b'{"a": [1, "x", null]}',
    "brackets inside of texts": b'{"a": "{[{[", "b}": "]\\"}"}',
    "500 levels": nested(500).encode(),
}


@pytest.mark.parametrize("text", SHALLOW.values(), ids=SHALLOW)
def test_what_can_be_read_is_read_whole(text):
    assert loads(text) == orjson.loads(text)


def test_what_is_just_readable_is_read_whole():
    assert depth(loads(nested(1024).encode())) == 1024


DEEP = {
    "just too deep": nested(1025),
    "lists": nested(200, "[" * 2000 + "]" * 2000),
    "texts full of brackets": nested(1500, '"}]}]\\"}\\\\"'),
    "keys full of brackets": nested(1500, '{"}}]]\\"": 1}'),
    "a hundred thousand levels": nested(100_000),
}


@pytest.mark.parametrize("deep", DEEP.values(), ids=DEEP)
def test_what_is_too_deep_is_cut_and_its_neighbours_are_whole(deep):
    text = f'{{"items": [{{"name": "x"}}, {deep}, {{"name": "}}]"}}, {deep}]}}'
    value = loads(text.encode())
    assert isinstance(value, dict)
    items = value["items"]
    assert isinstance(items, list)
    assert [items[0], items[2]] == [{"name": "x"}, {"name": "}]"}]
    for one in (items[1], items[3]):
        assert depth(one) == 298  # two levels are around it
        with pytest.raises(TypeError):
            orjson.dumps(one)


GARBAGE = {
    "nothing": "",
    "no JSON": "<html>",
    "brackets that do not end": "[" * 3000,
    "too many ends": nested(2000) + "}",
    "only ends": "}" * 3000,
    "escapes without an end": '"' + '\\"' * 1_000_000,
    "deep and cut off": nested(2000)[:-1],
    "deep and cut off inside a text": '{"a":' * 2000 + '"x',
    "deep with garbage behind": nested(2000) + " x",
}


@pytest.mark.parametrize("text", GARBAGE.values(), ids=GARBAGE)
def test_what_is_no_json_raises(text):
    with pytest.raises(orjson.JSONDecodeError):
        loads(text.encode())
