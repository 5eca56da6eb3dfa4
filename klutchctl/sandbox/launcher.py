"""Replaces this process by another program, in its folder and as its user.

Run as a file, without any package of ours: `python launcher.py USER FOLDER PROGRAM ARGUMENT...`,
where USER is `uid:gid`, or "-" for the user that runs this. The program finds its own pid in its
environment, and so does what it starts: this tells them apart.
"""

import os
import sys


def main(user: str, folder: str, *command: str) -> None:
    """Never return: be the program, or end with 127 and the reason."""
    try:
        if user != "-":
            uid, gid = map(int, user.split(":"))
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
        os.umask(0o077)
        os.chdir(folder)
        os.environ["KLUTCHCTL_SANDBOX_PID"] = str(os.getpid())
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"error: {command[0]} does not start in {folder}: {error.strerror}")


if __name__ == "__main__":
    main(*sys.argv[1:])
