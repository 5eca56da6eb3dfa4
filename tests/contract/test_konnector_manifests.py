"""The manifests of konnector/deploy: whole, known to an API server and to the program.

They give a konnector exactly the rights that klutchctl gives one, and replace the original's.
"""

import contextlib
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

import konnector
from klutchctl.sandbox.addons.agents import REVIEW
from konnector import settings
from reconciler.blueprints import rbac
from reconciler.blueprints.rbac import Claimed
from reconciler.core import names, refs
from reconciler.core.errors import Forbidden
from reconciler.core.manifest import (
    get,
    get_list,
    get_map,
    get_maps,
    get_text,
    get_texts,
    labels_of,
    name_of,
    namespace_of,
)
from reconciler.kube.client import KubeCluster
from tests.support import deployed, removal
from tests.support.accounts import token_of, with_token
from tests.support.deployed import KINDS, PDB
from tests.support.eventually import eventually

FOLDER = Path(konnector.__file__).parent / "deploy"
MINIMAL, FULL = FOLDER / "minimal", FOLDER / "full"
FOLDERS = [MINIMAL, FULL]
RECORDED = Path(__file__).parents[1] / "unit" / "blueprints" / "data" / "konnector.yaml"
SERVICES = "klutch-bind-konnector-services"
_POD = refs.Kind("", "v1", "Pod", "pods")


def folder_ids(folder):
    return folder.name


@pytest.mark.parametrize("folder", FOLDERS, ids=folder_ids)
def test_a_kustomization_names_all_files_beside_it(folder):
    deployed.bases_of(folder)


def test_every_folder_is_tried_here():
    assert {one.parent for one in FOLDER.rglob("kustomization.yaml")} == {*FOLDERS}


def test_the_program_knows_its_arguments_and_its_environment():
    container = container_of(deployed.only(refs.DEPLOYMENT, deployed.built(MINIMAL)))
    fields = {
        get_text(one, "name"): get_text(one, "valueFrom", "fieldRef", "fieldPath")
        for one in get_maps(container, "env")
    }
    assert fields == {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "BINDING_NAMESPACE": "",
    }
    (binding_namespace,) = filter(
        None, (get_text(one, "value") for one in get_maps(container, "env"))
    )
    reported = {
        "POD_NAME": "a-pod",
        "POD_NAMESPACE": names.KLUTCH_NAMESPACE,
        "BINDING_NAMESPACE": binding_namespace,
    }
    given = settings.parse(get_texts(container, "args"), reported)
    assert given.unserved == ()
    assert given.leader_election
    assert given.control_plane_mode is None
    assert given.lease_identity == "a-pod"
    assert given.binding_namespace == names.KLUTCH_NAMESPACE
    # The Role names that Lease.
    assert (given.lease_namespace, given.lease_name) == ("klutch-bind", "klutch-bind")
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert given.probes == ("", ports["probes"])
    paths = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    for probe, path in paths.items():
        assert get_map(container, probe, "httpGet") == {"path": path, "port": "probes"}
    images = yaml.safe_load((MINIMAL / "kustomization.yaml").read_text())["images"]
    assert [one["name"] for one in images] == [container["image"]]


def container_of(deployment) -> Any:
    (container,) = get_maps(deployment, "spec", "template", "spec", "containers")
    return container


def test_it_takes_the_place_of_the_originals():
    made = deployed.built(MINIMAL)
    original = {one["kind"]: one for one in yaml.safe_load_all(RECORDED.read_text())}
    for kind in (refs.DEPLOYMENT, refs.CLUSTER_ROLE_BINDING):
        ours = deployed.only(kind, made, name=name_of(original[kind.kind]))
        theirs = original[kind.kind]
        assert namespace_of(ours) == namespace_of(theirs)
        # These cannot be changed once they are there.
        for unchangeable in (("spec", "selector"), ("roleRef",)):
            assert get(ours, *unchangeable) == get(theirs, *unchangeable)
    ours, theirs = deployed.only(refs.DEPLOYMENT, made), original["Deployment"]
    pod = ("spec", "template", "spec")
    assert name_of({"metadata": container_of(ours)}) == name_of({"metadata": container_of(theirs)})
    assert get(ours, *pod, "serviceAccountName") == get(theirs, *pod, "serviceAccountName")
    assert get(ours, "spec", "replicas") == get(theirs, "spec", "replicas")


@pytest.mark.parametrize("folder", FOLDERS, ids=folder_ids)
def test_all_that_is_named_is_there(folder):
    made = deployed.built(folder)
    there = {(one["kind"], namespace_of(one), name_of(one)) for one in made}
    deployment, budget = deployed.only(refs.DEPLOYMENT, made), deployed.only(PDB, made)
    selected = get_map(deployment, "spec", "selector", "matchLabels")
    assert selected == get_map(deployment, "spec", "template", "metadata", "labels")
    assert selected == get_map(budget, "spec", "selector", "matchLabels") == labels_of(deployment)
    account = get_text(deployment, "spec", "template", "spec", "serviceAccountName")
    subject = {"kind": "ServiceAccount", "name": account, "namespace": names.KLUTCH_NAMESPACE}
    for one in made:
        if one["kind"] in (refs.ROLE_BINDING.kind, refs.CLUSTER_ROLE_BINDING.kind):
            role = get_map(one, "roleRef")
            assert (role["kind"], namespace_of(one), role["name"]) in there
            assert get_maps(one, "subjects") == [subject]
        if KINDS[one["kind"]].namespaced:
            assert namespace_of(one) == names.KLUTCH_NAMESPACE
    assert (refs.SERVICE_ACCOUNT.kind, names.KLUTCH_NAMESPACE, account) in there


@pytest.mark.parametrize("folder", FOLDERS, ids=folder_ids)
async def test_the_api_server_knows_every_field(app_cluster, folder):
    await deployed.check_fields(app_cluster.cluster, app_cluster.connection, deployed.built(folder))


async def test_its_pods_may_run_where_security_is_restricted(app_cluster):
    cluster, where = app_cluster.cluster, f"restricted-{uuid.uuid4().hex[:8]}"
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {**object_of(refs.NAMESPACE), "metadata": {"name": where, "labels": enforced}}
    template = get_map(deployed.only(refs.DEPLOYMENT, deployed.built(MINIMAL)), "spec", "template")
    pod = {
        **object_of(_POD),
        "metadata": {**get_map(template, "metadata"), "name": "konnector", "namespace": where},
        "spec": get_map(template, "spec"),
    }
    account = {
        **object_of(refs.SERVICE_ACCOUNT),
        "metadata": {"name": names.KONNECTOR, "namespace": where},
    }
    await cluster.create(namespace, refs.NAMESPACE, manager="tests")
    try:
        await cluster.create(account, refs.SERVICE_ACCOUNT, manager="tests")
        await cluster.create(pod, _POD, manager="tests", dry_run=True)
    finally:
        await removal.remove_manifest(cluster, refs.NAMESPACE, namespace)


def object_of(kind: refs.Kind) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind}


class Right(NamedTuple):
    """A verb on a resource of a group, or on the object of this name only."""

    verb: str
    group: str
    resource: str
    only: str = ""


def rights_of(rules) -> set[Right]:
    return {
        Right(str(verb), str(group), str(resource), str(only))
        for rule in rules
        for verb in get_list(rule, "verbs")
        for group in get_list(rule, "apiGroups")
        for resource in get_list(rule, "resources")
        for only in get_list(rule, "resourceNames") or ("",)
    }


def each(verbs: str, group: str, resources: str, only: str = "") -> set[Right]:
    return {
        Right(verb, group, resource, name)
        for verb in verbs.split()
        for resource in resources.split()
        for name in only.split() or ("",)
    }


CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")
KLUTCH, BOUND = "klutch.anynines.com", "anynines.com"
PLURALS = "backups postgresqlinstances restores servicebindings"
EVERYWHERE = {
    *each("get list watch", "", "namespaces"),
    *each("get list watch create", *CRDS),
    *each("patch", *CRDS, f"apiservicebindings.{KLUTCH}"),
    *each("patch delete", *CRDS, " ".join(f"{one}.{BOUND}" for one in PLURALS.split())),
    *each("list watch patch", KLUTCH, "apiservicebindings"),
    *each("patch", KLUTCH, "apiservicebindings/status"),
    *each("create patch", "events.k8s.io", "events"),
    *each("get list watch create patch", BOUND, PLURALS),
    *each("patch", BOUND, " ".join(f"{one}/status" for one in PLURALS.split())),
    *each("get list watch create patch delete", "", "secrets"),
}
OF_THE_LEASE = {
    *each("create", "coordination.k8s.io", "leases"),
    *each("get patch", "coordination.k8s.io", "leases", "klutch-bind"),
}
OWN_SECRETS = each("get list watch create patch", "", "secrets")


def without_services(made):
    return [one for one in made if name_of(one) != SERVICES]


GIVEN = {
    "minimal": (deployed.built(MINIMAL), EVERYWHERE),
    "minimal, with nothing bound": (
        without_services(deployed.built(MINIMAL)),
        {
            one
            for one in EVERYWHERE
            if BOUND not in (one.group, one.only.partition(".")[2]) and one.resource != "secrets"
        },
    ),
    "full": (without_services(deployed.built(FULL)), {Right("*", "*", "*")}),
}


@contextlib.asynccontextmanager
async def account_of(live, made):
    """Apply all but the workload, and yield the cluster as the konnector's account sees it."""
    applied = [one for one in made if one["kind"] not in (refs.DEPLOYMENT.kind, PDB.kind)]
    where = {"name": names.KONNECTOR, "namespace": names.KLUTCH_NAMESPACE}
    try:
        await deployed.apply(live.cluster, applied)
        token = await token_of(live.cluster, where["namespace"], where["name"])
        async with KubeCluster(with_token(live.connection, token)) as cluster:
            yield cluster
    finally:
        for one in applied:
            if one["kind"] != refs.NAMESPACE.kind:
                await removal.remove_manifest(live.cluster, KINDS[one["kind"]], one)


async def held_in(cluster, namespace) -> set[Right]:
    """Return what this account may do, but for what everybody may."""
    everybody = ("authorization.k8s.io", "authentication.k8s.io")
    review = {**object_of(REVIEW), "spec": {"namespace": namespace}}
    answer = await cluster.create(review, REVIEW, manager="tests")
    held = rights_of(get_maps(answer, "status", "resourceRules"))
    return {one for one in held if one.group not in everybody}


@pytest.mark.parametrize(("made", "everywhere"), GIVEN.values(), ids=GIVEN)
async def test_the_account_holds_exactly_these_rights(app_cluster, made, everywhere):
    inside = everywhere | OF_THE_LEASE | OWN_SECRETS
    wanted = {"default": everywhere, names.KLUTCH_NAMESPACE: inside}
    async with account_of(app_cluster, made) as cluster:
        for namespace, rights_there in wanted.items():

            async def holds(namespace=namespace, rights_there=rights_there):
                held = await held_in(cluster, namespace)
                assert held == rights_there, held ^ rights_there
                return True

            await eventually(holds)


def test_klutchctl_gives_the_same():
    """But it gives all of them by one ClusterRole, and the Secret by its name."""
    secret = "kubeconfig-abc"
    claims = [Claimed("", "secrets", down=True)]
    rules = rbac.minimal([refs.GroupResource(BOUND, one) for one in PLURALS.split()], claims)
    assert rights_of(rules) | rights_of(rbac.minimal_inside(secret)) == (
        EVERYWHERE | OF_THE_LEASE | {one._replace(only=secret) for one in OWN_SECRETS}
    )


async def test_a_right_to_create_what_is_named_is_enough_for_an_apply(app_cluster):
    """So klutchctl's rights let the kubeconfig come back, and no other Secret be made."""
    own = f"kubeconfig-{uuid.uuid4().hex[:5]}"
    made = without_services(deployed.built(MINIMAL))
    for one in made:
        if one["kind"] == "Role":
            one["rules"] = rbac.minimal_inside(own)
    secret = {
        **object_of(refs.SECRET),
        "metadata": {"name": own, "namespace": names.KLUTCH_NAMESPACE},
        "stringData": {"kubeconfig": "x"},
    }
    other = {**secret, "metadata": {**secret["metadata"], "name": f"{own}-other"}}
    async with account_of(app_cluster, made) as cluster:

        async def hears():
            held = await held_in(cluster, names.KLUTCH_NAMESPACE)
            of_others = {Right("*", "*", "*"), Right("list", "", "secrets")}
            return Right("create", "", "secrets", own) in held and not of_others & held

        await eventually(hears)
        for refused in (
            cluster.create(secret, refs.SECRET, manager="tests"),
            cluster.apply(other, refs.SECRET, manager="tests", force=True),
            cluster.list(refs.SECRET, namespace=names.KLUTCH_NAMESPACE),
        ):
            with pytest.raises(Forbidden):
                await refused
        await cluster.apply(secret, refs.SECRET, manager="tests", force=True)
        named = f"metadata.name={own}"
        listed = await cluster.list(refs.SECRET, namespace=names.KLUTCH_NAMESPACE, fields=named)
        assert [name_of(one) for one in listed.items] == [own]
        ref = refs.Ref(app_cluster.name, refs.SECRET, names.KLUTCH_NAMESPACE, own)
        assert await cluster.get(ref) is not None
    await removal.remove_manifest(app_cluster.cluster, refs.SECRET, secret)
