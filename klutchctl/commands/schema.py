"""`klutchctl schema`: the JSON Schema of a fleet repository, for editors."""

from pathlib import Path
from typing import Annotated

import typer

from klutchctl.exit_codes import ExitCode


def schema(
    file: Annotated[
        Path | None, typer.Argument(help="Write it there instead of printing it.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only say whether FILE is what would be written.")
    ] = False,
) -> int:
    """Print the JSON Schema of the documents of a fleet repository, for editors."""
    if check and file is None:
        raise typer.BadParameter("--check needs a FILE")
    from reconciler.core.errors import ConfigError

    text = as_text()
    if file is None:
        typer.echo(text, nl=False)
    elif not check:
        file.write_text(text, "utf-8")
    elif not file.is_file() or file.read_text("utf-8") != text:
        hint = f"`klutchctl schema {file}` writes it"
        raise ConfigError("is not the schema of this klutchctl", where=str(file), hint=hint)
    return ExitCode.SUCCESS


def as_text() -> str:
    """Return the JSON Schema as the text of a file."""
    import json

    from reconciler.fleet.documents.models import schema as generate

    return json.dumps(generate(), indent=2) + "\n"
