"""Reading and writing back: nothing is lost, and nothing is added but apiVersion and kind."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from reconciler.api import app_cluster_binding as app_cluster_bindings
from reconciler.api import cluster_binding as cluster_bindings
from reconciler.api import export as exports
from reconciler.api import export_request as export_requests
from reconciler.api import export_template as export_templates
from reconciler.api import service_binding as service_bindings
from reconciler.api import service_namespace as service_namespaces
from reconciler.api.app_cluster_binding import AppClusterBinding
from reconciler.api.cluster_binding import ClusterBinding, ClusterBindingSpec
from reconciler.api.common import (
    Condition,
    LocalSecretKeyRef,
    ObjectMeta,
    PermissionClaim,
    WireModel,
)
from reconciler.api.export import APIServiceExport
from reconciler.api.export_request import APIServiceExportRequest
from reconciler.api.export_template import APIServiceExportTemplate
from reconciler.api.provider import BindingProvider, BindingResponse
from reconciler.api.service_binding import APIServiceBinding
from reconciler.api.service_namespace import APIServiceNamespace

DATA = Path(__file__).parent / "data"
MODELS: dict[str, type[WireModel]] = {
    "app_cluster_binding": AppClusterBinding,
    "binding_provider": BindingProvider,
    "binding_response": BindingResponse,
    "cluster_binding": ClusterBinding,
    "export": APIServiceExport,
    "export_request": APIServiceExportRequest,
    "export_template": APIServiceExportTemplate,
    "service_binding": APIServiceBinding,
    "service_namespace": APIServiceNamespace,
}
OBJECTS = {name: yaml.safe_load((DATA / f"{name}.yaml").read_text()) for name in MODELS}
KINDS = {
    AppClusterBinding: app_cluster_bindings.APP_CLUSTER_BINDING,
    ClusterBinding: cluster_bindings.CLUSTER_BINDING,
    APIServiceExport: exports.API_SERVICE_EXPORT,
    APIServiceExportRequest: export_requests.API_SERVICE_EXPORT_REQUEST,
    APIServiceExportTemplate: export_templates.API_SERVICE_EXPORT_TEMPLATE,
    APIServiceBinding: service_bindings.API_SERVICE_BINDING,
    APIServiceNamespace: service_namespaces.API_SERVICE_NAMESPACE,
}
SECRET_REF = {"name": "kubeconfig", "key": "kubeconfig"}


def read(name):
    return MODELS[name].model_validate(OBJECTS[name])


def cluster_binding(**changes):
    spec = {"kubeconfigSecretRef": SECRET_REF, "providerPrettyName": "Shop Inc"}
    base = {
        "apiVersion": "klutch.anynines.com/v1alpha1",
        "kind": "ClusterBinding",
        "metadata": {"name": "cluster"},
        "spec": spec | changes.pop("spec", {}),
    }
    return base | changes


# Objects that were recorded, or that use every field


@pytest.mark.parametrize("name", MODELS)
def test_a_real_object_comes_back_as_it_was(name):
    assert read(name).to_manifest() == OBJECTS[name]


ATTRIBUTES = {
    "app cluster binding: secret": (
        lambda: read("app_cluster_binding").spec.kubeconfig_secret_ref.namespace,
        "team-a",
    ),
    "app cluster binding: overrides stay JSON": (
        lambda: read("app_cluster_binding").spec.konnector.overrides["resources"],
        {"limits": {"memory": "256Mi"}, "requests": {"cpu": "50m"}},
    ),
    "cluster binding: times stay text": (
        lambda: read("cluster_binding").status.last_heartbeat_time,
        "2026-06-01T12:00:00Z",
    ),
    "export: the schema is under another name": (
        lambda: read("export").spec.versions[0].schema_.open_api_v3_schema["type"],
        "object",
    ),
    "export: an empty status subresource is served": (
        lambda: read("export").spec.versions[0].subresources.status,
        {},
    ),
    "export: no scale subresource": (
        lambda: read("export").spec.versions[0].subresources.scale,
        None,
    ),
    "template: the upper-case name": (
        lambda: read("export_template").spec.api_service_selector.resource,
        "databases",
    ),
    "claim: an explicit empty list is not the default": (
        lambda: read("export_template").spec.permission_claims[0].selector.namespaces,
        (),
    ),
    "binding: claims carry a decision": (
        lambda: [c.state for c in read("service_binding").spec.permission_claims],
        ["Accepted", "Accepted"],
    ),
    "namespace: its counterpart": (
        lambda: read("service_namespace").status.namespace,
        "klutch-bind-team-b-billing-dev",
    ),
    "provider: where to log in": (
        lambda: (
            read("binding_provider").authentication_methods[0].oauth2_code_grant.authenticated_url
        ),
        "http://backend.example/authorize",
    ),
    "response: requests are typed": (
        lambda: read("binding_response").requests[0].spec.resources[0].group,
        "shop.example",
    ),
}


@pytest.mark.parametrize(("attribute", "want"), ATTRIBUTES.values(), ids=ATTRIBUTES.keys())
def test_attribute(attribute, want):
    assert attribute() == want


# Null, absent, empty and zero are four things


ODD = {
    "the nulls of Go clients": cluster_binding(
        metadata={"name": "cluster", "creationTimestamp": None, "labels": None},
        spec={"serviceProviderSpec": None},
        status={"conditions": None, "lastHeartbeatTime": None, "heartbeatInterval": "0s"},
    ),
    "a null status": cluster_binding(status=None),
    "an empty status": cluster_binding(status={}),
    "empty lists and maps": cluster_binding(
        metadata={"name": "cluster", "labels": {}, "finalizers": [], "ownerReferences": []},
        spec={"serviceProviderSpec": {}},
        status={"conditions": [], "konnectorVersion": ""},
    ),
    "null metadata": cluster_binding(metadata=None),
    "deep JSON of every type": cluster_binding(
        spec={"serviceProviderSpec": {"a": [None, True, 0, -1.5, 2**70, "", [], {}, {"b": None}]}}
    ),
    "an unknown field under the name of an attribute": cluster_binding(
        spec={"provider_pretty_name": ["not", "a", "name"]}
    ),
    "unknown fields under the names of methods": cluster_binding(
        status={"model_config": 1, "to_manifest": 2, "_nulls": 3, "__dict__": 4}
    ),
}


@pytest.mark.parametrize("manifest", ODD.values(), ids=ODD.keys())
def test_an_odd_object_comes_back_as_it_was(manifest):
    assert ClusterBinding.model_validate(manifest).to_manifest() == manifest


def test_a_null_reads_as_an_absent_field_as_it_does_at_an_api_server():
    claim = {
        "group": None,
        "resource": "secrets",
        "version": "v1",
        "required": None,
        "selector": {"names": None, "namespaces": None, "owner": None},
        "onConflict": {"recreateWhenConsumerSideDeleted": None},
        "read": None,
    }
    with_nulls = PermissionClaim.model_validate(claim)
    without = PermissionClaim.model_validate({"resource": "secrets", "version": "v1"})
    for model in (with_nulls, without):
        assert model.group == ""
        assert model.required is False
        assert model.selector.names == ("*",)
        assert model.selector.namespaces == ("*",)
        assert model.selector.owner is None
        assert model.on_conflict.recreate_when_consumer_side_deleted is True
        assert model.read.labels == ()
    assert with_nulls.to_manifest() == claim
    assert without.to_manifest() == {"resource": "secrets", "version": "v1"}


def test_a_null_gives_way_to_a_value_that_is_set_later():
    read = ObjectMeta.model_validate({"name": "x", "labels": None})
    assert read.model_copy(update={"labels": {"a": "b"}}).to_manifest() == {
        "name": "x",
        "labels": {"a": "b"},
    }


# Objects of our own


def test_an_object_of_our_own_says_what_it_is_and_nothing_that_was_not_stated():
    built = ClusterBinding(
        metadata=ObjectMeta(name="cluster"),
        spec=ClusterBindingSpec(
            kubeconfig_secret_ref=LocalSecretKeyRef(name="kubeconfig", key="kubeconfig"),
            provider_pretty_name="Shop Inc",
        ),
    )
    assert built.to_manifest() == cluster_binding()


def test_a_payload_of_our_own_says_what_it_is():
    assert BindingProvider(version="v0.0.0").to_manifest() == {
        "apiVersion": "v1alpha1",
        "kind": "BindingProvider",
        "version": "v0.0.0",
    }


@pytest.mark.parametrize(("model", "kind"), KINDS.items(), ids=[m.__name__ for m in KINDS])
def test_a_model_and_its_kind_agree(model, kind):
    fields = model.model_fields
    assert fields["api_version"].default == kind.api_version
    assert fields["kind"].default == kind.kind == model.__name__


def test_models_cannot_be_changed():
    condition = Condition(type="Ready", status="True", last_transition_time="2026-06-01T12:00:00Z")
    with pytest.raises(ValidationError, match="frozen"):
        condition.status = "False"


# What is refused, and what is not shown


REFUSED = {
    "another kind": ("cluster_binding", ("kind",), "Secret"),
    "another group": ("cluster_binding", ("apiVersion",), "v1"),
    "another key of the Secret": (
        "cluster_binding",
        ("spec", "kubeconfigSecretRef", "key"),
        "value",
    ),
    "a required field that is null": ("cluster_binding", ("spec", "providerPrettyName"), None),
    "a required spec that is null": ("cluster_binding", ("spec",), None),
    "a flag in words": ("app_cluster_binding", ("spec", "konnector", "deploy"), "true"),
    "a number in words": ("cluster_binding", ("metadata", "generation"), "1"),
    "text for a list": ("app_cluster_binding", ("spec", "apiExports"), "databases"),
    "an unknown phase": ("export_request", ("status", "phase"), "Done"),
    "an unknown decision": (
        "service_binding",
        ("spec", "permissionClaims", 0, "state"),
        "Maybe",
    ),
}


def put(value, path, new):
    if not path:
        return new
    step, *rest = path
    if isinstance(value, list):
        return [put(v, rest, new) if i == step else v for i, v in enumerate(value)]
    return value | {step: put(value.get(step), rest, new)}


@pytest.mark.parametrize(("name", "path", "value"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(name, path, value):
    with pytest.raises(ValidationError) as caught:
        MODELS[name].model_validate(put(OBJECTS[name], path, value))
    (error,) = caught.value.errors()
    assert error["loc"] == path


def test_an_error_does_not_show_the_input():
    with pytest.raises(ValidationError) as caught:
        BindingResponse.model_validate({"kubeconfig": ["hunter2"], "authentication": "hunter2"})
    assert "kubeconfig" in str(caught.value)
    assert "hunter2" not in str(caught.value)


HIDDEN = {
    "a kubeconfig": ("binding_response", ("kubeconfig",), "hunter2"),
    "container overrides": (
        "app_cluster_binding",
        ("spec", "konnector", "overrides", "env"),
        [{"name": "P", "value": "hunter2"}],
    ),
    "parameters": ("export_request", ("spec", "parameters"), {"password": "hunter2"}),
    "the provider's own data": (
        "cluster_binding",
        ("spec", "serviceProviderSpec"),
        {"a": "hunter2"},
    ),
    "unknown fields": ("cluster_binding", ("data",), {"password": "hunter2"}),
}


@pytest.mark.parametrize(("name", "path", "value"), HIDDEN.values(), ids=HIDDEN.keys())
def test_a_repr_does_not_show(name, path, value):
    manifest = put(OBJECTS[name], path, value)
    model = MODELS[name].model_validate(manifest)
    assert model.to_manifest() == manifest
    assert "hunter2" not in repr(model)
    assert "hunter2" not in str(model)


# Laws


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def open_objects(value, path=()):
    """Yield the path of every JSON object in which an unknown field may appear."""
    if isinstance(value, dict):
        yield path
        for key, inner in value.items():
            if not is_text_map(key, inner):
                yield from open_objects(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from open_objects(inner, (*path, index))


def is_text_map(key, value):
    return key == "labelSelectors" or (key in ("labels", "annotations") and isinstance(value, dict))


PLACES = [(name, path) for name in OBJECTS for path in open_objects(OBJECTS[name])]


@given(
    place=st.sampled_from(PLACES),
    unknown=st.dictionaries(st.text(), JSON_VALUES, min_size=1, max_size=3),
)
def test_unknown_fields_survive_at_every_level(place, unknown):
    name, path = place
    here = OBJECTS[name]
    for step in path:
        here = here[step]
    manifest = put(OBJECTS[name], path, {f"x-{key}": unknown[key] for key in unknown} | here)
    assert MODELS[name].model_validate(manifest).to_manifest() == manifest
