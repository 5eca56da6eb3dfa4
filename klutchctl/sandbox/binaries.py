"""Where the servers' executables come from.

$KUBEBUILDER_ASSETS (the convention of envtest), our cache, a download, a build: in this order.
Of what is not part of a control plane there are no releases to download.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klutchctl.sandbox import build, cache, disk, download, toolchain
from klutchctl.sandbox.cache import Cache
from klutchctl.sandbox.control_planes import Program
from klutchctl.sandbox.download import OFFICIAL, Origins
from klutchctl.sandbox.progress import Progress
from klutchctl.sandbox.release import Recipe, Release

# A folder of envtest has these two; a controller manager is rare there.
_ESSENTIAL: Final = frozenset({Program.ETCD, Program.API_SERVER})


@dataclass(frozen=True, slots=True)
class Workshop:
    """Where executables are built and kept: with `environ`, and with the `go` on its PATH or else
    `packaged_go`.
    """

    cache: Cache
    environ: Mapping[str, str]
    packaged_go: Path | None


@dataclass(frozen=True, slots=True)
class Sources:
    """Where to look for a control plane. `downloads` None builds what is not there."""

    release: Release
    workshop: Workshop
    downloads: Origins | None = None


def sources(
    release: Release, *, cache_home: Path, environ: Mapping[str, str], downloading: bool
) -> Sources:
    """Return the ordinary places."""
    return Sources(
        release=release,
        workshop=workshop(release.recipe, "controlplane", cache_home=cache_home, environ=environ),
        downloads=OFFICIAL if downloading else None,
    )


def workshop(
    recipe: Recipe, folder: str, *, cache_home: Path, environ: Mapping[str, str]
) -> Workshop:
    """Return the ordinary place of what `recipe` makes; `folder` names it in our cache."""
    cache = Cache(cache_home / "klutchctl" / folder, recipe.subject)
    return Workshop(cache, environ, toolchain.packaged())


def provide(where: Sources, *, progress: Progress) -> Mapping[Program, Path]:
    """Return every program's executable, made now if need be, and say where it comes from.

    Raises HostError.
    """
    assets = _assets(where.workshop.environ, progress)
    if len(assets) == len(Program):
        return assets
    release = where.release

    def fetch(into: Path) -> None:
        assert where.downloads is not None
        download.download(release, into, progress=progress, origins=where.downloads)

    entry = _ensured(where.workshop, release.recipe, progress, fetch if where.downloads else None)
    rest = [program for program in Program if program not in assets]
    progress.note(f"Using {', '.join(rest)} from {entry}")
    return {program: entry / program for program in rest} | assets


def provide_built(where: Workshop, recipe: Recipe, *, progress: Progress) -> Path:
    """Return the folder with all that `recipe` makes, built now if need be, and say which it is.

    Raises HostError.
    """
    entry = _ensured(where, recipe, progress, None)
    progress.note(f"Using {', '.join(recipe.packages)} from {entry}")
    return entry


def _assets(environ: Mapping[str, str], progress: Progress) -> dict[Program, Path]:
    value = environ.get("KUBEBUILDER_ASSETS", "")
    if not value:
        return {}
    folder = Path(value).absolute()
    found = {p: folder / p for p in Program if os.access(folder / p, os.X_OK)}
    if not found.keys() >= _ESSENTIAL:
        missing = ", ".join(sorted(_ESSENTIAL - found.keys()))
        progress.note(f"Not using KUBEBUILDER_ASSETS={value}: it has no {missing}")
        return {}
    progress.note(f"Using {', '.join(found)} from KUBEBUILDER_ASSETS={value}")
    return found


def _ensured(
    where: Workshop, recipe: Recipe, progress: Progress, fetch: Callable[[Path], None] | None
) -> Path:
    """Return the whole entry of `recipe`; `fetch` fills a new one, else a build does."""
    entry = where.cache.entry(recipe.id)
    if entry.exists() and cache.damage(entry, recipe.packages) is None:
        return entry
    with (
        disk.full_disk_told(where.cache.folder, variable="XDG_CACHE_HOME"),
        where.cache.locked(progress),
    ):
        if entry.exists():
            damage = cache.damage(entry, recipe.packages)
            if damage is None:
                return entry  # another run made it meanwhile
            progress.note(f"Replacing {entry}: {damage}")
        with where.cache.draft(recipe.id) as draft:
            if fetch is not None:
                fetch(draft)
            else:
                build.build(
                    recipe,
                    draft,
                    environ=where.environ,
                    packaged_go=where.packaged_go,
                    progress=progress,
                )
    return entry
