"""What the target, headers and cookies of a request say. Pure.

What has two readings is refused, where servers and proxies differ: names that come twice, broken
percent-encoding, bytes that are no text.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

from reconciler.inbound.messages import RequestRefused

# A proxy may send the whole URL. Its host is as little believed as the header Host.
_ORIGIN: Final = re.compile(r"https?://[^/?#]+", re.IGNORECASE)
_BROKEN: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_VISIBLE: Final = re.compile(r"[!-~]*")
# Behind these lies who asks, or from where. (The parser refuses others, such as two Hosts.)
_SINGLE: Final = frozenset(
    {"authorization", "origin", "referer", "sec-fetch-site", "content-encoding", "accept"}
)
_OURS: Final = ("klutch-", "__host-", "__secure-")


def target(raw: str) -> tuple[str, Mapping[str, str]]:
    """Return the path and the query of a request's target. Raises RequestRefused."""
    if not _VISIBLE.fullmatch(raw) or "#" in raw:
        raise RequestRefused(400, "the target holds characters that a URL cannot hold")
    if not raw.startswith("/"):
        raw = _without_origin(raw)
    path, _, query = raw.partition("?")
    # An encoded slash would be one to the routes, and none to proxies.
    if "%2f" in path.lower():
        raise RequestRefused(400, "the path cannot be read")
    return _text(path), _query(query)


def _without_origin(raw: str) -> str:
    if (found := _ORIGIN.match(raw)) is None:
        raise RequestRefused(400, "the target is no path")
    rest = raw[found.end() :]
    return rest if rest.startswith("/") else f"/{rest}"


def _query(raw: str) -> Mapping[str, str]:
    query: dict[str, str] = {}
    for pair in raw.split("&"):
        name, _, value = pair.replace("+", " ").partition("=")
        if not pair:
            continue
        if (name := _text(name)) in query:
            raise RequestRefused(400, "a name comes twice in the query")
        query[name] = _text(value)
    return query


def _text(encoded: str) -> str:
    if _BROKEN.search(encoded):
        raise RequestRefused(400, "the percent-encoding of the target is broken")
    try:
        text = unquote_to_bytes(encoded).decode()
    except UnicodeDecodeError:
        raise RequestRefused(400, "the target is not UTF-8") from None
    if "\0" in text:
        raise RequestRefused(400, "the target holds a NUL")
    return text


def headers(fields: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Return headers by lower-case name; parts of lists are joined. Raises RequestRefused.

    Bytes that are no UTF-8 are replaced, so that values can be written into logs and pages.
    """
    found: dict[str, str] = {}
    for name, raw in fields:
        key = name.lower()
        value = raw.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        if key not in found:
            found[key] = value
        elif key in _SINGLE:
            raise RequestRefused(400, f"the header {key} comes twice")
        else:
            found[key] += ("; " if key == "cookie" else ", ") + value
    return found


def cookies(header: str) -> Mapping[str, str]:
    """Return cookies by name. Raises RequestRefused where one of ours comes twice.

    A neighbour below the same domain can add a cookie to ours; which one comes first is its choice.
    """
    found: dict[str, str] = {}
    for pair in header.split(";"):
        name, equals, value = (part.strip(" \t") for part in pair.partition("="))
        if not equals:
            continue
        if name in found and name.lower().startswith(_OURS):
            raise RequestRefused(400, "a cookie comes twice: delete the cookies of this site")
        found.setdefault(name, value)
    return found
