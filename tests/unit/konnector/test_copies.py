"""Where a copy is, and what of an object goes to the other side (D, E.2, G 28-32, H3, H5, H12)."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konnector.claim import copies
from konnector.claim.copies import Pair
from reconciler.core.refs import Kind, ObjectKey

KIND = Kind("shop.example", "v1", "Database", "databases")
STAYS = [
    "klutch.anynines.com/bound",
    "klutchctl.dev/released",
    "kubectl.kubernetes.io/last-applied-configuration",
    "argocd.argoproj.io/tracking-id",
    "helm.sh/chart",
    "meta.helm.sh/release-name",
    "kustomize.toolkit.fluxcd.io/name",
    "helm.toolkit.fluxcd.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "objectset.rio.cattle.io/hash",
    "applyset.kubernetes.io/part-of",
]
DESCRIBES = ["app.kubernetes.io/name", "app.kubernetes.io/part-of", "servicebinding.io/provider"]
# What may be an order to a program of the other side goes along only where it is named.
ORDERS = [
    "team",
    "note.example/owner",
    "crossplane.io/external-name",
    "reflector.v1.k8s.emberstack.com/reflection-auto-enabled",
    "servicebinding.io",
]


@pytest.mark.parametrize("key", STAYS)
def test_what_tools_and_konnectors_write_stays(key):
    assert not copies.travels(key)
    assert not copies.travels(key, {"*", key})
    assert not copies.goes_up("labels", key, {"*", key})
    assert not copies.is_left("labels", key, {"*", key})


@pytest.mark.parametrize("key", DESCRIBES)
def test_what_describes_travels(key):
    assert copies.travels(key)


@pytest.mark.parametrize("key", ORDERS)
def test_all_else_travels_where_it_is_named(key):
    assert not copies.travels(key)
    assert copies.is_left("annotations", key)
    assert copies.goes_up("labels", key) is ("/" not in key)
    for named in (key, "*", f"{key[:4]}*", f"other, {key} ,"):
        more = copies.carried({"metadata": {"annotations": {"klutchctl.dev/carries": named}}})
        assert copies.travels(key, more)
        assert not copies.is_left("annotations", key, more)
    assert not copies.travels(key, {key[:-1], f"{key}x*"})


def test_a_wish_to_a_broker_travels_where_it_is_named_and_short():
    retry = "klutchctl.dev/osb-retry"
    for named, text, goes in ((retry, "1", True), (retry, "x" * 64, False), ("*", "1", False)):
        live = {"metadata": {"annotations": {retry: text, "klutchctl.dev/orphaned": "1"}}}
        found = copies.travelling("annotations", live, frozenset({named}))
        assert found == ({retry: text} if goes else {})


WRITTEN_BY = [
    ("konnector", "", True),
    ("kubectl", "", False),
    ("operator", "status", True),
]


@pytest.mark.parametrize(("manager", "subresource", "provided"), WRITTEN_BY)
def test_an_instance_is_the_developers_once_a_developer_wrote_it(manager, subresource, provided):
    entries = [
        {"manager": "klutch.anynines.com", "fieldsV1": {"f:spec": {}}},
        {"manager": manager, "subresource": subresource, "fieldsV1": {"f:spec": {}}},
    ]
    live: Any = {"metadata": {"name": "orders", "managedFields": entries}}
    assert copies.is_providers(copies.trimmed_claim(live)) is provided


def test_an_instance_of_which_nobody_knows_who_wrote_it_is_the_developers():
    live = {"metadata": {"name": "orders"}}
    assert copies.trimmed_claim(live) == live
    assert not copies.is_providers(live)


LIVE: Any = {
    "apiVersion": "shop.example/v1beta1",
    "kind": "Database",
    "metadata": {
        "name": "orders",
        "namespace": "dev",
        **dict.fromkeys(("uid", "resourceVersion", "generateName", "selfLink"), "x"),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), "2026-06-01T12:00:00Z"),
        **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), 3),
        "labels": dict.fromkeys((*STAYS, "team"), "x"),
        "annotations": dict.fromkeys((*STAYS, "team"), "x"),
        "ownerReferences": [{"name": "x"}],
        "finalizers": ["x.example/x"],
        "managedFields": [{"manager": "x"}],
    },
    "spec": {"size": "1Gi"},
    "status": {"phase": "Ready"},
    "data": {"a": "b"},
    "immutable": True,
}


def test_moved():
    marks = {"klutch.anynines.com/bound": "true"}
    metadata = {"name": "other", "namespace": "sns", "labels": {"team": "x"}}
    assert copies.moved(LIVE, KIND, ObjectKey("sns", "other"), marks, {"team"}) == {
        "apiVersion": "shop.example/v1",
        "kind": "Database",
        "metadata": {**metadata, "annotations": {"team": "x", **marks}},
        "spec": {"size": "1Gi"},
        "data": {"a": "b"},
        "immutable": True,
    }


def test_moved_to_no_namespace_and_without_labels():
    made = {"name": "b", "annotations": {}}
    found = copies.moved({"metadata": {"name": "a"}}, KIND, ObjectKey("", "b"), {})
    assert found == {"apiVersion": "shop.example/v1", "kind": "Database", "metadata": made}


FOO = Kind("bar.io", "v1alpha1", "Foo", "foos", namespaced=False)
WIDE = Pair(FOO, "kube-bind-zlp9m", "uid", has_status=True)
INSIDE = Pair(KIND, "kube-bind-zlp9m", "uid", has_status=True)
SPACE = "klutch.anynines.com/cluster-namespace"


def named(name, space=None, uid="uid"):
    owners = [{"kind": "Namespace", "uid": uid}, {"kind": "Stack", "uid": "uid"}]
    marks = {"annotations": {SPACE: space}, "ownerReferences": owners if uid else owners[1:]}
    return {"metadata": {"name": name, **(marks if space else {})}}


def test_a_cluster_scoped_copy_bears_the_name_of_its_space():
    copy = ObjectKey("", "kube-bind-zlp9m-example-foo")
    assert WIDE.prefixed("example-foo") == copy
    assert WIDE.claim_of(named(copy.name, "kube-bind-zlp9m")) == ObjectKey("", "example-foo")


NOT_OURS = {
    "without the annotation (G 31)": named("kube-bind-zlp9m-foo"),
    "of a space whose name begins alike (H3)": named("kube-bind-zlp9m-2-foo", "kube-bind-zlp9m-2"),
    "without the prefix": named("foo", "kube-bind-zlp9m"),
    "with nothing but the prefix": named("kube-bind-zlp9m-", "kube-bind-zlp9m"),
    "with the space's very name": named("kube-bind-zlp9m", "kube-bind-zlp9m"),
    "of a former space of its name (S1)": named("kube-bind-zlp9m-foo", "kube-bind-zlp9m", "former"),
    "of no space that is known": named("kube-bind-zlp9m-foo", "kube-bind-zlp9m", ""),
}


@pytest.mark.parametrize("copy", NOT_OURS.values(), ids=NOT_OURS.keys())
def test_what_is_no_copy_of_ours(copy):
    assert WIDE.claim_of(copy) is None
    assert not WIDE.is_copy_of(copy, ObjectKey("", "foo"))


@pytest.mark.parametrize("pair", [INSIDE, WIDE], ids=["namespaced", "cluster-scoped"])
def test_what_the_provider_keeps_for_itself_is_nobodys_copy(pair):
    copy, claim = named("kube-bind-zlp9m-orders", "kube-bind-zlp9m"), ObjectKey("", "orders")
    notes = copy["metadata"]["annotations"]
    assert pair.is_copy_of(copy, claim)
    notes["klutchctl.dev/adopt"] = "false"
    assert not pair.is_copy_of(copy, claim)
    notes["klutch.anynines.com/bound"] = "true"  # it is one already
    assert pair.is_copy_of(copy, claim)


@pytest.mark.parametrize("pair", [INSIDE, WIDE], ids=["namespaced", "cluster-scoped"])
def test_a_part_of_a_service_is_nobodys_copy(pair):
    copy, claim = named("kube-bind-zlp9m-orders", "kube-bind-zlp9m"), ObjectKey("", "orders")
    assert pair.is_copy_of(copy, claim)
    copy["metadata"]["ownerReferences"].append({"kind": "Stack", "controller": True})
    assert not pair.is_copy_of(copy, claim)
    assert replace(pair, adopts_controlled=True).is_copy_of(copy, claim)
    copy["metadata"]["annotations"]["klutch.anynines.com/bound"] = "true"  # adopted before
    assert pair.is_copy_of(copy, claim)


def test_marks_and_owners():
    assert INSIDE.marks == {"klutch.anynines.com/bound": "true"}
    assert INSIDE.owners == []
    space = {SPACE: "kube-bind-zlp9m", "klutchctl.dev/space-uid": "uid"}
    assert WIDE.marks == {"klutch.anynines.com/bound": "true", **space}
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": "kube-bind-zlp9m", "uid": "uid"}
    assert WIDE.owners == [owner]


words = st.text("ab-", min_size=1, max_size=6)


@given(words, words, words)
def test_a_copy_belongs_to_one_claim_of_one_space(space, other, name):
    one = Pair(FOO, space, "uid", has_status=True)
    two = Pair(FOO, other, "uid", has_status=True)
    copy = named(one.prefixed(name).name, space)
    assert one.claim_of(copy) == ObjectKey("", name)
    assert space == other or two.claim_of(copy) is None
