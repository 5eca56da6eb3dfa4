"""Who runs what refuses to run as root."""

import os
import pwd
from typing import Final

from klutchctl.sandbox.servers import Owner

_USERS: Final = ("postgres", "nobody")


def owner() -> Owner | None:
    """Return the user to run such programs as; None where this user will do, or there is none."""
    if os.geteuid() != 0:
        return None
    for name in _USERS:
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return Owner(found.pw_uid, found.pw_gid)
    return None
