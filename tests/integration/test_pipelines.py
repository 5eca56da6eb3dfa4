"""The pipelines of fleet-example, the action and the template work: each of their command lines is
run, on real clusters.

What only GitHub or GitLab have is played here: their variables, files, and the API for comments.
"""

import asyncio
import json
import os
import re
import shutil
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from klutchctl.entry import ExitCode
from reconciler.fleet.values import Mode
from tests.support.apply_runs import staged
from tests.support.applying import Scene
from tests.support.forge import Forge, on_github, on_gitlab, serving
from tests.support.shells import ran

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "fleet-example"
ACTION = ROOT / "klutchctl/deploy/github/action.yml"
TEMPLATE = ROOT / "klutchctl/deploy/gitlab/fleet.yml"
PIPELINES = (".github/workflows/fleet.yaml", ".gitlab-ci.yml", "pipelines")
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@dataclass
class Repository:
    """A repository with a fleet and the pipelines; `work` is where a runner checks it out."""

    origin: Path
    work: Path
    environ: dict[str, str]
    folder: str

    def git(self, *arguments: str, where: Path | None = None) -> str:
        done = ran(["git", *arguments], cwd=where or self.origin, env=self.environ)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def commit(self, scene: Scene) -> None:
        scene.fleet.write()
        (self.origin / self.folder).mkdir(exist_ok=True)
        shutil.copy(scene.fleet.folder / "fleet.yaml", self.origin / self.folder)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "change")

    def check_out(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        where = self.origin.as_uri()
        self.git("clone", "--quiet", "--depth", "1", "--branch", "main", where, str(self.work))


async def shell(script: str, where: Path, environ: dict[str, str]) -> tuple[int, str]:
    """Run a script as runners do; return its exit code, and all that it printed."""
    done = await asyncio.to_thread(
        ran, ["sh", "-ec", f"exec 2>&1\n{script}"], cwd=where, env=environ
    )
    return done.returncode, done.stdout


@dataclass
class Runner:
    """Runs jobs on a fleet in `folder`."""

    repository: Repository
    forge: Forge
    kubeconfig: str
    temporary: Path
    folder = "."

    def shown(self) -> str:
        """Return what a person reads under the request."""
        (comment,) = self.forge.comments
        return str(comment["body"])

    def has_changes(self) -> bool:
        return True


class GitHub(Runner):
    """Runs the jobs of the workflow: its `run` lines, and nothing of what it `uses`."""

    def steps(self, job: str) -> list[dict[str, Any]]:
        found = yaml.safe_load((self.repository.work / PIPELINES[0]).read_text())["jobs"][job]
        return [{**one, "env": found.get("env", {}) | one.get("env", {})} for one in found["steps"]]

    async def run(self, job: str) -> tuple[int, str]:
        """Run all steps up to the first that fails, and then those that run always."""
        failed, output = 0, ""
        for step in self.steps(job):
            always = step.get("if") in ("always()", "!cancelled()")
            if "run" not in step or (failed and not always):
                continue
            code, out = await shell(step["run"], self.repository.work, self._environ(step["env"]))
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
            "GITHUB_REF_NAME": "main",
            "GITHUB_OUTPUT": str(self.temporary / "output"),
            "GITHUB_STEP_SUMMARY": str(self.temporary / "summary"),
            "GITHUB_PATH": str(self.temporary / "path"),
            "GITHUB_ACTION_PATH": str(ACTION.parent),
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


class Action(GitHub):
    """Runs the action in place of the steps, with what the tests run already installed."""

    folder = "fleet"

    def steps(self, job: str) -> list[dict[str, Any]]:
        (self.temporary / "klutchctl").mkdir(exist_ok=True)
        if not (programs := self.temporary / "klutchctl/bin").exists():
            programs.symlink_to(Path(sys.executable).parent)
        action = yaml.safe_load(ACTION.read_text())
        inputs = {name: one.get("default", "") for name, one in action["inputs"].items()}
        inputs |= {"folder": self.folder, "token": "canary", "kubeconfig": self.kubeconfig}
        made, commands = [], [job]
        if job == "review":
            made, commands = super().steps(job)[1:2], ["validate", "plan", "comment"]
            inputs |= {"ref": "pull/merge", "base": "origin/main"}
        for command in commands:
            given = {**inputs, "command": command}.items()
            known = {"github.event.number": "7", **{f"inputs.{key}": one for key, one in given}}
            for step in action["runs"]["steps"]:
                if step.get("if") in (None, f"inputs.command == '{command}'"):
                    env = {key: _filled(value, known) for key, value in step["env"].items()}
                    made.append({"run": step["run"], "env": env, "if": "always()"})
        return made


class GitLab(Runner):
    """Runs the scripts of the jobs."""

    def script(self, job: str) -> list[str]:
        jobs = yaml.safe_load((self.repository.work / PIPELINES[1]).read_text())
        return [*jobs["default"]["before_script"], *jobs[job]["script"]]

    async def run(self, job: str) -> tuple[int, str]:
        if job == "review":
            self.repository.git("fetch", "--quiet", "origin", "topic", where=self.repository.work)
            self.repository.git("checkout", "--quiet", "FETCH_HEAD", where=self.repository.work)
        file = self.temporary / "kubeconfig"
        file.write_text(self.kubeconfig)
        given = on_gitlab(self.forge) | {
            "CI_PROJECT_DIR": str(self.repository.work),
            "CI_DEFAULT_BRANCH": "main",
            "CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main",
            "TARGET": "origin/main",
            "FLEET_FOLDER": self.folder,
            "FLEET_PLAN_KUBECONFIG": str(file) if self.kubeconfig else "",
            "FLEET_APPLY_KUBECONFIG": str(file),
        }
        script = "\n".join(self.script(job))
        return await shell(script, self.repository.work, self.repository.environ | given)


class Template(GitLab):
    """Runs the scripts of the template, which asks nothing of GitLab."""

    folder = "fleet"

    def script(self, job: str) -> list[str]:
        jobs = yaml.safe_load(TEMPLATE.read_text())
        return [*jobs[".fleet"]["before_script"], *jobs[f"fleet-{job}"]["script"]]

    def shown(self) -> str:
        assert self.forge.asked == []
        return (self.repository.work / "plan.md").read_text()


@pytest.fixture(params=[GitHub, Action, GitLab, Template])
def system(request):
    return request.param


@pytest.fixture
async def scene(control_plane, app_cluster, namespace, tmp_path):
    folder = tmp_path / "fleet"
    folder.mkdir()
    made = staged(control_plane, app_cluster, namespace=namespace, mode=Mode.DIRECT, folder=folder)
    async with made as scene:
        scene.fleet.name = f"f{scene.fleet.name}"
        yield scene


@pytest.fixture
def repository(tmp_path, scene, system):
    (tmp_path / "home").mkdir()
    roles = [f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
    environ = {"HOME": str(tmp_path / "home"), "PATH": PATH, "GIT_CONFIG_NOSYSTEM": "1"}
    environ |= dict.fromkeys(roles, "t@example.com")
    made = Repository(tmp_path / "origin", tmp_path / "work", environ, system.folder)
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


async def test_a_change_is_reviewed_planned_approved_and_applied(
    system, repository, scene, tmp_path
):
    with serving(Forge()) as forge:
        runner = system(repository, forge, scene.kubeconfig.read_text(), tmp_path)
        repository.check_out()
        async with scene.peers():
            code, output = await runner.run("review")
            assert code == 0, output
            assert scene.offer.name in runner.shown()
            assert "Changed against" in runner.shown()
            assert json.loads((repository.work / "validate.sarif").read_text())["version"]
            assert await scene.at(scene.binding) is None

            repository.git("merge", "--quiet", "topic")
            repository.check_out()
            code, output = await runner.run("plan")
            assert code == 0, output
            assert runner.has_changes()
            assert await scene.at(scene.binding) is None
            repository.git("commit", "--quiet", "--allow-empty", "--message", "newer")
            code, output = await runner.run("apply")
            assert (code, "main is at another commit" in output) == (ExitCode.STALE, True), output
            assert await scene.at(scene.binding) is None
            repository.git("reset", "--quiet", "--hard", "HEAD^")
            code, output = await runner.run("apply")
            assert code == 0, output
            assert await scene.at(scene.binding) is not None
            assert ET.parse(repository.work / "apply.xml").getroot().tag == "testsuites"

            code, output = await runner.run("plan")
            assert code == 0, output
            assert not isinstance(runner, GitHub) or not runner.has_changes()


async def test_a_request_that_is_not_valid_is_commented_before_any_cluster_is_reached(
    system, repository, scene, tmp_path
):
    with serving(Forge()) as forge:
        repository.git("checkout", "--quiet", "topic")
        (repository.origin / system.folder / "fleet.yaml").write_text("kind: Nonsense\n")
        repository.git("commit", "--quiet", "--all", "--message", "change")
        repository.git("update-ref", "refs/pull/7/merge", "HEAD")
        repository.git("checkout", "--quiet", "main")
        repository.check_out()
        runner = system(repository, forge, "not a kubeconfig", tmp_path)
        code, output = await runner.run("review")
        assert code == ExitCode.INVALID
        assert "fleet.yaml" in output
        assert "### No plan" in runner.shown()
        assert "fleet.yaml:1:" in runner.shown()


@pytest.mark.parametrize("system", [Template])
async def test_a_fork_without_a_kubeconfig_is_checked_alone(system, repository, tmp_path):
    repository.check_out()
    code, output = await system(repository, Forge(), "", tmp_path).run("review")
    assert (code, "Plan" in output) == (0, False), output
    assert (repository.work / "validate.sarif").exists()
    assert not (repository.work / "plan.md").exists()
