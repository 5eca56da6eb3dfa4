"""What a client observes of the CRDs on a real kube-apiserver (protocol-bind A)."""

import json
import re

import pytest

from reconciler import api
from reconciler.api import (
    API_SERVICE_BINDING,
    API_SERVICE_EXPORT,
    API_SERVICE_EXPORT_REQUEST,
    API_SERVICE_EXPORT_TEMPLATE,
    APP_CLUSTER_BINDING,
    CLUSTER_BINDING,
)
from reconciler.core.errors import Rejected
from reconciler.core.manifest import get_maps, name_of
from reconciler.kube import crds
from tests.support.raw import get_json, http_session
from tests.support.wire_objects import (
    CLAIM,
    DATABASES,
    KINDS,
    READY,
    SECRET,
    VERSION,
    WireObjects,
    name_of_the,
)


@pytest.fixture
def objects(control_plane, namespace):
    return WireObjects(control_plane.name, control_plane.cluster, namespace)


# Installation and discovery


@pytest.mark.parametrize("name", [*crds.CONTROL_PLANE, *crds.CONTROLLER])
async def test_a_server_has_nothing_to_warn_about(control_plane, name):
    # Under another group, since the real one is there already.
    group = name.partition(".")[2]
    (manifest,) = crds.load(name)
    body = json.loads(json.dumps(manifest).replace(group, "warnings.example"))
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    async with (
        http_session(control_plane.connection) as session,
        session.post(path, params=query, json=body) as response,
    ):
        assert response.status == 201, await response.text()
        assert response.headers.getall("Warning", []) == []


async def test_discovery(control_plane):
    groups = {kind.group for kind in KINDS}
    lists = [await get_json(control_plane.connection, f"/apis/{g}/v1alpha1") for g in groups]
    served = {entry["name"]: entry for found in lists for entry in found["resources"]}
    assert set(served) == {k.plural for k in KINDS} | {f"{k.plural}/status" for k in KINDS}
    for kind in KINDS:
        entry = served[kind.plural]
        assert entry["kind"] == served[f"{kind.plural}/status"]["kind"] == kind.kind
        assert entry["singularName"] == kind.kind.lower()
        assert entry["categories"] == ["kube-bindings"]
        assert entry["namespaced"] is True
        assert entry.get("shortNames") == (["sb"] if kind is api.API_SERVICE_BINDING else None)


async def test_an_app_cluster_serves_the_bindings_alone(app_cluster):
    found = await get_json(app_cluster.connection, "/apis/klutch.anynines.com/v1alpha1")
    assert {entry["name"] for entry in found["resources"]} == {
        "apiservicebindings",
        "apiservicebindings/status",
    }


# The status


@pytest.mark.parametrize("kind", KINDS, ids=str)
async def test_the_status_is_written_apart(objects, kind):
    fields = {api.API_SERVICE_EXPORT_TEMPLATE: {}, api.API_SERVICE_NAMESPACE: {"namespace": "a"}}
    status = fields.get(kind, {"conditions": [READY]})
    created = await objects.create(kind, status=status)
    default = {"phase": "Pending"} if kind is api.API_SERVICE_EXPORT_REQUEST else None
    assert created.get("status") == default
    through_main = await objects.patch(kind, {"metadata": {"labels": {"a": "b"}}, "status": status})
    assert through_main.get("status") == default
    body = {"metadata": {"labels": {"a": "c"}}, "status": status}
    through_status = await objects.patch(kind, body, subresource="status")
    assert through_status["status"] == (default or {}) | status
    assert through_status["metadata"]["labels"] == {"a": "b"}


REFUSED_STATUS = {
    "an unknown phase": (
        api.API_SERVICE_EXPORT_REQUEST,
        {"phase": "Done"},
        'supported values: "Pending", "Failed", "Succeeded"',
    ),
    "a heartbeat that is no time": (
        api.CLUSTER_BINDING,
        {"lastHeartbeatTime": "noon"},
        "must be of type date-time",
    ),
    "a condition without a time": (
        api.APP_CLUSTER_BINDING,
        {"conditions": [{"type": "Ready", "status": "True"}]},
        "lastTransitionTime: Required",
    ),
}


@pytest.mark.parametrize(
    ("kind", "status", "message"), REFUSED_STATUS.values(), ids=REFUSED_STATUS.keys()
)
async def test_refused_status(objects, kind, status, message):
    await objects.create(kind)
    with pytest.raises(Rejected, match=re.escape(message)):
        await objects.patch(kind, {"status": status}, subresource="status")


# Defaults


CLAIM_DEFAULTS = {
    "group": "",
    "selector": {"names": ["*"], "namespaces": ["*"]},
    "read": {},
    "onConflict": {"recreateWhenConsumerSideDeleted": True},
}


@pytest.mark.parametrize("kind", [api.API_SERVICE_EXPORT, api.API_SERVICE_EXPORT_TEMPLATE], ids=str)
async def test_claims_have_defaults(objects, kind):
    created = await objects.create(kind, spec={"permissionClaims": [CLAIM]})
    assert created["spec"]["permissionClaims"] == [CLAIM | CLAIM_DEFAULTS]


async def test_claims_of_bindings_have_defaults(objects):
    created = await objects.create(
        api.API_SERVICE_BINDING, spec={"permissionClaims": [CLAIM | {"state": "Accepted"}]}
    )
    assert created["spec"]["permissionClaims"] == [CLAIM | CLAIM_DEFAULTS | {"state": "Accepted"}]


async def test_resources_and_claims_of_requests_have_defaults(objects):
    resource = {"resource": "databases", "permissionClaims": [CLAIM | {"selector": {"names": []}}]}
    created = await objects.create(api.API_SERVICE_EXPORT_REQUEST, spec={"resources": [resource]})
    claim = CLAIM | CLAIM_DEFAULTS | {"selector": {"names": [], "namespaces": ["*"]}}
    assert created["spec"]["resources"] == [resource | {"group": "", "permissionClaims": [claim]}]
    assert created["status"] == {"phase": "Pending"}


async def test_versions_are_served_by_default(objects):
    created = await objects.create(api.API_SERVICE_EXPORT)
    assert created["spec"]["versions"] == [VERSION | {"served": True}]


async def test_schemas_in_exports_are_kept_whole(objects):
    schema = {"type": "object", "x-unknown": [{"a": 1}], "properties": {"a": {"default": 1}}}
    created = await objects.create(
        api.API_SERVICE_EXPORT,
        spec={"versions": [VERSION | {"schema": {"openAPIV3Schema": schema}}]},
    )
    assert created["spec"]["versions"][0]["schema"] == {"openAPIV3Schema": schema}


# Tables

CELLS = {
    api.API_SERVICE_BINDING: (
        {"providerPrettyName": "Shop Inc", "conditions": [READY]},
        {"Provider": "Shop Inc", "Resources": None, "Ready": "False", "Message": "Wait"},
    ),
    api.API_SERVICE_EXPORT: (
        {"conditions": [READY | {"type": "Established", "status": "True"}]},
        {"Established": "True"},
    ),
    api.API_SERVICE_EXPORT_REQUEST: ({"conditions": [READY]}, {"Ready": "False"}),
    api.API_SERVICE_EXPORT_TEMPLATE: ({}, {"Established": None}),
    api.API_SERVICE_NAMESPACE: ({"namespace": "a-b"}, {"Namespace": "a-b"}),
    api.APP_CLUSTER_BINDING: ({"conditions": [READY]}, {"Ready": "False"}),
    api.CLUSTER_BINDING: (
        {"konnectorVersion": "v1.5.0", "conditions": [READY]},
        {"Konnector Version": "v1.5.0", "Last Heartbeat": None, "Ready": "False"},
    ),
}
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


@pytest.mark.parametrize(("kind", "cells"), CELLS.items(), ids=[str(kind) for kind in CELLS])
async def test_table(control_plane, objects, kind, cells):
    status, want = cells
    await objects.create(kind)
    # The annotation that the column Resources means, and misses.
    resources = {"bind.klutch.anynines.com/resources": "databases"}
    await objects.patch(kind, {"metadata": {"annotations": resources}})
    await objects.patch(kind, {"status": status}, subresource="status")
    path = f"/apis/{kind.group}/v1alpha1/namespaces/{objects.namespace}/{kind.plural}"
    async with (
        http_session(control_plane.connection) as session,
        session.get(path, headers=TABLE) as response,
    ):
        table = await response.json()
    headings = [column["name"] for column in table["columnDefinitions"]]
    (row,) = table["rows"]
    assert headings == ["Name", *want, "Age"]
    assert dict(zip(headings, row["cells"], strict=True)) == {
        "Name": name_of_the(kind),
        **want,
        "Age": row["cells"][-1],
    }
    (crd,) = crds.load(kind.resource)
    columns = get_maps(crd, "spec", "versions", 0, "additionalPrinterColumns")
    assert [(c["name"], c["type"], c["priority"]) for c in table["columnDefinitions"][1:]] == [
        (c["name"], c["type"], c.get("priority", 0)) for c in columns
    ]


# What the CRDs refuse and what they accept, on a real kube-apiserver (protocol-bind A)


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
