"""The home directory of this process, which containers may run as a user that has none."""

from pathlib import Path


def directory() -> Path:
    """Return what HOME says, else the user's entry; / for a user without one."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")
