"""The cgroups of nodes: made before a node starts, and removed after it, however it ended.

All pods of a node are in one. Pods that are killed with their node leave empty ones.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from reconciler.core.errors import HostError

HINT: Final = "In a container, start that with its own cgroups, writable"
_ROOT: Final = Path("/sys/fs/cgroup")
_INHERITED: Final = ("cpuset.cpus", "cpuset.mems")  # of version 1: a new one has none
# Of version 2: without one of these that the machine has, a kubelet does not start.
_CONTROLLERS: Final = frozenset({"cpu", "cpuset", "hugetlb", "memory", "pids"})
_DEADLINE: Final = 20.0
_POLL: Final = 0.1


def hierarchies(root: Path = _ROOT) -> tuple[Path, ...]:
    """Return the folder of each hierarchy: of version 2 there is one."""
    if (root / "cgroup.procs").is_file():
        return (root,)
    folders = sorted(one for one in root.iterdir() if not one.is_symlink()) if root.is_dir() else ()
    return tuple(one for one in folders if (one / "cgroup.procs").is_file())


def make(name: str, root: Path = _ROOT) -> None:
    """Make the cgroup of a node in every hierarchy, with all that its parent has.

    Raises HostError.
    """
    try:
        for hierarchy in hierarchies(root):
            made = hierarchy / name
            if hierarchy == root:
                _enable_controllers(root)
            made.mkdir(exist_ok=True)
            for file in _INHERITED:
                if (made / file).is_file() and (hierarchy / "tasks").is_file():
                    (made / file).write_text((hierarchy / file).read_text())
    except OSError as error:
        raise HostError(
            f"the cgroup {made} of a node cannot be made: {error.strerror}",
            hint=f"{HINT}. Of version 2, all its processes have to be in cgroups below the first",
        ) from error


def _enable_controllers(root: Path) -> None:
    """Give cgroups below the root of version 2 what a kubelet asks for."""
    shared = root / "cgroup.subtree_control"
    has, gives = (root / "cgroup.controllers").read_text().split(), shared.read_text().split()
    if lacking := _CONTROLLERS.intersection(has).difference(gives):
        shared.write_text(" ".join(f"+{one}" for one in sorted(lacking)))


def remove(pattern: str, root: Path = _ROOT) -> None:
    """Remove all cgroups of nodes with such a name.

    Nothing runs there any more, but what was killed a moment ago. Raises HostError.
    """
    deadline = time.monotonic() + _DEADLINE
    while left := [*_found(pattern, root)]:
        for folder in left:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if time.monotonic() > deadline:
            raise HostError(
                f"{left[-1]} cannot be removed: something runs in it",
                hint="`cgroup.procs` in that folder or below it names the processes",
            )
        time.sleep(_POLL)


def _found(pattern: str, root: Path) -> Iterator[Path]:
    """Yield folders, those inside before those around them."""
    for hierarchy in hierarchies(root):
        for top in sorted(hierarchy.glob(pattern)):
            for folder, _, _ in os.walk(top, topdown=False):
                yield Path(folder)
