"""How many files this process may have open: each connection is one, and so is each watch."""

import contextlib
from typing import Final

MOST: Final = 2**20  # that Linux gives, unless it is told otherwise


def allow_many(enough: int) -> None:
    """Raise our own limit to `enough`, as far as the system lets us.

    Shells give 256 or 1024 to start with. More than is needed is not asked for: some systems
    refuse "unlimited".
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
