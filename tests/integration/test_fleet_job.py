"""The Job of fleet-example: what Argo CD and Flux make of it, as far as that needs neither."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from klutchctl import repository
from klutchctl.entry import ExitCode
from reconciler.core.manifest import Manifest, get_list, get_maps, get_text, name_of
from reconciler.core.refs import CONFIG_MAP, NAMESPACE, SERVICE_ACCOUNT, Kind
from reconciler.fleet.values import Mode
from reconciler.source import disk
from tests.support.apply_runs import staged

EXAMPLE = Path(__file__).parents[2] / "fleet-example"
JOB = Kind("batch", "v1", "Job", "jobs")
KINDS = {kind.kind: kind for kind in (CONFIG_MAP, JOB, NAMESPACE, SERVICE_ACCOUNT)}


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
    assert {*files.values()} == {*disk.read_folder(EXAMPLE).files}
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


def test_a_held_lock_is_tried_again_for_ever_and_what_a_person_has_to_see_ends_the_job():
    policy = get_maps(manifests("x")["Job"], "spec", "podFailurePolicy", "rules")
    actions = {
        code: get_text(rule, "action")
        for rule in policy
        for code in get_list(rule, "onExitCodes", "values")
    }
    person = (ExitCode.INVALID, ExitCode.DENIED, ExitCode.HELD_BACK, ExitCode.USAGE)
    # What else fails is tried again, and counted.
    assert actions == {ExitCode.LOCKED: "Ignore"} | dict.fromkeys(person, "FailJob")


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
