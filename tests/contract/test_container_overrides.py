"""`AppClusterBinding.spec.konnector.overrides` on a real kube-apiserver (protocol-bind A.7)."""

import re

import pytest

from reconciler.api import APP_CLUSTER_BINDING
from reconciler.core.errors import Rejected
from tests.support.wire_objects import WireObjects


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
    "a limit that is no quantity": (
        {"resources": {"limits": {"memory": "lots"}}},
        "should match",
    ),
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
