"""Writes files atomically, and reads them within limits. Also locks, and errors of full disks."""

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import filelock

from reconciler.core.errors import ConfigError, HostError

if TYPE_CHECKING:
    from klutchctl.sandbox.report import Progress

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_MIB: Final = 1024 * 1024
LARGEST: Final = 512 * _MIB  # a plan of a big fleet; parsers of YAML have narrower limits
HINT: Final = "Make room there, or choose another place with {variable}, and run the command again"


def write(path: Path, content: bytes) -> None:
    """Replace the file at `path`; only the owner may read it. The folder must exist."""
    with _draft(path, content) as draft:
        os.replace(draft, path)


def write_shared(path: Path, content: bytes) -> None:
    """Replace the file at `path`, or make it with its folder; everybody may read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _draft(path, content) as draft:
        draft.chmod(0o644)
        os.replace(draft, path)


def write_new(path: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all. Raises ConfigError where there is one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _draft(path, content) as draft:
        draft.chmod(0o644)
        try:
            os.link(draft, path)  # unlike a rename, it replaces nothing
        except FileExistsError:
            raise ConfigError("is there already", where=str(path)) from None


@contextmanager
def _draft(path: Path, content: bytes) -> Iterator[Path]:
    """Give the block a file beside `path` with this content; it is gone in the end."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        yield Path(name)
    except OSError as error:
        error.filename = str(path)  # a full disk names none
        raise
    finally:
        Path(name).unlink(missing_ok=True)


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
    """Remove a folder at once for all readers, and the rest of one that a killed run left."""
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


def read(path: Path, *, hint: str = "") -> bytes:
    """Return the content of a file or pipe of at most LARGEST bytes. Raises ConfigError."""
    try:
        # With O_NONBLOCK, a named pipe that nobody writes to is empty, and not waited for.
        with open(path, "rb", opener=lambda name, to: os.open(name, to | os.O_NONBLOCK)) as stream:
            mode = os.fstat(stream.fileno()).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
                raise OSError(errno.EINVAL, "it is no file")
            os.set_blocking(stream.fileno(), True)
            content = stream.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise OSError(errno.EFBIG, f"larger than {LARGEST // _MIB} MiB")
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        raise ConfigError(message, where=str(path), hint=hint) from None
    return content


@contextmanager
def exclusive(lock_file: Path, subject: str, progress: "Progress") -> Iterator[None]:
    """Hold the lock for the block. While another run holds it, print so and wait."""
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
    """Turn refusals of the file system inside the block, which makes `folder`, into a HostError.

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
