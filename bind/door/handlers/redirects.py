"""Where answers may be sent. Pure; protocol-bind.md B.2, F4."""

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from bind.door.refusals import Refused

_LOOPBACK: Final = re.compile(
    r"http://(?:localhost|127\.0\.0\.1|\[::1\]):(?P<port>[1-9][0-9]{0,4})"
    r"(?:/(?:[A-Za-z0-9._~!$'()*+,;:@/-]|%(?![01])[0-9A-Fa-f]{2})*)?"
    r"(?:\?(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%(?![01])[0-9A-Fa-f]{2})*)?"
)
_LONGEST: Final = 1_000
_HIGHEST_PORT: Final = 65_535
_USUAL_PORT: Final = {"http": ":80", "https": ":443"}  # which browsers leave out


def target(*, url: str, port: str, allowed: Collection[str]) -> str:
    """Return where a CLI listens: its URL, else the callback at a port of its own machine.

    Only loopback, with a port, and the URLs that the operator allows, to the letter. Raises
    Refused.
    """
    if not url:
        url = f"http://localhost:{port}/callback"
        if not port.isdecimal() or not _is_loopback(url):
            raise Refused("invalid_request", "p is not a port", reason="target")
        return url
    if url in allowed or (len(url) <= _LONGEST and _is_loopback(url)):
        return url
    raise Refused(
        "invalid_request",
        "u does not lead to your own machine (http://localhost with a port), and is not among "
        "--allowed-redirect",
        reason="target",
    )


def _is_loopback(url: str) -> bool:
    found = _LOOPBACK.fullmatch(url)
    return found is not None and int(found["port"]) <= _HIGHEST_PORT


def with_query(url: str, **parameters: str) -> str:
    """Return a URL with more parameters; its own stay, and all are sorted as the original's."""
    parts = urlsplit(url)
    query = [*parse_qsl(parts.query, keep_blank_values=True), *parameters.items()]
    return urlunsplit(parts._replace(query=urlencode(sorted(query, key=lambda one: one[0]))))


def origin(url: str) -> str:
    """Return scheme, host and port of a URL, as a browser's Origin has them."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2].lower()
    return f"{parts.scheme}://{host.removesuffix(_USUAL_PORT.get(parts.scheme, ':'))}"
