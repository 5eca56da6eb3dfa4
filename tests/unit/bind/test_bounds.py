"""What bounds a space: which Namespace is one, what may be counted, what is written."""

from datetime import UTC, datetime, timedelta

import pytest

from bind.bounds import (
    IN_SPACE,
    Countable,
    countable,
    hard,
    is_space,
    pod_security,
    quota,
)
from reconciler.core import keys
from reconciler.core.decision import Create, Patch
from reconciler.core.times import format_time

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
OWNER = keys.app_cluster_binding_labels("team-a", "shop")


def crd(**age):
    return {"metadata": {"creationTimestamp": format_time(NOW - timedelta(**age))}}


def namespace(name, *, annotations=None, labels=None):
    metadata = {"name": name, "uid": "u", "annotations": annotations or {}, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def bound(**labels):
    return {"metadata": {"labels": labels}}


SPACES = {
    "by its identity": (namespace("x", annotations={keys.IDENTITY: "a#b"}), bound(), True),
    "by its name": (namespace("klutch-bind-team-a-shop"), bound(**OWNER), True),
    "another name": (namespace("kube-system"), bound(**OWNER), False),
    "nothing says so": (namespace("kube-system"), bound(), False),
}


@pytest.mark.parametrize(("live", "binding", "want"), SPACES.values(), ids=SPACES)
def test_which_namespace_is_a_space(live, binding, want):
    assert is_space(live, binding) is want


def test_pod_security_is_said_once_and_never_changed():
    (step,) = pod_security("cp", namespace("x"))
    assert isinstance(step, Patch)
    said = namespace("x", labels={keys.POD_SECURITY_ENFORCE: "baseline"})
    assert pod_security("cp", said) == ()


COUNTED = {
    "built in": (["secrets", "configmaps"], {}, {"secrets", "configmaps"}, None),
    "an old kind": (["a.b"], {"a.b": crd(minutes=2)}, {"a.b"}, None),
    "a new kind": (["a.b", "secrets"], {"a.b": crd(seconds=30)}, {"secrets"}, 90),
    "an unknown kind": (["a.b"], {}, set(), None),
    "a name that a quota cannot hold": (["a" * 64], {"a" * 64: crd(days=1)}, set(), None),
}


@pytest.mark.parametrize(("resources", "crds", "want", "again"), COUNTED.values(), ids=COUNTED)
def test_what_may_be_counted(resources, crds, want, again):
    found = countable(resources, crds, NOW)
    assert found.resources == want
    assert found.again == (None if again is None else timedelta(seconds=again))


def test_no_number_is_no_quota():
    assert hard(0, Countable(frozenset(IN_SPACE))) == {}
    assert quota("cp", None, "x", {}) == ()


def live_quota(**hard_):
    metadata = {"name": "klutch-bind", "namespace": "x", "uid": "u", "resourceVersion": "1"}
    spec = {"hard": hard_}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}


WANTED = {"count/secrets": 5000}


def test_a_quota_is_made():
    (step,) = quota("cp", None, "x", WANTED)
    assert isinstance(step, Create)
    assert step.manifest["spec"] == {"hard": {"count/secrets": "5000"}}


WRITES = {
    "as a server writes it": ({"count/secrets": "5k"}, 0),
    "with what others count": ({"count/secrets": "5k", "pods": "0"}, 0),
    "another number": ({"count/secrets": "4"}, 1),
    "no number": ({"count/secrets": "many"}, 1),
    "none": ({}, 1),
}


@pytest.mark.parametrize(("held", "writes"), WRITES.values(), ids=WRITES)
def test_a_quota_is_repaired(held, writes):
    steps = quota("cp", live_quota(**held), "x", WANTED)
    assert len(steps) == writes
