"""Builds answers of the door: redirects, documents, pages, refusals.

Documents are as clients read them (protocol-bind.md A.12, and our own).
"""

import base64
import html
import json
import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from bind.door.catalogue import Offer
from bind.door.identity import STATUS, Identity, Refused
from bind.door.pages import views
from bind.door.settings import DoorSettings
from reconciler.blueprints import consent
from reconciler.core.keys import KLUTCH_GROUP
from reconciler.core.manifest import JSON, Manifest
from reconciler.web.requests import Cookie, Request, Response

API_VERSION: Final = "bind.klutchctl.dev/v1alpha1"
_KLUTCH: Final = f"{KLUTCH_GROUP}/v1alpha1"
DEFAULT_NAME: Final = "example-backend"
_VERSION: Final = "v0.0.0"  # accepted by every CLI (protocol-bind.md D.3)
# The fields of a claim, in the original's order.
_CLAIM: Final = (
    "group",
    "resource",
    "version",
    "selector",
    "required",
    "read",
    "create",
    "autoAdopt",
    "autoDonate",
    "onConflict",
    "update",
)
_SELECTOR: Final = ("names", "namespaces", "labelSelectors", "fieldSelectors", "owner")
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
    403: "Ask the operator of this backend for the right.",
    429: "Wait a moment, then reload this page.",
    502: "Try again. If that does not help, tell the operator of this backend.",
    503: "Try again in a moment. If that does not help, tell the operator of this backend.",
}
_TITLES: Final = {
    401: "You are not signed in",
    403: "You may not do that here",
    404: "There is no such page",
    429: "Too many requests",
    502: "The sign-in did not work",
    503: "Not available just now",
}
_UI_ADVICE: Final = {
    400: "Go back, and try it once more.",
    401: "Sign in again.",
    404: "It may be gone, or was never there. Begin at the start.",
}
_CODES: Final = {status: code for code, status in STATUS.items()}


def text(document: JSON) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def binding_provider(*, authorize_url: str, pretty_name: str) -> Manifest:
    """Return the body of `/export`; its apiVersion has no group on purpose."""
    grant: Manifest = {"authenticatedURL": authorize_url}
    return {
        "kind": "BindingProvider",
        "apiVersion": "v1alpha1",
        "providerPrettyName": pretty_name or DEFAULT_NAME,
        "version": _VERSION,
        "authenticationMethods": [{"method": "OAuth2CodeGrant", "oauth2CodeGrant": grant}],
    }


def export_request(offer: Offer) -> Manifest:
    """Return the request that a CLI makes for an offer, with the claims to be agreed to."""
    resource: dict[str, JSON] = {"group": offer.resource.group, "resource": offer.resource.plural}
    if offer.claims:
        resource["permissionClaims"] = [_claim(claim) for claim in offer.claims]
    return {
        "kind": "APIServiceExportRequest",
        "apiVersion": _KLUTCH,
        "metadata": {"name": offer.resource.name},
        "spec": {"resources": [resource]},
        "status": {},
    }


def _claim(claim: Manifest) -> Manifest:
    stated = {"required": False, **claim}
    if isinstance(selector := stated.get("selector"), dict):
        stated["selector"] = _ordered(selector, _SELECTOR)
    if not stated.get("group"):
        stated.pop("group", None)
    return _ordered(stated, _CLAIM)


def _ordered(document: Manifest, order: Sequence[str]) -> dict[str, JSON]:
    return {**{name: document[name] for name in order if name in document}, **document}


def binding_response(
    offers: Iterable[Offer], *, kubeconfig: bytes, identity: Identity | None, sid: str = ""
) -> Manifest:
    """Return the facts that a CLI needs to bind. Without an identity, a machine asks.

    The kubeconfig is empty where nothing was made.
    """
    grant: Manifest = {}
    if identity is not None:
        grant = {"oauth2CodeGrant": {"sid": sid, "id": f"{identity.issuer}/{identity.subject}"}}
    return {
        "kind": "BindingResponse",
        "apiVersion": _KLUTCH,
        "authentication": grant,
        "kubeconfig": base64.b64encode(kubeconfig).decode(),
        "requests": [export_request(offer) for offer in offers],
    }


def encoded(response: Manifest) -> str:
    """Return a BindingResponse as a query has it, in the alphabet that every CLI reads (F10)."""
    return base64.b64encode(text(response)).decode()


def failure(code: str, message: str) -> Manifest:
    """Return the body of a refusal below `/api`, by its code."""
    return {"kind": "Error", "apiVersion": API_VERSION, "code": code, "message": message}


def consent_of(offer: Offer, agreed: Sequence[int] | None) -> list[JSON] | None:
    """Return the claims of an offer with their states; None where nobody was asked."""
    if agreed is None:
        return None
    return [_claim(claim) for claim in consent.accepted(offer.claims, agreed)]


def offer(one: Offer) -> dict[str, JSON]:
    return {
        "namespace": one.namespace,
        "name": one.name,
        "group": one.resource.group,
        "resource": one.resource.plural,
        "scope": one.scope,
        "title": one.title,
        "description": one.description,
        "permissionClaims": [_claim(claim) for claim in one.claims],
    }


def front_door(settings: DoorSettings) -> Manifest:
    """Return the abilities of a door beyond the original's, and their URLs."""
    public = settings.public
    device: Manifest = {
        "issuer": settings.issuer,
        "clientID": settings.cli_client_id,
        "scopes": list(settings.scopes),
        "token": "id_token",
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "FrontDoor",
        "redeemURL": f"{public}/api/v1/redeem",
        "bindURL": f"{public}/api/v1/bind",
        "catalogueURL": f"{public}/api/v1/catalogue",
        "joinURL": "",
        "audience": public,
        "konnectorImage": settings.konnector_image,
        "device": device if settings.cli_client_id else None,
        "machines": {"issuer": settings.issuer, "scopes": []},
    }


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
    return Response(status, text(value), "application/json", headers)


def refusal(
    request: Request,
    status: int,
    sentence: str,
    frame: views.Frame = views.NO_FRAME,
    *,
    secure: bool = False,
) -> Response:
    """Return a refusal in the form that its client reads: JSON below /api, a page, or text.

    `secure` means that the door is reached over HTTPS.
    """
    if request.path.startswith(API):
        code = _CODES.get(status, "invalid_request" if status < 500 else "unavailable")
        return document(failure(code, sentence), status=status)
    if request.wants_html:
        known = _ADVICE | _UI_ADVICE if request.path.startswith("/ui/") else _ADVICE
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

    Only loopback, with a port, and the URLs that the operator allows. Raises Refused.
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
