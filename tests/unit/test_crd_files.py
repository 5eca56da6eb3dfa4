"""The CRD files, as far as they can be judged without an API server (protocol-bind A)."""

from pathlib import Path

import pytest
import yaml

from reconciler import api
from reconciler.core import keys
from reconciler.core.errors import HostError
from reconciler.core.manifest import name_of
from reconciler.kube import crds
from tests.support.wire_objects import KINDS

FOLDER = Path(__file__).parents[2] / "schemas" / "crds"
CRDS = dict(zip(crds.CONTROL_PLANE, crds.load(*crds.CONTROL_PLANE), strict=True))
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


def spec(kind):
    return CRDS[kind.resource]["spec"]


def version(kind):
    (only,) = spec(kind)["versions"]
    return only


def schema(kind):
    return version(kind)["schema"]["openAPIV3Schema"]


def at(kind, path):
    found = schema(kind)
    for step in path.split("."):
        found = found["items"] if step == "[]" else found["properties"][step]
    return found


def rules(node):
    return {rule["rule"]: rule["message"] for rule in node.get("x-kubernetes-validations", [])}


# Which cluster gets what


def test_a_control_plane_gets_every_file_and_an_app_cluster_the_bindings():
    named = {*crds.CONTROL_PLANE, *crds.CONTROLLER, *crds.BROKERS}
    assert {f"{name}.yaml" for name in named} == {f.name for f in FOLDER.iterdir()}
    assert set(crds.CONTROL_PLANE) == {kind.resource for kind in KINDS}
    assert crds.APP_CLUSTER == ("apiservicebindings.klutch.anynines.com",)


def test_crds_come_in_the_order_asked_for():
    wanted = ("clusterbindings.klutch.anynines.com", "apiserviceexports.klutch.anynines.com")
    assert tuple(name_of(crd) for crd in crds.load(*wanted)) == wanted


def test_a_missing_file_says_what_to_do():
    with pytest.raises(HostError, match=r"widgets\.example\.yaml cannot be read\. Install"):
        crds.load("widgets.example")


# What all have in common


@each_kind
def test_identity(kind):
    extra = {"shortNames": ["sb"]} if kind is api.API_SERVICE_BINDING else {}
    assert CRDS[kind.resource]["apiVersion"] == "apiextensions.k8s.io/v1"
    assert CRDS[kind.resource]["metadata"] == {"name": kind.resource, "annotations": keys.KEPT}
    assert set(spec(kind)) == {"group", "names", "scope", "versions"}
    assert spec(kind)["group"] == kind.group
    assert spec(kind)["scope"] == "Namespaced"
    assert spec(kind)["names"] == {
        "plural": kind.plural,
        "singular": kind.kind.lower(),
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "categories": ["kube-bindings"],
        **extra,
    }
    assert version(kind)["name"] == kind.version == "v1alpha1"
    assert version(kind)["served"] is version(kind)["storage"] is True
    assert version(kind)["subresources"] == {"status": {}}


@each_kind
def test_files_hold_no_anchors(kind):
    text = (FOLDER / f"{kind.resource}.yaml").read_text("utf-8")
    assert not [event for event in yaml.parse(text) if getattr(event, "anchor", None)]


# Schemas


CLAIM = {"resource", "version"}
REQUIRED = {
    (api.API_SERVICE_BINDING, ""): set(),
    (api.API_SERVICE_BINDING, "spec"): {"kubeconfigSecretRef"},
    (api.API_SERVICE_BINDING, "spec.kubeconfigSecretRef"): {"name", "key", "namespace"},
    (api.API_SERVICE_BINDING, "spec.permissionClaims.[]"): CLAIM | {"state"},
    (api.API_SERVICE_EXPORT, ""): {"spec"},
    (api.API_SERVICE_EXPORT, "spec"): {"group", "names", "scope", "versions", "informerScope"},
    (api.API_SERVICE_EXPORT, "spec.names"): {"plural", "kind"},
    (api.API_SERVICE_EXPORT, "spec.versions.[]"): {"name", "served", "storage", "schema"},
    (api.API_SERVICE_EXPORT, "spec.permissionClaims.[]"): CLAIM,
    (api.API_SERVICE_EXPORT, "status.acceptedNames"): {"plural", "kind"},
    (api.API_SERVICE_EXPORT, "status.conditions.[]"): {"type", "status", "lastTransitionTime"},
    (api.API_SERVICE_EXPORT_REQUEST, ""): {"spec"},
    (api.API_SERVICE_EXPORT_REQUEST, "spec"): {"resources"},
    (api.API_SERVICE_EXPORT_REQUEST, "spec.resources.[]"): {"resource"},
    (api.API_SERVICE_EXPORT_REQUEST, "spec.resources.[].permissionClaims.[]"): CLAIM,
    (api.API_SERVICE_EXPORT_TEMPLATE, ""): {"spec"},
    (api.API_SERVICE_EXPORT_TEMPLATE, "spec"): {"APIServiceSelector"},
    (api.API_SERVICE_EXPORT_TEMPLATE, "spec.APIServiceSelector"): {"resource"},
    (api.API_SERVICE_EXPORT_TEMPLATE, "spec.permissionClaims.[]"): CLAIM,
    (api.API_SERVICE_NAMESPACE, ""): set(),
    (api.APP_CLUSTER_BINDING, ""): {"spec"},
    (api.APP_CLUSTER_BINDING, "spec"): {"kubeconfigSecretRef"},
    (api.APP_CLUSTER_BINDING, "spec.kubeconfigSecretRef"): {"name", "key", "namespace"},
    (api.APP_CLUSTER_BINDING, "spec.konnector"): set(),
    (api.APP_CLUSTER_BINDING, "spec.konnector.overrides"): set(),
    (api.CLUSTER_BINDING, ""): {"spec"},
    (api.CLUSTER_BINDING, "spec"): {"kubeconfigSecretRef", "providerPrettyName"},
    (api.CLUSTER_BINDING, "spec.kubeconfigSecretRef"): {"name", "key"},
}


@pytest.mark.parametrize(
    ("kind", "path", "required"),
    [(kind, path, want) for (kind, path), want in REQUIRED.items()],
    ids=[f"{kind} {path}" for kind, path in REQUIRED],
)
def test_required(kind, path, required):
    node = at(kind, path) if path else schema(kind)
    assert set(node.get("required", [])) == required


def test_the_rule_that_no_request_can_break():
    assert rules(schema(api.APP_CLUSTER_BINDING)) == {
        "self.metadata.name == oldSelf.metadata.name": "name is immutable"
    }


def test_the_same_claim_stands_everywhere():
    places = [
        at(api.API_SERVICE_EXPORT, "spec.permissionClaims.[]"),
        at(api.API_SERVICE_EXPORT_REQUEST, "spec.resources.[].permissionClaims.[]"),
        at(api.API_SERVICE_EXPORT_TEMPLATE, "spec.permissionClaims.[]"),
    ]
    assert places[0] == places[1] == places[2]
    accepted = at(api.API_SERVICE_BINDING, "spec.permissionClaims.[]")
    without = {k: v for k, v in accepted["properties"].items() if k != "state"}
    assert without == places[0]["properties"]
    assert rules(accepted) == rules(places[0])


CONTAINER = {
    *("name", "image", "imagePullPolicy", "command", "args", "workingDir", "restartPolicy"),
    *("ports", "env", "envFrom", "resources", "securityContext", "volumeMounts", "volumeDevices"),
    *("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"),
    *("terminationMessagePath", "terminationMessagePolicy", "stdin", "stdinOnce", "tty"),
}


def test_overrides_is_a_container_without_what_the_original_leaves_out():
    overrides = at(api.APP_CLUSTER_BINDING, "spec.konnector.overrides")["properties"]
    assert set(overrides) == CONTAINER
