"""`klutchctl show`: a saved plan in any format."""

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from klutchctl import outputs
from klutchctl.exit_codes import ExitCode
from klutchctl.settings import of

_FORMATS: Final = ("text", "json", "markdown")


def show(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="What `klutchctl plan --out` wrote.")],
    output: Annotated[
        list[str] | None,
        outputs.option(_FORMATS),
    ] = None,
) -> int:
    """Print a saved plan. Contacts no cluster."""
    wanted = outputs.parse(output, known=_FORMATS)
    from klutchctl.render import plan_json, plan_markdown, plan_text
    from reconciler.planning import planfile

    settings = of(context)
    plan = planfile.parse(file.read_bytes(), str(file))

    def text(path: Path | None) -> str:
        color = settings.color and path is None and sys.stdout.isatty()
        return plan_text.render(plan, color=color)

    outputs.write(
        wanted,
        {
            "text": text,
            "json": lambda _: plan_json.render(plan),
            "markdown": lambda _: plan_markdown.render(plan),
        },
    )
    return ExitCode.SUCCESS
