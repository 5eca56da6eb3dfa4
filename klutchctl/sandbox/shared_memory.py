"""The shared memory by which PostgreSQL knows that its data is in use.

The kernel keeps what a killed server leaves until the next one for the same data comes.
"""

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_SEGMENTS: Final = Path("/proc/sysvipc/shm")  # of Linux; nothing is known elsewhere
_LOCK: Final = "postmaster.pid"
_LINE: Final = 6  # of the lock, from 0: the key and the id of the segment
_IPC_RMID: Final = 0


class _Segment(NamedTuple):
    key: int
    id: int
    user: int


def release(data: Path) -> None:
    """Remove what a killed server has left for the data folder, unless a process still holds it.

    Only what belongs to the owner of the lock in there: anybody can write numbers into a file.
    """
    segment = _named(data / _LOCK)
    if segment is not None and segment in _unheld():
        # Where somebody was faster there is nothing to be done.
        ctypes.CDLL(None).shmctl(segment.id, _IPC_RMID, None)


def _named(lock: Path) -> _Segment | None:
    """Return what a lock tells of its segment, None where it tells nothing."""
    try:
        lines = lock.read_text(errors="replace").splitlines()
        key, identity = map(int, lines[_LINE].split())
        return _Segment(key % 2**32, identity, lock.lstat().st_uid)
    except (OSError, IndexError, ValueError):
        return None


def _unheld() -> Iterator[_Segment]:
    """Yield all segments that no process is attached to."""
    try:
        names, *rows = (line.split() for line in _SEGMENTS.read_text().splitlines())
    except (OSError, ValueError):
        return
    for row in rows:
        told = dict(zip(names, map(int, row), strict=False))
        if not told["nattch"]:
            # The kernel and PostgreSQL do not agree on the sign of a key.
            yield _Segment(told["key"] % 2**32, told["shmid"], told["uid"])
