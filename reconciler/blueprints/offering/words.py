"""What a broker says to people, fit for files and terminals: one line, printable, not too long."""

from collections.abc import Collection, Mapping
from typing import Final

from reconciler.core.manifest import JSON, canonical, get_text

_LONGEST: Final = 1000
_LONGEST_DEFAULT: Final = 200
_NAMES_SHOWN: Final = 5


def line(text: str, *, longest: int = _LONGEST) -> str:
    """Return a text on one line, without what does not print; a cut one ends in dots."""
    shown = "".join(one if one.isprintable() else " " for one in text)
    joined = " ".join(shown.split())
    return joined if len(joined) <= longest else f"{joined[: longest - 3].rstrip()}..."


def title_of(schema: Mapping[str, JSON]) -> str:
    """Return the title of a JSON schema, or ""."""
    return line(get_text(schema, "title"))


def described(schema: Mapping[str, JSON]) -> str:
    """Return the description of a JSON schema with its default in words, or ""."""
    words = line(get_text(schema, "description"))
    if "default" not in schema:
        return words
    default = line(canonical(schema["default"]).decode(), longest=_LONGEST_DEFAULT)
    stop = "" if not words or words.endswith((".", "!", "?")) else "."
    return f"{words}{stop} Default: {default}".strip()


def names(plans: Collection[str]) -> str:
    """Return the names of plans for people, the first few of many."""
    listed = sorted(plans)
    more = len(listed) - _NAMES_SHOWN
    text = ", ".join(listed[:_NAMES_SHOWN])
    return f"{text} and {more} more" if more > 0 else text
