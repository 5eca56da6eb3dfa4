"""The konnector of a binding space beside the one that the original backend deployed."""

from pathlib import Path

import pytest
import yaml

from reconciler.blueprints import space_konnector
from reconciler.blueprints.space_konnector import Home
from reconciler.core.defaults import with_defaults
from reconciler.core.manifest import covers, drop, get
from reconciler.core.normalize import normalize

RECORDED = Path(__file__).with_name("data").joinpath("space_konnector.yaml").read_text()
PLAIN, OVERRIDDEN = yaml.safe_load_all(RECORDED)
HOME = Home("team-a", "shop", "klutch-bind-team-a-shop", "shop-kubeconfig")
IMAGE = "public.ecr.aws/w5n9a2g2/klutch/konnector:v1.4.0"
OVERRIDES = {
    "env": [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}],
    "image": "registry.example/konnector:dev",
    "readinessProbe": {"periodSeconds": 5},
    "resources": {"limits": {"memory": "256Mi"}, "requests": {"cpu": "50m"}},
    "securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": True},
}
CONTAINER = ("spec", "template", "spec", "containers", 0)
RECORDED_AS = {
    "without overrides": ({}, PLAIN),
    "with overrides": (OVERRIDES, OVERRIDDEN),
}


def container(**overrides):
    return get(space_konnector.deployment(HOME, image=IMAGE, overrides=overrides), *CONTAINER)


@pytest.mark.parametrize(("overrides", "recorded"), RECORDED_AS.values(), ids=RECORDED_AS)
def test_it_is_the_originals_field_by_field(overrides, recorded):
    made = space_konnector.deployment(HOME, image=IMAGE, overrides=overrides)
    ours, theirs = normalize(with_defaults(made)), normalize(drop(recorded, "status"))
    # The original loses a false on the way.
    lost = ("spec", "template", "spec", "containers", "konnector", "securityContext")
    if get(ours, *lost, "allowPrivilegeEscalation") is False:
        ours = drop(ours, *lost, "allowPrivilegeEscalation")
    assert covers(theirs, ours)


OVERLAID = {
    "an image": ({"image": "ours:1"}, "image", "ours:1"),
    "no image is the backend's": ({}, "image", IMAGE),
    "an empty image is the backend's": ({"image": ""}, "image", IMAGE),
    "arguments replace all": ({"args": ["-v=4"]}, "args", ["-v=4"]),
    "a null says nothing": ({"args": None}, "args", container()["args"]),
    "the name stays": ({"name": "other"}, "name", "konnector"),
    "a variable leaves POD_NAME": (
        {"env": [{"name": "A", "value": "1"}]},
        "env",
        [{"name": "A", "value": "1"}, *container()["env"]],
    ),
    "a mounted volume": (
        {"volumeMounts": [{"name": "a", "mountPath": "/a"}]},
        "volumeMounts",
        [{"name": "a", "mountPath": "/a"}],
    ),
    "another port of the probe": (
        {"readinessProbe": {"httpGet": {"path": "/ready", "port": 9}}},
        "readinessProbe",
        {"httpGet": {"path": "/ready", "port": 9}},
    ),
}


@pytest.mark.parametrize(("overrides", "field", "want"), OVERLAID.values(), ids=OVERLAID)
def test_overrides(overrides, field, want):
    made = container(**overrides)
    assert made[field] == want
    untouched = container().keys() - {field}
    assert {key: made[key] for key in untouched} == {key: container()[key] for key in untouched}
