"""Renders klutchctl.1, the page for man, from the commands that the program has."""

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

import typer

from klutchctl.entry import MEANINGS
from klutchctl.main import app

_NAME: Final = "klutchctl"
_END: Final = re.compile(r"^\x08\nExample:\n *(.*?)\n\n((?:Also|Exit).*)$", re.DOTALL)
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "KUBECONFIG": "Files with the contexts that clusters name; else ~/.kube/config.",
    "NO_COLOR": "Print no colours.",
    "XDG_CACHE_HOME, XDG_STATE_HOME": "Where caches, and the files of sandboxes, are; else ~/.cache"
    " and ~/.local/state.",
}
_FILES: Final[Mapping[str, str]] = {
    "fleet.yaml": "The Fleet document, with which a repository begins; `klutchctl init` writes one."
}


def page(version: str) -> str:
    """Return the page, in roff. `version`: of the program."""
    root = typer.main.get_command(app)
    context: Any = root.context_class(root, info_name=_NAME)
    said = (root.help or "").rstrip(".")
    lines = [
        f'.TH KLUTCHCTL 1 "" "{_NAME} {_text(version)}" "User Commands"',
        ".nh",  # no word of a command is divided
        ".ad l",
        ".SH NAME",
        rf"{_NAME} \- {_text(said[:1].lower() + said[1:])}",
        ".SH SYNOPSIS",
        rf".B {_NAME}",
        r"[\fIGLOBAL OPTIONS\fR] \fICOMMAND\fR [\fIARGUMENTS\fR]",
        ".br",
        r".B kubectl klutchctl",
        r"[\fIGLOBAL OPTIONS\fR] \fICOMMAND\fR [\fIARGUMENTS\fR]",
        ".SH GLOBAL OPTIONS",
        *_lines("They may stand before or after the command, but -v, which stands before."),
        *_parameters(context),
        ".SH COMMANDS",
        *_commands(context),
        ".SH EXIT STATUS",
        *_items(
            {str(int(code)): f"{text[:1].upper()}{text[1:]}." for code, text in MEANINGS.items()}
        ),
        ".SH ENVIRONMENT",
        *_items(_ENVIRONMENT),
        ".SH FILES",
        *_items(_FILES),
        ".SH SEE ALSO",
        ".BR kubectl (1)",
    ]
    return "\n".join(lines) + "\n"


def _commands(context: Any) -> Iterator[str]:
    for name, command in context.command.commands.items():
        inner = command.context_class(command, info_name=name, parent=context)
        if hasattr(command, "commands"):
            yield from _commands(inner)
            continue
        if command.hidden:
            continue
        usage = " ".join([inner.command_path, *command.collect_usage_pieces(inner)])
        yield f".SS {_text(usage)}"
        for number, part in enumerate((command.help or "").split("\n\n")):
            yield from [".PP"] if number else []
            yield from _lines(part)
        yield from _parameters(inner)
        if end := _END.match(command.epilog or ""):
            yield from (".PP", *_lines("Example:"), ".PP", *_lines(end[1]))
            yield from (".PP", *_lines(end[2]))


def _parameters(context: Any) -> Iterator[str]:
    records = [one.get_help_record(context) for one in context.command.params]
    yield from _items(dict(filter(None, records)))


def _items(texts: Mapping[str, str]) -> Iterator[str]:
    for name, text in texts.items():
        # A list of choices may be broken after each.
        yield from (".TP", rf"\fB{_text(name)}\fR".replace("|", r"|\:"), *_lines(text))


def _lines(text: str) -> Iterator[str]:
    for line in textwrap.wrap(text, 72, break_long_words=False, break_on_hyphens=False):
        yield _text(line)


def _text(text: str) -> str:
    """Return a line of text for roff: a hyphen is one that can be copied, and no line a request."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped[:1] in (".", "'") else escaped
