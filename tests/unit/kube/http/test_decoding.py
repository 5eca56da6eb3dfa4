"""Objects of any depth are read, and one that was cut cannot be written back."""

import tracemalloc

import orjson
import pytest

from reconciler.core.documents import weight
from reconciler.core.manifest import JSON
from reconciler.kube.answer_stream import loads


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
    value = loads(f'{{"items": [{{"name": "x"}}, {deep}, {{"name": "}}]"}}, {deep}]}}'.encode())
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


MIB = 2**20
# What stands for the most memory in the fewest octets.
DENSE = {
    "empty objects": b"{},",
    "objects": b'{"a":1},',
    "objects in objects": b'{"a":{}},',
    "empty lists": b"[],",
    "lists": b"[0],",
    "numbers": b"1000,",
    "fractions": b"1.5,",
    "texts": b'"ab",',
    "texts that are not ASCII": '"é",'.encode(),
    "texts with an emoji": ('"' + "a" * 60 + '😀",').encode(),
}


def weigh(text):
    tracemalloc.start()
    value = orjson.loads(text)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del value
    assert taken <= weight(text, most=10**12)


@pytest.mark.parametrize("item", DENSE.values(), ids=DENSE)
def test_no_value_takes_more_memory_than_its_weight(item):
    weigh(b"[" + item * (MIB // len(item)) + b"0]")


def test_names_that_are_all_different_are_weighed_too():
    weigh(orjson.dumps({f"{n:x}": {} for n in range(100_000)}))


def test_objects_as_api_servers_send_them_are_light():
    labels: JSON = {"f:labels": {".": {}, "f:kubernetes.io/metadata.name": {}, "f:app": {}}}
    managed = {
        "manager": "kubectl",
        "operation": "Update",
        "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": labels, "f:spec": {"f:finalizers": {}}},
    }
    metadata = {
        "name": "x" * 20,
        "uid": "0" * 36,
        "resourceVersion": "123456",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"kubernetes.io/metadata.name": "x" * 20},
        "managedFields": [managed],
    }
    text = orjson.dumps({"items": [{"kind": "Namespace", "metadata": metadata}] * 1000})
    assert weight(text, most=10**12) < 10 * len(text)
