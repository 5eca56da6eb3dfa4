"""Label and field selectors, as lists and watches take them."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

Selects: TypeAlias = Callable[[Mapping[str, Any]], bool]

_PARTS: Final = re.compile(r",(?![^(]*\))")


def labels(text: str) -> Selects:
    wanted = [_of_label(part.strip()) for part in _PARTS.split(text) if part.strip()]
    return lambda live: all(one(live["metadata"].get("labels") or {}) for one in wanted)


def _of_label(part: str) -> Callable[[Mapping[str, str]], bool]:
    if match := re.fullmatch(r"(\S+) (in|notin) \(([^)]*)\)", part):
        key, how, values = match[1], match[2], {one.strip() for one in match[3].split(",")}
        return lambda live: (live.get(key) in values) == (how == "in")
    if match := re.fullmatch(r"([^!=]+)(!=|==?)(.*)", part):
        key, how, value = match[1].strip(), match[2], match[3].strip()
        return lambda live: (live.get(key) == value) == (how != "!=")
    if part.startswith("!"):
        return lambda live: part[1:] not in live
    return lambda live: part in live


def fields(text: str) -> Selects:
    pairs = (one.replace("==", "=").partition("=") for one in text.split(",") if one)
    wanted = [(path.split("."), value) for path, _, value in pairs]
    return lambda live: all(_at(live, path) == value for path, value in wanted)


def _at(live: Any, path: list[str]) -> Any:
    for key in path:
        live = live.get(key, {}) if isinstance(live, Mapping) else {}
    return live or ""
