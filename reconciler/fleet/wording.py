"""Words for problems: hints with the nearest name, and lists that stay short."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Final

_SHOWN: Final = 3
_MOST_KNOWN: Final = 12
_LONGEST: Final = 60


def quoted(text: str) -> str:
    """Return a key or name as it is shown: on one line, without control characters, not long."""
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")


def nearest(word: str, known: Collection[str]) -> str:
    """Return a hint: which of `known` may be meant, else all of them if they are few."""
    names = sorted(known)
    for close in get_close_matches(word[:_LONGEST], names, n=1, cutoff=0.6):
        return f"Did you mean {close}?"
    folded = [name for name in names if name.casefold() == word.casefold()]
    if folded:
        return f"Did you mean {folded[0]}?"
    if not names:
        return "There is none"
    return f"Known: {', '.join(names)}" if len(names) <= _MOST_KNOWN else ""


def few(names: Iterable[str]) -> str:
    """Return the names in a sentence: the first three in order, and how many there are more."""
    ordered = sorted(set(names))
    shown, more = ordered[:_SHOWN], len(ordered) - _SHOWN
    if more > 0:
        return f"{', '.join(shown)} and {more} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))
