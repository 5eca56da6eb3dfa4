"""The konnector of a binding space beside the one that the original backend deployed."""

from pathlib import Path

import pytest
import yaml

from reconciler.blueprints import konnector
from reconciler.blueprints.konnector import SpaceKonnector
from reconciler.blueprints.server_defaults import with_defaults
from reconciler.core.manifest import covers, drop, get, get_map
from reconciler.core.normalize import normalize

RECORDED = Path(__file__).with_name("data").joinpath("space_konnector.yaml").read_text()
PLAIN, OVERRIDDEN = yaml.safe_load_all(RECORDED)
HOME = SpaceKonnector("team-a", "shop", "klutch-bind-team-a-shop", "shop-kubeconfig")
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
    return get(konnector.space_deployment(HOME, image=IMAGE, overrides=overrides), *CONTAINER)


@pytest.mark.parametrize(("overrides", "recorded"), RECORDED_AS.values(), ids=RECORDED_AS)
def test_it_is_the_originals_field_by_field(overrides, recorded):
    made = konnector.space_deployment(HOME, image=IMAGE, overrides=overrides, confined=False)
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
}


@pytest.mark.parametrize(("overrides", "field", "want"), OVERLAID.values(), ids=OVERLAID)
def test_overrides(overrides, field, want):
    made = container(**overrides)
    assert made[field] == want
    untouched = container().keys() - {field}
    assert {key: made[key] for key in untouched} == {key: container()[key] for key in untouched}


PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def test_a_probe_elsewhere_tells_that_all_are():
    made = container(readinessProbe={"httpGet": {"path": "/ready", "port": 9}})
    assert {one: made[one] for one in PROBES if one in made} == {
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 9}}
    }


def test_a_probe_that_asks_more_seldom_stays_where_it_is():
    made = container(livenessProbe={"periodSeconds": 60})
    assert made["livenessProbe"]["periodSeconds"] == 60
    assert {made[one]["httpGet"]["port"] for one in PROBES} == {8080}


LIMIT = {"memory": "512Mi"}
REQUESTS = {"cpu": "50m", "memory": "128Mi"}
RESOURCES = {
    "none": ({}, {"limits": LIMIT, "requests": REQUESTS}),
    "a limit lower than our request": (
        {"limits": {"memory": "64Mi"}},
        {"limits": {"memory": "64Mi"}, "requests": {"cpu": "50m"}},
    ),
    "a request of theirs": (
        {"requests": {"cpu": "2"}},
        {"limits": LIMIT, "requests": {"cpu": "2", "memory": "128Mi"}},
    ),
    "limits of all": (
        {"limits": {"cpu": "1", "memory": "1Gi"}},
        {"limits": {"cpu": "1", "memory": "1Gi"}},
    ),
}


@pytest.mark.parametrize(("resources", "want"), RESOURCES.values(), ids=RESOURCES)
def test_memory_is_limited_whatever_resources_say(resources, want):
    assert container(resources=resources)["resources"] == want


def test_a_konnector_as_the_original_has_it_is_not_confined():
    plain = konnector.space_deployment(HOME, image=IMAGE, overrides={}, confined=False)
    assert get_map(plain, *CONTAINER).keys() == {"name", "image", "args", "env", "readinessProbe"}
