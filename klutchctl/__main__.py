"""Starts the programs of this package, each with its imports inside `ending_quietly`."""

import os
import shlex
import sys

from klutchctl.entry import COMPLETION, end_after, ending_quietly


def main() -> None:
    """Run `klutchctl`, and end the process."""
    with ending_quietly():
        from klutchctl.main import main as run
    run()


def complete_for_kubectl() -> None:
    """Print the completions of the last argument for `kubectl klutchctl`, and end the process."""
    words = ["klutchctl", *sys.argv[1:]]
    asked = {"COMP_WORDS": shlex.join(words), "COMP_CWORD": str(len(words) - 1)}
    os.environ |= {COMPLETION: "complete_bash", **asked}
    try:
        main()
    finally:
        print(":0")  # kubectl offers files where there is nothing else


def kubectl_bind() -> None:
    """Run `kubectl bind`, Klutch's command in one process (F18-F20), and end the process."""
    with ending_quietly():
        from klutchctl.binding.kubectl import code
    end_after(code)


if __name__ == "__main__":
    main()
