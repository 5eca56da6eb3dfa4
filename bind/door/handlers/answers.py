"""Builds answers of the door: redirects, documents, pages, refusals."""

import html
import math
import re
from collections.abc import Collection
from dataclasses import replace
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from bind.door import wire
from bind.door.pages import views
from bind.door.refusals import STATUS, Refused
from reconciler.core.manifest import JSON
from reconciler.web.requests import Cookie, Request, Response

API: Final = "/api/"
HTML: Final = "text/html; charset=utf-8"
# The captured pages are `text/html` without a charset; it stands in the page.
PAGE: Final = "text/html"
NO_CACHE: Final = (
    ("Cache-Control", "no-cache, no-store, must-revalidate, max-age=0"),
    ("Expires", "Thu, 01 Jan 1970 00:00:00 UTC"),
    ("X-Accel-Expires", "0"),
)
_ADVICE: Final = {
    400: "Run the command of your CLI again, and open the address that it prints.",
    401: "Run the command of your CLI again to sign in.",
    403: "Ask whoever operates this backend for the right.",
    429: "Wait a moment, then reload this page.",
    502: "Try again. If that does not help, tell whoever operates this backend.",
    503: "Try again in a moment. If that does not help, tell whoever operates this backend.",
}
_TITLES: Final = {
    401: "You are not signed in",
    403: "You may not do that here",
    404: "There is no such page",
    429: "Too many requests",
    502: "The sign-in did not work",
    503: "Not available just now",
}
_UI: Final = "/ui/"
_UI_ADVICE: Final = {
    400: "Go back, and try it once more.",
    401: "Sign in again.",
    404: "It may be gone, or was never there. Begin at the start.",
}
_CODES: Final = {status: code for code, status in STATUS.items()}


def redirect(
    location: str,
    *,
    status: int = 302,
    cookies: tuple[Cookie, ...] = (),
    headers: tuple[tuple[str, str], ...] = (),
) -> Response:
    """Return a redirect, with a link for those that do not follow it."""
    body = f'<a href="{html.escape(location)}">Found</a>.\n'.encode()
    return Response(
        status,
        body,
        HTML,
        (("Location", location), ("Referrer-Policy", "no-referrer"), *headers),
        cookies,
    )


def document(value: JSON, *, status: int = 200) -> Response:
    headers = (("Cache-Control", "no-store"),)
    return Response(status, wire.text(value), "application/json", headers)


def refusal(
    request: Request,
    status: int,
    sentence: str,
    frame: views.Frame = views.NO_FRAME,
    *,
    secure: bool = False,
) -> Response:
    """Return a refusal in the form that its client reads: JSON below /api, a page, or text.

    `secure` tells that the door is reached over HTTPS.
    """
    if request.path.startswith(API):
        code = _CODES.get(status, "invalid_request" if status < 500 else "unavailable")
        return document(wire.failure(code, sentence), status=status)
    if request.wants_html:
        known = _ADVICE | _UI_ADVICE if request.path.startswith(_UI) else _ADVICE
        title, advice = _TITLES.get(status, "That did not work"), known.get(status, "")
        view = views.ErrorView(status, title, sentence, advice, request.id, frame)
        headers = views.security_headers(secure=secure)
        return Response(status, views.html(view).encode(), HTML, headers)
    return Response(status, f"{sentence}\n".encode(), headers=NO_CACHE)


def refused(
    request: Request, error: Refused, frame: views.Frame = views.NO_FRAME, *, secure: bool = False
) -> Response:
    answer = refusal(request, error.status, str(error), frame, secure=secure)
    if error.retry_after is None:
        return answer
    seconds = str(max(1, math.ceil(error.retry_after)))
    return replace(answer, headers=(*answer.headers, ("Retry-After", seconds)))


def with_cookies(answer: Response, cookies: tuple[Cookie, ...]) -> Response:
    """Return an answer that sets these cookies, too."""
    return replace(answer, cookies=(*cookies, *answer.cookies))


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
