"""`klutchctl show`: a saved plan in any format."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from klutchctl.exit_codes import ExitCode
from klutchctl.settings import Settings


class Format(StrEnum):
    """How a plan is shown."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


def show(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="What `klutchctl plan --out` wrote.")],
    output: Annotated[Format, typer.Option("--output", "-o", help="Format.")] = Format.TEXT,
) -> int:
    """Print a saved plan. Contacts no cluster."""
    from klutchctl.render import plan_json, plan_markdown, plan_text
    from reconciler.planning import planfile

    settings = context.obj
    assert isinstance(settings, Settings)
    plan = planfile.parse(file.read_bytes(), str(file))
    match output:
        case Format.TEXT:
            color = settings.color and sys.stdout.isatty()
            text = plan_text.render(plan, color=color)
        case Format.JSON:
            text = plan_json.render(plan)
        case Format.MARKDOWN:
            text = plan_markdown.render(plan)
    typer.echo(text, nl=False)
    return ExitCode.SUCCESS
