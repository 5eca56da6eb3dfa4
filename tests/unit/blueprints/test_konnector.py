"""The konnector's objects beside those that the original kubectl-bind made."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.blueprints import konnector, rbac
from reconciler.blueprints.konnector import SpaceKonnector
from reconciler.blueprints.objects import UNMARKED, Marks, with_defaults
from reconciler.core import manifest, names
from reconciler.core.normalize import normalize
from reconciler.planning.objects import differences

DATA = Path(__file__).with_name("data")
RECORDED = yaml.safe_load_all(DATA.joinpath("konnector.yaml").read_text())
ORIGINAL = {one["kind"]: one for one in RECORDED}
IMAGE = "public.ecr.aws/w5n9a2g2/klutch/konnector:v0.0.0"
ROLE = names.KONNECTOR_CLUSTER_ROLE
OURS = {
    "Deployment": konnector.deployment(IMAGE, {}, marks=UNMARKED),
    "ClusterRole": rbac.cluster_role(ROLE, rbac.FULL, marks=UNMARKED),
    "ClusterRoleBinding": rbac.cluster_role_binding(ROLE, names.KONNECTOR, marks=UNMARKED),
}


@pytest.mark.parametrize("kind", OURS)
def test_a_taken_over_konnector_is_as_we_would_have_made_it(kind):
    assert manifest.covers(normalize(ORIGINAL[kind]), normalize(with_defaults(OURS[kind])))


def test_of_a_live_deployment_only_image_and_overrides_are_compared():
    scaled = {**ORIGINAL["Deployment"], "spec": {**ORIGINAL["Deployment"]["spec"], "replicas": 5}}
    part = konnector.image_and_overrides(
        IMAGE, {"env": [{"name": "A", "value": "1"}]}, marks=UNMARKED
    )
    assert manifest.get(part, "spec", "template", "spec", "containers") == [
        {"name": "konnector", "image": IMAGE, "env": [{"name": "A", "value": "1"}]}
    ]
    assert not manifest.covers(normalize(scaled), normalize(part))
    assert manifest.covers(
        normalize(scaled), normalize(konnector.image_and_overrides(IMAGE, {}, marks=UNMARKED))
    )


def test_labels_of_ours_stay_out_of_selector_and_pods():
    made = konnector.deployment(IMAGE, {}, marks=Marks({"fleet": "acme"}))
    assert manifest.get(made, "metadata", "labels") == {"app": "konnector", "fleet": "acme"}
    assert manifest.get(made, "spec", "selector", "matchLabels") == {"app": "konnector"}
    assert manifest.get(made, "spec", "template", "metadata", "labels") == {"app": "konnector"}


def test_overrides_do_not_rename_the_container():
    made = konnector.deployment(IMAGE, {"name": "other", "image": "x"}, marks=UNMARKED)
    container = manifest.get(made, "spec", "template", "spec", "containers", 0)
    assert (manifest.get(container, "name"), manifest.get(container, "image")) == ("konnector", "x")


MANIFEST = Path(__file__).parents[3] / "konnector/deploy/minimal/deployment.yaml"
POD = ("spec", "template", "spec")


def container_of(deployment) -> Any:
    return manifest.get(deployment, *POD, "containers", 0)


def confined(overrides) -> Any:
    return konnector.deployment(IMAGE, overrides, marks=UNMARKED, confined=True)


def test_a_confined_one_is_protected_as_by_our_manifest():
    theirs = next(iter(yaml.safe_load_all(MANIFEST.read_text())))
    ours, want = container_of(confined({})), container_of(theirs)
    (port,) = want["ports"]
    of_pod = manifest.get_map(theirs, *POD, "securityContext")
    assert ours["securityContext"] == {**of_pod, **want["securityContext"]}
    assert ours["resources"] == want["resources"]
    for name in ("startupProbe", "livenessProbe"):
        handler = {"httpGet": {**want[name]["httpGet"], "port": port["containerPort"]}}
        assert ours[name] == {**want[name], **handler}
    assert ours["env"] == want["env"]
    grace = (*POD, "terminationGracePeriodSeconds")
    assert manifest.get(confined({}), *grace) == manifest.get(theirs, *grace)


PROTECTION = ("startupProbe", "livenessProbe", "resources", "securityContext")
CONFINED = {
    # what the overrides say: what of our protection is laid below them
    "nothing": ({}, PROTECTION),
    "nothing by nulls": (dict.fromkeys(PROTECTION), PROTECTION),
    "arguments": ({"args": ["--workers=2"]}, PROTECTION),
    # A request of ours may be more than a limit of theirs.
    "a limit": (
        {"resources": {"limits": {"memory": "64Mi"}}},
        ("startupProbe", "livenessProbe", "securityContext"),
    ),
    # Root beside runAsNonRoot does not start.
    "a user": (
        {"securityContext": {"runAsUser": 0}},
        ("startupProbe", "livenessProbe", "resources"),
    ),
    # Who looks elsewhere for one probe has moved all of them.
    "a probe": ({"readinessProbe": {"httpGet": {"port": 9090}}}, ("resources", "securityContext")),
}


@pytest.mark.parametrize(("overrides", "kept"), CONFINED.values(), ids=CONFINED)
def test_what_overrides_name_is_theirs_alone(overrides, kept):
    alone = container_of(konnector.deployment(IMAGE, overrides, marks=UNMARKED))
    ours = container_of(confined({}))
    want = {**alone, **{name: ours[name] for name in (*kept, "env")}}
    assert container_of(confined(overrides)) == want


def test_overrides_let_bindings_of_all_namespaces_be_served():
    everywhere = {"name": "BINDING_NAMESPACE", "value": ""}
    container = container_of(confined({"env": [everywhere]}))
    assert [one for one in container["env"] if one["name"] == everywhere["name"]] == [everywhere]


def test_a_live_one_is_not_confined():
    """Neither the original's that is taken over, nor one that is there from before."""
    part = konnector.image_and_overrides(IMAGE, {}, marks=UNMARKED)
    owned: manifest.Manifest = {
        "f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:restartPolicy": {}}}}
    }
    entry: manifest.Manifest = {"manager": "klutchctl", "operation": "Update", "fieldsV1": owned}
    for entries in ((), (entry,)):
        live = manifest.put(ORIGINAL["Deployment"], entries, "metadata", "managedFields")
        assert differences(live, part, whole=confined({})) == ()


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
def test_what_the_backend_is_reported(asked, want):
    assert konnector.app_cluster_binding_konnector(**asked) == want


# In a binding space

PLAIN, OVERRIDDEN = yaml.safe_load_all(DATA.joinpath("space_konnector.yaml").read_text())
HOME = SpaceKonnector("team-a", "shop", "klutch-bind-team-a-shop", "shop-kubeconfig")
SPACE_IMAGE = "public.ecr.aws/w5n9a2g2/klutch/konnector:v1.4.0"
OVERRIDES = {
    "env": [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}],
    "image": "registry.example/konnector:dev",
    "readinessProbe": {"periodSeconds": 5},
    "resources": {"limits": {"memory": "256Mi"}, "requests": {"cpu": "50m"}},
    "securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": True},
}
RECORDED_AS = {"without overrides": ({}, PLAIN), "with overrides": (OVERRIDES, OVERRIDDEN)}


def in_space(**overrides):
    return container_of(konnector.space_deployment(HOME, image=SPACE_IMAGE, overrides=overrides))


@pytest.mark.parametrize(("overrides", "recorded"), RECORDED_AS.values(), ids=RECORDED_AS)
def test_a_konnector_of_a_space_is_the_originals_field_by_field(overrides, recorded):
    made = konnector.space_deployment(HOME, image=SPACE_IMAGE, overrides=overrides, confined=False)
    ours, theirs = normalize(with_defaults(made)), normalize(manifest.drop(recorded, "status"))
    # The original loses a false on the way.
    lost = ("spec", "template", "spec", "containers", "konnector", "securityContext")
    if manifest.get(ours, *lost, "allowPrivilegeEscalation") is False:
        ours = manifest.drop(ours, *lost, "allowPrivilegeEscalation")
    assert manifest.covers(theirs, ours)


OVERLAID = {
    "an image": ({"image": "ours:1"}, "image", "ours:1"),
    "no image is the backend's": ({}, "image", SPACE_IMAGE),
    "an empty image is the backend's": ({"image": ""}, "image", SPACE_IMAGE),
    "arguments replace all": ({"args": ["-v=4"]}, "args", ["-v=4"]),
    "a null says nothing": ({"args": None}, "args", in_space()["args"]),
    "the name stays": ({"name": "other"}, "name", "konnector"),
}


@pytest.mark.parametrize(("overrides", "field", "want"), OVERLAID.values(), ids=OVERLAID)
def test_overrides_in_a_space(overrides, field, want):
    made = in_space(**overrides)
    assert made[field] == want
    untouched = in_space().keys() - {field}
    assert {key: made[key] for key in untouched} == {key: in_space()[key] for key in untouched}


PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


def test_a_probe_elsewhere_shows_that_all_are():
    made = in_space(readinessProbe={"httpGet": {"path": "/ready", "port": 9}})
    assert {one: made[one] for one in PROBES if one in made} == {
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 9}}
    }


def test_a_probe_that_asks_more_seldom_stays_where_it_is():
    made = in_space(livenessProbe={"periodSeconds": 60})
    assert made["livenessProbe"]["periodSeconds"] == 60
    assert {made[one]["httpGet"]["port"] for one in PROBES} == {8080}


@pytest.mark.parametrize("confined", [True, False])
def test_no_override_sets_or_drops_a_variable_that_is_forced(confined):
    theirs = [{"name": "DENIED", "value": ""}, {"name": "A", "value": "1"}]
    made = konnector.space_deployment(
        HOME,
        image=SPACE_IMAGE,
        overrides={"env": theirs, "args": ["-v=4"]},
        confined=confined,
        forced={"DENIED": "10.0.0.0/8", "ALLOWED": ""},
    )
    variables = manifest.get_maps(container_of(made), "env")
    assert [one["name"] for one in variables].count("DENIED") == 1
    values = {one["name"]: one.get("value") for one in variables}
    assert (values["DENIED"], values["ALLOWED"], values["A"]) == ("10.0.0.0/8", "", "1")


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
    assert in_space(resources=resources)["resources"] == want


def test_a_konnector_as_the_original_has_it_is_not_confined():
    plain = konnector.space_deployment(HOME, image=SPACE_IMAGE, overrides={}, confined=False)
    assert container_of(plain).keys() == {"name", "image", "args", "env", "readinessProbe"}
