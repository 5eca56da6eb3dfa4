"""Every object that a fleet becomes, sent to real API servers as a create.

It is accepted with strict validation, so no field is misspelt; and what the server makes of it
is not drift, so that the next plan has nothing to do.
"""

import json
import uuid
from dataclasses import replace

import pytest

from reconciler.core import keys, names, server_side_apply
from reconciler.core.field_set import created_to_applied
from reconciler.core.live import Address
from reconciler.core.manifest import Manifest, covers, get, namespace_of, put
from reconciler.core.normalize import normalize
from reconciler.core.refs import CRD, DEPLOYMENT, Ref
from reconciler.core.secret import Secret
from reconciler.fleet.compile import cluster_objects, unit_objects
from reconciler.fleet.values import DeletionPolicy, Konnector, Mode, Owner, Rbac
from reconciler.fleet.wanted import default_placement
from reconciler.planning.objects import differences
from tests.support import fleets
from tests.support.raw import http_session

CONTAINER: Manifest = {
    "imagePullPolicy": "Always",
    "command": ["/konnector"],
    "args": ["-v=2"],
    "workingDir": "/",
    "ports": [{"containerPort": 80, "name": "a"}],
    "envFrom": [{"prefix": "A_", "configMapRef": {"name": "a"}}, {"secretRef": {"name": "b"}}],
    "env": [
        {"name": "A", "value": "1"},
        {"name": "EMPTY", "value": ""},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "b", "key": "b"}}},
        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "c"}}},
        {"name": "D", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ],
    "resources": {"limits": {"memory": "0.25Gi", "cpu": 1}, "requests": {"cpu": "0.05"}},
    "livenessProbe": {"grpc": {"port": 1}, "periodSeconds": 5},
    "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 5},
    "startupProbe": {"tcpSocket": {"port": 80}},
    "lifecycle": {"preStop": {"sleep": {"seconds": 1}}, "postStart": {"httpGet": {"port": 80}}},
    "terminationMessagePath": "/dev/a",
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsUser": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
    "stdin": False,
    "tty": True,
}
KONNECTORS = {
    "minimal rights": Konnector(deploy=True, image="registry.example/konnector:1.0.0"),
    "all rights": Konnector(deploy=True, image="registry.example/konnector", rbac=Rbac.FULL),
    "overrides": Konnector(deploy=True, image="a@sha256:" + "0" * 64, overrides=CONTAINER),
    "none": Konnector(image="a"),
}
UNITS = (
    fleets.unit(parameters={"plan": {"size": 1.5, "tags": ["a"], "on": False}}),
    fleets.unit(
        resource=("other.example", "queues"),
        claims=(
            fleets.claim(names=("b", "a"), labels=((("team", "a"),), (("team", "b"),))),
            fleets.claim("configmaps", Owner.CONSUMER, accepted=False, namespaces=("x",)),
        ),
        deletion_policy=DeletionPolicy.DELETE,
    ),
    fleets.unit(resource=("", "things"), claims=()),
)


def wanted_by(mode, konnector):
    """Return everything that a fleet with one app cluster wants, nothing left unknown."""
    cluster = fleets.app_cluster(konnector=konnector)
    fleet = fleets.fleet(
        control_planes=[fleets.control_plane(mode=mode)], clusters=[cluster], units=UNITS
    )
    placement = replace(
        default_placement(fleet, cluster),
        cluster_uid="6f1c9c0e",
        address=Address(server="https://a.example:6443", ca="PEM", tls_server_name="a"),
        token=Secret("a.b.c"),
        accepts_all_offered=True,
    )
    found = [*cluster_objects(fleet, cluster, placement, units=UNITS)]
    for unit in UNITS:
        found += unit_objects(fleet, unit, placement, claims=unit.claims, required=unit.claims[:1])
    # The CRD is one of our files, and tested as such.
    return [wanted for wanted in found if wanted.ref.kind != CRD]


CASES = {
    f"{mode.value}, {name}: {wanted.ref.object}": wanted
    for mode in Mode
    for name, konnector in KONNECTORS.items()
    for wanted in wanted_by(mode, konnector)
}


@pytest.fixture
def post(control_plane, namespace):
    """Create an object in a dry run, strictly; return what was sent and what would be stored."""

    async def call(wanted):
        kind, manifest = wanted.ref.kind, wanted.manifest
        # A dry run needs a namespace that is there, and a name that is not.
        if kind.namespaced and namespace_of(manifest):
            manifest = put(manifest, namespace, "metadata", "namespace")
        else:
            manifest = put(manifest, f"test-{uuid.uuid4().hex[:8]}", "metadata", "name")
        root = f"/apis/{kind.group}" if kind.group else "/api"
        place = f"/namespaces/{namespace}" if kind.namespaced else ""
        path = f"{root}/{kind.version}{place}/{kind.plural}"
        query = {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": "klutchctl"}
        async with (
            http_session(control_plane.connection) as session,
            session.post(path, params=query, json=manifest) as response,
        ):
            live = await response.json()
            assert response.status == 201, json.dumps(live, indent=1)
            return manifest, live

    return call


@pytest.mark.parametrize("wanted", CASES.values(), ids=CASES.keys())
async def test_a_new_object_is_accepted_and_has_not_drifted(post, wanted):
    stated, live = await post(wanted)
    assert differences(live, stated) == ()
    if wanted.compared is not None:
        metadata = {"metadata": get(stated, "metadata")}
        assert covers(normalize(live), normalize({**wanted.compared, **metadata}))


async def test_one_that_is_given_all_rights_is_no_longer_confined(control_plane, namespace):
    """So the original's image runs in its place as it would in a Deployment of its own."""
    cluster = control_plane.cluster
    spec = KONNECTORS["minimal rights"]
    minimal, full = (
        konnector_of(replace(spec, rbac=rbac), namespace) for rbac in (Rbac.MINIMAL, Rbac.FULL)
    )
    live = await cluster.create(minimal.manifest, DEPLOYMENT, manager=keys.MANAGER_CLI)
    assert differences(live, minimal.stated, whole=minimal.manifest) == ()
    paths = " ".join(one.path for one in differences(live, full.stated, whole=full.manifest))
    for name in ("securityContext", "livenessProbe", "startupProbe", "resources"):
        assert f"/{name}" in paths
    taken = created_to_applied(live, manager=keys.MANAGER_CLI)
    assert taken is not None
    ref = Ref(cluster.name, DEPLOYMENT, namespace, names.KONNECTOR)
    live = await cluster.json_patch(ref, taken, manager=keys.MANAGER_CLI)
    body = server_side_apply.body(live, full.stated, whole=full.manifest, manager=keys.MANAGER_CLI)
    live = await cluster.apply(body, DEPLOYMENT, manager=keys.MANAGER_CLI, force=True)
    assert differences(live, full.stated, whole=full.manifest) == ()
    made = await cluster.create(
        put(full.manifest, "another", "metadata", "name"), DEPLOYMENT, manager=keys.MANAGER_CLI
    )
    assert get(live, "spec") == get(made, "spec")


def konnector_of(spec, namespace):
    (found,) = (one for one in wanted_by(Mode.DIRECT, spec) if one.ref.kind == DEPLOYMENT)
    assert found.compared is not None
    manifest, compared = (
        put(one, namespace, "metadata", "namespace") for one in (found.manifest, found.compared)
    )
    return replace(found, manifest=manifest, compared=compared)
