"""What the system gives to this process: a home directory, and how many files it may open."""

import contextlib
from pathlib import Path
from typing import Final

MANY_FILES: Final = 2**20  # what Linux gives by itself


def home_directory() -> Path:
    """Return what HOME says, else the user's entry; / for a user without one.

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
