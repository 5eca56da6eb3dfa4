"""Loads and checks the fleet of a command, from its folder, Git repository or archive."""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from klutchctl.options import Place, folder_of
from klutchctl.render.terminal import visible
from klutchctl.settings import Settings
from reconciler.core.errors import ConfigError, InvalidRepository, Problem, Severity
from reconciler.fleet import load, reference_index, wording
from reconciler.fleet.files import Snapshot
from reconciler.fleet.values import Fleet
from reconciler.source import disk

T = TypeVar("T")


def snapshot_in(path: Path, *, check_owner: bool, ref: str | None = None) -> Snapshot:
    """Return the files of the fleet in a folder or file: as they are there, or at a Git ref.

    Raises InvalidRepository, ConfigError and HostError.
    """
    if ref is None:
        return disk.read_folder(path, check_owner=check_owner)
    from reconciler.source import git  # takes 80 ms

    return git.read_at(path, ref, check_owner=check_owner)


def snapshot_of(place: Place, settings: Settings) -> Snapshot:
    """Return the files of the fleet in a place, which on a server is asked once.

    Raises what `snapshot_in` does, Unfetched, and Unverified.
    """
    if place.is_here:
        return snapshot_in(place.path, ref=place.ref, check_owner=settings.git_owner_check)
    from klutchctl.controller import options, sources

    if place.git is None:
        import asyncio

        return asyncio.run(_archive(place, settings))
    with tempfile.TemporaryDirectory(prefix="klutchctl-git-") as cache:
        source = sources.remote(
            sources.of_place(place, poll=0),
            settings,
            verification=options.verification(place),
            cache=Path(cache),
        )
        return source.read().snapshot


async def _archive(place: Place, settings: Settings) -> Snapshot:
    from reconciler.source import artifact

    folder = folder_of(place.path)
    if place.artifact is not None:
        found = artifact.pinned(place.artifact, where="--artifact")
        return await artifact.of_flux(found, folder=folder)
    found = artifact.pinned(place.oci or "", where="--oci")
    return await artifact.of_oci(found, folder=folder, docker=settings.docker)


def fleet_of(place: Place, settings: Settings) -> Fleet:
    """Return the fleet in a place, as `fleet_in` does."""
    return _usable(*load.load(snapshot_of(place, settings)))


def fleet_in(path: Path, *, check_owner: bool) -> Fleet:
    """Return the fleet in a folder or file, and print its warnings on standard error.

    Raises InvalidRepository with all its problems.
    """
    return _usable(*load.load(snapshot_in(path, check_owner=check_owner)))


def base_of(place: Place, ref: str, settings: Settings) -> load.Base:
    """Return the fleet of a protected branch. Raises ConfigError where it cannot be judged by."""
    try:
        snapshot = snapshot_of(replace(place, ref=ref), settings)
    except InvalidRepository as error:
        raise load.unusable(ref, error.problems) from None
    return load.load_base(ref, snapshot)


def review_of(place: Place, base: str, settings: Settings) -> load.Review:
    """Return the pull request in a place, as the branch `base` judges it.

    Raises and prints what `fleet_of` does, but for what Policies deny: that is in the review.
    """
    return _usable(*load.load_against(base_of(place, base, settings), snapshot_of(place, settings)))


def _usable(found: T | None, problems: Sequence[Problem]) -> T:
    if found is None:
        raise InvalidRepository(problems)
    for problem in problems:
        if problem.severity is Severity.WARNING:
            print(f"Warning: {visible(str(problem))}", file=sys.stderr)
    return found


def documents(snapshot: Snapshot) -> load.Loaded:
    """Return a fleet with its documents. Raises InvalidRepository."""
    loaded, denied = documents_with_denials(snapshot)
    if denied:
        raise InvalidRepository(denied)
    return loaded


def documents_with_denials(snapshot: Snapshot) -> tuple[load.Loaded, Sequence[Problem]]:
    """Return a fleet with its documents and the Policies' denials. Raises InvalidRepository."""
    problems: list[Problem] = []
    loaded = load.load_valid_part(snapshot, problems)
    if loaded is None or any(one.severity is Severity.INVALID for one in problems):
        raise InvalidRepository(problems)
    return loaded, [one for one in problems if one.severity is Severity.DENIED]


def chosen(fleet: Fleet, settings: Settings) -> frozenset[str] | None:
    """Return the app clusters that --cluster and --selector leave; None, all, without both.

    Raises ConfigError where that is none, or a name is unknown.
    """
    if not settings.clusters and settings.selector is None:
        return None
    unknown = sorted(set(settings.clusters) - set(fleet.clusters))
    if unknown:
        hint = f"There are: {', '.join(sorted(fleet.clusters)) or 'none'}"
        raise ConfigError(f"no such cluster: {', '.join(unknown)}", where="--cluster", hint=hint)
    labels = {name: fleet.clusters[name].labels for name in settings.clusters or fleet.clusters}
    if settings.selector is None:
        return frozenset(labels)
    names = frozenset(reference_index.selected(settings.selector, labels))
    if not names:
        raise ConfigError(
            f"matches no cluster of {len(labels)}",
            where="--selector",
            hint=wording.labels(pair for one in labels.values() for pair in one.items()),
        )
    return names
