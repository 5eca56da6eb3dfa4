"""The folder `pipelines` of fleet-example in the repository of a test, for its server and fleet."""

import shutil
from pathlib import Path
from typing import Any, Final

import pygit2
import pytest
import yaml

from reconciler.core.manifest import Manifest
from reconciler.core.refs import Ref
from tests.support.applying import Scene
from tests.support.checkouts import commit_work_tree
from tests.support.controllers import HOME, Repository

EXAMPLE: Final = Path(__file__).parents[2] / "fleet-example" / "pipelines"
HELD: Final = "allowEmpty: false"  # what `bound = False` runs into
_URL: Final = "https://git.example.com/platform/fleet.git"


def documents(files: Repository, name: str) -> list[Any]:
    """Return what a file of the example holds, with our repository in it."""
    return list(yaml.safe_load_all(_ours(files, EXAMPLE / name)))


def with_example(files: Repository) -> Path:
    """Put the folder into the repository of the fleet, as its books say; return where it is."""
    folder = files.scene.fleet.folder / "pipelines"
    shutil.copytree(EXAMPLE, folder)
    (folder / "job.yaml").write_text(_ours(files, EXAMPLE / "job.yaml"))
    return folder


def _ours(files: Repository, file: Path) -> str:
    text = file.read_text()
    assert _URL in text
    return text.replace(_URL, files.options[1])


@pytest.fixture
def beside(files: Repository) -> Repository:
    """The repository, with the fleet in a folder of it, for a FleetStatus beside that."""
    files.scene.fleet.folder = files.folder / "top" / "fleet"
    files.scene.fleet.folder.mkdir(parents=True)
    shutil.copytree(EXAMPLE, files.folder / "top" / "pipelines")
    return files


def pushed(files: Repository, *others: Manifest, merged: bool = True) -> tuple[str, str]:
    """Push the fleet in its folder, and a FleetStatus that asks for the tree of that.

    `others` are applied with it, and none is `merged` where Flux is not asked to. Returns the ids
    of the commit and of the tree.
    """
    fleet = files.scene.fleet
    fleet.write()
    repository: Any = pygit2.init_repository(str(fleet.folder.parent), initial_head="main")
    repository.index.add_all(["fleet"])
    tree = str(repository[repository.index.write_tree()]["fleet"].id)
    status = yaml.safe_load((EXAMPLE / "status" / "fleetstatus.yaml").read_text())
    status["metadata"] |= {"name": fleet.name, "namespace": HOME}
    status["spec"]["files"] = tree
    if not merged:
        del status["metadata"]["annotations"]["kustomize.toolkit.fluxcd.io/ssa"]
    file = fleet.folder.parent / "pipelines" / "status" / "fleetstatus.yaml"
    file.write_text(yaml.safe_dump_all([status, *others]))
    commit_work_tree(repository)
    return files.send(repository), tree


async def annotate(scene: Scene, ref: Ref, marks: Manifest) -> None:
    """Annotate as people do, None takes an annotation away."""
    patch: Manifest = {"metadata": {"annotations": marks}}
    await scene.plane.cluster.merge_patch(ref, patch, manager="kubectl-annotate")
