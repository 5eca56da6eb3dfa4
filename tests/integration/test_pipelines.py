"""The pipelines of fleet-example work: each of their command lines is run, on real clusters.

What only GitHub or GitLab have is played here: their variables, files, and the API for comments.
"""

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from klutchctl.entry import ExitCode
from reconciler.fleet.values import Mode
from tests.support.apply_runs import staged
from tests.support.applying import Scene
from tests.support.forge import Forge, on_github, on_gitlab, serving

EXAMPLE = Path(__file__).parents[2] / "fleet-example"
PIPELINES = (".github/workflows/fleet.yaml", ".gitlab-ci.yml", "pipelines")
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@dataclass
class Repository:
    """A repository with a fleet and the pipelines; `work` is where a runner checks it out."""

    origin: Path
    work: Path
    environ: dict[str, str]

    def git(self, *arguments: str, where: Path | None = None) -> str:
        command = ["git", *arguments]
        done = subprocess.run(
            command, cwd=where or self.origin, env=self.environ, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def commit(self, scene: Scene) -> None:
        scene.fleet.write()
        shutil.copy(scene.fleet.folder / "fleet.yaml", self.origin)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "change")

    def check_out(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        where = self.origin.as_uri()
        self.git("clone", "--quiet", "--depth", "1", "--branch", "main", where, str(self.work))


async def shell(script: str, where: Path, environ: dict[str, str]) -> tuple[int, str]:
    """Run a script as runners do; return its exit code, and all that it printed."""
    process = await asyncio.create_subprocess_exec(
        "sh",
        "-e",
        "-c",
        script,
        cwd=where,
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


@dataclass
class GitHub:
    """Runs the jobs of the workflow: its `run` lines, and nothing of what it `uses`."""

    repository: Repository
    forge: Forge
    kubeconfig: str
    temporary: Path
    request_ref = "refs/pull/7/merge"

    async def run(self, job: str) -> tuple[int, str]:
        """Run all steps up to the first that fails, and then those that run always."""
        text = (self.repository.work / PIPELINES[0]).read_text()
        jobs = yaml.safe_load(text)["jobs"]
        failed, output = 0, ""
        for step in jobs[job]["steps"]:
            always = step.get("if") in ("always()", "!cancelled()")
            if "run" not in step or (failed and not always):
                continue
            environ = self._environ({**jobs[job].get("env", {}), **step.get("env", {})})
            code, out = await shell(step["run"], self.repository.work, environ)
            failed, output = failed or code, output + out
        return failed, output

    def _environ(self, stated: dict[str, str]) -> dict[str, str]:
        known = {
            "secrets.FLEET_PLAN_KUBECONFIG": self.kubeconfig,
            "secrets.FLEET_APPLY_KUBECONFIG": self.kubeconfig,
            "github.token": "canary",
            "github.event.number": "7",
        }
        given = on_github(self.forge) | {
            "GITHUB_WORKSPACE": str(self.repository.work),
            "GITHUB_OUTPUT": str(self.temporary / "output"),
            "GITHUB_STEP_SUMMARY": str(self.temporary / "summary"),
            "RUNNER_TEMP": str(self.temporary),
        }
        del given["GITHUB_TOKEN"], given["PULL_REQUEST"]
        said = {key: _filled(str(value), known) for key, value in stated.items()}
        return self.repository.environ | given | said

    def has_changes(self) -> bool:
        lines = (self.temporary / "output").read_text().splitlines()
        return dict(line.split("=") for line in lines)["changes"] == "true"


def _filled(text: str, known: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ (\S+) \}\}", lambda found: known[found[1]], text)


@dataclass
class GitLab:
    """Runs the scripts of the jobs."""

    repository: Repository
    forge: Forge
    kubeconfig: str
    temporary: Path
    request_ref = "refs/heads/topic"

    async def run(self, job: str) -> tuple[int, str]:
        if job == "review":
            self.repository.git("fetch", "--quiet", "origin", "topic", where=self.repository.work)
            self.repository.git("checkout", "--quiet", "FETCH_HEAD", where=self.repository.work)
        text = (self.repository.work / PIPELINES[1]).read_text()
        jobs = yaml.safe_load(text)
        file = self.temporary / "kubeconfig"
        file.write_text(self.kubeconfig)
        given = on_gitlab(self.forge) | {
            "CI_PROJECT_DIR": str(self.repository.work),
            "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
            "TARGET": "origin/main",
            "FLEET_PLAN_KUBECONFIG": str(file),
            "FLEET_APPLY_KUBECONFIG": str(file),
        }
        script = "\n".join([*jobs["default"]["before_script"], *jobs[job]["script"]])
        return await shell(script, self.repository.work, self.repository.environ | given)


@pytest.fixture
async def scene(control_plane, app_cluster, namespace, tmp_path):
    folder = tmp_path / "fleet"
    folder.mkdir()
    mode = Mode.DIRECT
    made = staged(control_plane, app_cluster, namespace=namespace, mode=mode, folder=folder)
    async with made as scene:
        scene.fleet.name = f"f{scene.fleet.name}"
        yield scene


@pytest.fixture
def repository(tmp_path, scene):
    home = tmp_path / "home"
    home.mkdir()
    person = {f"GIT_{who}_{what}": "t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME",)}
    mail = {f"GIT_{who}_EMAIL": "t@example.com" for who in ("AUTHOR", "COMMITTER")}
    environ = {"HOME": str(home), "PATH": PATH, "GIT_CONFIG_NOSYSTEM": "1", **person, **mail}
    made = Repository(tmp_path / "origin", tmp_path / "work", environ)
    made.origin.mkdir()
    made.git("init", "--quiet", "--initial-branch", "main")
    for name in PIPELINES:
        source, target = EXAMPLE / name, made.origin / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    scene.fleet.bound = False
    made.commit(scene)
    made.git("checkout", "--quiet", "-b", "topic")
    scene.fleet.bound = True
    made.commit(scene)
    made.git("update-ref", "refs/pull/7/merge", "HEAD")
    made.git("checkout", "--quiet", "main")
    return made


@pytest.mark.parametrize("system", [GitHub, GitLab])
async def test_a_change_is_reviewed_planned_approved_and_applied(
    system, repository, scene, tmp_path
):
    with serving(Forge()) as forge:
        temporary = tmp_path / "runner"
        temporary.mkdir()
        kubeconfig = scene.kubeconfig.read_text()
        runner = system(repository, forge, kubeconfig, temporary)
        repository.check_out()
        async with scene.peers():
            code, output = await runner.run("review")
            assert code == 0, output
            assert scene.offer.name in forge.comments[0]["body"]
            assert "Changed against" in forge.comments[0]["body"]
            assert json.loads((repository.work / "validate.sarif").read_text())["version"]
            assert await scene.at(scene.binding) is None

            repository.git("merge", "--quiet", "topic")
            repository.check_out()
            code, output = await runner.run("plan")
            assert code == 0, output
            assert system is not GitHub or runner.has_changes()
            assert await scene.at(scene.binding) is None
            code, output = await runner.run("apply")
            assert code == 0, output
            assert await scene.at(scene.binding) is not None
            report = ET.parse(repository.work / "apply.xml").getroot()
            assert report.tag == "testsuites"

            code, output = await runner.run("plan")
            assert code == 0, output
            assert system is not GitHub or not runner.has_changes()


@pytest.mark.parametrize("system", [GitHub, GitLab])
async def test_a_request_that_is_not_valid_is_commented_before_any_cluster_is_reached(
    system, repository, scene, tmp_path
):
    with serving(Forge()) as forge:
        repository.git("checkout", "--quiet", "topic")
        (repository.origin / "fleet.yaml").write_text("kind: Nonsense\n")
        repository.git("commit", "--quiet", "--all", "--message", "change")
        repository.git("update-ref", "refs/pull/7/merge", "HEAD")
        repository.git("checkout", "--quiet", "main")
        repository.check_out()
        runner = system(repository, forge, "not a kubeconfig", tmp_path)
        code, output = await runner.run("review")
        assert code == ExitCode.INVALID
        assert "fleet.yaml" in output
        (comment,) = forge.comments
        assert "### No plan" in comment["body"]
        assert "fleet.yaml:1:" in comment["body"]
