"""`klutchctl validate`, `render` and `schema`: problems of files, their objects, their schemas.

They contact nothing.
"""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from klutchctl.entry import ExitCode
from klutchctl.options import Place, flag, option
from klutchctl.settings import Settings, output_option, parse_outputs, write_outputs
from reconciler.core.errors import ConfigError, InvalidRepository, Problem, Severity, in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from klutchctl.render.problems import Findings
    from reconciler.fleet.files import Snapshot
    from reconciler.fleet.load import Base
    from reconciler.fleet.values import Fleet
    from reconciler.fleet.wanted import Wanted


_FORMATS: Final = ("text", "json", "sarif", "github")
_OF_OBJECTS: Final = ("text", "json")


def validate(
    settings: Settings,
    place: Place,
    base: Annotated[
        str | None, option("REF", "Check a pull request: with the Policies of REF.", "--base")
    ] = None,
    output: Annotated[list[str] | None, output_option(_FORMATS)] = None,
) -> int:
    """Check a fleet repository. Contacts nothing but the server of --git."""
    wanted = parse_outputs(output, known=_FORMATS)
    found, in_git = _findings(place, base, settings)
    write_outputs(wanted, _renderers(found, in_git, settings))
    return _exit_code(found)


def _findings(place: Place, base: str | None, settings: Settings) -> "tuple[Findings, Findings]":
    """Return the findings, with paths from here, and with paths from the top of Git's tree."""
    from klutchctl import repository
    from klutchctl.render.problems import Findings
    from reconciler.source import disk

    path = place.path
    here = _prefix(path)
    judge = None if base is None else repository.base_of(place, base, settings)
    try:
        snapshot = repository.snapshot_of(place, settings)
    except InvalidRepository as error:
        found = Findings(error.problems, here)
        return found, found
    fleet, problems = _judged(snapshot, judge)
    if place.is_here and place.ref is None and path.is_dir():
        problems = in_order([*problems, *disk.unread_documents(path, snapshot)])
    if fleet is None:
        found = Findings(problems, here, files=snapshot.files)
    else:
        counts = (
            ("control plane", len(fleet.control_planes)),
            ("cluster", len(fleet.clusters)),
            ("template", fleet.documents.get("Template", 0)),
            ("binding", fleet.documents.get("Binding", 0)),
            ("unit", len(fleet.units)),
        )
        found = Findings(problems, here, fleet.name, counts, snapshot.files)
    return found, replace(found, folder=snapshot.folder) if snapshot.revision else found


def _judged(
    snapshot: "Snapshot", base: "Base | None"
) -> "tuple[Fleet | None, tuple[Problem, ...]]":
    from reconciler.fleet.load import load, load_against

    if base is None:
        return load(snapshot)
    found, problems = load_against(base, snapshot)
    return found.fleet if found and not found.denied else None, problems


def _prefix(path: Path) -> str:
    """Return the prefix of the paths of problems, so that they can be opened from here."""
    # What is only in a commit can be told by its name alone.
    is_file = path.is_file() or (not path.exists() and path.suffix in (".yaml", ".yml"))
    folder = path.parent if is_file else path
    return "" if folder == Path() else f"{folder.as_posix().rstrip('/')}/"


def _renderers(
    found: "Findings", in_git: "Findings", settings: Settings
) -> "Mapping[str, Callable[[Path | None], str]]":
    from importlib import metadata

    from klutchctl.render import problems

    return {
        "text": lambda path: problems.text(found, color=settings.colored(path)),
        "json": lambda _: problems.as_json(found),
        # Scanners and annotations name files from the top of the Git repository.
        "sarif": lambda _: problems.sarif(in_git, version=metadata.version("klutchctl")),
        "github": lambda _: problems.github(in_git),
    }


def _exit_code(found: "Findings") -> ExitCode:
    severities = {problem.severity for problem in found.problems}
    if Severity.INVALID in severities:
        return ExitCode.INVALID
    return ExitCode.DENIED if Severity.DENIED in severities else ExitCode.SUCCESS


def render(
    settings: Settings,
    place: Place,
    output: Annotated[list[str] | None, output_option(_OF_OBJECTS)] = None,
) -> int:
    """Print the exact objects for each cluster.

    They are those of a first apply. Contacts no cluster.

    Values that only an apply can know, such as a token, read "(known after apply)".
    """
    wanted = parse_outputs(output, known=_OF_OBJECTS)
    from klutchctl import repository
    from klutchctl.render import manifests

    fleet = repository.fleet_of(place, settings)
    objects = _objects(fleet, repository.chosen(fleet, settings))
    write_outputs(
        wanted,
        {
            "text": lambda _: manifests.as_text(fleet, objects),
            "json": lambda _: manifests.as_json(fleet, objects),
        },
    )
    return ExitCode.SUCCESS


def _objects(fleet: "Fleet", clusters: "Collection[str] | None") -> "list[Wanted]":
    """Return the objects of some clusters, or all, with the content of the CRD in its place."""
    from reconciler.core.refs import CRD
    from reconciler.fleet.compile import desired
    from reconciler.kube import crds

    contents = dict(zip(crds.APP_CLUSTER, crds.load(*crds.APP_CLUSTER), strict=True))
    return [
        replace(wanted, manifest=contents[wanted.ref.name]) if wanted.ref.kind == CRD else wanted
        for wanted in desired(fleet, clusters=clusters)
    ]


class Document(StrEnum):
    """The documents with a schema; health is rules, and no JSON."""

    FLEET = "fleet"
    PLAN = "plan"
    STATUS = "status"
    HEALTH = "health"


def schema(
    document: Annotated[
        str | None,
        typer.Argument(
            metavar="[fleet|plan|status|health]", help="Kind of documents. Default: fleet."
        ),
    ] = None,
    file: Annotated[Path | None, typer.Argument(help="Write to this file instead.")] = None,
    check: Annotated[
        bool, flag("--check", "Write nothing; check that FILE is up to date.")
    ] = False,
    tool: Annotated[
        str | None, option("argocd|flux", "With health: the tool to write for.", "--for")
    ] = None,
    kind: Annotated[
        list[str] | None,
        option(
            "KIND.GROUP",
            'With health: a kind of claims, or "*.GROUP" for all of a group; repeatable.',
        ),
    ] = None,
) -> int:
    """Print a JSON Schema, or health rules for Argo CD and Flux.

    Schemas of fleet files, plans and status are for editors and CI.
    """
    known = [one.value for one in Document]
    if document is not None and document not in known:
        if file is not None:
            raise typer.BadParameter(f"{document!r} is not one of {', '.join(known)}")
        file, document = Path(document), None
    if check and file is None:
        raise typer.BadParameter("--check needs a FILE")
    from klutchctl.render import health

    subject = Document(document or Document.FLEET)
    if (subject is Document.HEALTH) is not bool(tool) or (kind and not tool):
        raise typer.BadParameter("health, --for and --kind belong together")
    text = schema_text(subject) if tool is None else health.text(tool, kind or ())
    if file is None:
        typer.echo(text, nl=False)
    elif not check:
        file.write_text(text, "utf-8")
    elif not file.is_file() or file.read_text("utf-8") != text:
        hint = f"`klutchctl schema {subject} {file}` writes it"
        raise ConfigError("is not the schema of this klutchctl", where=str(file), hint=hint)
    return ExitCode.SUCCESS


def schema_text(document: Document = Document.FLEET) -> str:
    import json

    from klutchctl.render import schemas
    from reconciler.fleet import models

    of = {Document.FLEET: models.schema, Document.PLAN: schemas.plan}
    return json.dumps(of.get(document, schemas.status)(), indent=2) + "\n"
