"""`klutchctl init` and `import`: write files of a fleet repository.

None writes to any cluster.
"""

import contextlib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klutchctl.commands.validate import schema_text
from klutchctl.entry import ExitCode, awaited, reading_code
from klutchctl.options import option
from klutchctl.settings import Settings
from reconciler.core.errors import ConfigError

if TYPE_CHECKING:
    from reconciler.core.live import Live
    from reconciler.fleet.files import Snapshot
    from reconciler.fleet.load import Loaded
    from reconciler.observe import Clusters
    from reconciler.reports.imports import Imports

_FILE: Final = "imported.yaml"
_FLEET: Final = "acme"
_PLANE: Final = "main=control-plane"
_APPS: Final[Mapping[str, str]] = {"app-1": "app-1"}
_TEAM: Final = "team-a"
_HEAD: Final = """\
# What was live and in no file when `klutchctl import` ran. Rename and move it as you like.
"""


class Mode(StrEnum):
    """The maker of binding spaces on the control plane."""

    DIRECT = "Direct"
    APP_CLUSTER_BINDING = "AppClusterBinding"


def init(  # noqa: PLR0913, PLR0917 - each is an option
    settings: Settings,
    path: Annotated[Path, typer.Argument(help="Folder for the files; init creates it.")] = Path(),
    name: Annotated[
        str | None,
        option(
            "NAME", "The name of the fleet. Default: acme; with --from, the live one, or CONTEXT."
        ),
    ] = None,
    plane: Annotated[
        str,
        option(
            "NAME[=CONTEXT]",
            "The control plane, and its kubeconfig context if that has another name.",
            "--control-plane",
        ),
    ] = _PLANE,
    app: Annotated[
        list[str] | None,
        option(
            "NAME[=CONTEXT]",
            "An app cluster, as for --control-plane; repeatable. Default: app-1.",
            "--app",
        ),
    ] = None,
    team: Annotated[list[str], option("NAME", "The team of the clusters and bindings.")] = [_TEAM],  # noqa: B006 - only read
    live: Annotated[
        str | None,
        option(
            "CONTEXT",
            "Import live bindings: context of the control plane; name each --app, too.",
            "--from",
        ),
    ] = None,
    mode: Annotated[
        Mode, typer.Option(help="With --from: the mode of the control plane.")
    ] = Mode.DIRECT,
) -> int:
    """Write the first files of a fleet. Overwrites nothing."""
    from klutchctl import scaffold

    _check_name(name or _FLEET, "--name")
    owner, *others = team
    if others:
        raise typer.BadParameter(
            "one team: add a folder of bindings and a Policy for each other", param_hint="'--team'"
        )
    _check_name(owner, "--team")
    apps = _apps(app or [])
    if live is None:
        own, way = _named(plane, "--control-plane")
        _write(
            path,
            scaffold.files(
                schema_text(),
                fleet=name or _FLEET,
                plane=own,
                context=way,
                apps=apps or _APPS,
                team=owner,
            ),
        )
        where = shlex.quote(str(path))
        typer.echo(f"Next: klutchctl validate {where}")
        typer.echo(f"On this machine: klutchctl sandbox up --fleet {where} --services --programs")
        return ExitCode.SUCCESS
    if not apps:
        raise typer.BadParameter("--from needs an --app")
    if (plane, owner) != (_PLANE, _TEAM):
        raise typer.BadParameter("--from goes without --control-plane and --team")
    if not _is_context(live):
        raise typer.BadParameter(f"{live!r} cannot stand in a file", param_hint="'--from'")
    name = name or awaited(_live_fleet(live, settings))
    found = scaffold.live_files(schema_text(), fleet=name, context=live, mode=mode.value, apps=apps)
    _write(path, found)
    return _imported(path, path / "bindings", settings)


async def _live_fleet(context: str, settings: Settings) -> str:
    """Return the one fleet of all spaces on a control plane, or a name for a new fleet."""
    from klutchctl import scaffold
    from reconciler.core import errors, keys, manifest, refs
    from reconciler.fleet.values import Access
    from reconciler.kube.registry import Registry

    found = set[str]()
    with contextlib.suppress(errors.ClusterError, errors.ConfigError):  # to import says it
        async with Registry({_FLEET: Access(context)}, settings.surroundings()) as clusters:
            cluster = (await clusters.control_plane(_FLEET)).cluster
            spaces = await cluster.list(refs.NAMESPACE, labels=keys.FLEET, metadata_only=True)
            found = {manifest.labels_of(one)[keys.FLEET] for one in spaces.items}
    return found.pop() if len(found) == 1 else scaffold.name_of(context, _FLEET)


def _check_name(name: str, option: str) -> None:
    from reconciler.fleet.base_model import NAME

    if problem := NAME.problem_of(name):
        raise ConfigError(f"the name {problem}", where=option)


def _apps(options: Sequence[str]) -> Mapping[str, str]:
    """Return the contexts of app clusters by their names. Raises typer.BadParameter."""
    apps: dict[str, str] = {}
    for text in options:
        name, context = _named(text, "--app")
        if name in apps:
            raise typer.BadParameter(f"{name} is there twice", param_hint="'--app'")
        apps[name] = context
    return apps


def _named(text: str, where: str) -> tuple[str, str]:
    """Return the name of a cluster and its context, which is the name where there is none."""
    from reconciler.fleet.base_model import NAME

    name, equals, context = text.partition("=")
    context = context if equals else name
    if NAME.problem_of(name) or not _is_context(context):
        raise typer.BadParameter(f"{text!r} is not NAME=CONTEXT", param_hint=f"'{where}'")
    return name, context


def _is_context(text: str) -> bool:
    from reconciler.fleet.base_model import REFERENCE_MARK

    return bool(text) and text.isprintable() and REFERENCE_MARK not in text


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    from klutchctl import files
    from reconciler.fleet.files import ENTRY_NAMES

    taken = [one for one in sorted({*texts, *ENTRY_NAMES}) if os.path.lexists(folder / one)]
    if taken:
        raise ConfigError(
            f"already there: {', '.join(taken)}",
            where=str(folder),
            hint="Nothing was written; choose an empty folder",
        )
    for relative, text in texts.items():
        target = folder / relative
        files.write_new(target, text.encode())
        typer.echo(f"Wrote {target}")


def import_(
    settings: Settings,
    path: Annotated[Path, typer.Argument(help="The fleet repository.")] = Path(),
    out: Annotated[
        Path | None, option("FOLDER", f"In the repository, for a new file {_FILE}.", "--out")
    ] = None,
) -> int:
    """Write files for live bindings that no file names.

    Overwrites nothing.
    """
    return _imported(path, out, settings)


def _imported(path: Path, out: Path | None, settings: Settings) -> int:
    """Import into the fleet at `path`, report the results, and return the exit code."""
    from klutchctl import files, repository

    snapshot = repository.snapshot_in(path, check_owner=settings.git_owner_check)
    folder = path if path.is_dir() else path.parent
    job = _Import(snapshot, repository.documents(snapshot), folder, settings)
    target = job.file(out)
    made, unread = awaited(job.found(target))
    for name, reason in unread:
        print(f"Warning: {name} was not read: {reason}", file=sys.stderr)
    if made.imports.found:
        files.write_new(job.folder / target, made.text.encode())
    typer.echo(_summary(made, job.folder / target, whole=not unread), nl=False)
    allowed = settings.allow_unreachable
    return reading_code(partial=bool(unread), nothing=made.blind, allow_unreachable=allowed)


@dataclass(frozen=True, slots=True)
class _Made:
    """An imported resource, and its file.

    `blind`: no app cluster could be read. `denied`: no Policy allows the file, or not all of it.
    """

    imports: "Imports"
    text: str
    blind: bool = False
    denied: bool = False


@dataclass(frozen=True, slots=True)
class _Import:
    """A run of the command."""

    snapshot: "Snapshot"
    loaded: "Loaded"
    folder: Path
    settings: Settings

    def file(self, out: Path | None) -> str:
        """Return the path of the new file in the repository. Raises ConfigError."""
        from reconciler.reports.imports import belongs, place

        if out is None:
            path = place(self.loaded, _FILE)
        else:
            path = (Path(os.path.relpath(out, self.folder)) / _FILE).as_posix()
        if path is None or not belongs(self.loaded, path):
            hint = "Name a folder of spec.include with --out, or add imported/*.yaml to it"
            where = str(self.loaded.fleet.origin)
            raise ConfigError(f"no include matches {path or _FILE}", where=where, hint=hint)
        if (self.folder / path).exists():
            hint = "Nothing was written; name another folder with --out"
            raise ConfigError("is there already", where=str(self.folder / path), hint=hint)
        return path

    async def found(self, target: str) -> tuple[_Made, list[tuple[str, str]]]:
        """Read the clusters; return the imports, and the unread clusters with the reasons."""
        from klutchctl import repository
        from reconciler.core.live import ClusterState, Unavailable
        from reconciler.observe import observe
        from reconciler.reports.imports import imports

        fleet, pace = self.loaded.fleet, self.settings.pace()
        only = repository.chosen(fleet, self.settings)
        async with self.settings.registry(fleet) as clusters:
            live = await observe(fleet, clusters, only=only, credentials=True, pace=pace)
            settled = await self._settled(imports(fleet, live, only=only), live, clusters, target)
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
        """Drop units whose new files would change them, until the files take over all they name."""
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
