"""Where a copy is, and whose it is (protocol-konnector.md D, G 28-32, H3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konnector.claim.copies import Pair
from reconciler.core.refs import Kind, ObjectKey

FOO = Kind("bar.io", "v1alpha1", "Foo", "foos", namespaced=False)
DATABASE = Kind("shop.example", "v1", "Database", "databases")
WIDE = Pair(FOO, "kube-bind-zlp9m", "uid", has_status=True)
INSIDE = Pair(DATABASE, "kube-bind-zlp9m", "uid", has_status=True)
SPACE = "klutch.anynines.com/cluster-namespace"


def named(name, space=None):
    annotations = {} if space is None else {"annotations": {SPACE: space}}
    return {"metadata": {"name": name, **annotations}}


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
}


@pytest.mark.parametrize("copy", NOT_OURS.values(), ids=NOT_OURS.keys())
def test_what_is_no_copy_of_ours(copy):
    assert WIDE.claim_of(copy) is None
    assert not WIDE.is_copy_of(copy, ObjectKey("", "foo"))


def test_in_a_service_namespace_every_object_is_a_copy_or_becomes_one():
    assert INSIDE.is_copy_of(named("orders"), ObjectKey("dev", "orders"))


@pytest.mark.parametrize("pair", [INSIDE, WIDE], ids=["namespaced", "cluster-scoped"])
def test_what_the_provider_keeps_for_itself_is_nobodys_copy(pair):
    copy, claim = named("kube-bind-zlp9m-orders", "kube-bind-zlp9m"), ObjectKey("", "orders")
    notes = copy["metadata"]["annotations"]
    assert pair.is_copy_of(copy, claim)
    notes["klutchctl.dev/adopt"] = "false"
    assert not pair.is_copy_of(copy, claim)
    notes["klutch.anynines.com/bound"] = "true"  # it is one already
    assert pair.is_copy_of(copy, claim)


def test_marks_and_owners():
    assert INSIDE.marks == {"klutch.anynines.com/bound": "true"}
    assert INSIDE.owners == []
    assert WIDE.marks == {"klutch.anynines.com/bound": "true", SPACE: "kube-bind-zlp9m"}
    assert WIDE.owners == [
        {"apiVersion": "v1", "kind": "Namespace", "name": "kube-bind-zlp9m", "uid": "uid"}
    ]


words = st.text("ab-", min_size=1, max_size=6)


@given(words, words, words)
def test_a_copy_belongs_to_one_claim_of_one_space(space, other, name):
    one = Pair(FOO, space, "uid", has_status=True)
    two = Pair(FOO, other, "uid", has_status=True)
    copy = named(one.prefixed(name).name, space)
    assert one.claim_of(copy) == ObjectKey("", name)
    assert space == other or two.claim_of(copy) is None
