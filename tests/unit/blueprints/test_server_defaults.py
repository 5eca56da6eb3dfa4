"""What a server fills in, beside what kube-apiserver 1.36.3 did (posted.jsonl).

Each line of posted.jsonl holds what was sent (`stated`) and what the server made of it (`live`).
"""

import json
from pathlib import Path

import pytest

from reconciler.blueprints.objects import with_defaults
from reconciler.core import server_side_apply
from reconciler.core.field_set import owned, readable
from reconciler.core.manifest import covers, drop, get
from reconciler.core.normalize import normalize

POSTED = [
    json.loads(line) for line in Path(__file__).with_name("posted.jsonl").read_text().splitlines()
]


def label(pair):
    return f"{pair['stated']['kind']} {pair['stated']['metadata']['name']}"


@pytest.mark.parametrize("pair", POSTED, ids=label)
def test_a_new_object_has_not_drifted(pair):
    stated = with_defaults(pair["stated"])
    live = pair["live"]
    unstated = server_side_apply.unstated(owned(live, "klutchctl"), live=live, stated=stated)
    assert sorted(map(readable, unstated)) == []
    assert covers(normalize(pair["live"]), normalize(stated))


@pytest.mark.parametrize("pair", POSTED, ids=label)
def test_twice_is_once(pair):
    once = with_defaults(pair["stated"])
    assert with_defaults(once) == once


DROPPED = {
    "a Deployment's replicas matter": ("Deployment", ("spec", "replicas"), None),
    "a Deployment's pod labels": (
        "Deployment",
        ("spec", "template", "metadata", "labels", "app"),
        "spec.template.metadata.labels.app",
    ),
    "a Namespace's annotation": (
        "Namespace",
        ("metadata", "annotations", "a"),
        "metadata.annotations.a",
    ),
    "an AppClusterBinding's deploy": (
        "AppClusterBinding",
        ("spec", "konnector", "deploy"),
        "spec.konnector.deploy",
    ),
}


@pytest.mark.parametrize(("kind", "path", "want"), DROPPED.values(), ids=DROPPED.keys())
def test_a_field_that_is_no_longer_stated_is_seen(kind, path, want):
    pair = next(one for one in POSTED if one["stated"]["kind"] == kind)
    stated = with_defaults(drop(pair["stated"], *path))
    live = pair["live"]
    paths = server_side_apply.unstated(owned(live, "klutchctl"), live=live, stated=stated)
    unstated = set(map(readable, paths))
    if want is None:
        # The default takes its place, and differs.
        assert not covers(pair["live"], stated)
    else:
        assert want in unstated


POLICIES = {
    "x": "Always",
    "x:latest": "Always",
    "host:5000/x": "Always",
    "host:5000/x:v1": "IfNotPresent",
    "x:v1": "IfNotPresent",
    "x@sha256:00": "IfNotPresent",
    "x:latest@sha256:00": "IfNotPresent",
}


@pytest.mark.parametrize(("image", "want"), POLICIES.items())
def test_images_are_pulled_by_their_tag(image, want):
    pod = {"containers": [{"name": "a", "image": image}]}
    filled = with_defaults(
        {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": pod}}}
    )
    assert get(filled, "spec", "template", "spec", "containers", 0, "imagePullPolicy") == want


def filled_container(container):
    pod = {"containers": [{"name": "a", "image": "x", **container}]}
    made = with_defaults(
        {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": pod}}}
    )
    return get(made, "spec", "template", "spec", "containers", 0)


def filled_overrides(container):
    api = {"apiVersion": "klutch.anynines.com/v1alpha1", "kind": "AppClusterBinding"}
    made = with_defaults({**api, "spec": {"konnector": {"overrides": container}}})
    return get(made, "spec", "konnector", "overrides")


HTTP_GET = {"path": "/", "port": 1, "scheme": "HTTP"}


def test_handlers_are_filled():
    hooks = {"postStart": {"httpGet": {"port": 1}}, "preStop": {"sleep": {"seconds": 1}}}
    made = filled_container({"lifecycle": hooks, "livenessProbe": {"grpc": {"port": 1}}})
    assert get(made, "lifecycle") == {**hooks, "postStart": {"httpGet": HTTP_GET}}
    assert get(made, "livenessProbe", "grpc") == {"port": 1, "service": ""}


def test_overrides_are_filled_where_the_crd_has_defaults():
    probes = {"startupProbe": {"grpc": {"port": 1}}, "livenessProbe": {"httpGet": {"port": 1}}}
    made = filled_overrides({**probes, "ports": [{"containerPort": 1}]})
    assert made == {
        **probes,
        "startupProbe": {"grpc": {"port": 1, "service": ""}},
        "ports": [{"containerPort": 1, "protocol": "TCP"}],
    }


def test_other_kinds_come_back_as_they_are():
    for manifest in ({}, {"apiVersion": "v1", "kind": "ConfigMap"}, {"apiVersion": 1, "kind": 2}):
        assert with_defaults(manifest) is manifest
