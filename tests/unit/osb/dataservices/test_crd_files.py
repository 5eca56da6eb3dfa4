"""The CRD files for compositions: the names that provider-anynines and compositions count on."""

from pathlib import Path

import pytest
import yaml

from bind.osb.dataservices import managed as kinds
from reconciler.core.refs import Kind

FOLDER = Path(__file__).parents[4] / "schemas" / "dataservices"
KINDS = [one for one in vars(kinds).values() if isinstance(one, Kind)]
CRDS = {
    kind: yaml.safe_load((FOLDER / f"{kind.resource}.yaml").read_text("utf-8")) for kind in KINDS
}
MANAGED = (kinds.SERVICE_INSTANCE, kinds.SERVICE_BINDING, kinds.BACKUP, kinds.RESTORE)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)
each_managed = pytest.mark.parametrize("kind", MANAGED, ids=str)


def at(kind, *path):
    (version,) = CRDS[kind]["spec"]["versions"]
    found = version["schema"]["openAPIV3Schema"]
    for step in path:
        found = found["items"] if step == "[]" else found["properties"][step]
    return found


def test_every_file_is_of_a_kind():
    assert {f"{kind.resource}.yaml" for kind in KINDS} == {f.name for f in FOLDER.iterdir()}


@each_kind
def test_identity(kind):
    spec = CRDS[kind]["spec"]
    (version,) = spec["versions"]
    assert CRDS[kind]["metadata"] == {"name": kind.resource}
    assert (spec["group"], spec["scope"]) == ("dataservices.anynines.com", "Cluster")
    assert (spec["names"]["kind"], spec["names"]["plural"]) == (kind.kind, kind.plural)
    assert (version["name"], version["served"], version["storage"]) == ("v1", True, True)
    has_status = kind is not kinds.PROVIDER_CONFIG_USAGE
    assert version.get("subresources") == ({"status": {}} if has_status else None)


@each_managed
def test_a_managed_resource_of_crossplane(kind):
    assert set(at(kind, "spec")["properties"]) == {
        *("deletionPolicy", "managementPolicies", "providerConfigRef"),
        *("writeConnectionSecretToRef", "publishConnectionDetailsTo", "forProvider"),
    }
    assert at(kind, "spec", "deletionPolicy")["default"] == "Delete"
    assert at(kind, "spec", "managementPolicies")["default"] == ["*"]
    assert at(kind, "spec", "providerConfigRef")["default"] == {"name": "default"}
    required = {"type", "status", "reason", "lastTransitionTime"}
    assert set(at(kind, "status", "conditions", "[]")["required"]) == required


FIELDS = {
    (kinds.SERVICE_INSTANCE, "spec", "forProvider"): {
        *("acceptsIncomplete", "serviceName", "planName", "organizationGuid", "spaceGuid"),
        *("parameters", "context", "originatingIdentity"),
    },
    (kinds.SERVICE_INSTANCE, "status", "atProvider"): {
        *("state", "instanceId", "serviceId", "planId", "parameters"),
        *("createdAt", "provisionedAt", "updatedAt", "deletedAt"),
    },
    (kinds.SERVICE_INSTANCE, "status"): {
        *("conditions", "observedGeneration", "atProvider", "pendingOperation")
    },
    (kinds.SERVICE_BINDING, "spec", "forProvider"): {
        *("instanceName", "acceptsIncomplete", "appGuid", "bindResource", "parameters"),
        *("context", "credentials", "originatingIdentity"),
    },
    (kinds.SERVICE_BINDING, "status", "atProvider"): {
        *("state", "serviceBindingID", "instanceId", "planID", "serviceID"),
        "connectionDetails",
    },
    (kinds.SERVICE_BINDING, "status", "atProvider", "connectionDetails", "[]"): {
        *("hostURL", "port", "label")
    },
    (kinds.BACKUP, "spec", "forProvider"): {
        *("instanceName", "encryption_key", "exclude_from_auto_backup"),
        "credentials_updated_by_user",
    },
    (kinds.BACKUP, "status", "atProvider"): {
        *("instanceId", "id", "size", "status", "triggered_at", "finished_at", "downloadable")
    },
    (kinds.RESTORE, "spec", "forProvider"): {"backupName"},
    (kinds.RESTORE, "status", "atProvider"): {
        *("instanceId", "backupId", "restoreId", "state", "triggeredAt", "finishedAt")
    },
    (kinds.PROVIDER_CONFIG, "spec"): {
        *("url", "serviceType", "healthCheckEndpoint", "providerCredentials", "tls")
    },
    (kinds.PROVIDER_CONFIG, "spec", "providerCredentials"): {"source", "username", "password"},
    (kinds.PROVIDER_CONFIG, "status"): {"conditions", "users", "health"},
    (kinds.PROVIDER_CONFIG, "status", "health"): {"lastCheckTime", "lastStatus", "lastMessage"},
    (kinds.PROVIDER_CONFIG_USAGE, "resourceRef"): {"apiVersion", "kind", "name", "uid"},
}


@pytest.mark.parametrize("path", FIELDS, ids=lambda path: ".".join(map(str, path)))
def test_fields(path):
    assert set(at(*path)["properties"]) == FIELDS[path]


def test_parameters_are_of_any_type():
    free = {"x-kubernetes-preserve-unknown-fields": True}
    for place in (("spec", "forProvider"), ("status", "atProvider")):
        assert at(kinds.SERVICE_INSTANCE, *place, "parameters")["additionalProperties"] == free
