"""Asks the system about this process: home directory, open files, memory."""

import contextlib
import os
import time
from pathlib import Path
from typing import Final

MANY_FILES: Final = 2**20  # what Linux gives by itself


def uptime() -> float:
    """Return seconds since some start, also those for which this machine slept."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def home_directory() -> Path:
    """Return HOME, else the home of the user's entry; / for a user without one.

    Containers may run as a user that has none.
    """
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def allow_open_files(enough: int) -> None:
    """Raise our own limit of open files to `enough`, as far as the system lets us.

    Each connection is one, and so is each watch; shells give 256 or 1024 to start with. More than
    is needed is not asked for: some systems refuse "unlimited".
    """
    try:
        import resource
    except ImportError:  # no such limit here
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = enough if hard == resource.RLIM_INFINITY else min(enough, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


_NO_MORE_THAN: Final = 2 * 2**30  # octets, where nothing but the machine bounds a process
_LIMITS: Final = ("memory.max", "memory/memory.limit_in_bytes")  # cgroups(7), version 2 and 1


def memory_limit(root: Path = Path("/")) -> int:
    """Return how many octets this process may have.

    That is the limit of its container's cgroup, or of `ulimit -m`; else a quarter of the machine's
    memory, and 2 GiB at most.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    found = [machine]
    with contextlib.suppress(ImportError):
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_RSS)
        found += [] if soft == resource.RLIM_INFINITY else [soft]
    for name in _LIMITS:
        with contextlib.suppress(OSError, ValueError):  # absent, or "max"
            found.append(int((root / "sys/fs/cgroup" / name).read_text()))
    return min(found) if min(found) < machine else min(machine // 4, _NO_MORE_THAN)
