"""Regular expressions of JSON schemas (ECMA 262) as API servers (RE2) read them alike, or none.

Only what means the same to both passes. Refuses to know what they are about.
"""

import re
from typing import Final

_MOST_REPEATS: Final = 1000  # RE2's limit, for those inside of each other together
_LONGEST: Final = 2000
_ESCAPES: Final = r"x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[!-/:-@\[-`{-~]"
_TOKEN: Final = re.compile(
    rf"""(?P<escape>\\(?:[dDwWsSbBtnrfv]|{_ESCAPES}))
    |(?P<set>\[\^?(?:\\(?:[dDwWsStnrfv]|{_ESCAPES})|[^\]\[\\])+\])
    |(?P<begin>\((?!\?)|\(\?:|\(\?<[A-Za-z]\w*>)
    |(?P<end>\))
    |(?P<anchor>[\^$])
    |(?P<or>\|)
    |(?P<repeat>(?:[*+?]|\{{[0-9]{{1,4}}(?:,[0-9]{{0,4}})?\}})\??)
    |(?P<plain>[^\\\[\](){{}}*+?^$|\s]|[ ])""",
    re.VERBOSE | re.ASCII,
)
_COUNTS: Final = re.compile("[0-9]+")
_SHORT: Final = re.compile(r"\\u([0-9a-fA-F]{4})")
# Ranges from or to a class; what other readers take for operators between sets.
_ODD_SET: Final = re.compile(r"\\[dDwWsS]-[^\]]|[^\[^]-\\[dDwWsS]|--|&&|~~|\|\|")
_SURROGATES: Final = range(0xD800, 0xE000)
_REPEATED: Final = frozenset({"escape", "set", "end", "plain"})


def for_server(pattern: str) -> str | None:
    """Return the same expression for RE2, or None where there is none for sure."""
    written: list[str] = []
    if len(pattern) > _LONGEST or not _is_orderly(pattern, written):
        return None
    text = "".join(written)
    try:  # Python has the same rules for groups and ranges
        re.compile(re.sub(r"\\x\{([0-9a-fA-F]{4})\}", r"\\u\1", text))
    except (re.error, OverflowError, RecursionError):
        return None
    return text


def _is_orderly(pattern: str, written: list[str]) -> bool:
    """Tell whether each token may stand where it does, and write them down for RE2."""
    position, before, last = 0, "", 1
    repeats = [1]  # the most that is repeated in each group that is open
    while position < len(pattern):
        token = _TOKEN.match(pattern, position)
        kind = (token.lastgroup if token else None) or ""
        text = _written(token[0], kind) if token else ""
        if token is None or not text or (kind == "repeat" and before not in _REPEATED):
            return False
        if kind == "begin":
            repeats.append(1)
        elif kind == "end":
            last = repeats.pop()
        elif kind == "repeat":
            last *= max([1, *map(int, _COUNTS.findall(token[0]))])
        else:
            last = 1
        if not repeats or last > _MOST_REPEATS:
            return False
        repeats[-1] = max(repeats[-1], last)
        written.append(text)
        before = "anchor" if token[0] in (r"\b", r"\B") else kind
        position = token.end()
    return len(repeats) == 1


def _written(text: str, kind: str) -> str:
    """Return a token for RE2, or "" where it has none."""
    if kind == "begin" and text.startswith("(?<"):
        return "("
    if kind == "set" and (_ODD_SET.search(text) or text.startswith(("[:", "[^:"))):
        return ""
    if kind not in ("set", "escape"):
        return text
    if any(int(code, 16) in _SURROGATES for code in _SHORT.findall(text)):
        return ""
    return _SHORT.sub(r"\\x{\1}", text)
