"""A disk that is full or refuses us: by our own writes, and by those of programs that we run."""

import errno
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from reconciler.core.errors import HostError

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_MIB: Final = 1024 * 1024
HINT: Final = "Make room there, or choose another place with {variable}, and run the command again"


@contextmanager
def full_disk_explained(folder: Path, *, variable: str) -> Iterator[None]:
    """Turn a full disk inside the block into a HostError.

    `variable` names the environment variable that moves `folder` elsewhere.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise full(folder, variable=variable) from error


@contextmanager
def refusals_explained(folder: Path, *, variable: str) -> Iterator[None]:
    """Turn what the file system refuses inside the block, which makes `folder`, into a HostError.

    A full disk is called one. `variable` is as for `full_disk_explained`.
    """
    try:
        with full_disk_explained(folder, variable=variable):
            yield
    except OSError as error:
        raise HostError(
            f"{folder} cannot be used: {error.strerror}",
            hint=f"Choose a folder that you may write to with {variable}",
        ) from error


def full(folder: Path, *, variable: str) -> HostError:
    """Return the error for a disk that filled up while `folder` was written."""
    return HostError(f"no space left for {folder}", hint=HINT.format(variable=variable))


def says_full(text: str) -> bool:
    """Tell whether the output of a program complains about a full disk."""
    return "no space left on device" in text or "disk quota exceeded" in text.lower()


def require(needs: Mapping[Path, tuple[int, str]]) -> None:
    """Check that each folder has room for so many MiB; the text names its variable.

    Folders on one file system are added up. Raises HostError.
    """
    wanted: dict[int, int] = defaultdict(int)
    where: dict[int, tuple[Path, str]] = {}
    for folder, (mebibytes, variable) in needs.items():
        there = _existing(folder)
        device = there.stat().st_dev
        wanted[device] += mebibytes
        where.setdefault(device, (there, variable))
    for device, mebibytes in wanted.items():
        folder, variable = where[device]
        free = shutil.disk_usage(folder).free // _MIB
        if free < mebibytes:
            raise HostError(
                f"{folder} has {free} MiB left, and {mebibytes} MiB are needed",
                hint=HINT.format(variable=variable),
            )


def _existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return Path(os.path.realpath(folder))
