"""Where the servers' executables come from.

$KUBEBUILDER_ASSETS (the convention of envtest), our cache, a download, a build: in this order.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from klutchctl.sandbox import build, cache, disk, download, toolchain
from klutchctl.sandbox.cache import Cache
from klutchctl.sandbox.control_planes import Program
from klutchctl.sandbox.download import OFFICIAL, Origins
from klutchctl.sandbox.progress import Progress
from klutchctl.sandbox.release import Release

# A folder of envtest has these two; a controller manager is rare there.
_ESSENTIAL: Final = frozenset({Program.ETCD, Program.API_SERVER})


@dataclass(frozen=True, slots=True)
class Sources:
    """Where to look. `downloads` None builds what is not there, with `environ` and with the
    `go` on its PATH or else `packaged_go`.
    """

    release: Release
    cache: Cache
    environ: Mapping[str, str]
    packaged_go: Path | None
    downloads: Origins | None = None


def sources(
    release: Release, *, cache_home: Path, environ: Mapping[str, str], downloading: bool
) -> Sources:
    """Return the ordinary places."""
    return Sources(
        release=release,
        cache=Cache(cache_home / "klutchctl" / "controlplane"),
        environ=environ,
        packaged_go=toolchain.packaged(),
        downloads=OFFICIAL if downloading else None,
    )


def provide(where: Sources, *, progress: Progress) -> Mapping[Program, Path]:
    """Return every program's executable, made now if need be, and say where it comes from.

    Raises HostError.
    """
    assets = _assets(where.environ, progress)
    if len(assets) == len(Program):
        return assets
    entry = where.cache.entry(where.release.id)
    with disk.full_disk_told(where.cache.folder, variable="XDG_CACHE_HOME"):
        _ensure(where, entry, progress)
    rest = [program for program in Program if program not in assets]
    progress.note(f"Using {', '.join(rest)} from {entry}")
    return {program: entry / program for program in rest} | assets


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


def _ensure(where: Sources, entry: Path, progress: Progress) -> None:
    if entry.exists() and cache.damage(entry) is None:
        return
    with where.cache.locked(progress):
        if entry.exists():
            damage = cache.damage(entry)
            if damage is None:
                return  # another run made it meanwhile
            progress.note(f"Replacing {entry}: {damage}")
        with where.cache.draft(where.release.id) as draft:
            if where.downloads:
                download.download(where.release, draft, progress=progress, origins=where.downloads)
            else:
                build.build(
                    where.release,
                    draft,
                    environ=where.environ,
                    packaged_go=where.packaged_go,
                    progress=progress,
                )
