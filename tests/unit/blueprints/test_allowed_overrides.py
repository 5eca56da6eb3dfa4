"""Which overrides of a konnector on the control plane are allowed, as a table."""

import pytest

from reconciler.blueprints.overrides import refused

OWN = "shop-kubeconfig"


def variable(**source):
    return {"env": [{"name": "A", "valueFrom": source}]}


def key_of(name):
    return {"name": name, "key": "kubeconfig"}


ALLOWED = {
    "nothing": {},
    "an image": {"image": "x:1", "imagePullPolicy": "Always"},
    "arguments": {"args": ["-v=4"]},
    "a value": {"env": [{"name": "A", "value": "1"}, {"name": "B"}]},
    "a field of the Pod": variable(fieldRef={"fieldPath": "metadata.name"}),
    "its own limit": variable(resourceFieldRef={"resource": "limits.memory"}),
    "a ConfigMap of the space": variable(configMapKeyRef=key_of("settings")),
    "its own Secret": variable(secretKeyRef=key_of(OWN)),
    "resources": {"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}},
    "probes": {"livenessProbe": {"httpGet": {"port": 1, "path": "/"}}, "startupProbe": {}},
    "a null": {"securityContext": None, "resources": {"claims": None}},
    "its own name": {"name": "konnector"},
}
REFUSED = {
    "a security context": ({"securityContext": {"runAsNonRoot": True}}, ["securityContext"]),
    "what would say nothing": ({"securityContext": {}}, ["securityContext"]),
    "another Secret": (
        {"env": [{"name": "A"}, *variable(secretKeyRef=key_of("klutch-binder"))["env"]]},
        ["env[1].valueFrom.secretKeyRef"],
    ),
    "a Secret without a name": (
        variable(secretKeyRef={"key": "a"}),
        ["env[0].valueFrom.secretKeyRef"],
    ),
    "a source of tomorrow": (variable(fileKeyRef={"path": "a"}), ["env[0].valueFrom.fileKeyRef"]),
    "all of a Secret": ({"envFrom": [{"secretRef": key_of(OWN)}]}, ["envFrom"]),
    "a device": ({"resources": {"claims": [{"name": "a"}]}}, ["resources.claims"]),
    "another name": ({"name": "other"}, ["name"]),
    "probes of other hosts": (
        {
            "readinessProbe": {"tcpSocket": {"port": 1, "host": "10.0.0.1"}},
            "livenessProbe": {"httpGet": {"port": 1, "host": "10.0.0.1"}},
        },
        ["livenessProbe.httpGet.host", "readinessProbe.tcpSocket.host"],
    ),
    "many": (
        {"tty": False, "image": "x:1", "command": ["a"], "lifecycle": {}},
        ["command", "lifecycle", "tty"],
    ),
}


@pytest.mark.parametrize("overrides", ALLOWED.values(), ids=ALLOWED)
def test_allowed(overrides):
    assert list(refused(overrides, OWN)) == []


@pytest.mark.parametrize(("overrides", "fields"), REFUSED.values(), ids=REFUSED)
def test_refused(overrides, fields):
    assert list(refused(overrides, OWN)) == fields
