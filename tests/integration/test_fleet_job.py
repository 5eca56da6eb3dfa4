"""The Job of fleet-example: what Argo CD and Flux make of it, as far as that needs neither."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from klutchctl import repository
from klutchctl.exit_codes import ExitCode
from klutchctl.sandbox.control_planes import Program
from reconciler.core.manifest import Manifest, get_list, get_maps, get_text, name_of
from reconciler.core.refs import CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT, Kind, Ref
from reconciler.fleet.values import Mode
from reconciler.source import folder
from tests.support.apply_runs import staged
from tests.support.eventually import eventually

EXAMPLE = Path(__file__).parents[2] / "fleet-example"
JOB = Kind("batch", "v1", "Job", "jobs")
POD = Kind("", "v1", "Pod", "pods")
KINDS = {kind.kind: kind for kind in (CONFIG_MAP, JOB, NAMESPACE, SERVICE_ACCOUNT)}
PATIENCE = 90.0  # seconds: a Job's controller pauses 10 s before it tries again


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((EXAMPLE / name).read_text()))


def generated() -> dict[str, str]:
    """Return the paths of the fleet's files by the keys that they have in the ConfigMap."""
    (kustomization,) = documents("kustomization.yaml")
    (generator,) = kustomization["configMapGenerator"]
    pairs = [one.split("=") for one in generator["files"]]
    return {pair[0]: pair[-1] for pair in pairs}


def manifests(namespace: str) -> dict[str, Manifest]:
    """Return what the kustomization makes, by kind, in another namespace."""
    data = {key: (EXAMPLE / path).read_text() for key, path in generated().items()}
    files: Manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "fleet"}}
    made = {one["kind"]: one for one in [*documents("pipelines/job.yaml"), {**files, "data": data}]}
    for kind, one in made.items():
        place = {} if kind == "Namespace" else {"namespace": namespace}
        one["metadata"] |= place
    made["Namespace"]["metadata"]["name"] = namespace
    return made


def test_the_volume_holds_the_files_of_the_fleet_where_they_belong():
    files = generated()
    assert {*files.values()} == {*folder.read(EXAMPLE).files}
    volumes = get_maps(manifests("x")["Job"], "spec", "template", "spec", "volumes")
    (items,) = [get_maps(one, "configMap", "items") for one in volumes if one["name"] == "fleet"]
    assert {get_text(one, "key"): get_text(one, "path") for one in items} == files


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kustomize comes with kubectl")
def test_kustomize_names_the_config_map_by_its_content():
    command = ["kubectl", "kustomize", str(EXAMPLE)]
    built = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {one["kind"]: one for one in yaml.safe_load_all(built)}
    name = found["ConfigMap"]["metadata"]["name"]
    assert name.startswith("fleet-")
    volumes = found["Job"]["spec"]["template"]["spec"]["volumes"]
    assert [one["configMap"]["name"] for one in volumes if "configMap" in one] == [name]
    assert found["ConfigMap"]["data"] == manifests("klutchctl")["ConfigMap"]["data"]
    assert {one["metadata"].get("namespace", "klutchctl") for one in found.values()} == {
        "klutchctl"
    }


def test_argo_cd_and_flux_are_led_to_the_kustomization():
    (application,) = documents("pipelines/argocd.yaml")
    source, kustomization = documents("pipelines/flux.yaml")
    assert application["spec"]["source"]["path"] == "."
    assert kustomization["spec"]["path"] == "./"
    assert kustomization["spec"]["sourceRef"]["name"] == source["metadata"]["name"]
    # It would replace the variables in the files of the fleet.
    assert "postBuild" not in kustomization["spec"]
    assert application["spec"]["source"]["targetRevision"] == source["spec"]["ref"]["branch"]


async def test_a_real_api_server_takes_all_of_it(control_plane, namespace):
    for kind, manifest in manifests(namespace).items():
        # Server-side apply refuses a field that the kind does not have.
        made = await control_plane.cluster.apply(
            manifest, KINDS[kind], manager="tests", force=True, dry_run=True
        )
        assert name_of(made) == name_of(manifest)


def volume(top: Path, files: dict[str, str]) -> Path:
    """Lay files out as the kubelet does: what it shows are links to a folder beneath."""
    inner = top / "..2026_01_01"
    for path, text in files.items():
        (inner / path).parent.mkdir(parents=True, exist_ok=True)
        (inner / path).write_text(text)
    (top / "..data").symlink_to(inner.name)
    for name in sorted({path.partition("/")[0] for path in files}):
        (top / name).symlink_to(f"..data/{name}")
    return top


def command(mounted: Path) -> list[str]:
    (container,) = get_list(manifests("x")["Job"], "spec", "template", "spec", "containers")
    assert isinstance(container, dict)
    program, *_ = container["command"]
    binary = Path(sys.executable).with_name(program)
    return [str(binary), *(one.replace("/fleet", str(mounted)) for one in container["args"])]


def test_the_mounted_files_are_the_fleet(tmp_path):
    data = {path: (EXAMPLE / path).read_text() for path in generated().values()}
    mounted = repository.fleet_in(volume(tmp_path, data) / "..data", check_owner=False)
    assert mounted.digest == repository.fleet_in(EXAMPLE, check_owner=False).digest


async def test_the_command_of_the_job_applies_what_is_mounted(
    control_plane, app_cluster, namespace, tmp_path
):
    mode = Mode.DIRECT
    made = staged(control_plane, app_cluster, namespace=namespace, mode=mode, folder=tmp_path)
    async with made as scene, scene.peers():
        scene.fleet.write()
        text = (tmp_path / "fleet.yaml").read_text()
        mounted = volume(tmp_path / "volume", {"fleet.yaml": text})
        process = await asyncio.create_subprocess_exec(
            *command(mounted),
            env={"KUBECONFIG": str(scene.kubeconfig), "HOME": str(tmp_path)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        assert process.returncode == 0, out.decode()
        assert await scene.at(scene.binding) is not None


@pytest.fixture
def job_controller(control_plane, programs, tmp_path):
    """Run the one controller that a sandbox does without."""
    access = yaml.safe_load(control_plane.kubeconfig.read_text())
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(access | {"current-context": control_plane.context}))
    arguments = (
        f"--kubeconfig={file}",
        "--controllers=job-controller",
        "--leader-elect=false",
        "--secure-port=0",
    )
    log = (tmp_path / "controller.log").open("wb")
    with (
        log,
        subprocess.Popen(
            [str(programs[Program.CONTROLLER_MANAGER]), *arguments],
            env={"PATH": os.environ["PATH"]},
            stdout=log,
            stderr=log,
        ) as process,
    ):
        yield
        process.send_signal(signal.SIGKILL)


async def test_a_held_lock_is_tried_again_for_ever_and_a_guard_ends_the_job(
    control_plane, namespace, job_controller
):
    """Pods are ended here as a kubelet would, since no node runs them."""
    cluster, made = control_plane.cluster, manifests(namespace)
    for kind in ("Namespace", "ServiceAccount", "Job"):
        await cluster.apply(made[kind], KINDS[kind], manager="tests", force=True)
    ref = Ref(cluster.name, JOB, namespace, name_of(made["Job"]))
    ended = set()

    async def end_next(code):
        async def started():
            pods = map(name_of, (await cluster.list(POD, namespace=namespace)).items)
            return next((one for one in pods if one not in ended), "")

        name: str = await eventually(started, within=PATIENCE)
        ended.add(name)
        state = {"terminated": {"exitCode": code.value}}
        status = {"name": "klutchctl", "ready": False, "restartCount": 0, "state": state}
        told = {"image": "x", "imageID": "x"}
        patch = {"status": {"phase": "Failed", "containerStatuses": [status | told]}}
        pod = Ref(cluster.name, POD, namespace, name)
        await cluster.merge_patch(pod, patch, manager="tests", subresource="status")

    async def failed():
        conditions = get_maps(await cluster.get(ref) or {}, "status", "conditions")
        return next((get_text(one, "reason") for one in conditions if one["type"] == "Failed"), "")

    await end_next(ExitCode.LOCKED)
    await end_next(ExitCode.HELD_BACK)
    assert await eventually(failed, within=PATIENCE) == "PodFailurePolicy"
    job = await cluster.get(ref)
    assert job is not None
    status = job["status"]
    assert isinstance(status, dict)
    # Only what ended the Job is counted against its limit.
    assert status["failed"] == 1
