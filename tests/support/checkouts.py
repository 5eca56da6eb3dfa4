"""Git repositories with a fleet: as a pipeline checks one out, and commits of any content."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pygit2
from pygit2.enums import FileMode

PERSON: Final = pygit2.Signature("t", "t@example.com", 1_700_000_000, 0)


class Checkout:
    """A Git repository to stand in, with a fleet in `repo`."""

    def __init__(self, top: Path) -> None:
        self.git = pygit2.init_repository(top, initial_head="main")
        self.folder = top / "repo"

    def write(self, changes: Mapping[str, str]) -> None:
        write_files(self.folder, changes)

    def commit(self, branch="main") -> str:
        head = commit_work_tree(self.git, f"refs/heads/{branch}", "repo")
        self.git.set_head(f"refs/heads/{branch}")
        return head


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files below a folder, with the folders that they need."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def commit_work_tree(repository: Any, ref="HEAD", folder="*") -> str:
    """Commit the files of a work tree, on top of HEAD."""
    repository.index.add_all([folder])
    repository.index.write()
    parents = [] if repository.head_is_unborn else [repository.head.target]
    tree = repository.index.write_tree()
    return str(repository.create_commit(ref, PERSON, PERSON, "x", tree, parents))


def commit_files(repository: Any, files: Mapping[str, Any], ref="refs/heads/main") -> str:
    """Commit files by path, without a work tree, on top of the ref."""
    tree = tree_of(repository, nested(files))
    parents = [repository.references[ref].target] if ref in repository.references else []
    return str(repository.create_commit(ref, PERSON, PERSON, "x", tree, parents))


def tree_of(repository: Any, files: Mapping[str, Any]) -> pygit2.Oid:
    """Write a tree object; a value is bytes, (mode, id), or a mapping for a folder."""
    builder = repository.TreeBuilder()
    for name, value in files.items():
        if isinstance(value, dict):
            builder.insert(name, tree_of(repository, value), FileMode.TREE)
        elif isinstance(value, bytes):
            builder.insert(name, repository.create_blob(value), FileMode.BLOB)
        else:
            builder.insert(name, value[1], value[0])
    written: pygit2.Oid = builder.write()
    return written


def nested(files: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, content in files.items():
        *folders, name = path.split("/")
        inner = tree
        for folder in folders:
            inner = inner.setdefault(folder, {})
        inner[name] = content
    return tree
