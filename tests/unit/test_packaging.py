"""What a wheel and an image hold."""

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import grimp
import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from klutchctl.sandbox.addons import agents
from klutchctl.sandbox.state import Member, Role
from tests.support import books
from tests.support.shells import ran

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "fleet-example"
IMAGES = "registry.example.com/klutchctl/"


def built(sources, folder):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=sources, check=True, capture_output=True)
    [path] = folder.glob("*.whl")
    return zipfile.ZipFile(path).namelist()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


def test_a_wheel_has_our_four_packages_and_nothing_else_at_its_top(wheel):
    tops = {name.split("/")[0] for name in wheel if ".dist-info/" not in name}
    data = {top for top in tops if top.endswith(".data")}
    assert tops - data == {"klutchctl", "reconciler", "konnector", "bind"}
    # The page for man, where pip puts it beside the programs.
    (page,) = [name for name in wheel if name.partition("/")[0] in data]
    assert page.endswith(".data/data/share/man/man1/klutchctl.1")


def test_a_wheel_has_all_that_pages_are_made_of(wheel):
    folders = [ROOT / "bind" / "door" / "pages", ROOT / "klutchctl" / "web" / "board"]
    made_of = {
        path
        for folder in folders
        for kind in ("templates", "assets")
        for path in (folder / kind).iterdir()
    }
    assert len(made_of) > 20
    assert {path.relative_to(ROOT).as_posix() for path in made_of} <= set(wheel)


def test_a_wheel_carries_the_crds_and_the_sources_of_the_sandbox(wheel):
    crds = {path.name for path in (ROOT / "schemas" / "crds").iterdir()}
    assert len(crds) == 10
    assert {f"reconciler/schemas/crds/{name}" for name in crds} <= set(wheel)
    sandbox = ("controlplane/go.sum", "crossplane/v2/go.sum", "launcher.py", "addons/realm.json",
               "addons/function.yaml", "controlplane/kube-apiserver/main.go")  # fmt: skip
    assert {f"klutchctl/sandbox/{name}" for name in sandbox} <= set(wheel)


def test_a_wheel_carries_the_services_of_the_example(wheel):
    out = ran(["git", "ls-files", "fleet-example/services"], cwd=ROOT, check=True).stdout
    of_git = {name.removeprefix("fleet-example/services/") for name in out.split()}
    prefix = "klutchctl/sandbox/example/"
    assert {name.removeprefix(prefix) for name in wheel if name.startswith(prefix)} == of_git
    assert "services.yaml" in of_git


def test_a_wheel_carries_the_rights_that_a_sandbox_gives_to_its_programs(wheel):
    members = (Member("eu", Role.CONTROL_PLANE, 1), Member("shop", Role.APP_CLUSTER, 2))
    needed = [path for one in members for path in agents.of(one).manifests()]
    assert {path.relative_to(ROOT).as_posix() for path in needed} <= set(wheel)


def test_a_wheel_has_each_program(wheel):
    scripts = PROJECT["project"]["scripts"]
    plugins = {"kubectl-bind", "kubectl-klutchctl", "kubectl_complete-klutchctl"}
    assert scripts.keys() == {"klutchctl", "klutch-bind", "klutch-osb", "konnector", *plugins}
    modules = {place.partition(":")[0].replace(".", "/") for place in scripts.values()}
    assert {f"{module}.py" for module in modules} <= set(wheel)


def entries(name):
    """Return the entries of a requirements file by the names of packages: all of their text."""
    text = (ROOT / name).read_text("utf-8")
    found = re.findall(r"^[a-z0-9].*?(?=^\S|\Z)", text, re.DOTALL | re.MULTILINE)
    return {one.partition("==")[0]: one for one in found}


def needed_here(entry):
    marker = entry.partition("\\")[0].partition(" ; ")[2].strip()
    return not marker or Marker(marker).evaluate()


def closure(wanted):
    """Return all that these requirements need on this machine, as the installed packages say."""
    found, left = set(), [(Requirement(one), "") for one in wanted]
    while left:
        one, extra = left.pop()
        name = canonicalize_name(one.name)
        if one.marker and not one.marker.evaluate({"extra": extra}):
            continue
        for asked in {"", *one.extras}:
            if (name, asked) not in found:
                found.add((name, asked))
                more = importlib.metadata.requires(name) or ()
                left += [(Requirement(text), asked) for text in more]
    return {name for name, _ in found}


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
GROUPS = PROJECT["dependency-groups"]
# By the program of an image: all that it is installed with.
HELD = {
    "bind": GROUPS["klutch-bind"],
    "konnector": GROUPS["konnector"],
    "klutchctl": [*PROJECT["project"]["dependencies"], *EXTRAS["gpg"], *EXTRAS["otel"]],
}
LOCKS = {
    "requirements-build.txt": PROJECT["build-system"]["requires"],
    **{f"{room}/deploy/requirements.txt": held for room, held in HELD.items()},
}


@pytest.mark.parametrize(("name", "wanted"), LOCKS.items(), ids=LOCKS)
def test_what_images_install_is_what_is_needed_and_as_it_was_tested(name, wanted):
    locked = entries(name)
    assert {one for one, entry in locked.items() if needed_here(entry)} == closure(wanted)
    tested = entries("requirements.txt")
    assert {one: pinned(entry) for one, entry in locked.items()} == {
        one: pinned(tested[one]) for one in locked
    }


def pinned(entry):
    """Return the version and the hashes, without where they are needed."""
    return re.sub(r" ; [^\\]*", " ", entry)


def test_the_group_that_is_locked_for_builds_is_what_a_build_requires():
    assert PROJECT["dependency-groups"]["build"] == PROJECT["build-system"]["requires"]


CONTAINERFILES = sorted(ROOT.glob("*/deploy/Containerfile"))


@pytest.fixture(scope="module")
def imports():
    """Everything that our modules import, also in functions: a graph."""
    packages = ("klutchctl", "konnector", "bind", "reconciler")
    return grimp.build_graph(*packages, include_external_packages=True, cache_dir=None)


PROGRAMS = {
    "bind": ("bind.__main__", "bind.osb.__main__"),
    "konnector": ("konnector.__main__",),
    "klutchctl": ("klutchctl.__main__",),
}


@pytest.mark.parametrize("room", PROGRAMS)
def test_an_image_holds_what_its_programs_import_and_nothing_else(imports, room):
    of_module = importlib.metadata.packages_distributions()
    reached = outside(imports, PROGRAMS[room]) - sys.stdlib_module_names
    needed = {one: {canonicalize_name(dist) for dist in of_module[one]} for one in reached}
    held = closure(HELD[room])
    assert {one: dists for one, dists in needed.items() if not dists & held} == {}
    asked = {canonicalize_name(Requirement(one).name) for one in HELD[room]}
    assert asked - set().union(*needed.values()) == set()


def outside(imports, roots):
    """Return the modules of others that are imported on the way from some of ours."""
    found, left = set(), [*roots]
    while left:
        module = left.pop()
        if module in found:
            continue
        found.add(module)
        if not imports.is_module_squashed(module):
            left += imports.find_modules_directly_imported_by(module)
            left += filter(None, [module.rpartition(".")[0]])
    return {one for one in found if imports.is_module_squashed(one)}


@pytest.mark.parametrize("path", CONTAINERFILES, ids=lambda path: path.parents[1].name)
def test_a_container_file_installs_nothing_that_is_not_locked(path):
    text = path.read_text("utf-8")
    installs = re.findall(r"(pip\S* .*?)(?: &&|$)", text.replace("\\\n", ""), re.MULTILINE)
    into = "pip --python /app/bin/python install --no-cache-dir --no-compile --no-deps"
    assert [" ".join(one.split()) for one in installs if " install " in one] == [
        "pip install --no-cache-dir --no-deps --require-hashes -r requirements-build.txt",
        f"{into} --prefix /ours /dist/*.whl",
        f"{into} --require-hashes -r requirements.txt",
    ]
    place = path.relative_to(ROOT)
    assert f"COPY {place.with_name('requirements.txt')} ./" in text
    assert f"podman build -f {place} -t {IMAGES}" in text
    assert f"podman build -f {place} -t {IMAGES}" in (
        ROOT / "klutchctl/docs/install/images.md"
    ).read_text("utf-8")


@pytest.mark.parametrize("path", CONTAINERFILES, ids=lambda path: path.parents[1].name)
def test_an_image_is_of_this_version_and_of_another_user_than_root(path):
    assert lines_with(path, "USER ") == ["USER 65532:65532"]
    version = PROJECT["project"]["version"]
    assert f'org.opencontainers.image.version="{version}"' in path.read_text("utf-8")


def test_images_are_built_in_the_same_way():
    """So that layers of one are found again by the others."""
    parts = [one.read_text("utf-8").partition("\nFROM ")[2] for one in CONTAINERFILES]
    assert len({one.partition("FROM build AS packages")[0] for one in parts}) == 1


def test_base_images_and_actions_are_pinned_by_digest():
    """T21: a tag may be given to another image or commit tomorrow."""
    pulled = {line for one in CONTAINERFILES for line in lines_with(one, "ARG ")}
    assert len(pulled) == 1  # of all images the same
    digest = r"ARG BASE=docker\.io/library/python:3\.13-slim@sha256:[0-9a-f]{64}"
    assert re.fullmatch(digest, *pulled)
    bases = {line.split()[1] for one in CONTAINERFILES for line in lines_with(one, "FROM ")}
    assert bases == {"${BASE}", "base", "build"}  # the latter are stages
    actions = [line for one in [*FORGES, GITHUB_PAGE] for line in lines_with(one, "uses: ")]
    assert len(actions) > 8
    commit = r"(- )?uses: (actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|OWNER/.*@COMMIT # v.*)"
    assert [one for one in actions if not re.fullmatch(commit, one)] == []


FORGES = [
    *ROOT.glob(".github/workflows/*"),
    *ROOT.glob("fleet-example/.github/workflows/*"),
    ROOT / "klutchctl/deploy/github/action.yml",
]
GITHUB_PAGE = ROOT / "klutchctl/docs/operate/github.md"


def test_a_script_for_github_takes_values_from_its_environment():
    """GitHub pastes an expression into the script: the name of a branch would be run."""
    for document in (yaml.safe_load(path.read_text("utf-8")) for path in FORGES):
        jobs = document["jobs"].values() if "jobs" in document else [document["runs"]]
        scripts = [step["run"] for job in jobs for step in job["steps"] if "run" in step]
        assert [one for one in scripts if "${{" in one] == []


def test_the_action_installs_nothing_that_is_not_locked_and_runs_no_file_of_a_pull_request():
    steps = yaml.safe_load(FORGES[-1].read_text("utf-8"))["runs"]["steps"]
    installs = re.findall(r'bin/pip" install --quiet --no-deps (.*)', steps[0]["run"])
    assert installs == [
        '--require-hashes -r "$sources/$locked"',
        '--no-build-isolation --no-index "$sources"',
    ]
    scripts = re.findall(r"(?:sh|python3) (\S+\.\w+)", str(steps))
    ours = '"$GITHUB_ACTION_PATH/../../../fleet-example/pipelines/'
    assert scripts == [f"{ours}comment.py", f"{ours}apply.sh"]


def test_the_hook_of_pre_commit_checks_a_fleet(tmp_path):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    entry = [Path(sys.executable).with_name("klutchctl"), *hook["entry"].split()[1:]]
    fleet = shutil.copytree(EXAMPLE, tmp_path / "fleet")
    assert subprocess.run(entry, cwd=fleet, check=False).returncode == 0
    (fleet / "fleet.yaml").write_text("kind: Nonsense\n")
    assert subprocess.run(entry, cwd=fleet, check=False).returncode == 3


def test_the_preset_of_renovate_reads_each_image_of_a_fleet(tmp_path):
    preset = json.loads((ROOT / "klutchctl/deploy/renovate/fleet.json").read_text("utf-8"))
    fleet = shutil.copytree(EXAMPLE, tmp_path / "fleet")
    shutil.copy(ROOT / "klutchctl/deploy/gitlab/fleet.yml", fleet / ".gitlab-ci.yml")
    names = {path.relative_to(fleet).as_posix() for path in fleet.rglob("*.y*ml")}
    for manager in preset["customManagers"]:
        (path,) = (one.strip("/") for one in manager["managerFilePatterns"])
        read = [(fleet / name).read_text("utf-8") for name in names if re.search(path, name)]
        patterns = [one.replace("(?<", "(?P<") for one in manager["matchStrings"]]
        found = [hit for one in patterns for text in read for hit in re.finditer(one, text)]
        assert len(found) == sum(len(re.findall(f"(?i)image: {IMAGES}", text)) for text in read) > 0
        assert {one["currentValue"] for one in found} == {PROJECT["project"]["version"]}


def lines_with(path, word):
    lines = path.read_text("utf-8").splitlines()
    return [line.strip() for line in lines if word in line and not line.lstrip().startswith("#")]


def test_what_reaches_a_container_build_is_enough_for_the_wheel(wheel, tmp_path):
    lines = (ROOT / ".containerignore").read_text("utf-8").splitlines()
    rules = [one for one in lines if not one.startswith("#")]
    assert rules[0] == "*"
    let_in = [one[1:] for one in rules if one.startswith("!")]
    for name in [path for pattern in let_in for path in ROOT.glob(pattern)]:
        if name.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(name, tmp_path / name.name, ignore=ignored)
        else:
            shutil.copy(name, tmp_path)
    assert [name for name in LOCKS if not (tmp_path / name).is_file()] == []
    assert sorted(built(tmp_path, tmp_path / "dist")) == sorted(wheel)


def test_images_have_one_prefix_and_three_names():
    # Their YAML, container files and pages.
    folders = [*(path.parent for path in CONTAINERFILES), EXAMPLE]
    files = [one for folder in folders for one in folder.rglob("*") if one.is_file()]
    pages = [one for one in files if one.suffix in (".md", ".yaml", ".yml", "")]
    named = {
        image
        for page in [*(ROOT / book for book in books.BOOKS), *pages]
        for image in re.findall(r"registry\.example\.com/[\w/-]+", page.read_text("utf-8"))
    }
    assert named == {IMAGES + name for name in ("klutchctl", "klutch-bind", "konnector")}


def test_a_backend_in_control_plane_mode_deploys_our_konnector():
    overlay = (ROOT / "bind/deploy/control-plane-mode/kustomization.yaml").read_text("utf-8")
    (image,) = re.findall(r"--konnector-image=(\S+)", overlay)
    manifests = (ROOT / "konnector/deploy/minimal/kustomization.yaml").read_text("utf-8")
    (ours,) = yaml.safe_load(manifests)["images"]
    assert image == f"{ours['newName']}:{ours['newTag']}"
