"""`klutchctl show`: a saved plan in any format."""

from pathlib import Path
from typing import Annotated

import typer

from klutchctl import outputs
from klutchctl.commands.plan import FORMATS, print_plan
from klutchctl.exit_codes import ExitCode
from klutchctl.settings import of


def show(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="What `klutchctl plan --out` wrote.")],
    output: Annotated[
        list[str] | None,
        outputs.option(FORMATS),
    ] = None,
) -> int:
    """Print a saved plan. Contacts no cluster."""
    wanted = outputs.parse(output, known=FORMATS)
    from reconciler.planning import planfile

    plan = planfile.parse(file.read_bytes(), str(file))
    print_plan(plan, wanted, color=of(context).color)
    return ExitCode.SUCCESS
