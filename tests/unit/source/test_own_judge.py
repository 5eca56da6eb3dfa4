"""No commit chooses what it is judged by: by no submodule, and no link in place of the fleet."""

import os
import shutil
from pathlib import Path

import pygit2
import pytest
from pygit2.enums import FileMode

from reconciler.core.errors import ConfigError
from reconciler.source import disk, git
from tests.support.checkouts import commit_files, commit_work_tree, write_files
from tests.support.fleet_texts import GOOD

FILES = {path: text.encode() for path, text in GOOD.items()}
BASE = "origin/main"


def at(folder, files=FILES):
    return {f"{folder}/{path}": text for path, text in files.items()}


@pytest.fixture
def work(tmp_path):
    """Return a checkout with a fleet in `a/fleet`, and a lax one in `a/lax`, at its base."""
    top = tmp_path / "work"
    repository = pygit2.init_repository(top, initial_head="main")
    write_files(top, {**at("a/fleet"), **at("a/lax")})
    repository.references.create(f"refs/remotes/{BASE}", commit_work_tree(repository))
    return top


def committed(work, path, mode, content):
    """Commit something in place of a folder, and leave the work tree without that folder."""
    shutil.rmtree(work / path)
    repository = pygit2.Repository(work)
    repository.index.remove_all([path])
    repository.index.add(pygit2.IndexEntry(path, content, mode))
    repository.index.write()
    commit_files(repository, {path: (mode, content)})


def submodule(work, path, inside=""):
    """Commit a submodule with a fleet, and fill it with a clone."""
    committed(work, path, FileMode.COMMIT, pygit2.Oid(hex="1" * 40))
    theirs = pygit2.init_repository(work / path, initial_head="main")
    write_files(work / path / inside, FILES)
    theirs.references.create(f"refs/remotes/{BASE}", commit_work_tree(theirs))


def absorbed(work):
    """Move the Git folder of the submodule to where `git submodule update` has it."""
    submodule(work, "a/fleet")
    modules = work / ".git/modules/x"
    modules.parent.mkdir()
    (work / "a/fleet/.git").rename(modules)
    (work / "a/fleet/.git").write_text("gitdir: ../../.git/modules/x\n")
    pygit2.Repository(modules).config["core.worktree"] = "../../../a/fleet"


def link(target):
    def make(work):
        content = pygit2.Repository(work).create_blob(os.fsencode(target))
        committed(work, "a/fleet", FileMode.LINK, content)
        (work / "a/fleet").symlink_to(target)

    return make


def link_above(work):
    write_files(work, at("b/fleet"))
    committed(work, "a", FileMode.LINK, pygit2.Repository(work).create_blob(b"b"))
    (work / "a").symlink_to("b")


def link_out(work):
    write_files(work.parent / "elsewhere", FILES)
    link("../../elsewhere")(work)


def only_in_the_index(work):
    before = pygit2.Repository(work).head.target
    link("lax")(work)
    pygit2.Repository(work).references["refs/heads/main"].set_target(before)


def only_at_head(work):
    link("lax")(work)
    repository = pygit2.Repository(work)
    repository.index.clear()
    repository.index.write()


CHOSEN = {
    "a submodule": lambda work: submodule(work, "a/fleet"),
    "a submodule, as Git fills it": absorbed,
    "a submodule above the fleet": lambda work: submodule(work, "a", "fleet"),
    "a link to another fleet": link("lax"),
    "a link above the fleet": link_above,
    "a link out of the repository": link_out,
    "a link that is in the index alone": only_in_the_index,
    "a link that is in the commit alone": only_at_head,
}


@pytest.mark.parametrize("make", CHOSEN.values(), ids=CHOSEN.keys())
def test_a_commit_does_not_choose_its_judge(work, make):
    make(work)
    for path in (work / "a/fleet", work / "a/fleet/fleet.yaml"):
        with pytest.raises(ConfigError, match="would choose its own rules") as caught:
            git.read_at(path, BASE)
        assert caught.value.hint
        with pytest.raises(ConfigError, match="would choose its own rules"):
            git.commit_at(path, BASE)


def test_a_shell_that_went_through_a_link_of_the_commit(work, monkeypatch):
    link("lax")(work)
    monkeypatch.chdir(work / "a/fleet")
    monkeypatch.setenv("PWD", str(work / "a/fleet"))
    with pytest.raises(ConfigError, match="would choose its own rules"):
        git.read_at(Path(), BASE)
    monkeypatch.setenv("PWD", "/nowhere")
    assert git.read_at(Path(), BASE).folder == "a/lax/"


OWN = {
    "of the operator, to the checkout": ("link", "work", "link/a/fleet"),
    "of the operator, to the fleet": ("link", "work/a/fleet", "link"),
    "of the operator, by another link": ("link", "other/a/fleet", "link"),
    "beneath the work tree, in no commit": ("work/mine", "a/fleet", "work/mine"),
}


@pytest.mark.parametrize(("place", "target", "path"), OWN.values(), ids=OWN.keys())
def test_a_link_that_no_commit_brought(work, place, target, path):
    top = work.parent
    (top / "other").symlink_to(work)
    (top / place).symlink_to(target)
    found = disk.read_folder(top / path)
    assert (found.folder, found.unread) == ("a/fleet/", {})
    assert git.read_at(top / path, BASE).folder == "a/fleet/"
    assert git.read_at(top / path / ".." / "fleet", BASE).folder == "a/fleet/"


def test_a_link_in_a_circle(work):
    (work / "a/loop").symlink_to("loop")
    with pytest.raises(ConfigError, match="Too many levels"):
        disk.read_folder(work / "a/loop/x")


def test_a_clone_and_a_work_tree_that_no_commit_brought(work):
    head = commit_files(pygit2.init_repository(work / "clone", initial_head="main"), FILES)
    assert git.read_at(work / "clone", "main").revision == head
    pygit2.Repository(work).add_worktree("one", str(work / "one"))
    assert disk.read_folder(work / "one/a/fleet").folder == "a/fleet/"
