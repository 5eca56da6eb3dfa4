"""The manifests of bind/deploy: whole, known to an API server, and to the program."""

from typing import Any

import pytest
import yaml

from bind import settings as flags
from reconciler.core import names
from reconciler.core.manifest import get_maps, get_texts, name_of
from reconciler.core.refs import DEPLOYMENT, LEASE, NAMESPACE, ROLE
from tests.support import deployed
from tests.support.deployed import CLUSTER_SCOPE, CONTROL_PLANE_MODE, DEPLOY, FOLDER, FRONT_DOOR
from tests.support.raw import http_session

FOLDERS = [FOLDER, CONTROL_PLANE_MODE, CLUSTER_SCOPE, FRONT_DOOR]
MOUNTED = "/etc/klutch-bind/"


def folder_ids(folder):
    return folder.name


@pytest.mark.parametrize("folder", FOLDERS, ids=folder_ids)
def test_a_kustomization_names_all_files_beside_it(folder):
    named = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    beside = {one.name for one in folder.glob("*.yaml")} - {"kustomization.yaml"}
    bases = {one for one in named if one not in beside}
    assert {*named} == beside | bases
    assert bases == (set() if folder == FOLDER else {"../default-mode"})
    # Kustomize refuses a base that contains the folder which names it.
    assert not [one for one in bases if folder.is_relative_to((folder / one).resolve())]


def test_every_folder_is_tried_here():
    assert {one.parent for one in DEPLOY.rglob("kustomization.yaml")} == {*FOLDERS}


@pytest.mark.parametrize("folder", FOLDERS, ids=folder_ids)
def test_the_program_knows_its_arguments(folder, tmp_path):
    deployment = deployed.only(DEPLOYMENT, deployed.built(folder))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    given = flags.parse(with_files(container, tmp_path))
    assert given.unserved == ()
    assert given.leader_election
    assert given.control_plane_mode == (folder == CONTROL_PLANE_MODE)
    assert given.consumer_scope == ("Cluster" if folder == CLUSTER_SCOPE else "Namespaced")
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert given.probes == ("0.0.0.0", ports["probes"])
    images = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["images"]
    assert [one["name"] for one in images] == [container["image"]]


def with_files(container, folder):
    """Return the arguments with files in a folder in place of those that a Pod has."""
    (folder / "oidc").mkdir()
    (folder / "oidc" / "client-secret").write_text("canary\n")
    return [one.replace(MOUNTED, f"{folder}/") for one in container["args"]]


def test_the_front_door_is_where_the_service_and_the_network_policy_lead(tmp_path):
    made = deployed.built(FRONT_DOOR)
    pod = deployed.only(DEPLOYMENT, made)["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    door = flags.parse(with_files(container, tmp_path)).door
    assert door is not None
    assert door.authorization == "SubjectAccessReview"
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert door.listen == ("0.0.0.0", ports["door"])
    network = deployed.only(deployed.NETWORK_POLICY, made)["spec"]["ingress"]
    assert network == [{"ports": [{"protocol": "TCP", "port": ports["door"]}]}]
    service = deployed.only(deployed.SERVICE, made)["spec"]
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    assert service["ports"][0]["targetPort"] == "door"
    ingress = deployed.only(deployed.INGRESS, made)["spec"]
    (rule,) = ingress["rules"]
    assert door.public == f"https://{rule['host']}"
    (path,) = rule["http"]["paths"]
    assert path["backend"]["service"]["port"]["name"] == service["ports"][0]["name"]


def test_the_files_of_the_front_door_are_those_of_its_secrets():
    pod = deployed.only(DEPLOYMENT, deployed.built(FRONT_DOOR))["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    secrets = {one["name"]: one["secret"]["secretName"] for one in pod["spec"]["volumes"]}
    assert mounts.keys() == secrets.keys()
    named = [one.partition("=")[2] for one in container["args"] if MOUNTED in one]
    assert {one.rpartition("/")[0] for one in named} == {*mounts.values()}
    (tls,) = deployed.only(deployed.INGRESS, deployed.built(FRONT_DOOR))["spec"]["tls"]
    assert tls["secretName"] == secrets["tls"]


@pytest.mark.parametrize("folder", FOLDERS, ids=folder_ids)
def test_the_role_names_the_lease_of_the_program(folder):
    role = deployed.only(ROLE, deployed.built(folder))
    rules = [one for one in get_maps(role, "rules") if LEASE.plural in get_texts(one, "resources")]
    assert [get_texts(one, "resourceNames") for one in rules] == [[], [names.BACKEND_LEASE]]


@pytest.mark.parametrize("folder", FOLDERS, ids=folder_ids)
async def test_the_api_server_knows_every_field(control_plane, folder):
    made = deployed.built(folder)
    await deployed.apply(control_plane.cluster, [deployed.only(NAMESPACE, made)])
    async with http_session(control_plane.connection) as session:
        for one in made:
            kind = deployed.KINDS[one["kind"]]
            query = "dryRun=All&force=true&fieldManager=tests&fieldValidation=Strict"
            async with session.patch(
                f"{place(one)}?{query}",
                data=yaml.safe_dump(one),
                headers={"Content-Type": "application/apply-patch+yaml"},
            ) as answer:
                assert answer.status in (200, 201), (kind, await answer.text())
                assert "Warning" not in answer.headers


def place(one: Any) -> str:
    kind = deployed.KINDS[one["kind"]]
    root = f"/apis/{kind.api_version}" if kind.group else "/api/v1"
    namespace = one["metadata"].get("namespace")
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{inside}/{kind.plural}/{name_of(one)}"
