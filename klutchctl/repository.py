"""From a path to a checked fleet, for every command that needs one."""

import sys
from collections.abc import Collection
from pathlib import Path

from reconciler.core.errors import ConfigError
from reconciler.core.problems import InvalidRepository
from reconciler.fleet.load import load
from reconciler.fleet.values import Fleet
from reconciler.source import folder


def fleet_in(path: Path, *, check_owner: bool) -> Fleet:
    """Return the fleet in a folder or file, and tell its warnings on standard error.

    Raises InvalidRepository with all its problems.
    """
    fleet, problems = load(folder.read(path, check_owner=check_owner))
    if fleet is None:
        raise InvalidRepository(problems)
    for problem in problems:
        print(f"Warning: {problem}", file=sys.stderr)
    return fleet


def chosen(fleet: Fleet, clusters: Collection[str]) -> frozenset[str] | None:
    """Return the named app clusters; None, all of them, where none is named."""
    unknown = sorted(set(clusters) - set(fleet.clusters))
    if unknown:
        known = ", ".join(sorted(fleet.clusters)) or "none"
        raise ConfigError(f"no such cluster: {', '.join(unknown)}", hint=f"There are: {known}")
    return frozenset(clusters) or None
