"""A partial container over a whole one, as Kubernetes' strategic merge patch has it; and limits."""

import copy
from typing import Any

import pytest

from reconciler.blueprints.konnector import refused_overrides, with_overrides

FIELD = {"fieldRef": {"fieldPath": "metadata.name"}}
BASE: dict[str, Any] = {
    "name": "konnector",
    "image": "original:1",
    "args": ["--control-plane-mode"],
    "env": [
        {"name": "POD_NAME", "valueFrom": FIELD},
        {"name": "POD_NAMESPACE", "valueFrom": FIELD},
    ],
    "ports": [{"containerPort": 8080, "name": "health"}],
    "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10},
    "securityContext": {"runAsNonRoot": True},
}


def env(*names):
    return [{"name": name, "value": name.lower()} for name in names]


CASES = {
    "nothing": ({}, {}),
    "an image": ({"image": "ours:1"}, {"image": "ours:1"}),
    "arguments replace": ({"args": ["-v"]}, {"args": ["-v"]}),
    "no arguments": ({"args": []}, {"args": []}),
    "a field that the base lacks": (
        {"resources": {"limits": {"memory": "1Gi"}}},
        {"resources": {"limits": {"memory": "1Gi"}}},
    ),
    # The order in which the original backend leaves them.
    "a new variable goes before those it leaves alone": (
        {"env": env("HTTPS_PROXY")},
        {"env": [*env("HTTPS_PROXY"), *BASE["env"]]},
    ),
    "a variable keeps its place, whatever its new source": (
        {"env": env("POD_NAMESPACE")},
        {"env": [BASE["env"][0], *env("POD_NAMESPACE")]},
    ),
    "new and known variables": (
        {"env": env("A", "POD_NAME", "B")},
        {"env": [*env("A", "POD_NAME", "B"), BASE["env"][1]]},
    ),
    "a port is found by its number": (
        {"ports": [{"containerPort": 8080, "name": "probe"}, {"containerPort": 9090}]},
        {"ports": [{"containerPort": 8080, "name": "probe"}, {"containerPort": 9090}]},
    ),
    "objects merge field by field": (
        {"readinessProbe": {"periodSeconds": 5, "httpGet": {"path": "/ready"}}},
        {"readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 5}},
    ),
    "another handler replaces the probe's": (
        {"readinessProbe": {"tcpSocket": {"port": 1}}},
        {"readinessProbe": {"tcpSocket": {"port": 1}, "periodSeconds": 10}},
    ),
    "false can be set": (
        {"securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": False}},
        {"securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": False}},
    ),
    "0 and the empty text can be set": (
        {"securityContext": {"runAsUser": 0}, "workingDir": ""},
        {"securityContext": {"runAsUser": 0, "runAsNonRoot": True}, "workingDir": ""},
    ),
    "a null says nothing": (
        {"image": None, "readinessProbe": {"httpGet": None, "periodSeconds": None}, "tty": None},
        {},
    ),
    "a list where the base has none": (
        {"volumeMounts": [{"name": "a", "mountPath": "/a"}]},
        {"volumeMounts": [{"name": "a", "mountPath": "/a"}]},
    ),
}


@pytest.mark.parametrize(("overrides", "changed"), CASES.values(), ids=CASES.keys())
def test_merged(overrides, changed):
    before = copy.deepcopy(BASE)
    result = with_overrides(BASE, overrides)
    assert result == {**BASE, **changed}
    assert before == BASE
    assert with_overrides(result, overrides) == result


OWN = "shop-kubeconfig"


def variable(**source):
    return {"env": [{"name": "A", "valueFrom": source}]}


def key_of(name):
    return {"name": name, "key": "kubeconfig"}


ALLOWED = {
    "nothing": {},
    "an image": {"image": "r.example/k/x:1", "imagePullPolicy": "Always"},
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
        ["command", "image", "lifecycle", "tty"],
    ),
}


@pytest.mark.parametrize("overrides", ALLOWED.values(), ids=ALLOWED)
def test_allowed(overrides):
    assert list(refused_overrides(overrides, OWN, ["r.example/k"])) == []


@pytest.mark.parametrize(("overrides", "fields"), REFUSED.values(), ids=REFUSED)
def test_refused(overrides, fields):
    assert list(refused_overrides(overrides, OWN, ["r.example/k"])) == fields


@pytest.mark.parametrize(
    ("image", "prefix", "allowed"),
    [
        ("r.example/k:1", "r.example/k", True),
        ("r.example/k@sha256:aa", "r.example/k/", True),
        ("r.example/k/x/y:1", "r.example/k", True),
        ("r.example:5000/k/x", "r.example:5000", True),
        # A name that begins alike, and another registry on the same host.
        ("r.example/k-evil/x:1", "r.example/k", False),
        ("r.example:5000/k/x", "r.example", False),
        ("r.example.evil/k/x", "r.example", False),
        ("k/x:1", "r.example/k", False),
        ("", "r.example/k", True),  # none
    ],
)
def test_an_image_is_below_a_place(image, prefix, allowed):
    assert list(refused_overrides({"image": image}, OWN, ["none.example", prefix])) == (
        [] if allowed else ["image"]
    )
