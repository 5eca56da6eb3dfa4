"""`klutchctl import`: writes files for what is live and no file names. Writes to no cluster."""

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klutchctl.exit_codes import ExitCode
from klutchctl.settings import Settings, of

if TYPE_CHECKING:
    from reconciler.core.live import Live
    from reconciler.fleet.files import Snapshot
    from reconciler.fleet.load import Loaded
    from reconciler.observe import Clusters
    from reconciler.reports.imports import Imports

_FILE: Final = "imported.yaml"
_HEAD: Final = """\
# What was live and in no file when `klutchctl import` ran. Rename and move it as you like.
"""


def import_(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="The fleet repository.")] = Path(),
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help=f"In the repository, for a new file {_FILE}."),
    ] = None,
) -> int:
    """Write files for the bindings that are live and that no file names. Overwrites nothing."""
    settings = of(context)
    return run(path, out, settings)


def run(path: Path, out: Path | None, settings: Settings) -> int:
    """Import into the fleet at `path`, tell what was found, and return the exit code."""
    import uvloop

    from klutchctl import files, repository

    snapshot = repository.snapshot_in(path, ref=None, check_owner=settings.git_owner_check)
    folder = path if path.is_dir() else path.parent
    job = _Import(snapshot, repository.documents(snapshot), folder, settings)
    target = job.file(out)
    made, unread = uvloop.run(job.found(target))
    for name, reason in unread:
        print(f"Warning: {name} was not read: {reason}", file=sys.stderr)
    if made.imports.found:
        files.write_new(job.folder / target, made.text.encode())
    typer.echo(_summary(made, job.folder / target, whole=not unread), nl=False)
    if made.blind:
        return ExitCode.FAILED
    return ExitCode.PARTIAL if unread and not settings.allow_unreachable else ExitCode.SUCCESS


@dataclass(frozen=True, slots=True)
class _Made:
    """What is imported, and the file that says so.

    `blind`: no app cluster could be read. `denied`: no Policy allows the file, or not all of it.
    """

    imports: "Imports"
    text: str
    blind: bool = False
    denied: bool = False


@dataclass(frozen=True, slots=True)
class _Import:
    """One run of the command."""

    snapshot: "Snapshot"
    loaded: "Loaded"
    folder: Path
    settings: Settings

    def file(self, out: Path | None) -> str:
        """Return the path of the new file in the repository. Raises ConfigError."""
        from reconciler.core.errors import ConfigError
        from reconciler.reports.imports import belongs, place

        if out is None:
            path = place(self.loaded, _FILE)
        else:
            inside = os.path.relpath(out, self.folder)
            path = (Path(inside) / _FILE).as_posix()
        if path is None or not belongs(self.loaded, path):
            hint = "Name a folder of spec.include with --out, or add imported/*.yaml to it"
            where = str(self.loaded.fleet.origin)
            raise ConfigError(f"no include matches {path or _FILE}", where=where, hint=hint)
        if (self.folder / path).exists():
            hint = "Nothing was written; name another folder with --out"
            raise ConfigError("is there already", where=str(self.folder / path), hint=hint)
        return path

    async def found(self, target: str) -> tuple[_Made, list[tuple[str, str]]]:
        """Read the clusters; return what is imported, and what was not read and why."""
        from klutchctl import repository
        from reconciler.core.live import ClusterState, Unavailable
        from reconciler.kube import registry
        from reconciler.observe import observe
        from reconciler.reports.imports import imports

        fleet, pace = self.loaded.fleet, self.settings.pace()
        only = repository.chosen(fleet, self.settings)
        async with registry.of(fleet, self.settings.surroundings()) as clusters:
            live = await observe(fleet, clusters, only=only, credentials=True, pace=pace)
            made = imports(fleet, live, only=only)
            settled = await self._settled(made, live, clusters, target)
        seen = {**live.control_planes, **live.clusters}
        awake = {name for name, one in fleet.clusters.items() if one.suspended is None}
        unread = [
            (name, one.reason)
            for name, one in sorted(seen.items())
            if isinstance(one, Unavailable) and (name in awake or name in live.control_planes)
        ]
        blind = bool(unread) and not any(
            isinstance(one, ClusterState) for one in live.clusters.values()
        )
        return replace(settled, blind=blind), unread

    async def _settled(
        self, made: "Imports", live: "Live", clusters: "Clusters", target: str
    ) -> _Made:
        """Drop what its own files would change, until they take over all that they name."""
        from klutchctl import repository
        from reconciler.reports.imports import settled
        from reconciler.run import plan

        while made.found:
            text = self._text(made)
            files = {**self.snapshot.files, target: text.encode()}
            loaded, denied = repository.documents_with_denials(replace(self.snapshot, files=files))
            fleet = loaded.fleet
            only = {name for one in made.found for name in one.clusters}
            seen = await plan(fleet, live, clusters, only=only, pace=self.settings.pace())
            kept = settled(made, seen.plan)
            if kept == made:
                return _Made(made, text, denied=bool(denied))
            made = kept
        return _Made(made, "")

    def _text(self, made: "Imports") -> str:
        from klutchctl.render import manifests
        from reconciler.reports.imports import documents

        found = ["\n".join(manifests.yaml_lines(one)) for one in documents(self.loaded, made.found)]
        return _HEAD + "\n---\n".join(found) + "\n"


def _summary(made: _Made, path: Path, *, whole: bool) -> str:
    from klutchctl.render.terminal import plural, visible
    from reconciler.reports.imports import units_of

    found = made.imports.found
    lines = [f"Left alone: {visible(name)}: {visible(why)}" for name, why in made.imports.left]
    if found:
        count = plural(units_of(found), "unit")
        lines.append(f"Wrote {path}: {plural(len(found), 'Binding')} for {count}")
        if made.denied:
            lines.append("The Policies deny some of it: `klutchctl validate` names what to allow")
        lines.append("`klutchctl plan` shows what taking them over writes: labels and annotations")
    else:
        where = "" if whole else " in the clusters that were read"
        lines.append(f"Nothing to import was found{where}; nothing was written")
    return "\n".join(lines) + "\n"
