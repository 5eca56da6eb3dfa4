"""`-o FORMAT[=PATH]`: one result in several formats, to standard output or files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer


@dataclass(frozen=True, slots=True)
class Output:
    """One asked-for rendering. `path` None is standard output."""

    format: str
    path: Path | None


def option(known: Sequence[str]) -> Any:
    """Return the option of a command that can render these formats; the first is the default."""
    return typer.Option("--output", "-o", metavar="FORMAT[=PATH]", help=", ".join(known))


def parse(options: Sequence[str] | None, *, known: Sequence[str]) -> tuple[Output, ...]:
    """Return the outputs asked for; the first known format where there is none.

    Raises typer.BadParameter for an unknown format, and for two to standard output.
    """
    outputs = []
    for text in options or [known[0]]:
        name, given, path = text.partition("=")
        if name not in known or (given and not path):
            raise typer.BadParameter(f"{text!r} is not FORMAT[=PATH]: {', '.join(known)}")
        outputs.append(Output(name, Path(path) if given else None))
    if sum(one.path is None for one in outputs) > 1:
        raise typer.BadParameter("only one format can go to standard output")
    return tuple(outputs)


def write(outputs: Sequence[Output], render: Mapping[str, Callable[[Path | None], str]]) -> None:
    """Render what was asked for; a renderer is told the path, None for standard output."""
    for output in outputs:
        text = render[output.format](output.path)
        if output.path is None:
            typer.echo(text, nl=False)
        else:
            output.path.write_text(text, "utf-8")
