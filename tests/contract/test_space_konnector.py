"""What becomes of a konnector's Deployment in a real cluster: made, taken over, changed.

As the original has it, with any overrides; contract/trust/test_t05_overrides.py has the usual way.
"""

import re
from dataclasses import dataclass
from typing import Any

import pytest

from bind.app_cluster_binding import decide
from bind.app_cluster_binding.facts import Seen, Space, Terms
from reconciler.api import APP_CLUSTER_BINDING
from reconciler.blueprints import konnector as blueprint
from reconciler.core import keys
from reconciler.core.decision import Apply, Patch, Step
from reconciler.core.errors import Rejected
from reconciler.core.manifest import Manifest, get_map, get_maps, get_text
from reconciler.core.refs import DEPLOYMENT, Ref
from tests.support.clusters import LiveCluster
from tests.support.wire_objects import WireObjects

RICH = {
    "env": [{"name": "A", "value": "1"}, {"name": "B", "value": ""}],
    "resources": {"limits": {"memory": "0.5Gi"}},
    "stdin": False,
    "ports": [{"containerPort": 1}],
    "workingDir": "/x",
    "securityContext": {"allowPrivilegeEscalation": False},
    "livenessProbe": {"grpc": {"port": 3}},
    "lifecycle": {"preStop": {"httpGet": {"port": 1}}},
}
POOR = {"readinessProbe": {"tcpSocket": {"port": 1}}}


@dataclass
class Deployed:
    """The Deployment of AppClusterBinding a/shop, where the test's namespace is its space."""

    plane: LiveCluster
    space: str

    def __post_init__(self) -> None:
        self.terms = Terms(control_plane=self.plane.name, konnector_image="x:1", all_overrides=True)
        self.ref = Ref(self.plane.name, DEPLOYMENT, self.space, "konnector-shop")

    async def live(self) -> Manifest | None:
        return await self.plane.cluster.get(self.ref)

    async def original(self, overrides: Manifest) -> None:
        home = blueprint.SpaceKonnector("a", "shop", self.space, "s")
        made = blueprint.space_deployment(home, image="x:1", overrides=overrides, confined=False)
        await self.plane.cluster.create(made, DEPLOYMENT, manager="example-backend")

    async def look(self, overrides: Manifest) -> list[Step]:
        ref = {"namespace": "a", "name": "s", "key": "kubeconfig"}
        binding: dict[str, Any] = {
            "metadata": {"namespace": "a", "name": "shop"},
            "spec": {
                "kubeconfigSecretRef": ref,
                "konnector": {"deploy": True, "overrides": overrides},
            },
        }
        space = Space(namespace={"metadata": {"name": self.space}}, deployment=await self.live())
        seen = Placed(app_cluster_binding=binding, space=space, place_of_space=self.space)
        part = decide.deployed(seen, space, self.terms)
        return [step for task in part.tasks for step in task.steps]

    async def do(self, overrides: Manifest) -> list[type]:
        steps = await self.look(overrides)
        for step in steps:
            if isinstance(step, Patch):
                body = step.body
                await self.plane.cluster.merge_patch(step.ref, body, manager=keys.MANAGER_BACKEND)
            else:
                assert isinstance(step, Apply)
                await self.plane.cluster.apply(
                    step.manifest, step.kind, manager=keys.MANAGER_BACKEND, force=True
                )
        return [type(step) for step in steps]

    async def container(self) -> Manifest:
        return get_map(await self.live(), "spec", "template", "spec", "containers", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed(Seen):
    """A look at an AppClusterBinding whose space has another name."""

    place_of_space: str

    @property
    def space_name(self) -> str:
        return self.place_of_space


@pytest.fixture
def deployed(control_plane: LiveCluster, namespace: str) -> Deployed:
    return Deployed(control_plane, namespace)


@pytest.mark.parametrize("overrides", [{}, RICH, POOR], ids=["none", "rich", "poor"])
async def test_what_was_made_is_left_alone(deployed, overrides):
    assert await deployed.do(overrides) == [Apply]
    assert await deployed.look(overrides) == []


@pytest.mark.parametrize("overrides", [{}, RICH, POOR], ids=["none", "rich", "poor"])
async def test_what_the_original_made_is_left_alone(deployed, overrides):
    await deployed.original(overrides)
    assert await deployed.look(overrides) == []


async def test_overrides_of_the_original_can_be_dropped(deployed):
    await deployed.original(RICH)
    assert await deployed.do(POOR) == [Patch, Apply]
    container = await deployed.container()
    assert {get_text(one, "name") for one in get_maps(container, "env")} == {
        "POD_NAME",
        "POD_NAMESPACE",
    }
    assert "httpGet" not in get_map(container, "readinessProbe"), "two handlers are refused"
    assert "workingDir" not in container
    assert await deployed.look(POOR) == []


async def test_overrides_come_and_go(deployed):
    for overrides in ({}, RICH, POOR, RICH, {}):
        assert await deployed.do(overrides) == [Apply]
        assert await deployed.look(overrides) == []


# `AppClusterBinding.spec.konnector.overrides` on a real kube-apiserver (protocol-bind A.7)


@pytest.fixture
def objects(control_plane, namespace):
    return WireObjects(control_plane.name, control_plane.cluster, namespace)


@pytest.fixture
def store(objects):
    """Send a container and return what the server would keep of it."""

    async def call(container):
        konnector = {"deploy": True, "overrides": container}
        kept = await objects.create(
            APP_CLUSTER_BINDING, dry_run=True, spec={"konnector": konnector}
        )
        return kept["spec"]["konnector"]["overrides"]

    return call


PROBE = {"grpc": {"port": 1}, "periodSeconds": 5, "terminationGracePeriodSeconds": 1}
CONTAINER = {
    "name": "konnector",
    "image": "registry.example/konnector:dev",
    "imagePullPolicy": "Always",
    "command": ["/konnector"],
    "args": ["-v=2"],
    "workingDir": "/",
    "restartPolicy": "Always",
    "ports": [{"containerPort": 80, "hostPort": 1, "hostIP": "10.0.0.1", "name": "a"}],
    "envFrom": [
        {"prefix": "A_", "configMapRef": {"name": "a", "optional": True}},
        {"secretRef": {"optional": False}},
    ],
    # A plain list, unlike a Pod's: one name may stand there twice.
    "env": [
        {"name": "A", "value": "1"},
        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "B", "valueFrom": {"secretKeyRef": {"key": "b"}}},
        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "c"}}},
        {"name": "D", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": 1}}},
    ],
    "resources": {
        "limits": {"memory": "256Mi", "cpu": 1},
        "requests": {"cpu": "50m"},
        "claims": [{"name": "a", "request": "b"}],
    },
    "volumeMounts": [
        {"name": "a", "mountPath": "/a", "readOnly": True, "recursiveReadOnly": "Enabled"},
        {"name": "a", "mountPath": "/b", "subPath": "b", "mountPropagation": "None"},
        {"name": "a", "mountPath": "/c", "subPathExpr": "$(A)"},
    ],
    "volumeDevices": [{"name": "a", "devicePath": "/dev/a"}],
    "livenessProbe": PROBE,
    "readinessProbe": {"httpGet": {"port": "http", "httpHeaders": [{"name": "A", "value": "b"}]}},
    "startupProbe": {"tcpSocket": {"port": 80, "host": "a"}, "failureThreshold": 3},
    "lifecycle": {"preStop": {"sleep": {"seconds": 1}}, "postStart": {"exec": {"command": ["a"]}}},
    "terminationMessagePath": "/dev/a",
    "terminationMessagePolicy": "File",
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "appArmorProfile": {"type": "RuntimeDefault"},
        "capabilities": {"add": ["A"], "drop": ["ALL"]},
        "privileged": False,
        "procMount": "Default",
        "readOnlyRootFilesystem": True,
        "runAsGroup": 1,
        "runAsNonRoot": True,
        "runAsUser": 1,
        "seLinuxOptions": {"level": "a", "role": "b", "type": "c", "user": "d"},
        "seccompProfile": {"type": "Localhost", "localhostProfile": "a"},
        "windowsOptions": {"hostProcess": False, "runAsUserName": "a"},
    },
    "stdin": True,
    "stdinOnce": False,
    "tty": True,
}


async def test_a_whole_container_is_kept(store):
    kept = await store(CONTAINER)
    # What the server fills in.
    assert kept["ports"][0].pop("protocol") == "TCP"
    assert kept["envFrom"][1]["secretRef"].pop("name") == ""
    assert kept["env"][2]["valueFrom"]["secretKeyRef"].pop("name") == ""
    assert kept["livenessProbe"]["grpc"].pop("service") == ""
    assert kept == CONTAINER


@pytest.mark.parametrize("container", [{}, {"image": "a"}], ids=["nothing", "an image"])
async def test_nothing_is_required(store, container):
    assert await store(container) == container


async def test_what_the_original_does_not_know_is_dropped(store):
    unknown = {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "x"}], "stopSignal": "A"}
    assert await store({"image": "a"} | unknown) == {"image": "a"}


REFUSED = {
    "an image that is a number": ({"image": 1}, "must be of type string"),
    "a port without a number": ({"ports": [{"name": "a"}]}, "containerPort: Required"),
    "a port twice": ({"ports": [{"containerPort": 80}] * 2}, "Duplicate value"),
    "a mount path twice": (
        {"volumeMounts": [{"name": "a", "mountPath": "/a"}] * 2},
        "Duplicate value",
    ),
    "a device path twice": (
        {"volumeDevices": [{"name": "a", "devicePath": "/a"}] * 2},
        "Duplicate value",
    ),
    "a limit that is no quantity": ({"resources": {"limits": {"memory": "lots"}}}, "should match"),
    "a user too large for 64 bits": (
        {"securityContext": {"runAsUser": 2**63}},
        "must be of type int64",
    ),
    "a probe without a port": ({"livenessProbe": {"tcpSocket": {}}}, "port: Required"),
}


@pytest.mark.parametrize(("container", "message"), REFUSED.values(), ids=REFUSED.keys())
async def test_refused(store, container, message):
    with pytest.raises(Rejected, match=re.escape(message)):
        await store(container)
