"""What a process wrote counts until its view has come as far."""

from typing import Any, cast

import pytest

from reconciler.core.manifest import is_deleting
from reconciler.core.refs import CONFIG_MAP
from reconciler.kube.informer import Informer, ReadYourWrites
from reconciler.kube.store import Store


class View:
    """An informer without a cluster: the test says how far it has come."""

    def __init__(self):
        self.store, self.version, self.history = Store(CONFIG_MAP), 0, 1

    def has_seen(self, version):
        return int(version) <= self.version

    def shows(self, version, *manifests):
        """Show these objects and no others, as of a resourceVersion."""
        self.store.take_over(self.store.pack(manifests, {}))
        self.version = version


def made(version, **metadata) -> Any:
    place = {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": str(version)}
    return {"kind": "ConfigMap", "metadata": {**place, **metadata}}


GONE = "2026-06-01T12:00:00Z"


@pytest.fixture
def view():
    return View()


@pytest.fixture
def recent(view):
    return ReadYourWrites(cast("Informer", view))


def test_without_writes_the_view_counts(view, recent):
    assert recent.get("ns", "a") is None
    view.shows(3, made(3))
    assert recent.get("ns", "a") == made(3)


def test_an_answer_counts_until_the_view_shows_it_or_later(view, recent):
    view.shows(3, made(3))
    recent.wrote(made(5))
    assert recent.get("ns", "a") == made(5)
    view.shows(4, made(4))
    assert recent.get("ns", "a") == made(5)
    view.shows(6, made(6))
    assert recent.get("ns", "a") == made(6)


def test_what_was_created_and_then_deleted_by_others_is_gone(view, recent):
    recent.wrote(made(5))
    assert recent.get("ns", "a") == made(5)
    view.shows(7)
    assert recent.get("ns", "a") is None


def test_the_last_of_several_answers_counts(view, recent):
    recent.wrote(made(5))
    recent.wrote(made(6))
    view.shows(5, made(5))
    assert recent.get("ns", "a") == made(6)


def test_other_objects_do_not_matter(view, recent):
    view.shows(3, made(3))
    recent.wrote({"kind": "ConfigMap", "metadata": {**made(5)["metadata"], "name": "b"}})
    assert recent.get("ns", "a") == made(3)


def test_the_last_finalizer_that_goes_ends_the_object(view, recent):
    view.shows(3, made(3, deletionTimestamp=GONE, finalizers=["x/x"]))
    recent.wrote(made(5, deletionTimestamp=GONE))
    assert recent.get("ns", "a") is None


def test_one_that_others_hold_goes_on(recent):
    held = made(5, deletionTimestamp=GONE, finalizers=["y/y"])
    recent.wrote(held)
    assert recent.get("ns", "a") == held


def test_a_deletion_that_was_accepted_is_seen_at_once(view, recent):
    view.shows(3, made(3))
    recent.deleted("ns", "a", "3")
    assert is_deleting(recent.get("ns", "a"))
    view.shows(5)
    assert recent.get("ns", "a") is None


def test_one_that_came_again_is_not_being_deleted(view, recent):
    view.shows(3, made(3))
    recent.deleted("ns", "a", "3")
    view.shows(6, made(6, uid="v"))
    assert recent.get("ns", "a") == made(6, uid="v")
    view.shows(7, made(3))
    assert recent.get("ns", "a") == made(3)
    recent.deleted("ns", "a", "3")
    view.history += 1  # by a restore
    assert recent.get("ns", "a") == made(3)


def test_a_deletion_after_a_write(view, recent):
    view.shows(3, made(3))
    recent.wrote(made(5))
    recent.deleted("ns", "a", "5")
    assert is_deleting(recent.get("ns", "a"))
    view.shows(6, made(6, deletionTimestamp=GONE, finalizers=["x/x"]))
    assert recent.get("ns", "a") == made(6, deletionTimestamp=GONE, finalizers=["x/x"])
