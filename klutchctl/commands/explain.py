"""`klutchctl explain`: prints the meaning of a reason, and the remedy. Contacts nothing."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from typing import Annotated, Final

import typer

from klutchctl.entry import ExitCode
from klutchctl.settings import Settings
from reconciler.core.decision import page_of
from reconciler.core.errors import ConfigError

_BOOK: Final = ("docs", "oncall", "reasons.md")
_MARKS: Final = re.compile(r"`|\[([^]]*)\]\([^)]*\)")  # of Markdown
FIELDS: Final = ("Means", "Where", "See", "Do", "Undo", "Who")
_FIELD: Final = re.compile(r"- (\w+): (.*)")
_PLACES: Final = {
    "CP": "`CP`: context of the control plane",
    "APP": "`APP`: context of the app cluster",
    "SPACE": "`SPACE`: Namespace of the app cluster on the control plane",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason of the book: its name, its section, and its fields, such as Means and Do."""

    name: str
    section: str
    fields: dict[str, str]


def reasons(book: str) -> Iterator[Reason]:
    """Yield the reasons of the book's text. A section's fields hold for each of its reasons."""
    for section in re.split(r"^## ", book, flags=re.MULTILINE)[1:]:
        head, *parts = re.split(r"^### ", section, flags=re.MULTILINE)
        common = dict(_FIELD.findall(head))
        for part in parts:
            name, _, text = part.partition("\n")
            fields = common | dict(_FIELD.findall(text))
            see = fields.get("See", "")
            if places := "; ".join(_PLACES[one] for one in _PLACES if one in see.split()):
                fields["See"] = f"{see} ({places})"
            yield Reason(name, head.partition("\n")[0], fields)


def explain(
    settings: Settings,
    reason: Annotated[str, typer.Argument(metavar="REASON", help="Such as MassDeletion.")],
) -> int:
    """Explain a reason of a condition, Event, plan or alert.

    Prints its place, its meaning, and what to do about it. Works offline.
    """
    known = list(reasons(files("klutchctl").joinpath(*_BOOK).read_text(encoding="utf-8")))
    found = [one for one in known if one.name.lower() == reason.lower()]
    if not found:
        close = get_close_matches(reason, [one.name for one in known], cutoff=0.75)
        hint = f"Did you mean {' or '.join(close)}?" if close else ""
        raise ConfigError("there is no such reason", where=repr(reason), hint=hint)
    for one in found:
        typer.echo(f"{one.name} ({one.section})")
        for field in FIELDS:
            if text := one.fields.get(field):
                plain = _MARKS.sub(lambda mark: mark[1] or "", text)
                typer.echo(f"  {field + ':':7} {plain}")
        if page := page_of(one.name, settings.docs):
            typer.echo(f"  Page:   {page}")
    return ExitCode.SUCCESS
