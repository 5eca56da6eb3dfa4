"""The Job of fleet-example: what Argo CD and Flux make of it, as far as that needs neither."""

import shutil
import subprocess
from typing import Any

import pytest
import yaml

from klutchctl.entry import ExitCode
from reconciler.core.manifest import Manifest, annotations_of, get_list, get_maps, get_text, name_of
from reconciler.core.refs import NAMESPACE, SERVICE_ACCOUNT
from tests.pipelines.jobs import EXAMPLE as PIPELINES
from tests.pipelines.jobs import JOB, runner, with_job
from tests.support.apply_runs import mode, scene
from tests.support.controllers import files
from tests.support.eventually import eventually

__all__ = ["files", "mode", "runner", "scene"]

KINDS = {kind.kind: kind for kind in (JOB, NAMESPACE, SERVICE_ACCOUNT)}
REVISION = "klutchctl.dev/revision"


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((PIPELINES / name).read_text()))


def manifests(namespace: str) -> dict[str, Manifest]:
    """Return what the kustomization makes, by kind, in another namespace."""
    made = {one["kind"]: one for one in documents("job.yaml")}
    for kind, one in made.items():
        one["metadata"] |= {} if kind == "Namespace" else {"namespace": namespace}
    made["Namespace"]["metadata"]["name"] = namespace
    return made


def container() -> dict[str, Any]:
    template = documents("job.yaml")[-1]["spec"]["template"]
    (found,) = template["spec"]["containers"]
    return {**found, "annotations": template["metadata"]["annotations"]}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kustomize comes with kubectl")
def test_argo_cd_tells_the_job_the_commit_by_an_annotation(tmp_path):
    """Also of a plain object, or no commit would be a sync: hooks are not compared."""
    (application,) = documents("argocd.yaml")
    said = application["spec"]["source"]["kustomize"]
    assert said["commonAnnotationsEnvsubst"] is True
    shutil.copytree(PIPELINES, tmp_path / "pipelines")
    kustomization = tmp_path / "pipelines" / "kustomization.yaml"
    text = yaml.safe_dump({"commonAnnotations": said["commonAnnotations"]})
    text = text.replace("$ARGOCD_APP_REVISION", "c" * 40)
    kustomization.write_text(kustomization.read_text() + text)
    command = ["kubectl", "kustomize", str(kustomization.parent)]
    built = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {one["kind"]: one for one in yaml.safe_load_all(built)}
    assert found.keys() == KINDS.keys()
    template = found["Job"]["spec"]["template"]
    assert annotations_of(template) == annotations_of(found["ServiceAccount"])
    assert annotations_of(template) == {REVISION: "c" * 40}
    assert not [key for key in annotations_of(found["ServiceAccount"]) if "hook" in key]
    assert found["ServiceAccount"]["metadata"]["namespace"] == "klutchctl"


def test_argo_cd_and_flux_are_led_to_the_kustomization():
    (application,) = documents("argocd.yaml")
    source, kustomization = documents("flux.yaml")
    assert application["spec"]["source"]["path"] == kustomization["spec"]["path"].strip("./")
    assert kustomization["spec"]["path"] == "./pipelines"
    assert kustomization["spec"]["sourceRef"]["name"] == source["metadata"]["name"]
    urls = {application["spec"]["source"]["repoURL"], source["spec"]["url"]}
    assert urls == {one["value"] for one in container()["env"] if one["name"] == "FLEET_URL"}
    branches = {application["spec"]["source"]["targetRevision"], source["spec"]["ref"]["branch"]}
    assert branches == {*container()["annotations"].values()}


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


@pytest.fixture
def space(namespace):
    return f"{namespace}-jobs"  # other tests use the controller's


async def test_the_command_of_the_job_applies_the_commit(scene, files, runner, space):
    with_job(files)
    commit = files.push()
    text = (scene.fleet.folder / "pipelines" / "job.yaml").read_text()
    *_, made = yaml.safe_load_all(text)
    made["metadata"]["namespace"] = space
    made["spec"]["template"]["metadata"]["annotations"][REVISION] = commit
    scene.fleet.bound = False
    files.push()
    async with scene.peers():
        await scene.plane.cluster.create(made, JOB, manager="tests")
        await eventually(lambda: runner.ended)
    (ended,) = runner.ended
    assert ended.code == 0, ended.output
    assert await scene.at(scene.binding) is not None
