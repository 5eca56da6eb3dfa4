"""A snapshot says exactly what was seen, and anything else is refused in one sentence."""

import contextlib
import copy
import functools
import json
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.errors import ConfigError
from reconciler.core.live import (
    Address,
    ClusterState,
    Live,
    Unavailable,
    dump_live,
    instances,
    parse_live,
)
from reconciler.core.refs import CRD, NAMESPACE, SECRET, Ref
from tests.support.json_values import json_values

_JSON = json_values(st.text(max_size=8), 8, st.integers(-(2**53), 2**53))
_MANIFESTS = st.dictionaries(st.text(max_size=8), _JSON, max_size=4)
_KINDS = st.sampled_from([NAMESPACE, SECRET, CRD, instances("shop.example", "databases")])
_REFS = st.builds(Ref, st.text(max_size=8), _KINDS, st.text(max_size=8), st.text(max_size=8))
_SEEN = st.builds(
    ClusterState,
    uid=st.text(max_size=8),
    address=st.builds(Address, st.text(max_size=8), st.text(max_size=8), st.text(max_size=8)),
    objects=st.dictionaries(_KINDS, st.lists(_MANIFESTS, max_size=3).map(tuple)),
    unserved=st.frozensets(_KINDS),
    in_use=st.dictionaries(_KINDS, st.integers(0, 2**31)),
    bodies=st.dictionaries(_REFS, st.none() | _MANIFESTS, max_size=3),
    bindings_cluster_scoped=st.booleans(),
    unreadable=st.frozensets(st.tuples(st.text(max_size=8), st.text(max_size=8))),
)
_UNSEEN = st.builds(Unavailable, st.text(max_size=8), st.text(max_size=8))
_PARTS = st.dictionaries(st.text(max_size=8), _SEEN | _UNSEEN, max_size=3)
_LIVES = st.builds(Live, _PARTS, _PARTS, _PARTS)

LIVE = Live(
    control_planes={
        "eu": ClusterState(
            uid="u1",
            address=Address("https://cp.example:6443", "PEM"),
            objects={NAMESPACE: ({"metadata": {"name": "a"}},)},
            unserved=frozenset({CRD}),
            in_use={instances("shop.example", "databases"): 3},
            bodies={Ref("control-plane/eu", SECRET, "a", "b"): None},
        )
    },
    clusters={"shop": Unavailable("no connection", "Check it")},
)


@given(_LIVES)
def test_what_is_written_is_read(live: Live) -> None:
    assert parse_live(dump_live(live), "x") == live


@given(_LIVES)
def test_the_bytes_do_not_depend_on_order(live: Live) -> None:
    shuffled = Live(
        dict(reversed(list(live.control_planes.items()))),
        dict(reversed(list(live.clusters.items()))),
        dict(reversed(list(live.leaving.items()))),
    )
    assert dump_live(shuffled) == dump_live(live)


@given(st.binary(max_size=200) | _JSON.map(lambda value: json.dumps(value).encode()))
def test_garbage_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match="some-file"):
        parse_live(content, "some-file")


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    return [path, *(found for key, item in inner for found in _paths(item, (*path, key)))]


_DOCUMENT = json.loads(dump_live(LIVE))
_PLACES = [path for path in _paths(_DOCUMENT) if path and "items" not in path]


@given(st.sampled_from(_PLACES), _JSON | st.just("absent"))
def test_a_damaged_snapshot_is_read_or_refused(path: tuple[Any, ...], value: Any) -> None:
    document = json.loads(dump_live(LIVE))
    holder = document
    for step in path[:-1]:
        holder = holder[step]
    if value == "absent":
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    with contextlib.suppress(ConfigError):
        read = parse_live(json.dumps(document).encode(), "f")
        assert parse_live(dump_live(read), "f") == read


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    return functools.reduce(lambda value, step: value[step], path, document)


_EXACT = [path for path in _PLACES if isinstance(_at(_DOCUMENT, path), int)]


@pytest.mark.parametrize("path", _EXACT, ids=lambda path: "/".join(map(str, path)))
def test_a_number_or_flag_is_not_read_from_text_or_from_the_other(path: tuple[Any, ...]) -> None:
    value = _at(_DOCUMENT, path)
    for other in (str(value).lower(), int(value) if isinstance(value, bool) else bool(value)):
        document = copy.deepcopy(_DOCUMENT)
        _at(document, path[:-1])[path[-1]] = other
        with pytest.raises(ConfigError, match="must be"):
            parse_live(json.dumps(document).encode(), "f")


REFUSED: dict[str, bytes] = {
    "a plan file": b'{"format": "klutchctl.dev/plan"}',
    "a newer version": b'{"format": "klutchctl.dev/live", "version": 2}',
    "a number of text": b'{"format": "klutchctl.dev/live", "version": "1"}',
    "nothing inside": b'{"format": "klutchctl.dev/live", "version": 1}',
    "neither seen nor unseen": json.dumps(
        {
            "format": "klutchctl.dev/live",
            "version": 1,
            "controlPlanes": {"eu": {}},
            "clusters": {},
            "leaving": {},
        }
    ).encode(),
}


def test_what_is_wrong_is_said(refusals: Any) -> None:
    attempts = {name: partial(parse_live, content, "f") for name, content in REFUSED.items()}
    refusals("snapshots", attempts)
