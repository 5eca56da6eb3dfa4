"""`klutchctl validate`: everything that is wrong with a fleet repository, offline."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from klutchctl.exit_codes import ExitCode
from klutchctl.settings import Settings

if TYPE_CHECKING:
    from klutchctl.render.problems import Findings
    from reconciler.fleet.values import Fleet


class Format(StrEnum):
    """How the problems are told."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"


def validate(
    context: typer.Context,
    path: Annotated[
        Path, typer.Argument(help="The repository's folder, or the file to begin with.")
    ] = Path(),
    output: Annotated[Format, typer.Option("--output", "-o", help="Format.")] = Format.TEXT,
) -> int:
    """Check a fleet repository. Contacts nothing. Exit code 3: invalid, 4: denied by a policy."""
    from klutchctl.render.problems import Findings
    from reconciler.core.problems import InvalidRepository
    from reconciler.fleet.load import load
    from reconciler.source import folder

    settings = context.obj
    assert isinstance(settings, Settings)
    place = _prefix(path)
    try:
        tree = folder.read(path, check_owner=settings.git_owner_check)
    except InvalidRepository as error:
        findings = Findings(error.problems, place)
    else:
        fleet, problems = load(tree)
        # Scanners and annotations name files from the top of the Git repository.
        in_git = bool(tree.revision) and output in (Format.SARIF, Format.GITHUB)
        named = () if fleet is None else _counts(fleet)
        name = "" if fleet is None else fleet.name
        findings = Findings(problems, tree.folder if in_git else place, name, named)
    typer.echo(_render(findings, output, color=settings.color), nl=False)
    return _exit_code(findings)


def _prefix(path: Path) -> str:
    """Return what stands before the paths of problems, so that they can be opened from here."""
    folder = path if path.is_dir() else path.parent
    return "" if folder == Path() else f"{folder.as_posix().rstrip('/')}/"


def _counts(fleet: "Fleet") -> tuple[tuple[str, int], ...]:
    return (
        ("control plane", len(fleet.control_planes)),
        ("cluster", len(fleet.clusters)),
        ("template", fleet.documents.get("Template", 0)),
        ("binding", fleet.documents.get("Binding", 0)),
        ("unit", len(fleet.units)),
    )


def _render(findings: "Findings", output: Format, *, color: bool) -> str:
    from klutchctl.render import problems

    match output:
        case Format.TEXT:
            return problems.text(findings, color=color and sys.stdout.isatty())
        case Format.JSON:
            return problems.as_json(findings)
        case Format.GITHUB:
            return problems.github(findings)
        case Format.SARIF:
            from importlib import metadata

            return problems.sarif(findings, version=metadata.version("klutchctl"))


def _exit_code(findings: "Findings") -> ExitCode:
    from klutchctl.main import code_of
    from reconciler.core.problems import InvalidRepository

    return ExitCode.SUCCESS if findings.fleet else code_of(InvalidRepository(findings.problems))
