"""What the exit status of klutchctl tells a script. The one place that knows the numbers."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Where several hold, the first of this list wins: 64, 3, 4, 7, 8, 6, 1, 5, 9, 2, 0."""

    SUCCESS = 0
    FAILED = 1  # unexpected error, I/O, every cluster unreachable
    CHANGES = 2  # success, and there are changes; only with --detailed-exitcode
    INVALID = 3  # what a person wrote is wrong; nothing was contacted
    DENIED = 4  # by policy
    PARTIAL = 5  # some clusters done, some not
    HELD_BACK = 6  # needs approval, or a guard tripped
    STALE = 7  # the plan does not match what is there
    LOCKED = 8  # by another run
    UNHEALTHY = 9  # applied, but not healthy in time
    USAGE = 64
    INTERRUPTED = 130
    TERMINATED = 143
