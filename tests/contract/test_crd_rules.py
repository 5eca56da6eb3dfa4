"""What the CRDs refuse and what they accept, on a real kube-apiserver (protocol-bind A)."""

import re

import pytest

from reconciler.api import (
    API_SERVICE_BINDING,
    API_SERVICE_EXPORT,
    API_SERVICE_EXPORT_REQUEST,
    API_SERVICE_EXPORT_TEMPLATE,
    APP_CLUSTER_BINDING,
    CLUSTER_BINDING,
)
from reconciler.core.errors import Rejected
from reconciler.core.manifest import name_of
from tests.support.wire_objects import CLAIM, DATABASES, SECRET, VERSION, WireObjects, name_of_the


@pytest.fixture
def objects(control_plane, namespace):
    return WireObjects(control_plane.name, control_plane.cluster, namespace)


# New objects

CLUSTER_SCOPED = {"scope": "Cluster", "informerScope": "Cluster"}
ISOLATED = CLUSTER_SCOPED | {"clusterScopedIsolation": "Prefixed"}


def claims(**change):
    return {"spec": {"permissionClaims": [CLAIM | change]}}


def versions(*changes):
    return {"spec": {"versions": [VERSION | change for change in changes]}}


EXCLUSIVE = "donate and adopt are mutually exclusive"
BOTH = {"autoAdopt": True, "autoDonate": True}
REFUSED = {
    "a ClusterBinding under another name": (
        CLUSTER_BINDING,
        {"name": "x"},
        "cluster binding name should be cluster",
    ),
    "a nameless provider": (CLUSTER_BINDING, {"spec": {"providerPrettyName": ""}}, "at least 1"),
    "another key of the Secret": (
        CLUSTER_BINDING,
        {"spec": {"kubeconfigSecretRef": {"name": "x", "key": "value"}}},
        'supported values: "kubeconfig"',
    ),
    "an export under another name than its CRD": (
        API_SERVICE_EXPORT,
        {"name": "queues.shop.example"},
        "informerScope is immutable",
    ),
    "a cluster-scoped export with informers for namespaces": (
        API_SERVICE_EXPORT,
        {"spec": ISOLATED | {"informerScope": "Namespaced"}},
        "informerScope must be Cluster for cluster-scoped resources",
    ),
    "a cluster-scoped export without isolation": (
        API_SERVICE_EXPORT,
        {"spec": CLUSTER_SCOPED},
        "clusterScopedIsolation must be defined for cluster-scoped resources",
    ),
    "a namespaced export with isolation": (
        API_SERVICE_EXPORT,
        {"spec": {"clusterScopedIsolation": "Prefixed"}},
        "clusterScopedIsolation is not relevant for namespaced resources",
    ),
    "an export of no version": (API_SERVICE_EXPORT, versions(), "at least 1 items"),
    "an export of one version twice": (
        API_SERVICE_EXPORT,
        versions({}, {"storage": False}),
        "spec.versions[1]: Duplicate value",
    ),
    "a version under an odd name": (API_SERVICE_EXPORT, versions({"name": "v0"}), "should match"),
    "a version without storage": (
        API_SERVICE_EXPORT,
        versions({"storage": None}),
        "storage: Required",
    ),
    "two printer columns of one name": (
        API_SERVICE_EXPORT,
        versions(
            {"additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".a"}] * 2}
        ),
        "additionalPrinterColumns[1]: Duplicate value",
    ),
    "a request for nothing": (
        API_SERVICE_EXPORT_REQUEST,
        {"spec": {"resources": []}},
        "at least 1",
    ),
    "a resource in upper case": (
        API_SERVICE_EXPORT_REQUEST,
        {"spec": {"resources": [{"resource": "Databases"}]}},
        "should match",
    ),
    "a resource of one letter": (
        APP_CLUSTER_BINDING,
        {"spec": {"apiExports": [{"resource": "d"}]}},
        "should match",
    ),
    "a group with a dot at its end": (
        APP_CLUSTER_BINDING,
        {"spec": {"apiExports": [DATABASES | {"group": "shop."}]}},
        "should match",
    ),
    "a template without a selector": (
        API_SERVICE_EXPORT_TEMPLATE,
        {"spec": {"APIServiceSelector": None}},
        "spec.APIServiceSelector: Required value",
    ),
    "a template of a nameless version": (
        API_SERVICE_EXPORT_TEMPLATE,
        {"spec": {"APIServiceSelector": DATABASES | {"version": ""}}},
        "at least 1",
    ),
    "donate and adopt in a template": (API_SERVICE_EXPORT_TEMPLATE, claims(**BOTH), EXCLUSIVE),
    "donate and adopt in an export": (API_SERVICE_EXPORT, claims(**BOTH), EXCLUSIVE),
    "donate and adopt in a binding": (
        API_SERVICE_BINDING,
        claims(**BOTH, state="Accepted"),
        EXCLUSIVE,
    ),
    "donate and adopt in a request": (
        API_SERVICE_EXPORT_REQUEST,
        {"spec": {"resources": [DATABASES | {"permissionClaims": [CLAIM | BOTH]}]}},
        EXCLUSIVE,
    ),
    "a claim without a version": (API_SERVICE_EXPORT, claims(version=""), "at least 1"),
    "a claim of an unknown owner": (
        API_SERVICE_EXPORT,
        claims(selector={"owner": "Nobody"}),
        'supported values: "Provider", "Consumer"',
    ),
    "a claim in a binding without a decision": (API_SERVICE_BINDING, claims(), "state: Required"),
    "a binding without the Secret's namespace": (
        API_SERVICE_BINDING,
        {"spec": {"kubeconfigSecretRef": SECRET}},
        "namespace: Required value",
    ),
}


@pytest.mark.parametrize(("kind", "changes", "message"), REFUSED.values(), ids=REFUSED.keys())
async def test_refused(objects, kind, changes, message):
    with pytest.raises(Rejected, match=re.escape(message)):
        await objects.create(kind, dry_run=True, **changes)


ACCEPTED = {
    "a cluster-scoped export": (API_SERVICE_EXPORT, {"spec": ISOLATED}),
    "adopt without donate": (API_SERVICE_EXPORT, claims(autoAdopt=True, autoDonate=False)),
    "a claim with a decision": (API_SERVICE_BINDING, claims(state="Rejected")),
    "the core group": (APP_CLUSTER_BINDING, {"spec": {"apiExports": [{"resource": "secrets"}]}}),
    "a request with free parameters": (
        API_SERVICE_EXPORT_REQUEST,
        {"spec": {"parameters": {"a": [{"b": 1}]}}},
    ),
    "nulls of Go clients": (
        CLUSTER_BINDING,
        {"spec": {"serviceProviderSpec": None}, "status": {"conditions": None}},
    ),
}


@pytest.mark.parametrize(("kind", "changes"), ACCEPTED.values(), ids=ACCEPTED.keys())
async def test_accepted(objects, kind, changes):
    created = await objects.create(kind, dry_run=True, **changes)
    assert name_of(created) == name_of_the(kind)
    for field, value in changes["spec"].items():
        if value is not None and field not in ("permissionClaims", "apiExports"):
            assert created["spec"][field] == value


# Changes

IMMUTABLE = {
    "the Secret of a binding": (
        API_SERVICE_BINDING,
        {"kubeconfigSecretRef": {"name": "other"}},
        "kubeconfigSecretRef is immutable",
    ),
    "the Secret of a ClusterBinding": (
        CLUSTER_BINDING,
        {"kubeconfigSecretRef": {"name": "other"}},
        "kubeconfigSecretRef is immutable",
    ),
    "the Secret of an AppClusterBinding": (
        APP_CLUSTER_BINDING,
        {"kubeconfigSecretRef": {"namespace": "team-b"}},
        "kubeconfigSecretRef is immutable",
    ),
    "the informer scope of an export": (
        API_SERVICE_EXPORT,
        {"informerScope": "Cluster"},
        "informerScope is immutable",
    ),
    "the resources of a request": (
        API_SERVICE_EXPORT_REQUEST,
        {"resources": [DATABASES, {"resource": "queues"}]},
        "resources are immutable",
    ),
    "the parameters of a request": (
        API_SERVICE_EXPORT_REQUEST,
        {"parameters": {"size": 2}},
        "parameters are immutable",
    ),
}


@pytest.mark.parametrize(("kind", "change", "message"), IMMUTABLE.values(), ids=IMMUTABLE.keys())
async def test_immutable(objects, kind, change, message):
    started = {"parameters": {"size": 1}} if kind is API_SERVICE_EXPORT_REQUEST else {}
    await objects.create(kind, spec=started)
    with pytest.raises(Rejected, match=re.escape(message)):
        await objects.patch(kind, {"spec": change})


MUTABLE = {
    "the claims of a binding": (
        API_SERVICE_BINDING,
        {"permissionClaims": [CLAIM | {"state": "Accepted"}]},
    ),
    "the exports of an AppClusterBinding": (APP_CLUSTER_BINDING, {"apiExports": [DATABASES]}),
    "the name of a provider": (CLUSTER_BINDING, {"providerPrettyName": "Other"}),
    "the versions of an export": (API_SERVICE_EXPORT, {"versions": [VERSION | {"name": "v2"}]}),
    "the claims of a template": (API_SERVICE_EXPORT_TEMPLATE, {"permissionClaims": [CLAIM]}),
}


@pytest.mark.parametrize(("kind", "change"), MUTABLE.values(), ids=MUTABLE.keys())
async def test_mutable(objects, kind, change):
    created = await objects.create(kind)
    changed = await objects.patch(kind, {"spec": change})
    assert changed["metadata"]["generation"] == created["metadata"]["generation"] + 1
