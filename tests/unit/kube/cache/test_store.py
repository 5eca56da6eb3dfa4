"""What the store finds, whom each change wakes, and what it keeps of an object."""

import gc
import tracemalloc
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.manifest import get_text, identity_of, labels_of
from reconciler.core.refs import CONFIG_MAP, ObjectKey
from reconciler.kube import store as store_module
from reconciler.kube.limits import Budget
from reconciler.kube.store import Store

FIELDS = [{"manager": "tests", "operation": "Update", "fieldsV1": {"f:data": {}}}]


def made(name, team="", *, version="1", namespace="ns", uid="u", **more):
    labels = {"labels": {"team": team}} if team else {}
    identity = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": version}
    return {"kind": "ConfigMap", "metadata": identity | labels, **more}


def replace(store, manifests):
    store.take_over(store.pack(manifests, {}))


def teams(manifest):
    """Return the values of a label that may name several teams."""
    return labels_of(manifest).get("team", "").split()


def names(manifest):
    return [get_text(manifest, "metadata", "name")]


@dataclass
class Watched:
    """A store whose woken values are noted."""

    store: Store = field(
        default_factory=lambda: Store(CONFIG_MAP, indexes={"team": teams, "name": names})
    )
    woken: list[str] = field(default_factory=list)

    def __post_init__(self):
        self.store.subscribe("team", self.woken.append)

    def woken_by(self, change):
        self.woken.clear()
        change(self.store)
        return self.woken


@pytest.fixture
def watched():
    made_up = Watched()
    for manifest in (made("a", "red"), made("b", "red blue", version="2"), made("c", version="3")):
        made_up.store.put(manifest)
    return made_up


def found(store, team):
    return [get_text(one, "metadata", "name") for one in store.by("team", team)]


WAKES = {
    "a new object wakes what it concerns": (lambda s: s.put(made("d", "red blue")), "red blue"),
    "a new object without a value wakes nobody": (lambda s: s.put(made("d")), ""),
    "a changed object wakes its value once": (
        lambda s: s.put(made("a", "red", version="9")),
        "red",
    ),
    "an object that moves wakes both values": (
        lambda s: s.put(made("a", "blue", version="9")),
        "red blue",
    ),
    "an object that loses its value wakes it": (lambda s: s.put(made("a", version="9")), "red"),
    "an object that stays in one of two wakes both": (
        lambda s: s.put(made("b", "blue", version="9")),
        "red blue",
    ),
    "a deleted object wakes what it concerned": (
        lambda s: s.remove(made("b", "green")),
        "red blue",
    ),
    "the deletion of what is not there wakes nobody": (lambda s: s.remove(made("d", "red")), ""),
    "the same resourceVersion wakes nobody": (lambda s: s.put(made("a", "red")), ""),
    "the same resourceVersion, less pruned": (lambda s: s.put(made("a", "red", data=1)), "red"),
    "the order of fields is no change": (
        lambda s: s.put(dict(reversed(made("a", "red").items()))),
        "",
    ),
    "another uid is a change, also under one resourceVersion": (
        lambda s: s.put(made("a", "red", uid="other")),
        "red",
    ),
    "a value that an index gives twice is woken once": (lambda s: s.put(made("d", "x x")), "x"),
    "an equal list wakes nobody": (
        lambda s: replace(
            s, [made("c", version="3"), made("a", "red"), made("b", "red blue", version="2")]
        ),
        "",
    ),
    "an empty list wakes what every object concerned": (lambda s: replace(s, []), "red red blue"),
    "a list that misses one object deletes it": (
        lambda s: replace(s, [made("c", version="3"), made("a", "red")]),
        "red blue",
    ),
    "a list tells deletions, then the rest in its order": (
        lambda s: replace(s, [made("e", "green"), made("a", "blue", version="9")]),
        "red blue green red blue",
    ),
}


@pytest.mark.parametrize(("change", "woken"), WAKES.values(), ids=WAKES.keys())
def test_who_is_woken(watched, change, woken):
    assert watched.woken_by(change) == woken.split()


def test_a_late_subscriber_is_woken_for_what_is_there(watched):
    woken: list[str] = []
    watched.store.subscribe("team", woken.append)
    assert woken == ["red", "blue"]


def test_each_subscriber_hears_of_its_index_alone(watched):
    heard: list[str] = []
    watched.store.subscribe("name", heard.append)
    heard.clear()
    assert watched.woken_by(lambda s: s.put(made("c", "blue", version="9"))) == ["blue"]
    assert heard == ["c"]


def test_a_subscriber_to_keys_hears_of_each_change_of_an_object(watched):
    heard: list[ObjectKey] = []
    store = watched.store
    store.subscribe_keys(heard.append)
    assert heard == store.keys()
    heard.clear()
    store.put(made("c", version="3"))  # as it is
    store.remove(made("never"))
    assert heard == []
    replace(store, [made("c", version="4"), made("d", "red")])
    assert [key.name for key in heard] == ["a", "b", "c", "d"]


def test_an_observer_of_a_list_sees_all_of_it(watched):
    seen = []
    watched.store.subscribe("team", lambda _: seen.append(watched.store.keys()))
    seen.clear()
    replace(watched.store, [made("a", "blue", version="9"), made("e", "red")])
    assert len(seen) == 5
    assert all(keys == [("ns", "a"), ("ns", "e")] for keys in seen)


def test_what_is_found(watched):
    store = watched.store
    store.put(made("a", "red", namespace="far"))
    store.put(made("z", "red", namespace=""))
    assert store.keys() == [("", "z"), ("far", "a"), ("ns", "a"), ("ns", "b"), ("ns", "c")]
    assert [ObjectKey(*identity_of(one)) for one in store.all()] == store.keys()
    assert [identity_of(one) for one in store.by("team", "red")] == [
        ("", "z"),
        ("far", "a"),
        ("ns", "a"),
        ("ns", "b"),
    ]
    assert [identity_of(one)[1] for one in store.inside("ns")] == ["a", "b", "c"]
    assert len(store) == 5
    assert store.get("ns", "c") == made("c", version="3")


def test_what_is_not_found(watched):
    store = watched.store
    assert store.get("ns", "d") is store.get("far", "a") is None
    assert store.inside("far") == store.by("team", "green") == []
    with pytest.raises(KeyError):
        store.by("no such index", "red")


def test_values_are_counted_as_often_as_objects_have_them(watched):
    store = watched.store
    assert store.count("team") == 3
    store.put(made("d", "green red", version="9"))
    assert store.count("team") == 5
    store.remove(made("d"))
    assert (store.count("team"), sorted(store.values("team"))) == (3, ["blue", "red"])


def test_indexes_follow_moves_and_deletions(watched):
    store = watched.store
    store.put(made("a", "blue", version="9"))
    assert (found(store, "red"), found(store, "blue")) == (["b"], ["a", "b"])
    store.remove(made("b"))
    assert (found(store, "red"), found(store, "blue")) == ([], ["a"])
    replace(store, [])
    assert (found(store, "red"), found(store, "blue"), len(store)) == ([], [], 0)


def test_managed_fields_are_dropped_and_the_given_object_is_left_alone(watched):
    given_one = made("d", "red")
    given_one["metadata"]["managedFields"] = FIELDS
    watched.store.put(given_one)
    assert given_one["metadata"]["managedFields"] == FIELDS
    assert watched.store.get("ns", "d") == made("d", "red")


def test_what_is_read_is_not_what_is_kept(watched):
    read: Any = watched.store.get("ns", "a")
    read["metadata"]["labels"]["team"] = "spoilt"
    assert watched.store.get("ns", "a") == made("a", "red")


NAMELESS = {
    "no metadata": {"kind": "ConfigMap"},
    "metadata that is a text": {"metadata": "x"},
    "an empty name": {"metadata": {"name": ""}},
    "a name that is a number": {"metadata": {"name": 1}},
}


@pytest.mark.parametrize("manifest", NAMELESS.values(), ids=NAMELESS.keys())
def test_an_object_without_a_name_changes_nothing(watched, manifest):
    store, before = watched.store, watched.store.keys()
    for change in (store.put, store.remove, lambda one: replace(store, [made("new"), one])):
        with pytest.raises(ValueError, match="without a name"):
            change(manifest)
    assert store.keys() == before


def test_objects_deeper_than_orjson_writes_are_kept():
    deep = orjson.loads('{"a":' * 300 + "1" + "}" * 300)
    store = Store(CONFIG_MAP)
    store.put(made("a", data=deep))
    assert store.get("ns", "a") == made("a", data=deep)
    store.put(made("a", data=deep["a"]))
    assert store.get("ns", "a") == made("a", data=deep)  # the same resourceVersion
    store.put(made("a", data=deep["a"], version="2"))
    assert store.get("ns", "a") == made("a", data=deep["a"], version="2")


@pytest.mark.parametrize(("length", "most"), [(1_500, 500), (10_000, 11_000)])
def test_an_object_takes_little_more_than_its_text_or_its_difference(length, most, monkeypatch):
    monkeypatch.setattr(store_module, "_HOT", 10)
    objects = [made(f"item-{number}", "red", data={"a": "x" * length}) for number in range(500)]
    store = Store(CONFIG_MAP, indexes={"team": teams}, budget=Budget())
    gc.collect()
    tracemalloc.start()
    for one in objects:
        store.put(one)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held / len(objects) < most
    assert [*store.all()] == sorted(objects, key=identity_of)


def test_repr_holds_no_secret(watched):
    watched.store.put(made("d", data={"password": "hunter2"}))
    assert "hunter2" not in repr(watched.store)


# Laws

NAMES = st.sampled_from("abcd")
TEAMS = st.lists(st.sampled_from(["red", "blue", "green"]), max_size=2).map(" ".join)
CHANGES = st.one_of(
    st.tuples(st.just("put"), NAMES, TEAMS),
    st.tuples(st.just("remove"), NAMES, st.just("")),
    st.tuples(st.just("replace"), st.dictionaries(NAMES, TEAMS), st.just("")),
)


@given(st.lists(CHANGES, max_size=12))
def test_consumers_that_read_when_woken_know_the_end(changes):
    """The law that controllers rest on: whoever reads what it was woken for is up to date."""
    store, last = Store(CONFIG_MAP, indexes={"team": teams, "name": names}), {}
    pending: set[tuple[str, str]] = set()
    for index in ("team", "name"):
        store.subscribe(index, partial(lambda *key: pending.add(key), index))
    model: dict[str, str] = {}
    for number, (what, which, team) in enumerate(changes):
        if what == "put":
            model[which] = team
            store.put(made(which, team, version=str(number)))
        elif what == "remove":
            model.pop(which, None)
            store.remove(made(which))
        else:
            model = dict(which)
            replace(store, [made(n, t, version=str(number)) for n, t in which.items()])
        for key in pending:
            last[key] = store.by(*key)
        pending.clear()
        assert {names(one)[0]: " ".join(teams(one)) for one in store.all()} == model
    for team in ("red", "blue", "green"):
        expected = [name for name in sorted(model) if team in model[name].split()]
        assert found(store, team) == expected
        assert last.get(("team", team), []) == store.by("team", team)
    for name in "abcd":
        assert last.get(("name", name), []) == store.by("name", name)
