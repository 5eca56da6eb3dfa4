"""Objects that are too large for a view: there, by name, and nothing that anybody can act on."""

from typing import Any

import pytest

from reconciler.core.errors import Oversized
from reconciler.core.manifest import Manifest, get_text, labels_of, stub_of, uid_of
from reconciler.core.refs import CONFIG_MAP, ObjectKey
from reconciler.kube.limits import Budget
from reconciler.kube.store import Store

DEEP: Any = {}
for _ in range(300):
    DEEP = {"a": DEEP}
SHAPES: dict[str, Any] = {
    "empty objects": [{}] * 2_000,
    "conditions": [{"type": f"T{n}", "status": "True"} for n in range(600)],
    "deep and long": [DEEP, "x" * 5_000],
}


def made(name: str, *, version: str = "1", **content: Any) -> Manifest:
    metadata = {"name": name, "namespace": "ns", "uid": "u", "resourceVersion": version}
    return {"kind": "ConfigMap", "metadata": {**metadata, "labels": {"team": "red"}}, **content}


def store(budget: Budget | None = None, **more: Any) -> Store:
    indexes = {"team": lambda live: [labels_of(live).get("team", "")]}
    budget = budget or Budget(object=60_000, total=100_000, small=1_000)
    return Store(CONFIG_MAP, indexes, cluster="c", budget=budget, **more)


@pytest.mark.parametrize("content", SHAPES.values(), ids=SHAPES)
def test_it_is_neither_absent_nor_empty_until_it_is_small(content: Any) -> None:
    view, small, reported = store(), made("a", data={"x": "1"}), list[ObjectKey]()
    view.put(small)
    view.put(made("b", spec=content))
    assert (
        view.keys() == [ObjectKey("ns", "a"), ObjectKey("ns", "b")] == view.keys_by("team", "red")
    )
    assert view.get("ns", "a") == small
    reads = (
        lambda: view.get("ns", "b"),
        lambda: view.by("team", "red"),
        lambda: view.inside("ns"),
        lambda: list(view.all()),
    )
    for read in reads:
        with pytest.raises(Oversized, match=r"c: get .*ns/b: .* too large") as why:
            read()
        assert (why.value.ref.name, uid_of(why.value.stub or {})) == ("b", "u")
    assert get_text(view.stub("ns", "b"), "metadata", "uid") == "u"
    assert view.stub("ns", "a") is view.stub("ns", "c") is None

    view.subscribe_keys(reported.append)
    reported.clear()
    for spec, notes in (({}, 1), (content, 2)):
        view.put(made("b", version=str(notes), spec=spec))
        assert len(reported) == notes
    view.remove(made("b"))
    assert view.get("ns", "b") is None


def test_only_what_is_no_view_of_metadata_has_stubs_and_a_trim_comes_first() -> None:
    view, partial = store(), store(partial=True)
    for one in (view, partial):
        one.put(stub_of(made("b")))
    with pytest.raises(Oversized):
        view.get("ns", "b")
    assert get_text(partial.get("ns", "b"), "metadata", "name") == "b"
    cut = store(trim=lambda live: {"kind": "ConfigMap", "metadata": live["metadata"]})
    cut.put(made("b", spec=SHAPES["conditions"]))
    assert get_text(cut.get("ns", "b"), "metadata", "name") == "b"


@pytest.mark.parametrize("listed", [False, True], ids=["in events", "in lists"])
def test_views_of_one_budget_hold_so_much_and_small_objects(*, listed: bool) -> None:
    budget = Budget(object=60_000, total=100_000, small=1_000)
    view, other, long = store(budget), store(budget), "x" * 30_000
    other.put(made("n", data={"long": long}))
    many = [made(f"n{n}", data={"long": long}) for n in range(9)]
    many.append(made("small", data={"x": "1"}))
    if listed:
        for _ in range(2):
            view.take_over(view.pack(many[5:], view.pack(many[:5], {})))
    else:
        for one in many:
            view.put(one)
    assert [n for n in view.names("ns") if view.stub("ns", n) is None] == ["n0", "n1", "small"]
    del other
    view.put(made("n8", version="2", data={"long": long}))
    assert view.stub("ns", "n8") is None, "what went makes room"


def test_what_a_server_has_is_wide_whatever_a_view_keeps_of_it() -> None:
    view = store(Budget(), trim=lambda live: {**live, "spec": None})
    for one in (made("a", spec=[{}] * 40_000), made("b"), stub_of(made("c"))):
        view.put(one)
    keys = [ObjectKey("ns", name) for name in "abcd"]
    assert [view.is_wide(key) for key in keys] == [True, False, True, False]
    view.put(made("a", version="2"))
    assert not view.is_wide(keys[0])
