"""klutchctl/deploy/controller: whole, known to an API server and to the program; its rights."""

from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

import klutchctl
from klutchctl import main
from reconciler.core.manifest import labels_of, name_of
from reconciler.core.refs import DEPLOYMENT, NAMESPACE, SERVICE_ACCOUNT
from tests.support import deployed
from tests.support.accounts import token_of
from tests.support.apply_runs import mode, scene
from tests.support.controllers import controller, forget, repository
from tests.support.event_rights import recorded_and_counted
from tests.support.eventually import eventually
from tests.support.role_holders import operator

__all__ = ["mode", "scene"]

FOLDER = Path(klutchctl.__file__).parent / "deploy" / "controller"
MADE = deployed.built(FOLDER)
OWN = "klutchctl"  # the namespace


def pod() -> Any:
    return deployed.only(DEPLOYMENT, MADE)["spec"]["template"]["spec"]


def test_the_kustomization_names_all_files_beside_it():
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    beside = {one.name for one in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert {*kustomization["resources"]} == beside
    assert [one["name"] for one in kustomization["images"]] == [pod()["containers"][0]["image"]]


def test_one_process_writes_and_the_pod_is_confined_as_that_of_the_backend():
    backend = deployed.only(DEPLOYMENT, deployed.built())["spec"]["template"]["spec"]
    (container,), (theirs,) = pod()["containers"], backend["containers"]
    for part in ("securityContext", "startupProbe", "livenessProbe", "readinessProbe"):
        probe = yaml.safe_dump(theirs[part]).replace("port: probes", "port: metrics")
        assert container[part] == yaml.safe_load(probe)
    assert backend["securityContext"].items() <= pod()["securityContext"].items()
    spec = deployed.only(DEPLOYMENT, MADE)["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    spaces = [labels_of(deployed.only(NAMESPACE, one)) for one in (MADE, deployed.built())]
    assert spaces[0] == spaces[1]
    assert name_of(deployed.only(SERVICE_ACCOUNT, MADE)) == pod()["serviceAccountName"]


def test_the_program_knows_its_arguments_and_every_file_is_mounted(capsys):
    (container,) = pod()["containers"]
    assert main.run([*container["args"], "--help"]) == 0
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert mounts.keys() == {one["name"] for one in pod()["volumes"]}
    said = [one["value"] for one in container["env"] if one.get("value", "").startswith("/")]
    said += [one.partition("=")[2] for one in container["args"] if "=/" in one]
    for path in said:
        assert path in mounts.values() or str(Path(path).parent) in mounts.values(), path
    assert container["command"] == ["/app/bin/klutchctl"]
    assert "ENV PATH=/app/bin:" in (FOLDER.parent / "Containerfile").read_text("utf-8")


async def test_the_api_server_knows_every_field(control_plane):
    await deployed.check_fields(control_plane.cluster, control_plane.connection, MADE)


@asynccontextmanager
async def installed(scene, folder):
    """Install the rights; yield what hears, its way, and a kubeconfig with a context `home`."""
    plane = scene.plane
    async with (
        deployed.installed(plane.cluster, plane.connection, MADE) as way,
        deployed.heard(way) as (heard, hearing),
        operator((plane, scene.app), folder) as (kubeconfig, _),
    ):
        whole = yaml.safe_load(kubeconfig.read_text())
        token = await token_of(plane.cluster, OWN, name_of(deployed.only(SERVICE_ACCOUNT, MADE)))
        whole["clusters"].append({"name": "home", "cluster": {"server": heard.server}})
        whole["users"].append({"name": "home", "user": {"token": token}})
        whole["contexts"].append({"name": "home", "context": {"cluster": "home", "user": "home"}})
        kubeconfig.write_text(yaml.safe_dump(whole))
        yield hearing, heard, kubeconfig
        await forget(scene, OWN)


async def test_what_it_keeps_for_itself_needs_these_rights_and_no_other(scene, tmp_path):
    home = ("--home-context", "home", "--lease-namespace", OWN, "--interval", "1")
    async with installed(scene, tmp_path) as (hearing, heard, kubeconfig):
        with repository(scene, tmp_path) as files:
            scene.fleet.folder = tmp_path / "fleet"
            scene.fleet.folder.mkdir()
            files.push()
            async with controller(scene, files, *home, kubeconfig=kubeconfig) as running:
                await eventually(lambda: deployed.granted(MADE) - hearing.used() <= EVENTS)
                assert await running.end() == 143
        await recorded_and_counted(heard, OWN, inside=True)
        assert hearing.refused() == set()
        assert deployed.granted(MADE) - hearing.used() == set()


EVENTS = {deployed.Right("events.k8s.io", "events", verb) for verb in ("create", "patch")}
