"""What of an object goes to the other side (D.2, D.4, E.2, H5, H12)."""

from typing import Any

import pytest

from konnector.decisions import copies
from reconciler.core.refs import Kind, ObjectKey

KIND = Kind("shop.example", "v1", "Database", "databases")
STAYS = [
    "klutch.anynines.com/bound",
    "klutch.anynines.com/resource-owner",
    "klutchctl.dev/released",
    "kubectl.kubernetes.io/last-applied-configuration",
    "argocd.argoproj.io/tracking-id",
    "argocd.argoproj.io/instance",
    "helm.sh/chart",
    "meta.helm.sh/release-name",
    "kustomize.toolkit.fluxcd.io/name",
    "helm.toolkit.fluxcd.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "objectset.rio.cattle.io/hash",
    "applyset.kubernetes.io/part-of",
]
TRAVELS = ["team", "note.example/owner", "app.kubernetes.io/name", "crossplane.io/external-name"]


@pytest.mark.parametrize("key", STAYS)
def test_what_tools_and_konnectors_write_stays(key):
    assert not copies.travels(key)


@pytest.mark.parametrize("key", TRAVELS)
def test_all_else_travels(key):
    assert copies.travels(key)


LIVE: Any = {
    "apiVersion": "shop.example/v1beta1",
    "kind": "Database",
    "metadata": {
        "name": "orders",
        "namespace": "dev",
        "uid": "u",
        "resourceVersion": "7",
        "generation": 3,
        "creationTimestamp": "2026-06-01T12:00:00Z",
        "deletionTimestamp": "2026-06-01T12:00:00Z",
        "deletionGracePeriodSeconds": 0,
        "generateName": "orders-",
        "selfLink": "/x",
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
    assert copies.moved(LIVE, KIND, ObjectKey("sns", "other"), marks) == {
        "apiVersion": "shop.example/v1",
        "kind": "Database",
        "metadata": {
            "name": "other",
            "namespace": "sns",
            "labels": {"team": "x"},
            "annotations": {"team": "x", **marks},
        },
        "spec": {"size": "1Gi"},
        "data": {"a": "b"},
        "immutable": True,
    }


def test_moved_to_no_namespace_and_without_labels():
    bare = {"metadata": {"name": "a"}}
    assert copies.moved(bare, KIND, ObjectKey("", "b"), {}) == {
        "apiVersion": "shop.example/v1",
        "kind": "Database",
        "metadata": {"name": "b", "annotations": {}},
    }


@pytest.mark.parametrize(
    ("annotations", "managed"),
    [
        ({}, False),
        ({"klutch.anynines.com/bound": ""}, True),
        ({"klutch.anynines.com/x": ""}, False),
    ],
)
def test_the_mark_counts_whatever_its_value(annotations, managed):
    assert copies.is_managed({"metadata": {"annotations": annotations}}) is managed


def test_owner_of():
    owned = {"metadata": {"annotations": {"klutch.anynines.com/resource-owner": "Consumer"}}}
    assert copies.owner_of(owned) == "Consumer"
    assert copies.owner_of({}) == copies.owner_of(None) == ""
