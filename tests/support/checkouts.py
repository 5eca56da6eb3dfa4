"""A Git repository with a fleet, as a pipeline checks it out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pygit2

PERSON: Final = pygit2.Signature("t", "t@example.com", 1_700_000_000, 0)


class Checkout:
    """A Git repository to stand in, with a fleet in `repo`."""

    def __init__(self, top: Path) -> None:
        self.git = pygit2.init_repository(top, initial_head="main")
        self.folder = top / "repo"

    def write(self, changes: Mapping[str, str]) -> None:
        for name, text in changes.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def commit(self, branch="main") -> str:
        self.git.index.add_all(["repo"])
        parents = [] if self.git.head_is_unborn else [self.git.head.target]
        tree = self.git.index.write_tree()
        ref = f"refs/heads/{branch}"
        head = self.git.create_commit(ref, PERSON, PERSON, "x", tree, parents)
        self.git.set_head(ref)
        return str(head)
