"""The konnector's objects beside those that the original kubectl-bind made."""

from pathlib import Path

import pytest
import yaml

from reconciler.blueprints import konnector, rights
from reconciler.blueprints.objects import UNMARKED, Marks
from reconciler.core import names
from reconciler.core.defaults import with_defaults
from reconciler.core.manifest import covers, get
from reconciler.core.normalize import normalize

RECORDED = Path(__file__).with_name("data").joinpath("konnector.yaml").read_text()
ORIGINAL = {one["kind"]: one for one in yaml.safe_load_all(RECORDED)}
IMAGE = "public.ecr.aws/w5n9a2g2/klutch/konnector:v0.0.0"
ROLE = names.KONNECTOR_CLUSTER_ROLE
OURS = {
    "Deployment": konnector.deployment(IMAGE, {}, marks=UNMARKED),
    "ClusterRole": konnector.cluster_role(ROLE, rights.FULL, marks=UNMARKED),
    "ClusterRoleBinding": konnector.cluster_role_binding(ROLE, names.KONNECTOR, marks=UNMARKED),
}


@pytest.mark.parametrize("kind", OURS)
def test_a_taken_over_konnector_is_as_we_would_have_made_it(kind):
    assert covers(normalize(ORIGINAL[kind]), normalize(with_defaults(OURS[kind])))


def test_of_a_live_deployment_only_image_and_overrides_are_compared():
    scaled = {**ORIGINAL["Deployment"], "spec": {**ORIGINAL["Deployment"]["spec"], "replicas": 5}}
    part = konnector.image_and_overrides(
        IMAGE, {"env": [{"name": "A", "value": "1"}]}, marks=UNMARKED
    )
    assert get(part, "spec", "template", "spec", "containers") == [
        {"name": "konnector", "image": IMAGE, "env": [{"name": "A", "value": "1"}]}
    ]
    assert not covers(normalize(scaled), normalize(part))
    assert covers(
        normalize(scaled), normalize(konnector.image_and_overrides(IMAGE, {}, marks=UNMARKED))
    )


def test_labels_of_ours_stay_out_of_selector_and_pods():
    made = konnector.deployment(IMAGE, {}, marks=Marks({"fleet": "acme"}))
    assert get(made, "metadata", "labels") == {"app": "konnector", "fleet": "acme"}
    assert get(made, "spec", "selector", "matchLabels") == {"app": "konnector"}
    assert get(made, "spec", "template", "metadata", "labels") == {"app": "konnector"}


def test_overrides_do_not_rename_the_container():
    made = konnector.deployment(IMAGE, {"name": "other", "image": "x"}, marks=UNMARKED)
    container = get(made, "spec", "template", "spec", "containers", 0)
    assert (get(container, "name"), get(container, "image")) == ("konnector", "x")


BY_BACKEND = {
    "not deployed": (
        {"deploy": False, "image": "x", "overrides": {"tty": True}},
        {"deploy": False},
    ),
    "an image": (
        {"deploy": True, "image": "x", "overrides": {}},
        {"deploy": True, "overrides": {"image": "x"}},
    ),
    "an image in the overrides goes first": (
        {"deploy": True, "image": "x", "overrides": {"image": "y", "tty": True}},
        {"deploy": True, "overrides": {"image": "y", "tty": True}},
    ),
}


@pytest.mark.parametrize(("asked", "want"), BY_BACKEND.values(), ids=BY_BACKEND.keys())
def test_what_the_backend_is_told(asked, want):
    assert konnector.app_cluster_binding_konnector(**asked) == want
