"""Where on the command line an option may stand: a global one anywhere. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

# Global options, and whether a value follows. `-v` is not among them: `version` has its own.
GLOBAL: Final[Mapping[str, bool]] = {
    "--allow-unreachable": False,
    "--burst": True,
    "--chdir": True,
    "--cluster": True,
    "--connect-timeout": True,
    "--git-owner-check": True,
    "--kubeconfig": True,
    "--no-color": False,
    "--parallelism": True,
    "--qps": True,
    "--selector": True,
    "--timeout": True,
    "-l": True,
}


def globals_first(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with global options moved before the command; all else in order.

    What follows "--" is left alone.
    """
    moved: list[str] = []
    rest: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        if argument == "--":
            rest += [argument, *waiting]
            break
        name, has_value = _name(argument)
        if name not in GLOBAL:
            rest.append(argument)
            continue
        moved.append(argument)
        if GLOBAL[name] and not has_value:
            moved += [value for value in [next(waiting, None)] if value is not None]
    return [*moved, *rest]


def _name(argument: str) -> tuple[str, bool]:
    """Return the option that an argument is, and whether its value is in it, as in `-lenv=prod`."""
    if argument.startswith("-l") and argument != "-l":
        return "-l", True
    name, has_value, _ = argument.partition("=")
    return name, bool(has_value)


def is_verbose(arguments: Sequence[str]) -> bool:
    """Tell whether `-v` or `--verbose` stands before the command."""
    waiting = iter(globals_first(arguments))
    for argument in waiting:
        if argument in ("-v", "--verbose"):
            return True
        if not argument.startswith("-"):
            return False
        if GLOBAL.get(argument):
            next(waiting, None)
    return False
