"""The konnector's Deployment in a binding space, live."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from bind.app_cluster_binding.decide import decide
from reconciler.api import APP_CLUSTER_BINDING
from reconciler.core.decision import Apply, Patch
from reconciler.core.manifest import get, get_map, get_maps, get_text
from reconciler.core.refs import DEPLOYMENT, LIMIT_RANGE, NETWORK_POLICY, SECRET
from reconciler.kube.networks import of_environment, of_flags
from tests.support import kubeconfigs
from tests.unit.bind.app_cluster_world import IMAGE, IMAGES, NOW, SPACE, World, b64

RECORDED = Path(__file__).parents[1].joinpath("blueprints/data/space_konnector.yaml").read_text()
ORIGINAL, OVERRIDDEN = yaml.safe_load_all(RECORDED)
NAME = "konnector-shop"
OWN = f"{IMAGES}/konnector:1"
AVAILABLE = {"type": "Available", "status": "True"}
STATUS = {
    "observedGeneration": 1,
    "updatedReplicas": 2,
    "availableReplicas": 2,
    "conditions": [AVAILABLE],
}


def deployed(**overrides: Any) -> World:
    konnector = {"deploy": True, **({"overrides": overrides} if overrides else {})}
    world = World(spec={"konnector": konnector})
    world.serve()
    return world


def says(world: World, **status: Any) -> None:
    world.change(DEPLOYMENT, NAME, {"metadata": {"generation": 1}, "status": {**STATUS, **status}})


def overrides(world: World, value: Any) -> None:
    spec = {"spec": {"konnector": {"overrides": value}}}
    world.change(APP_CLUSTER_BINDING, "shop", spec, "team-a")


SAYS = {
    "nothing yet": ({"observedGeneration": 0, "conditions": []}, "Info KonnectorProgressing"),
    "it is rolling out": ({"updatedReplicas": 1}, "Info KonnectorProgressing"),
    "not available": (
        {"conditions": [{"type": "Available", "status": "False"}]},
        "Info KonnectorProgressing",
    ),
    "it crash-loops": (
        {"conditions": [AVAILABLE, {"type": "Progressing", "status": "False", "message": "slow"}]},
        "Error KonnectorDeploymentFailed",
    ),
    "Pods are refused": (
        {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": "quota"}]},
        "Error KonnectorDeploymentFailed",
    ),
    "available": ({}, "True"),
}


@pytest.mark.parametrize(("status", "want"), SAYS.values(), ids=SAYS)
def test_deployed_is_what_the_deployment_says(status, want):
    world = deployed()
    says(world, **status)
    world.serve()
    assert world.conditions()["KonnectorDeployed"] == want


TAKEN_OVER = {
    "as it was made": (ORIGINAL, {}, 0),
    "with overrides": (
        OVERRIDDEN,
        {
            "env": [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}],
            "image": "registry.example/konnector:dev",
            "readinessProbe": {"periodSeconds": 5},
            "resources": {"limits": {"memory": "256Mi"}, "requests": {"cpu": "0.05"}},
            "securityContext": {"runAsNonRoot": True},
        },
        0,
    ),
    "with another image": (ORIGINAL, {"image": OWN}, 1),
}


@pytest.mark.parametrize(("live", "laid_over", "writes"), TAKEN_OVER.values(), ids=TAKEN_OVER)
def test_the_originals_is_taken_over(live, laid_over, writes):
    world = deployed()
    world.terms = replace(world.terms, all_overrides=True)
    overrides(world, laid_over)
    world.put(DEPLOYMENT, {**live, "status": {}})
    assert len(world.look().tasks) == writes


@pytest.mark.parametrize("live", [ORIGINAL, OVERRIDDEN], ids=["plain", "with overrides"])
def test_the_originals_is_confined(live):
    world = deployed()
    world.put(DEPLOYMENT, {**live, "status": {}})
    world.serve()
    container = get_map(world.get(DEPLOYMENT, NAME), "spec", "template", "spec", "containers", 0)
    assert get(container, "securityContext", "runAsNonRoot") is True
    assert get(container, "resources", "limits", "memory") == "512Mi"
    assert world.serve() == 0


def test_overrides_that_are_not_allowed_change_nothing():
    world = deployed()
    before = world.get(DEPLOYMENT, NAME)
    overrides(world, {"workingDir": "/", "securityContext": {"privileged": True}, "image": OWN})
    world.serve()
    assert world.get(DEPLOYMENT, NAME) == before
    assert world.conditions()["KonnectorDeployed"] == "Error OverrideNotAllowed"
    reported = world.message("KonnectorDeployed")
    assert (
        "spec.konnector.overrides.securityContext, spec.konnector.overrides.workingDir." in reported
    )
    assert "image," in reported
    assert "spec.konnector.overrides.image" not in reported


def test_what_runs_learns_where_it_may_not_lead_also_where_its_kubeconfig_leads_there():
    world = deployed(args=["--allow-networks=0.0.0.0/0"])
    denied = of_flags([], ["0.0.0.0/0"], in_cluster=False)
    world.terms = replace(world.terms, networks=denied)
    there = {"server": "https://10.0.0.1:6443"}
    leads = b64(kubeconfigs.document(cluster=there, user={"token": "t"}))
    world.change(SECRET, "shop-kubeconfig", {"data": {"kubeconfig": leads}}, "team-a")
    world.serve()
    assert world.conditions()["SecretValid"] == "Error KubeconfigSecretInvalid"
    assert "10.0.0.1 is in a network" in world.message("SecretValid")
    container = get_map(world.get(DEPLOYMENT, NAME), "spec", "template", "spec", "containers", 0)
    variables = {
        get_text(one, "name"): get_text(one, "value") for one in get_maps(container, "env")
    }
    assert of_environment(variables) == denied
    assert world.serve() == 0


def test_of_many_that_are_not_allowed_some_are_named():
    secret = {"secretKeyRef": {"name": "klutch-binder", "key": "token"}}
    world = deployed(env=[{"name": f"A{n}", "valueFrom": secret} for n in range(5000)])
    assert len(world.message("KonnectorDeployed")) < 1000


def test_its_fields_become_ours_before_they_are_changed():
    world = deployed(image=OWN)
    entry = {
        "manager": "example-backend",
        "operation": "Update",
        "fieldsV1": {"f:spec": {"f:template": {}}},
    }
    metadata = {**ORIGINAL["metadata"], "managedFields": [entry]}
    world.put(DEPLOYMENT, {**ORIGINAL, "metadata": metadata})
    (task,) = world.look().tasks
    first, second = task.steps
    assert isinstance(first, Patch)
    assert isinstance(second, Apply)
    (moved,) = get_maps(first.body, "metadata", "managedFields")
    assert (moved["manager"], moved["operation"]) == ("klutch-bind", "Apply")
    assert get(second.manifest, "metadata", "uid")
    assert get(second.manifest, "metadata", "resourceVersion") is None


OTHERS = {
    "scaled": {"spec": {"replicas": 5}},
    "a sidecar's annotation": {"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}},
    "a label": {"metadata": {"labels": {"team": "x"}}},
    "a strategy": {"spec": {"strategy": {"type": "Recreate"}}},
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_what_others_set_is_left_alone(change):
    world = deployed()
    world.change(DEPLOYMENT, NAME, change)
    assert not world.look().tasks


def test_an_override_that_is_dropped_goes():
    world = deployed(env=[{"name": "A", "value": "1"}], imagePullPolicy="Always")
    overrides(world, {"env": None, "imagePullPolicy": None})
    world.serve()
    container = get_map(world.get(DEPLOYMENT, NAME), "spec", "template", "spec", "containers", 0)
    assert [one["name"] for one in get_maps(container, "env")] == ["POD_NAME", "POD_NAMESPACE"]
    assert "imagePullPolicy" not in container
    assert world.serve() == 0


def test_a_change_is_applied_to_what_was_looked_at():
    world = deployed()
    overrides(world, {"image": OWN})
    (task,) = world.look().tasks
    (step,) = task.steps
    assert isinstance(step, Apply)
    live = world.get(DEPLOYMENT, NAME)["metadata"]
    for key in ("uid", "resourceVersion"):
        assert get(step.manifest, "metadata", key) == live[key]


def test_not_deployed_any_more():
    world = deployed()
    world.change(APP_CLUSTER_BINDING, "shop", {"spec": {"konnector": {"deploy": False}}}, "team-a")
    world.serve()
    assert world.get(DEPLOYMENT, NAME) is None
    assert world.conditions()["KonnectorDeployed"] == "True"


@pytest.mark.parametrize(("deploy", "want"), [(True, "Error KonnectorDeploymentFailed")])
def test_a_control_plane_without_deployments(deploy, want):
    world = World(spec={"konnector": {"deploy": deploy}})
    world.serve()
    world.objects.pop((DEPLOYMENT, SPACE, NAME), None)
    decision = decide(replace(world.seen(), deployments_served=False), terms=world.terms, now=NOW)
    said = next(one for one in decision.conditions if one.type == "KonnectorDeployed")
    assert (said.status if said.status == "True" else f"{said.severity} {said.reason}") == want
    assert not decision.tasks


ELSE = "elsewhere.example/konnector:1"
WHICH = {
    "none": ("", {}, "Error KonnectorDeploymentFailed", None),
    "the backend's": (IMAGE, {}, "Info KonnectorProgressing", IMAGE),
    "its own": ("", {"image": OWN}, "Info KonnectorProgressing", OWN),
    "its own first": (IMAGE, {"image": OWN}, "Info KonnectorProgressing", OWN),
    "the backend's, named": (ELSE, {"image": ELSE}, "Info KonnectorProgressing", ELSE),
    "another's": (IMAGE, {"image": "evil.example/x:1"}, "Error OverrideNotAllowed", None),
    "one that begins alike": (
        IMAGE,
        {"image": f"{IMAGES}-evil/konnector:1"},
        "Error OverrideNotAllowed",
        None,
    ),
}


@pytest.mark.parametrize(("default", "laid_over", "want", "image"), WHICH.values(), ids=WHICH)
def test_which_image_it_runs(default, laid_over, want, image):
    world = World(spec={"konnector": {"deploy": True, "overrides": laid_over}})
    world.terms = replace(world.terms, konnector_image=default)
    world.serve()
    assert world.conditions()["KonnectorDeployed"] == want
    container = ("spec", "template", "spec", "containers", 0)
    assert get(world.get(DEPLOYMENT, NAME), *container, "image") == image


def test_what_runs_keeps_its_image_where_nobody_names_another():
    """S25: an upgrade brings no image of its own, and stops nothing."""
    world = deployed()
    world.terms = replace(world.terms, konnector_image="")
    assert world.serve() == 0
    overrides(world, {"image": "evil.example/x:1"})
    assert world.serve() == 1  # the condition
    container = ("spec", "template", "spec", "containers", 0)
    assert get(world.get(DEPLOYMENT, NAME), *container, "image") == IMAGE


def test_a_space_bounds_its_pods_and_leaves_what_an_administrator_said():
    """S18."""
    world = deployed()
    for kind in (NETWORK_POLICY, LIMIT_RANGE):
        world.change(kind, "konnector", {"spec": {"theirs": True}})
        assert world.serve() == 0
        world.remove(kind, "konnector")
        assert world.serve() == 1
    world.remove(LIMIT_RANGE, "konnector")
    world.terms = replace(world.terms, all_overrides=True)
    world.serve()
    assert world.get(LIMIT_RANGE, "konnector") is None
