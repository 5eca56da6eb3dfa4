"""CRDs that were found established are not read again while they are the same objects."""

import pytest

from reconciler.core.live import Address, ClusterState, Live, Unavailable
from reconciler.core.refs import CRD
from reconciler.health.survey import KeptDefinitions

NAME = "databases.shop.example"


def crd(status="True", uid="u1", **metadata):
    return {
        "metadata": {"name": NAME, "uid": uid, **metadata},
        "spec": {"versions": ["long"]},
        "status": {"conditions": [{"type": "Established", "status": status}]},
    }


def seen(*crds):
    bare = [{"metadata": one["metadata"]} for one in crds]
    return Live({}, {"shop": ClusterState("", Address("", ""), {CRD: bare})})


KEPT = {
    "the same one": (crd(), seen(crd()), True),
    "not established when it was read": (crd(status="False"), seen(crd()), False),
    "absent when it was read": (None, seen(crd()), False),
    "another one of its name": (crd(), seen(crd(uid="u2")), False),
    "gone": (crd(), seen(), False),
    "being deleted": (crd(), seen(crd(deletionTimestamp="2026-11-26T00:00:00Z")), False),
    "a cluster that was not read": (crd(), Live({}, {"shop": Unavailable("")}), False),
}


@pytest.mark.parametrize(("read", "live", "want"), KEPT.values(), ids=KEPT.keys())
def test_what_is_not_read_again(read, live, want):
    kept = KeptDefinitions()
    kept.keep("shop", {NAME: read})
    assert (NAME in kept.of("shop", live)) is want


def test_little_is_kept_of_each():
    kept = KeptDefinitions()
    kept.keep("shop", {NAME: crd()})
    assert kept.of("shop", seen(crd()))[NAME].keys() == {"metadata", "status"}
