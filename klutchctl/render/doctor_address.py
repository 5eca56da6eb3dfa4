"""What a doctor found at an address: a block for each for people, a document for programs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from klutchctl.binding.checkup import Examined
from klutchctl.render import terminal
from klutchctl.render.terminal import Style, plural, visible
from reconciler.doctor.diagnosis import Level

FORMAT: Final = "klutchctl.dev/doctor-address"
VERSION: Final = "1.0"
_STYLES: Final[Mapping[Level, Style]] = {
    Level.OK: Style.GREEN,
    Level.WARNING: Style.YELLOW,
    Level.PROBLEM: Style.RED,
}
_WIDTH: Final = max(map(len, Level))


def text(found: Sequence[Examined], *, color: bool = False) -> str:
    """Return all of it as text that ends in a newline."""
    blocks = [
        terminal.block(
            f"{one.kind.capitalize()} {visible(one.url)}", _lines(one, color=color), color=color
        )
        for one in found
    ]
    levels = [fact.level for one in found for fact in one.facts]
    problems = plural(levels.count(Level.PROBLEM), "problem")
    warnings = plural(levels.count(Level.WARNING), "warning")
    return terminal.paragraphs(
        [*blocks, terminal.block(f"Doctor: {problems}, {warnings}.", color=color)]
    )


def as_json(found: Sequence[Examined]) -> str:
    """Return one JSON object and a newline."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "addresses": [
            {
                "url": one.url,
                "kind": one.kind,
                "level": one.level,
                "reached": one.reached,
                "findings": [
                    {
                        "check": fact.check,
                        "level": fact.level,
                        "message": fact.message,
                        "remedy": fact.remedy,
                    }
                    for fact in one.facts
                ],
            }
            for one in found
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _lines(one: Examined, *, color: bool) -> Iterator[str]:
    for fact in one.facts:
        word = terminal.styled(f"{fact.level:<{_WIDTH}}", _STYLES[fact.level], color=color)
        yield f"  {word}  {visible(fact.message)}"
        if fact.level is not Level.OK and fact.remedy:
            yield f"  {'':<{_WIDTH}}  {visible(fact.remedy)}"
