"""Answers of the door, by what they are: redirects, documents, pages, refusals."""

import html
import math
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from bind.door import wire
from bind.door.pages import rendering, views
from bind.door.refusals import STATUS, Refused
from reconciler.core.manifest import JSON
from reconciler.inbound.messages import Cookie, Request, Response

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
    """Return a JSON document that no cache keeps."""
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
        title, advice = HTTPStatus(status).phrase, known.get(status, "")
        view = views.ErrorView(status, title, sentence, advice, request.id, frame)
        headers = rendering.security_headers(secure=secure)
        return Response(status, rendering.html(view).encode(), HTML, headers)
    return Response(status, f"{sentence}\n".encode(), headers=NO_CACHE)


def refused(
    request: Request, error: Refused, frame: views.Frame = views.NO_FRAME, *, secure: bool = False
) -> Response:
    """Return what a client gets for a Refused."""
    answer = refusal(request, error.status, str(error), frame, secure=secure)
    if error.retry_after is None:
        return answer
    seconds = str(max(1, math.ceil(error.retry_after)))
    return replace(answer, headers=(*answer.headers, ("Retry-After", seconds)))


def with_cookies(answer: Response, cookies: tuple[Cookie, ...]) -> Response:
    """Return an answer that sets these cookies, too."""
    return replace(answer, cookies=(*cookies, *answer.cookies))
