"""Files that survive a crash whole: the old one or the new one. And locks between runs."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import filelock

from klutchctl.sandbox.progress import Progress


def write(path: Path, content: bytes) -> None:
    """Replace the file at `path`; only the owner may read it. The folder must exist."""
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def write_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Create `folder` with these files, or nothing at all. An existing folder is kept as it is.

    Only the owner may read the folder and its files.
    """
    if folder.exists():
        return
    private_folder(folder.parent)
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))  # mode 0700
    try:
        for name, content in contents.items():
            write(draft / name, content)
        draft.rename(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def remove_folder(folder: Path) -> None:
    """Remove a folder: whole, or not at all, for all who look for it.

    What a killed run has left of one of that name goes, too.
    """
    if folder.exists():
        folder.rename(Path(tempfile.mkdtemp(dir=folder.parent, prefix=_going(folder))) / "it")
    for left in folder.parent.glob(f"{_going(folder)}*"):
        if not left.is_symlink():
            shutil.rmtree(left)


def _going(folder: Path) -> str:
    return f".{folder.name}.going-"


def private_folder(folder: Path) -> None:
    """Create `folder` and its parents where absent, for the owner only."""
    if not folder.is_dir():
        private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def exclusive(lock_file: Path, subject: str, progress: Progress) -> Iterator[None]:
    """Hold the lock for the block. While another run holds it, say so and wait."""
    lock = filelock.FileLock(lock_file)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        with progress.step(f"waiting for another run that works on {subject}"):
            lock.acquire()
    try:
        yield
    finally:
        lock.release()
