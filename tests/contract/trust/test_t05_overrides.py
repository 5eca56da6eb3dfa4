"""T5: whoever may create an AppClusterBinding gets no container of their own making on the
control plane, on a real kube-apiserver."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from reconciler.api import APP_CLUSTER_BINDING, CLUSTER_BINDING
from reconciler.blueprints import konnector
from reconciler.blueprints import objects as spaces
from reconciler.blueprints.objects import Marks
from reconciler.core import keys, names
from reconciler.core.errors import Forbidden
from reconciler.core.manifest import get_map, get_text, get_texts, labels_of
from reconciler.core.refs import DEPLOYMENT, NAMESPACE, NETWORK_POLICY, Kind, Ref
from tests.support.backend import REGISTRY, USUAL, idle
from tests.support.bound_scenes import MANAGER, Managed, conditions, says, until

POD = Kind("", "v1", "Pod", "pods")
NAME = "konnector-shop"
IMAGE = f"{REGISTRY}/konnector:1"
ATTACKS: dict[str, tuple[dict[str, Any], str]] = {
    "root": ({"securityContext": {"runAsUser": 0}}, "securityContext"),
    "privileged": ({"securityContext": {"privileged": True}}, "securityContext"),
    "a path of the node": (
        {"volumeMounts": [{"name": "kube-api-access", "mountPath": "/host"}]},
        "volumeMounts",
    ),
    "a port of the node": ({"ports": [{"containerPort": 1, "hostPort": 1}]}, "ports"),
    "another Secret": (
        {
            "env": [
                {
                    "name": "A",
                    "valueFrom": {"secretKeyRef": {"name": "klutch-binder", "key": "token"}},
                }
            ]
        },
        "env[0].valueFrom.secretKeyRef",
    ),
    "a whole Secret": ({"envFrom": [{"secretRef": {"name": "klutch-binder"}}]}, "envFrom"),
    "an image of another registry": ({"image": f"{REGISTRY}.evil/x:1"}, "image"),
    "an image of another port": ({"image": f"{REGISTRY}:5000/x:1"}, "image"),
    "another program": ({"command": ["/bin/sh"]}, "command"),
    "a probe of others": (
        {"livenessProbe": {"httpGet": {"port": 80, "host": "169.254.169.254"}}},
        "livenessProbe.httpGet.host",
    ),
}


async def deploy(managed: Managed, overrides: Mapping[str, Any]) -> None:
    if await managed.itself() is None:
        await managed.apply(managed.offer.resource)
    ref = Ref(managed.plane.name, APP_CLUSTER_BINDING, managed.namespace, "shop")
    spec: dict[str, Any] = {"konnector": {"deploy": True, "overrides": overrides}}
    await managed.plane.cluster.merge_patch(ref, {"spec": spec}, manager=MANAGER)


async def container(managed: Managed):
    live = await managed.read(DEPLOYMENT, NAME)
    return get_map(live, "spec", "template", "spec", "containers", 0)


async def test_what_is_not_allowed_is_refused_by_name(managed: Managed) -> None:
    every = {field: None for overrides, _ in ATTACKS.values() for field in overrides}
    async with managed.backend() as backend:
        await managed.make_secret()
        for overrides, field in ATTACKS.values():
            await deploy(managed, {**every, **overrides})

            async def refused(field=field):
                reported = conditions(await managed.itself()).get("KonnectorDeployed", {})
                assert reported.get("reason") == "OverrideNotAllowed"
                assert f"spec.konnector.overrides.{field}" in reported["message"]
                return True

            await until(refused)
        await idle(backend)
    assert await managed.read(DEPLOYMENT, NAME) is None


async def test_a_refused_change_leaves_what_runs_as_it_is(managed: Managed) -> None:
    async with managed.backend() as backend:
        await managed.make_secret()
        await deploy(managed, {"image": IMAGE, "args": ["-v=4"]})
        await until(lambda: managed.read(DEPLOYMENT, NAME))
        await idle(backend)
        before = (await managed.read(DEPLOYMENT, NAME))["metadata"]["generation"]
        await deploy(managed, {"securityContext": {"privileged": True}})
        itself = managed.itself
        await until(lambda: says(itself(), "KonnectorDeployed", "False", "OverrideNotAllowed"))
        await idle(backend)
        live = await managed.read(DEPLOYMENT, NAME)
        assert live["metadata"]["generation"] == before


async def test_a_konnector_is_confined_and_its_space_restricted(managed: Managed) -> None:
    async with managed.backend():
        await managed.make_secret()
        await deploy(managed, {"resources": {"requests": {"cpu": "100m"}}})
        await until(lambda: managed.read(DEPLOYMENT, NAME))
    made = await container(managed)
    assert get_map(made, "securityContext") == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert get_map(made, "resources") == {
        "limits": {"memory": "512Mi"},
        "requests": {"cpu": "100m", "memory": "128Mi"},
    }
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert get_text(made, probe, "httpGet", "path") == "/healthz"
    labels = labels_of(await managed.read(NAMESPACE, managed.space))
    assert labels[keys.POD_SECURITY_ENFORCE] == "restricted"
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": managed.space, "name": "p"},
    }
    spec = get_map(await managed.read(DEPLOYMENT, NAME), "spec", "template", "spec")
    create = managed.plane.cluster.create
    await create({**pod, "spec": spec}, POD, manager="tests", dry_run=True)
    root: dict[str, Any] = {
        "containers": [{"name": "a", "image": "a", "securityContext": {"runAsUser": 0}}]
    }
    with pytest.raises(Forbidden, match="restricted"):
        await create({**pod, "spec": root}, POD, manager="tests", dry_run=True)
    for one, much in (("memory", "2Gi"), ("cpu", "4")):  # S18
        greedy = {**spec, "containers": [{**made, "resources": {"limits": {one: much}}}]}
        with pytest.raises(Forbidden, match=f"maximum {one} usage per Container"):
            await create({**pod, "spec": greedy}, POD, manager="tests", dry_run=True)
    policy = await managed.read(NETWORK_POLICY, names.KONNECTOR, managed.space)
    assert get_texts(policy, "spec", "policyTypes") == ["Ingress", "Egress"]
    assert get_map(policy, "spec", "podSelector") == {}
    assert not policy["spec"].get("ingress")


async def test_what_the_original_left_is_confined_too(managed: Managed) -> None:
    """Its spaces have no label, and its Deployment nothing but a readiness probe."""
    await managed.make_secret()
    await managed.apply(managed.offer.resource)  # a space is younger than what it is for
    create = managed.plane.cluster.create
    await create(spaces.namespace(managed.space), NAMESPACE, manager="example-backend")
    marks = Marks(keys.app_cluster_binding_labels(managed.namespace, "shop"))
    bound = spaces.cluster_binding(
        managed.space,
        kubeconfig_name="shop-kubeconfig",
        spec={"providerPrettyName": "shop"},
        marks=marks,
    )
    await create(bound, CLUSTER_BINDING, manager="example-backend")
    home = konnector.SpaceKonnector(managed.namespace, "shop", managed.space, "shop-kubeconfig")
    old = konnector.space_deployment(home, image=IMAGE, overrides={}, confined=False)
    await create(old, DEPLOYMENT, manager="example-backend")
    async with managed.backend():
        await deploy(managed, {"image": IMAGE})

        async def confined():
            labels = labels_of(await managed.read(NAMESPACE, managed.space))
            restricted = labels.get(keys.POD_SECURITY_ENFORCE) == "restricted"
            return restricted and "securityContext" in await container(managed)

        await until(confined)


async def test_an_operator_may_have_it_as_in_the_original(managed: Managed) -> None:
    settings = replace(USUAL, all_overrides=True)
    async with managed.backend(settings=settings):
        await managed.make_secret()
        await deploy(managed, {"securityContext": {"runAsUser": 0}, "command": ["/bin/sh"]})
        await until(lambda: managed.read(DEPLOYMENT, NAME))
    made = await container(managed)
    assert get_map(made, "securityContext") == {"runAsUser": 0}
    assert "livenessProbe" not in made
    assert keys.POD_SECURITY_ENFORCE not in labels_of(await managed.read(NAMESPACE, managed.space))
