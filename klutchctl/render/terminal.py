"""Makes text safe for a terminal, and formats it bold or coloured.

A pipeline's log is such a terminal: runners of GitHub, Forgejo and Azure take `##[...]` and
`##vso[...]` anywhere in a line, and `::...` where one begins, as commands.
"""

import json
import logging
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

from reconciler.core.decision import page_of
from reconciler.core.documents import first_of
from reconciler.core.manifest import indented

# Control and format characters (escape sequences, line breaks, bidirectional overrides, zero
# width), surrogates, private and unassigned characters, and the two Unicode line separators.
NAMES_SHOWN: Final = 3
_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_COMMAND: Final = re.compile(r"##(?=\w*\[)")
_STYLE: Final = re.compile(r"(\x1b\[(?:[01]|3[1-6])m)")  # of ours
_MAY_ACT: Final = re.compile(rf"{_STYLE.pattern}|[^\n\t -~]")
_WORDS: Final = re.compile(r"( *)([^ ]+)")  # other spaces are part of a value
_STEP: Final = 4
_USUAL: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "taskName"}
_BELOW_SUBJECT: Final = 13  # of a row that begins with a symbol


class Style(StrEnum):
    """Escape sequences (ECMA-48, SGR)."""

    BOLD = "\x1b[1m"
    RED = "\x1b[31m"
    GREEN = "\x1b[32m"
    YELLOW = "\x1b[33m"
    MAGENTA = "\x1b[35m"
    CYAN = "\x1b[36m"


def visible(text: str) -> str:
    """Return the text on one line, with unprintable characters written as escapes."""
    if not (text.isascii() and text.isprintable()):
        text = "".join(
            one.encode("unicode_escape").decode() if unicodedata.category(one) in _UNSAFE else one
            for one in text
        )
    return _COMMAND.sub("## ", text) if "##" in text else text


def visible_lines(text: str) -> str:
    """Return the text with its line breaks, and all else that does not print escaped."""
    return "\n".join(map(line, text.split("\n")))


def harmless(text: str) -> str:
    """Return a text for a stream: lines, tabs and our styles stay; the rest as JSON escapes it."""
    return _MAY_ACT.sub(_harmless, _COMMAND.sub(r"#\\u0023", text))


def _harmless(found: re.Match[str]) -> str:
    acts = found[0] != found[1] and unicodedata.category(found[0]) in _UNSAFE
    return json.dumps(found[0])[1:-1] if acts else found[0]


def line(text: str) -> str:
    """Return a whole line: `visible`, with no start that is a command."""
    shown = visible(text)
    return f"./{shown}" if shown.lstrip().startswith("::") else shown


def styled(text: str, style: Style | None, *, color: bool) -> str:
    """Return the text in a style, or as it is: without `color`, and without a style."""
    return f"{style}{text}\x1b[0m" if color and style is not None else text


def block(title: str, lines: Iterable[str] = (), *, color: bool) -> list[str]:
    return [styled(title, Style.BOLD, color=color), *lines]


def pages(reasons: Iterable[str], docs: str, *, color: bool) -> list[list[str]]:
    """Return the block with the pages of reasons on the site `docs`, if there is any."""
    found = [f"  {page}" for one in sorted({*reasons}) if (page := page_of(one, docs))]
    return [block("Pages of these reasons", found, color=color)] if found else []


def paragraphs(blocks: Iterable[Iterable[str]]) -> str:
    """Return blocks of lines as text, an empty line between two of them."""
    return "\n\n".join(map("\n".join, blocks)) + "\n"


def document(kind: str, version: str, content: Mapping[str, Any]) -> str:
    """Return a JSON document: one object in ASCII, and a newline."""
    return indented({"format": kind, "version": version, **content}).decode() + "\n"


def folded(text: str, columns: int | None) -> str:
    """Return text in which no line is wider than a terminal, as far as words allow; None: as it is.

    A word, such as a file with its line, stays whole. What goes on is indented by more.
    """
    if columns is None:
        return text
    return "\n".join(part for one in text.split("\n") for part in _folded(one, columns))


def _folded(text: str, columns: int) -> Iterator[str]:
    plain = _STYLE.sub("", text)
    margin = len(plain) - len(plain.lstrip())
    row = margin < _STEP and not plain.lstrip()[:1].isalnum()
    indent = _BELOW_SUBJECT if row else margin + _STEP
    line, width = "", 0
    for gap, word in _WORDS.findall(text):
        size = len(_STYLE.sub("", word))
        # A runner of pipelines would take `::...` at the begin of a line as a command.
        if line.strip() and width + len(gap) + size > columns and not word.startswith("::"):
            yield line
            line, width = f"{'':{indent}}{word}", indent + size
        else:
            line, width = f"{line}{gap}{word}", width + len(gap) + size
    yield line


def plural(count: int, noun: str) -> str:
    """Return `1 cluster`, `2 clusters`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def in_order(names: Iterable[str]) -> Mapping[str, int]:
    return {name: place for place, name in enumerate(sorted(names))}


def ranges(names: Iterable[str], at: Mapping[str, int], *, most: int | None = None) -> str:
    """Return names in order; `a ... f` are all that have a place, from `a` to `f`."""
    runs: list[list[str]] = []
    for name in sorted(names):
        if runs and at[name] == at[runs[-1][-1]] + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    shown = [
        part
        for run in runs
        for part in ([f"{run[0]} ... {run[-1]}"] if len(run) > NAMES_SHOWN else run)
    ]
    return visible(first_of(shown, most or len(shown)))


class Lines(logging.Formatter):
    """Adds the fields of a warning to its line; below it stands a traceback, if there is one."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as it is called
        fields = record.__dict__.items() if record.levelno >= logging.WARNING else ()
        shown = (f" {key}={visible(str(value))}" for key, value in fields if key not in _USUAL)
        return visible(super().formatMessage(record)) + "".join(shown)
