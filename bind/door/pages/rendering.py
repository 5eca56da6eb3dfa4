"""Views as HTML, and the headers of every page: what a browser may do with it."""

import re
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from bind.door.pages import views
from reconciler.inbound import foreign, templates

View: TypeAlias = (
    views.HomeView
    | views.CatalogueView
    | views.OfferView
    | views.ResourcesView
    | views.ConsentView
    | views.BindingsView
    | views.BindingView
    | views.ErrorView
)
_TEMPLATES: Final[dict[type[View], str]] = {
    views.HomeView: "home.html",
    views.CatalogueView: "catalogue.html",
    views.OfferView: "offer.html",
    views.ResourcesView: "resources.html",
    views.ConsentView: "consent.html",
    views.BindingsView: "bindings.html",
    views.BindingView: "binding.html",
    views.ErrorView: "error.html",
}
_TYPES: Final = {"door.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"}
_ENVIRONMENT: Final = templates.environment(
    "bind.door.pages", {"link": foreign.link, "host": foreign.host, "bare": foreign.bare}
)
ASSETS: Final = templates.assets("bind.door.pages", _TYPES)
_POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action {}; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_ORIGIN: Final = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?")
_FIXED: Final = (
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)
_ALWAYS_TLS: Final = ("Strict-Transport-Security", "max-age=31536000")


def html(view: View) -> str:
    """Return the page of a view."""
    return _ENVIRONMENT.get_template(_TEMPLATES[type(view)]).render(view=view, frame=view.frame)


def security_headers(
    form_action: str = "", *, forms: bool = False, secure: bool = False
) -> tuple[tuple[str, str], ...]:
    """Return the headers of a page.

    `form_action` is the URL that a form's answer redirects to, if that is elsewhere: browsers hold
    redirects of forms against the policy. `forms` tells that there is a form which leads to this
    site alone. `secure` tells that the page comes over HTTPS.
    Raises ValueError for a URL that has no place in a policy.
    """
    sources = f"'self' {_source(form_action)}" if form_action else "'self'"
    # Under no-referrer, browsers send `Origin: null` with a form, and the door asks for its own.
    referrer = "same-origin" if forms or form_action else "no-referrer"
    return (
        ("Content-Security-Policy", _POLICY.format(sources)),
        ("Referrer-Policy", referrer),
        *_FIXED,
        *([_ALWAYS_TLS] if secure else []),
    )


def _source(url: str) -> str:
    """Return the origin of a URL as policies write it.

    They have no way to write an IPv6 address: every host, at that one port, stands for `[::1]`.
    """
    parts = urlsplit(url)
    if parts.hostname == "::1" and parts.scheme == "http" and parts.port:
        return f"http://*:{parts.port}"
    origin = f"{parts.scheme}://{parts.netloc}"
    if not _ORIGIN.fullmatch(origin):
        raise ValueError("this URL has no place in a policy")
    return origin
