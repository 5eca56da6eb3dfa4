"""`-o FORMAT[=PATH]`: one result in several formats, to standard output or files."""

import os
import sys
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

    Raises typer.BadParameter for an unknown format, for two to standard output, and for a file
    that cannot be written: that is to be known before anything is done.
    """
    outputs = []
    for text in options or [known[0]]:
        name, given, path = text.partition("=")
        if name not in known or (given and not path):
            raise typer.BadParameter(f"{text!r} is not FORMAT[=PATH]: {', '.join(known)}")
        outputs.append(Output(name, _writable(text, Path(path)) if given else None))
    if sum(one.path is None for one in outputs) > 1:
        raise typer.BadParameter("only one format can go to standard output")
    return tuple(outputs)


def _writable(text: str, path: Path) -> Path:
    folder = path.parent
    if not folder.is_dir():
        raise typer.BadParameter(f"{text!r}: there is no folder {folder}")
    if path.is_dir():
        raise typer.BadParameter(f"{text!r}: {path} is a folder")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise typer.BadParameter(f"{text!r}: {path} may not be written")
    return path


def on_terminal(path: Path | None) -> bool:
    """Tell whether what is written there is for a terminal, as None, standard output, may be."""
    return path is None and sys.stdout.isatty()


def write(outputs: Sequence[Output], render: Mapping[str, Callable[[Path | None], str]]) -> None:
    """Render what was asked for; a renderer gets the path, None for standard output.

    What cannot be written keeps nothing else from it. Raises the OSErrors in a group then; where
    the only one is that the reader of standard output has left, BrokenPipeError.
    """
    failed: list[OSError] = []
    unread: BrokenPipeError | None = None
    for output in outputs:
        text = render[output.format](output.path)
        try:
            _write(output, text)
        except BrokenPipeError as error:
            unread = error
        except OSError as error:
            failed.append(error)
    if failed:
        raise ExceptionGroup("outputs", failed)
    if unread is not None:
        raise unread


def _write(output: Output, text: str) -> None:
    if output.path is None:
        typer.echo(text, nl=False)
    else:
        output.path.write_text(text, "utf-8")
