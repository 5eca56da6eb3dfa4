"""`klutchctl init`: the files with which a fleet repository begins."""

from pathlib import Path
from typing import Annotated

import typer

from klutchctl.exit_codes import ExitCode


def init(
    path: Annotated[Path, typer.Argument(help="The folder; it is made where absent.")] = Path(),
    name: Annotated[str, typer.Option(metavar="NAME", help="The name of the fleet.")] = "acme",
) -> int:
    """Write the files with which a fleet repository begins. Overwrites nothing."""
    from klutchctl import scaffold
    from klutchctl.commands.schema import as_text
    from reconciler.core.errors import ConfigError
    from reconciler.fleet.formats import NAME
    from reconciler.fleet.includes import ENTRY_NAMES

    if problem := NAME.problem_of(name):
        raise ConfigError(f"the name {problem}", where="--name")
    files = scaffold.files(name, as_text())
    taken = [one for one in sorted({*files, *ENTRY_NAMES}) if _exists(path / one)]
    if taken:
        raise ConfigError(
            f"already there: {', '.join(taken)}",
            where=str(path),
            hint="Nothing was written; choose an empty folder",
        )
    for relative, text in files.items():
        target = path / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
        typer.echo(f"Wrote {target}")
    typer.echo("Name your clusters in clusters/ and controlplanes/, then: klutchctl validate")
    return ExitCode.SUCCESS


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()
