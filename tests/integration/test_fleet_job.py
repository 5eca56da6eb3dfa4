"""The Job of fleet-example: what Argo CD and Flux make of it, as far as that needs neither."""

import os
from typing import Any

import pygit2
import pytest
import yaml

from klutchctl.entry import ExitCode
from reconciler.core.manifest import Manifest, get_list, get_maps, get_text, name_of
from reconciler.core.refs import NAMESPACE, SERVICE_ACCOUNT
from tests.pipelines.example import EXAMPLE, with_example
from tests.pipelines.jobs import JOB, runner
from tests.support import programs
from tests.support.apply_runs import mode, scene
from tests.support.applying import Fleet
from tests.support.controllers import deeds, files
from tests.support.eventually import eventually
from tests.support.flux import archives
from tests.support.signing import signed_commit
from tests.unit.source.test_archive import REFUSED as ARCHIVES

__all__ = ["files", "mode", "runner", "scene"]

KINDS = {kind.kind: kind for kind in (JOB, NAMESPACE, SERVICE_ACCOUNT)}
REVISION = "klutchctl.dev/revision"


def manifests(namespace: str) -> dict[str, Manifest]:
    """Return what the kustomization makes, by kind, in another namespace."""
    found = yaml.safe_load_all((EXAMPLE / "job.yaml").read_text())
    made: dict[str, Any] = {one["kind"]: one for one in found}
    for kind, one in made.items():
        one["metadata"] |= {} if kind == "Namespace" else {"namespace": namespace}
    made["Namespace"]["metadata"]["name"] = namespace
    return made


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


def sixty_files(fleet):
    """Write a fleet as one of many teams: none of its files is named anywhere."""
    Fleet.write(fleet)
    first, *others = yaml.safe_load_all((fleet.folder / "fleet.yaml").read_text())
    first["spec"]["include"] = ["files/*.yaml"]
    kind = {"apiVersion": first["apiVersion"], "kind": "Policy"}
    policy = {"paths": ["other/**"], "limits": {"bindingsPerCluster": 5}}
    names = (f"team-{number}" for number in range(59 - len(others)))
    others += [{**kind, "metadata": {"name": name}, "spec": policy} for name in names]
    files = {"fleet.yaml": first} | {f"files/{n}.yaml": one for n, one in enumerate(others)}
    for path, one in files.items():
        (fleet.folder / path).parent.mkdir(exist_ok=True)
        (fleet.folder / path).write_text(yaml.safe_dump(one))


async def test_the_command_of_the_job_applies_its_commit_once_and_nothing_that_cannot_be_read(
    scene, files, runner, space, monkeypatch
):
    folder = with_example(files)
    monkeypatch.setattr(scene.fleet, "write", lambda: sixty_files(scene.fleet))
    commit = files.push()
    *_, made = yaml.safe_load_all((folder / "job.yaml").read_text())
    made["metadata"]["namespace"] = space
    made["spec"]["template"]["metadata"]["annotations"][REVISION] = commit
    scene.fleet.bound = False
    newer = files.push()

    async def applied(*place):
        command = ("--kubeconfig", str(scene.kubeconfig), "apply", *place, "--auto-approve")
        return await programs.klutchctl_beside(*command, environ={**os.environ, **files.environ})

    async with scene.peers():
        await scene.plane.cluster.create(made, JOB, manager="tests")
        await eventually(lambda: runner.ended)
        (ended,) = runner.ended
        assert ended.code == 0, ended.output
        assert await scene.at(scene.binding) is not None
        marks, git = scene.marks(), files.options[:2]
        again = await applied(*git, "--ref", commit)
        assert (again.returncode, deeds(scene, marks)) == (0, []), again.stderr
        root = signed_commit(pygit2.Repository(str(files.bare)), {"x": b""}, parents=[])
        for ref in ("f" * 40, newer, root, "main"):  # unknown, pushed over, and no fleet
            assert (await applied(*git, "--ref", ref)).returncode == ExitCode.INVALID, ref
        with archives() as served:
            for name in ("two GiB", "a link out", "a device"):
                found = served.offers(ARCHIVES[name][0], commit)
                ended = await applied("--artifact", f"{found['url']}@{found['digest']}")
                assert ended.returncode == ExitCode.INVALID, name
                assert ARCHIVES[name][1] in " ".join(ended.stderr.split())
        assert deeds(scene, marks) == []
