"""A fleet in a folder: what is read, what is refused, and which revision it has."""

import os
import socket
import subprocess
from pathlib import Path

import pygit2
import pytest
from pygit2.enums import FileMode

from reconciler.core.errors import ConfigError, InvalidRepository
from reconciler.core.yaml_text import MAX_BYTES
from reconciler.fleet.load import load
from reconciler.source import disk, gather, git
from tests.support.checkouts import PERSON, commit_work_tree, write_files
from tests.support.fleet_texts import FLEET, GOOD, document

CANARY = "hunter2canary"


def refused(root):
    """Return the codes of the problems with which a folder is not read at all."""
    with pytest.raises(InvalidRepository) as caught:
        disk.read_folder(root)
    return [problem.code for problem in caught.value.problems]


def problems_of(root):
    """Return path and code of the problems of a folder that is read."""
    fleet, problems = load(disk.read_folder(root))
    assert fleet is None
    assert CANARY not in str(problems)
    return [(problem.origin.path, problem.code) for problem in problems]


def test_only_what_belongs_to_the_fleet_is_read(root):
    write_files(root, {"notes.md": "x", "deep/er/x.yaml": "x", ".git-ish/x.yaml": "x"})
    tree = disk.read_folder(root)
    assert tree.files == {path: text.encode() for path, text in GOOD.items()}
    assert (tree.entry, tree.revision, tree.unread, tree.folder) == ("fleet.yaml", "", {}, "")
    fleet, problems = load(tree)
    assert problems == ()
    assert fleet is not None


def test_the_first_file_may_be_named(root):
    (root / "fleet.yaml").rename(root / "acme.yaml")
    assert disk.read_folder(root / "acme.yaml").entry == "acme.yaml"
    assert refused(root) == ["no-entry-file"]


def test_two_first_files(root):
    write_files(root, {"klutch-fleet.yaml": FLEET})
    assert refused(root) == ["two-entry-files"]
    assert disk.read_folder(root / "klutch-fleet.yaml").entry == "klutch-fleet.yaml"


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="nowhere: cannot be read: No such file"):
        disk.read_folder(tmp_path / "nowhere")


def link(path, root):
    secret = root.parent / "secret.yaml"
    secret.write_text(CANARY)
    path.symlink_to(secret)


def pipe(path, root):
    os.mkfifo(path)


def listener(path, root):
    with socket.socket(socket.AF_UNIX) as one:
        here = os.open(path.parent, os.O_RDONLY)
        one.bind(f"/proc/self/fd/{here}/{path.name}")
        os.close(here)


def large(path, root):
    path.write_bytes(b"#" * (MAX_BYTES + 1))


STRANGE = {
    "a link out of the repository": (link, "not-a-file"),
    "a link inside of it": (lambda path, _: path.symlink_to("db.yaml"), "not-a-file"),
    "a link to nothing": (lambda path, _: path.symlink_to("nowhere"), "not-a-file"),
    "a named pipe": (pipe, "not-a-file"),
    "a socket": (listener, "not-a-file"),
    "a folder": (lambda path, _: path.mkdir(), "not-a-file"),
    "a file that is too large": (large, "file-too-large"),
}


@pytest.mark.parametrize(("make", "code"), STRANGE.values(), ids=STRANGE.keys())
def test_what_stands_where_a_file_should_be(root, make, code):
    make(root / "bindings" / "x.yaml", root)
    assert problems_of(root) == [("bindings/x.yaml", code)]


@pytest.mark.parametrize(("make", "code"), STRANGE.values(), ids=STRANGE.keys())
def test_what_stands_where_the_first_file_should_be(root, make, code):
    (root / "fleet.yaml").unlink()
    make(root / "fleet.yaml", root)
    assert problems_of(root) == [("fleet.yaml", code)]


def test_a_folder_that_is_a_link_is_not_entered_and_not_taken_for_empty(root):
    (root / "bindings").rename(root.parent / "elsewhere")
    (root / "bindings").symlink_to(root.parent / "elsewhere")
    tree = disk.read_folder(root)
    assert "bindings/db.yaml" not in tree.files
    assert problems_of(root) == [("bindings/", "not-a-folder")]
    assert "include narrower folders" in tree.unread["bindings/"].hint


LINKS = {
    "to a file": ("README.md", []),
    "to a file further down": ("docs/a.md", []),
    "to a folder": ("docs", [("more/", "not-a-folder")]),
    "to nothing": ("nowhere", [("more/", "not-a-folder")]),
    "out of the folder": ("../secret.yaml", [("more/", "not-a-folder")]),
    "by a way that is not known": ("docs/../README.md", [("more/", "not-a-folder")]),
    "to a link": ("also", [("also/", "not-a-folder"), ("more/", "not-a-folder")]),
}


@pytest.mark.parametrize(("target", "want"), LINKS.values(), ids=LINKS.keys())
def test_a_link_that_files_may_be_behind(root, target, want):
    write_files(root, {"README.md": "x", "docs/a.md": "x", "../secret.yaml": CANARY})
    (root / "more").symlink_to(target)
    if target == "also":
        (root / "also").symlink_to("docs")
    commit_work_tree(pygit2.init_repository(root))
    for tree in (disk.read_folder(root), git.read_at(root, "HEAD")):
        _, problems = load(tree)
        assert [(one.origin.path, one.code) for one in problems] == want


def test_a_link_that_no_include_goes_into(root):
    write_files(root, {"bindings/README.md": "x"})
    (root / "bindings" / "docs").symlink_to(root.parent)
    fleet, problems = load(disk.read_folder(root))
    assert (fleet is not None, problems) == (True, ())


def test_an_include_that_may_match_behind_a_link_is_no_second_problem(root):
    (root / "bindings").rename(root / "elsewhere")
    (root / "bindings").symlink_to("elsewhere")
    include = "{include: ['c*/*.yaml', 't*/*.yaml', 'bindings/**/*.yaml']}"
    write_files(root, {"fleet.yaml": document("Fleet", "acme", include)})
    assert problems_of(root) == [("bindings/", "not-a-folder")]


def with_submodule(root):
    """Commit `bindings` as a submodule, as a clone without submodules leaves it; return it."""
    repository = pygit2.init_repository(root)
    commit_work_tree(repository)
    (root / "bindings").rename(root.parent / "bindings")
    (root / "bindings").mkdir()
    index = repository.index
    index.remove("bindings/db.yaml")
    index.add(pygit2.IndexEntry("bindings", pygit2.Oid(hex="1" * 40), FileMode.COMMIT))
    parents = [repository.head.target]
    repository.create_commit("HEAD", PERSON, PERSON, "x", index.write_tree(), parents)
    return root / "bindings"


def filled(folder):
    write_files(folder, {"db.yaml": GOOD["bindings/db.yaml"], ".git": "gitdir: ../.git/modules/b"})


@pytest.mark.parametrize("change", [lambda folder: None, filled], ids=["empty", "filled"])
@pytest.mark.parametrize("whole", [False, True])
def test_a_submodule_is_refused_whether_or_not_it_is_there(root, change, whole):
    change(with_submodule(root))
    for tree in (disk.read_folder(root, whole=whole), git.read_at(root, "HEAD")):
        fleet, problems = load(tree)
        assert fleet is None
        assert [(one.origin.path, one.code) for one in problems] == [("bindings/", "not-a-folder")]


def test_files_in_place_of_a_submodule_may_be_looked_at_before_they_are_committed(root):
    folder = with_submodule(root)
    folder.rmdir()
    assert disk.read_folder(root).unread == {}
    assert [*disk.read_folder(root, whole=True).unread] == ["bindings/"]
    write_files(folder, {"db.yaml": GOOD["bindings/db.yaml"]})
    for whole in (False, True):
        fleet, problems = load(disk.read_folder(root, whole=whole))
        assert (fleet is not None, problems) == (True, ())


def test_a_ca_file_behind_a_link_is_refused_at_its_name(root):
    spec = "{access: {inCluster: true}, controlPlane: eu, caFile: ca/x.pem}"
    write_files(
        root, {"clusters/shop.yaml": document("Cluster", "shop", spec, labels="{env: prod}")}
    )
    outside = root.parent / "outside"
    write_files(outside, {"x.pem": CANARY})
    (root / "ca").symlink_to(outside)
    _, problems = load(disk.read_folder(root))
    assert [(str(one.origin), one.code) for one in problems] == [
        ("ca/", "not-a-folder"),
        ("clusters/shop.yaml:4:61", "not-a-file"),
    ]


@pytest.mark.parametrize("path", ["bindings/", "bindings/db.yaml"])
def test_what_may_not_be_read_is_reported(root, monkeypatch, path):
    # The tests may run as root, who may read everything.
    def forbid(name, flags, **rest):
        if name == Path(path).name:
            raise PermissionError(13, "Permission denied")
        return opened(name, flags, **rest)

    opened = os.open
    monkeypatch.setattr(os, "open", forbid)
    assert problems_of(root) == [(path, "unreadable-file")]


def test_a_name_that_no_terminal_should_see(root):
    write_files(root, {"bindings/\x1b[31m.yaml": "x"})
    (root / os.fsdecode(b"bindings/\xff.yaml")).write_text("x")
    _, problems = load(disk.read_folder(root))
    assert [one.code for one in problems] == ["bad-path", "bad-path"]
    assert all(one.origin.path.isprintable() and str(one).encode() for one in problems)


def test_limits_end_the_reading(root, monkeypatch):
    monkeypatch.setattr(gather, "MAX_FILES", 5)
    assert refused(root) == ["too-many-files"]
    monkeypatch.setattr(gather, "MAX_FILES", 10_000)
    monkeypatch.setattr(gather, "MAX_TREE_BYTES", 300)
    assert refused(root) == ["tree-too-large"]


def test_many_values_are_refused_however_short_they_are(root):
    """A value takes a hundred bytes of memory, and two in a file: 64 MiB of them took 5 GiB."""
    few = b"x: [" + b"a," * 499_999 + b"a]"
    for text in few, b"x: " + b"${vars.v}" * 99_999:  # each of these stands for a long text
        for number in range(9):
            (root / f"clusters/x{number}.yaml").write_bytes(text)
        assert refused(root) == ["tree-too-large"]


def lists(*resources, generators=1):
    """Return a kustomization that lists the fleet so many times, and these resources."""
    listed = ", ".join(["{name: x, files: [fleet.yaml]}"] * generators)
    return f"resources: [{', '.join(resources)}]\nconfigMapGenerator: [{listed}]"


PODS = {f"pod{number}.yaml": f"[{'x, ' * 999}x]" for number in range(9)}
MULTIPLYING = {
    "resources": {"kustomization.yaml": lists(*PODS), **PODS},
    "one resource": {"kustomization.yaml": lists(*["pod1.yaml"] * 9), **PODS},
    "generators": {"kustomization.yaml": lists("pod1.yaml", generators=9), **PODS},
    "kustomizations": {
        f"k{one}/kustomization.yaml": f"resources: {text}" for one, text in PODS.items()
    },
}


@pytest.mark.parametrize("written", MULTIPLYING.values(), ids=MULTIPLYING)
def test_lists_that_multiply_are_read_within_the_same_limit(root, monkeypatch, written):
    write_files(root, written)
    snapshot = disk.read_folder(root)
    monkeypatch.setattr(gather, "MAX_VALUES", 4_000)
    *_, last = disk.unread_documents(root, snapshot)
    assert last.code == "tree-too-large"
    monkeypatch.setattr(gather, "MAX_VALUES", 40_000)
    assert {one.code for one in disk.unread_documents(root, snapshot)} <= {"unlisted-file"}


def test_lists_name_so_many_files_that_they_lack_and_no_more(root):
    write_files(root, {"kustomization.yaml": lists(generators=999)})
    assert len(list(disk.unread_documents(root, disk.read_folder(root)))) == 1_000


def test_folders_that_no_include_reaches_are_not_looked_into(root, monkeypatch):
    write_files(root, {f"node_modules/a/{number}/x.yaml": "x" for number in range(50)})
    monkeypatch.setattr(gather, "MAX_FILES", 20)
    assert len(disk.read_folder(root).files) == len(GOOD)


@pytest.fixture
def repository(root):
    return pygit2.init_repository(root)


def test_the_revision_is_the_commit_at_head(root, repository):
    assert disk.read_folder(root).revision == ""
    head = commit_work_tree(repository)
    assert disk.read_folder(root).revision == head
    write_files(root, {"README.md": "not a file of the fleet"})
    assert disk.read_folder(root).revision == head


CHANGES = {
    "another text": lambda root: write_files(root, {"bindings/db.yaml": "# x"}),
    "a new file": lambda root: write_files(root, {"bindings/new.yaml": "# x"}),
    "a file that is gone": lambda root: (root / "bindings/db.yaml").unlink(),
    "a file that became a folder": lambda root: (
        (root / "bindings/db.yaml").unlink(),
        (root / "bindings/db.yaml").mkdir(),
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_fleet_that_is_not_as_committed_is_dirty(root, repository, change):
    head = commit_work_tree(repository)
    change(root)
    assert disk.read_folder(root).revision == f"{head}+dirty"


def test_a_fleet_below_the_top_of_its_repository(tmp_path, root):
    head = commit_work_tree(pygit2.init_repository(tmp_path))
    tree = disk.read_folder(root)
    assert (tree.folder, tree.revision) == ("repo/", head)


def test_a_checkout_of_another_user(root, repository, monkeypatch):
    head = commit_work_tree(repository)
    path = root / ".git"
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    monkeypatch.setenv("HOME", str(root.parent))
    for name in (path, root):
        os.chown(name, 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to another user") as caught:
        disk.read_folder(root)
    assert "--git-owner-check=off" in caught.value.hint
    assert disk.read_folder(root, check_owner=False).revision == head


def test_a_sparse_checkout_does_not_pass_for_files_taken_away(root, repository):
    commit_work_tree(repository)
    kept = ("/*", "!bindings/db.yaml")
    subprocess.run(["git", "-C", root, "sparse-checkout", "set", "--no-cone", *kept], check=True)
    assert not (root / "bindings/db.yaml").exists()
    found = disk.read_folder(root)
    assert [(path, one.code) for path, one in found.unread.items()] == [
        ("bindings/db.yaml", "missing-file")
    ]
    assert "sparse-checkout disable" in found.unread["bindings/db.yaml"].hint
    subprocess.run(["git", "-C", root, "rm", "-q", "--sparse", "bindings/db.yaml"], check=True)
    assert disk.read_folder(root).unread.keys() == {"bindings/db.yaml"}  # until it is committed


def test_a_link_that_a_checkout_without_links_holds_as_text(root, repository):
    write_files(root, {"docs/a.yaml": GOOD["bindings/db.yaml"]})
    (root / "more").symlink_to("docs")
    commit_work_tree(repository)
    (root / "more").unlink()
    write_files(root, {"more": "docs"})
    assert [*disk.read_folder(root).unread] == ["more/"]
    write_files(root, {"more": "a file of one's own"})
    assert disk.read_folder(root).unread == {}
