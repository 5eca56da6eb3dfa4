"""`python -m tests.support.prose`: plain English, but for lists of facts, and all reasons."""

import re
import sys
from collections.abc import Iterator
from statistics import mean
from typing import Final

from tests.support import books, reason_book

MEAN, MOST, CELL = 18, 30, 120  # words of a sentence, on average and at most; characters of a cell
PASSIVE_SHARE, SHORT = 0.12, 10  # of the sentences of a page; of a shorter page, it says nothing
PASSIVE: Final = re.compile(
    r"\b(?:is|are|was|were|be|been|being)(?: (?:not|never|also|only|\w+ly))? "
    r"(?:(?!need|indeed)\w\w+ed|made|kept|held|found|given|taken|seen|shown|known|written|read|sent|lost"
    r"|left|bound|built|cut|put|set|hidden|chosen|drawn|run)\b"
)
WORDS: Final = re.compile(
    r"\b(told|tells?|says so|strangers?|lets? go|letting go|in vain|anew|whoever|its book|judged?"
    r"|meanwhile|at home|whom|thereby|beneath|likewise|mends?|all the same|keeps? back|kept back"
    r"|go(?:es)? on|of ours|those whose|that which)\b",
    re.IGNORECASE,
)


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a page without code, tables, headings and the addresses of links."""
    text = re.sub(r"^ *(```|~~~).*?^ *\1\n", "\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"<!--.*?-->|!\[.*|<img.*", "", text))
    text = re.sub(r"^ *(#|\||!!!).*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"^ *([-*]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n|:\n", re.sub(r"`[^`]*`", "CODE", text)):
        yield from filter(None, re.split(r"(?<=[.!?])\s+|:\s*$", paragraph.strip()))


def faults(page: str) -> Iterator[str]:
    text = books.text(page)
    lengths = {one: len(re.findall(r"\w[\w'-]*", one)) for one in sentences(text)}
    if lengths and (average := mean(lengths.values())) > MEAN:
        yield f"{average:.1f} words a sentence"
    share = sum(bool(PASSIVE.search(one)) for one in lengths) / max(len(lengths), SHORT)
    if share > PASSIVE_SHARE:
        yield f"{share:.0%} of the sentences are passive"
    yield from (f"{count} words: {one}" for one, count in lengths.items() if count > MOST)
    rows = (line for line in text.splitlines() if line.startswith("|"))
    cells = (cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row))
    yield from (f"{len(cell)} characters: {cell}" for cell in cells if len(cell) > CELL)
    yield from (f"{word[0]!r}: {one}" for one in lengths for word in WORDS.finditer(one))


def main() -> int:
    """Print all faults; return 1 where there is one."""
    lists = {"CHANGELOG.md", "schemas/PROTOCOL.md", "tests/captures/README.md"}
    found = [f"{page}: {one}" for page in books.BOOKS if page not in lists for one in faults(page)]
    found += reason_book.faults()
    print("\n".join(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
