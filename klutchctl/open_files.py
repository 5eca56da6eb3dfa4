"""How many files this process may have open. Each cluster that is worked on takes a few."""

import contextlib
from typing import Final

_ENOUGH: Final = 8192  # for all that is reached at once; some systems refuse "unlimited"


def allow_many() -> None:
    """Raise our own limit as far as the system lets us: shells give 256 or 1024 to start with."""
    try:
        import resource
    except ImportError:  # no such limit here
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(_ENOUGH, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
