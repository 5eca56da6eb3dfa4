"""The manifests of bind/deploy: whole, known to an API server, and to the program."""

import re

import pytest
import yaml

from bind import settings as flags
from bind.osb import settings as osb_flags
from reconciler.core import names
from reconciler.core.manifest import get_maps, get_texts, labels_of, name_of
from reconciler.core.refs import DEPLOYMENT, LEASE, NAMESPACE, ROLE
from tests.support import deployed

BACKENDS = [
    deployed.FOLDER,
    deployed.CONTROL_PLANE_MODE,
    deployed.CLUSTER_SCOPE,
    deployed.FRONT_DOOR,
]
OF_BROKERS = [deployed.OSB, deployed.DATASERVICES]
FOLDERS = [*BACKENDS, *OF_BROKERS]
BASES = {deployed.DATASERVICES: {"../osb"}, **{one: {"../default-mode"} for one in BACKENDS[1:]}}
CONTAINERFILE = (deployed.DEPLOY / "Containerfile").read_text("utf-8")
MOUNTED = "/etc/klutch-bind/"


def folder_ids(folder):
    return folder.name


@pytest.mark.parametrize("folder", FOLDERS, ids=folder_ids)
def test_a_kustomization_names_all_files_beside_it(folder):
    assert deployed.bases_of(folder) == BASES.get(folder, set())


def test_every_folder_is_tried_here():
    assert {one.parent for one in deployed.DEPLOY.rglob("kustomization.yaml")} == {*FOLDERS}


@pytest.mark.parametrize("folder", BACKENDS, ids=folder_ids)
def test_the_program_knows_its_arguments(folder, tmp_path):
    deployment = deployed.only(DEPLOYMENT, deployed.built(folder))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    given = flags.parse(with_files(container, tmp_path))
    assert given.unserved == ()
    assert given.leader_election
    assert given.control_plane_mode == (folder == deployed.CONTROL_PLANE_MODE)
    assert given.consumer_scope == ("Cluster" if folder == deployed.CLUSTER_SCOPE else "Namespaced")
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert given.probes == ("0.0.0.0", ports["probes"])
    images = yaml.safe_load((deployed.FOLDER / "kustomization.yaml").read_text())["images"]
    assert [one["name"] for one in images] == [container["image"]]


@pytest.mark.parametrize("folder", OF_BROKERS, ids=folder_ids)
def test_the_program_of_brokers_is_in_the_same_image_and_knows_its_arguments(folder):
    (container,) = pod_of(folder)["containers"]
    # Where the image has the programs of the wheel.
    (home,) = re.findall(r'^ENTRYPOINT \["(.*)/klutch-bind"\]$', CONTAINERFILE, re.MULTILINE)
    assert container["command"] == [f"{home}/klutch-osb"]
    given = osb_flags.parse(container["args"])
    assert given.unserved == ()
    assert given.leader_election
    assert given.dataservices == (folder == deployed.DATASERVICES)
    refused = given.allow_plain_http, given.allow_loopback, given.allow_insecure
    assert refused == (False, False, False)
    assert given.probes == ("0.0.0.0", container["ports"][0]["containerPort"])
    (image,) = yaml.safe_load((deployed.OSB / "kustomization.yaml").read_text())["images"]
    assert [image] == yaml.safe_load((deployed.FOLDER / "kustomization.yaml").read_text())["images"]
    assert image["name"] == container["image"]


def pod_of(folder):
    return deployed.only(DEPLOYMENT, deployed.built(folder))["spec"]["template"]["spec"]


def test_both_programs_are_confined_alike():
    ours, theirs = (pod_of(folder) for folder in (deployed.OSB, deployed.FOLDER))
    assert ours["securityContext"] == theirs["securityContext"]
    for part in ("securityContext", "resources", "startupProbe", "livenessProbe", "readinessProbe"):
        assert ours["containers"][0][part] == theirs["containers"][0][part]
    made = deployed.built(deployed.OSB), deployed.built(deployed.FOLDER)
    labels = [labels_of(deployed.only(NAMESPACE, one)) for one in made]
    assert labels[0] == labels[1]
    network = [deployed.only(deployed.NETWORK_POLICY, one)["spec"]["egress"] for one in made]
    assert network[0] == network[1]


def with_files(container, folder):
    (folder / "oidc").mkdir()
    (folder / "oidc" / "client-secret").write_text("canary\n")
    return [one.replace(MOUNTED, f"{folder}/") for one in container["args"]]


def test_the_front_door_is_where_the_service_and_the_network_policy_lead(tmp_path):
    made = deployed.built(deployed.FRONT_DOOR)
    pod = deployed.only(DEPLOYMENT, made)["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    door = flags.parse(with_files(container, tmp_path)).door
    assert door is not None
    assert door.authorization == "SubjectAccessReview"
    assert len(door.trusted_proxies) == 1
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
    pod = deployed.only(DEPLOYMENT, deployed.built(deployed.FRONT_DOOR))["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    secrets = {one["name"]: one["secret"]["secretName"] for one in pod["spec"]["volumes"]}
    assert mounts.keys() == secrets.keys()
    named = [one.partition("=")[2] for one in container["args"] if MOUNTED in one]
    assert {one.rpartition("/")[0] for one in named} == {*mounts.values()}
    (tls,) = deployed.only(deployed.INGRESS, deployed.built(deployed.FRONT_DOOR))["spec"]["tls"]
    assert tls["secretName"] == secrets["tls"]


@pytest.mark.parametrize("folder", FOLDERS, ids=folder_ids)
def test_the_role_names_the_lease_of_the_program(folder):
    role = deployed.only(ROLE, deployed.built(folder))
    rules = [one for one in get_maps(role, "rules") if LEASE.plural in get_texts(one, "resources")]
    lease = names.OSB_LEASE if folder in OF_BROKERS else names.BACKEND_LEASE
    assert [get_texts(one, "resourceNames") for one in rules] == [[], [lease]]


@pytest.mark.parametrize("folder", FOLDERS, ids=folder_ids)
async def test_the_api_server_knows_every_field(control_plane, folder):
    await deployed.check_fields(
        control_plane.cluster, control_plane.connection, deployed.built(folder)
    )


def test_each_flow_has_its_level_and_the_backend_goes_before_accounts_of_spaces():
    made = deployed.built(deployed.FOLDER)
    levels = [name_of(one) for one in made if one["kind"] == "PriorityLevelConfiguration"]
    flows = [one["spec"] for one in made if one["kind"] == "FlowSchema"]
    assert [one["priorityLevelConfiguration"]["name"] for one in flows] == levels
    ours, theirs = (one["matchingPrecedence"] for one in flows)
    assert ours < theirs < 9000  # that of `service-accounts`, where all of them are else
    assert {one["distinguisherMethod"]["type"] for one in flows} == {"ByUser"}
