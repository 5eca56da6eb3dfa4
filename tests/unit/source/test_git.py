"""A fleet in a Git commit: refs by name, files from the tree object, nothing else."""

import shutil
from pathlib import Path

import pygit2
import pytest
from pygit2.enums import FileMode

from reconciler.core.errors import ConfigError, HostError, InvalidRepository
from reconciler.core.yaml_text import MAX_BYTES
from reconciler.fleet.load import load
from reconciler.source import disk, git
from tests.support import checkouts
from tests.support.fleet_texts import GOOD

FILES = {path: text.encode() for path, text in GOOD.items()}


@pytest.fixture
def repository(tmp_path):
    return pygit2.init_repository(tmp_path / "repo", bare=True, initial_head="main")


def where(repository):
    return Path(repository.path)


def test_a_commit_is_read_without_a_checkout(repository):
    head = checkouts.commit_files(repository, FILES)
    tree = git.read(where(repository), "main")
    assert (tree.files, tree.revision) == (FILES, head)
    fleet, problems = load(tree)
    assert problems == ()
    assert fleet is not None
    assert fleet.revision == head


def test_a_fleet_below_the_top(repository):
    checkouts.commit_files(
        repository, {f"deep/er/{path}": content for path, content in FILES.items()}
    )
    tree = git.read(where(repository), "main", folder="deep/er/")
    assert (tree.files, tree.folder) == (FILES, "deep/er/")
    for folder in ("nowhere/", "deep/er/fleet.yaml"):
        with pytest.raises(ConfigError, match="there is no folder"):
            git.read(where(repository), "main", folder=folder)
    with pytest.raises(ConfigError, match="leaves the repository"):
        git.read(where(repository), "main", folder="../x")


def checkout(tmp_path, files):
    """Make a repository with a work tree in which only a folder `kept` is left."""
    checkouts.commit_files(pygit2.init_repository(tmp_path / "work", initial_head="main"), files)
    (tmp_path / "work" / "kept").mkdir()
    (tmp_path / "work" / "kept" / "fleet.yaml").write_bytes(b"not what is committed")
    return tmp_path / "work"


AT = {
    "the top": ("", "", ""),
    "a folder that is not there now": ("deep/er", "deep/er/", ""),
    "a folder that is": ("kept", "kept/", ""),
    "a first file": ("kept/fleet.yaml", "kept/", "fleet.yaml"),
    "a first file that is not there now": ("deep/er/fleet.yaml", "deep/er/", "fleet.yaml"),
}


@pytest.mark.parametrize(("path", "folder", "entry"), AT.values(), ids=AT.keys())
def test_a_path_means_the_same_place_in_a_commit(tmp_path, path, folder, entry):
    work = checkout(tmp_path, {f"{folder}{name}": text for name, text in FILES.items()})
    tree = git.read_at(work / path, "main")
    assert (tree.files, tree.folder, tree.entry) == (FILES, folder, entry or "fleet.yaml")


def test_a_path_in_a_bare_repository(repository):
    checkouts.commit_files(repository, {f"deep/{path}": content for path, content in FILES.items()})
    assert git.read_at(where(repository) / "deep", "main").files == FILES


NOT_AT = {
    "no such folder": ("nowhere", "there is no folder 'nowhere'"),
    "a way out": ("nowhere/../../x", "leaves the repository"),
    "a name that Git cannot have": ("no\nwhere", "folder: "),
}


@pytest.mark.parametrize(("path", "says"), NOT_AT.values(), ids=NOT_AT.keys())
def test_a_path_that_is_in_no_commit(tmp_path, path, says):
    with pytest.raises(ConfigError, match=says):
        git.read_at(checkout(tmp_path, FILES) / path, "main")


def test_a_first_file_that_is_a_link_in_the_commit(tmp_path):
    work = checkout(tmp_path, FILES)
    repository = pygit2.Repository(work)
    link = (FileMode.LINK, repository.create_blob(b"/etc/passwd"))
    checkouts.commit_files(repository, {**FILES, "x.yaml": link})
    _, problems = load(git.read_at(work / "x.yaml", "main"))
    assert [one.code for one in problems] == ["not-a-file"]


def test_a_path_outside_of_any_repository(tmp_path):
    with pytest.raises(ConfigError, match="no Git repository"):
        git.read_at(tmp_path / "nowhere" / "at" / "all", "main")


def test_a_work_tree_that_is_elsewhere(tmp_path):
    work = checkout(tmp_path, FILES)
    (tmp_path / "other").mkdir()
    pygit2.Repository(work).config["core.worktree"] = str(tmp_path / "other")
    with pytest.raises(ConfigError, match="outside the work tree"):
        git.read_at(work, "main")


def planted(tmp_path):
    """Make a checkout whose commit brings a bare repository, as plain files, in `fleet`."""
    work = pygit2.init_repository(tmp_path / "work", initial_head="main")
    checkouts.commit_files(work, {f"fleet/{path}": text for path, text in FILES.items()})
    work.references.create("refs/remotes/origin/main", work.head.target)
    other = pygit2.init_repository(tmp_path / "work/fleet", bare=True, initial_head="main")
    theirs = checkouts.commit_files(
        other, {"note": b"x", **{f"fleet/{path}": text for path, text in FILES.items()}}
    )
    other.references.create("refs/remotes/origin/main", theirs)
    checkouts.write_files(tmp_path / "work" / "fleet", FILES)
    checkouts.commit_work_tree(work)
    return work, work.references["refs/remotes/origin/main"].target, theirs


def test_a_commit_does_not_bring_the_base_that_it_is_judged_by(tmp_path):
    work, base, theirs = planted(tmp_path)
    fleet = tmp_path / "work" / "fleet"
    assert "fleet/refs/remotes/origin/main" in work.index
    assert git.commit_at(fleet, "origin/main") == str(base) != theirs
    assert git.read_at(fleet, "origin/main").folder == "fleet/"
    assert git.commit_at(fleet, "HEAD") == str(work.head.target)
    found = disk.read_folder(fleet)
    assert (found.folder, found.revision) == ("fleet/", str(work.head.target))
    (fleet / "bindings/db.yaml").unlink()
    with pytest.raises(ConfigError, match="lacks bindings/db"):
        disk.read_folder(fleet, whole=True)


@pytest.mark.parametrize("broken", ["a folder", "a file that leads nowhere"])
def test_a_git_folder_that_is_none_does_not_let_a_planted_one_in(tmp_path, broken):
    planted(tmp_path)
    shutil.rmtree(tmp_path / "work/.git")
    if broken == "a folder":
        (tmp_path / "work/.git").mkdir()
    else:
        (tmp_path / "work/.git").write_text("gitdir: /nowhere\n")
    with pytest.raises(ConfigError, match="no Git repository"):
        git.read_at(tmp_path / "work/fleet", "origin/main")
    found = disk.read_folder(tmp_path / "work/fleet")
    assert (found.folder, found.revision) == ("", "")


def test_our_own_bare_repository_below_a_checkout(tmp_path):
    work, _, theirs = planted(tmp_path)
    found = git.read(tmp_path / "work/fleet", "main", folder="fleet/")
    assert (found.files, found.revision) == (FILES, theirs)
    assert theirs != str(work.head.target)


def test_a_work_tree_of_another_repository_and_one_beside_a_bare_one(tmp_path):
    repository = pygit2.init_repository(tmp_path / "all" / "bare", bare=True, initial_head="main")
    head = checkouts.commit_files(
        repository, {f"deep/{path}": text for path, text in FILES.items()}
    )
    (tmp_path / "all/.git").write_text("gitdir: ./bare\n")
    repository.add_worktree("one", str(tmp_path / "all/one"))
    found = disk.read_folder(tmp_path / "all/one/deep")
    assert (found.folder, found.revision) == ("deep/", head)
    assert (tmp_path / "all/one/.git").is_file()
    assert git.commit_at(tmp_path / "all/one/deep", "one") == head
    assert git.commit_at(tmp_path / "all", "main") == head


NEWER = {
    "SHA-256": {"objectFormat": "sha256"},
    "reftable": {"refStorage": "reftable"},
    "an extension to come": {"somethingNew": "1"},
}


@pytest.mark.parametrize("extensions", NEWER.values(), ids=NEWER.keys())
def test_files_of_a_newer_format_are_read_and_its_commits_are_not(tmp_path, extensions):
    repository = pygit2.init_repository(tmp_path, initial_head="main")
    checkouts.write_files(tmp_path, FILES)
    checkouts.commit_work_tree(repository)
    repository.config["core.repositoryformatversion"] = 1
    for name, value in extensions.items():
        repository.config[f"extensions.{name}"] = value
    found = disk.read_folder(tmp_path)
    assert (found.files, found.folder, found.revision) == (FILES, "", "")
    for read in (
        lambda: disk.read_folder(tmp_path, whole=True),
        lambda: git.read_at(tmp_path, "main"),
    ):
        with pytest.raises(ConfigError, match="leave --ref and --base out"):
            read()


REFS = {
    "HEAD": "HEAD",
    "a branch": "main",
    "a branch with a slash": "feature/x",
    "a branch in full": "refs/heads/main",
    "a tag": "v1",
    "an annotated tag": "v2",
    "a remote branch": "origin/main",
    "a remote branch in full": "refs/remotes/origin/main",
}


@pytest.mark.parametrize("ref", REFS.values(), ids=REFS.keys())
def test_refs_are_looked_up_by_name(repository, ref):
    head = checkouts.commit_files(repository, FILES)
    for name in ("refs/heads/feature/x", "refs/tags/v1", "refs/remotes/origin/main"):
        repository.references.create(name, head)
    repository.create_tag("v2", head, pygit2.enums.ObjectType.COMMIT, checkouts.PERSON, "x")
    assert git.read(where(repository), ref).revision == head


def test_a_whole_commit_id(repository):
    head = checkouts.commit_files(repository, FILES)
    assert git.read(where(repository), head).revision == head


REFUSED = [
    "", "nowhere", "HEAD~1", "HEAD^", "main@{0}", ":/x", "HEAD:fleet.yaml", "main..main",
    "^main", "@", "-x", "a\0b", "refs/heads/", "refs/heads/nowhere", "../main", "main.lock",
    "0" * 40, "0" * 64, "\udcff",
]  # fmt: skip


@pytest.mark.parametrize("ref", REFUSED, ids=ascii)
def test_the_language_of_revisions_is_not_spoken(repository, ref):
    head = checkouts.commit_files(repository, FILES)
    with pytest.raises(ConfigError, match="ref: "):
        git.read(where(repository), ref)
    with pytest.raises(ConfigError, match="ref: "):
        git.read(where(repository), head[:10])


def test_a_name_with_two_meanings(repository):
    head = checkouts.commit_files(repository, FILES)
    repository.references.create("refs/tags/main", head)
    assert git.read(where(repository), "main").revision == head
    checkouts.commit_files(repository, {**FILES, "more": b""})
    with pytest.raises(ConfigError, match="several meanings") as caught:
        git.read(where(repository), "main")
    assert caught.value.hint == "Write one of refs/heads/main, refs/tags/main"


def test_a_tag_of_something_else(repository):
    checkouts.commit_files(repository, FILES)
    blob = repository.create_blob(b"x")
    repository.references.create("refs/tags/blob", blob)
    with pytest.raises(ConfigError, match="is no commit"):
        git.read(where(repository), "blob")
    with pytest.raises(ConfigError, match="ref: "):
        git.read(where(repository), str(blob))


def test_an_empty_repository(repository):
    with pytest.raises(ConfigError, match="ref: "):
        git.read(where(repository), "HEAD")


def test_no_repository(tmp_path):
    with pytest.raises(ConfigError, match="no Git repository"):
        git.read(tmp_path, "HEAD")


def strange(repository, mode):
    if mode is FileMode.LINK:
        return (mode, repository.create_blob(b"/etc/passwd"))
    if mode is FileMode.COMMIT:
        return (mode, pygit2.Oid(hex="1" * 40))
    return {"inner.yaml": b"x"}


@pytest.mark.parametrize("mode", [FileMode.LINK, FileMode.COMMIT, FileMode.TREE], ids=str)
def test_links_submodules_and_folders_are_no_files(repository, mode):
    checkouts.commit_files(repository, {**FILES, "bindings/x.yaml": strange(repository, mode)})
    _, problems = load(git.read(where(repository), "main"))
    assert [(one.origin.path, one.code) for one in problems] == [("bindings/x.yaml", "not-a-file")]


@pytest.mark.parametrize("mode", [FileMode.LINK, FileMode.COMMIT], ids=str)
def test_nothing_is_read_behind_a_link_or_submodule(repository, mode):
    files = {path: content for path, content in FILES.items() if not path.startswith("bindings/")}
    checkouts.commit_files(repository, {**files, "bindings": strange(repository, mode)})
    found = git.read(where(repository), "main")
    assert "bindings/db.yaml" not in found.files
    _, problems = load(found)
    assert [(one.origin.path, one.code) for one in problems] == [("bindings/", "not-a-folder")]


def test_a_file_that_is_too_large_is_not_loaded(repository):
    checkouts.commit_files(repository, {**FILES, "bindings/x.yaml": b"#" * (MAX_BYTES + 1)})
    _, problems = load(git.read(where(repository), "main"))
    assert [one.code for one in problems] == ["file-too-large"]


def commit_raw(repository, raw):
    """Commit a tree that no Git client would make."""
    tree = repository.odb.write(pygit2.enums.ObjectType.TREE, raw)
    person = "t <t@example.com> 1700000000 +0000"
    text = f"tree {tree}\nauthor {person}\ncommitter {person}\n\nx\n".encode()
    head = repository.odb.write(pygit2.enums.ObjectType.COMMIT, text)
    repository.references.create("refs/heads/main", head)


def test_an_object_that_is_missing(repository):
    missing = (FileMode.BLOB, pygit2.Oid(hex="1" * 40))
    files = {"fleet.yaml": GOOD["fleet.yaml"].replace("*/*.yaml", "*.yaml").encode()}
    builder = checkouts.tree_of(repository, checkouts.nested(files))
    commit_raw(repository, repository[builder].read_raw() + b"100644 zz.yaml\x00" + missing[1].raw)
    found = git.read(where(repository), "main")
    assert [one.code for one in found.unread.values()] == ["unreadable-file"]


def hostile_tree(repository, *names):
    """Write a tree whose names no Git client would make."""
    blob = repository.create_blob(b"x")
    inner = b"".join(b"100644 " + name + b"\0" + blob.raw for name in names)
    top = checkouts.tree_of(repository, checkouts.nested(FILES))
    written = repository.odb.write(pygit2.enums.ObjectType.TREE, inner)
    raw = repository[top].read_raw().replace(b"40000 bindings\0", b"40000 aindings\0")
    raw += b"40000 x\0" + written.raw
    commit_raw(repository, raw)


NAMES = [b"a/../../b.yaml", b"\x1b[31m.yaml", b"\xff.yaml", b"a\\b.yaml", b"/etc/x.yaml"]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_hostile_names_are_problems(repository, name):
    hostile_tree(repository, name)
    _, problems = load(git.read(where(repository), "main"))
    assert {one.code for one in problems} <= {"bad-path", "missing-file"}
    assert problems
    assert all(one.origin.path.isprintable() for one in problems)


def test_a_tree_of_trees_that_never_ends_is_left(repository, monkeypatch):
    tree = checkouts.tree_of(repository, {"x.yaml": b"x"})
    for _ in range(40):
        tree = checkouts.tree_of(repository, dict.fromkeys("ab", (FileMode.TREE, tree)))
    files = {"fleet.yaml": GOOD["fleet.yaml"].replace("*/*.yaml", "**/*.yaml").encode()}
    commit = checkouts.commit_files(repository, {**files, "bomb": (FileMode.TREE, tree)})
    with pytest.raises(InvalidRepository) as caught:
        git.read(where(repository), "main")
    assert [one.code for one in caught.value.problems] == ["too-many-files"]
    assert caught.value.revision == commit


def test_a_deep_tree_is_left(repository):
    tree = checkouts.tree_of(repository, {"x.yaml": b"x"})
    for _ in range(2000):
        tree = checkouts.tree_of(repository, {"a": (FileMode.TREE, tree)})
    files = {"fleet.yaml": GOOD["fleet.yaml"].replace("*/*.yaml", "**/*.yaml").encode()}
    checkouts.commit_files(repository, {**files, "deep": (FileMode.TREE, tree)})
    found = git.read(where(repository), "main")
    assert [one.code for one in found.unread.values()] == ["bad-path"]


def test_a_library_that_leaks_credentials_is_not_used(repository, monkeypatch):
    monkeypatch.setattr(pygit2, "LIBGIT2_VERSION", "1.9.4")
    with pytest.raises(HostError, match=r"libgit2 1\.9\.4 is not safe"):
        git.read(where(repository), "main")
