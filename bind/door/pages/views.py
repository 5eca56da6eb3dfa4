"""Builds the content of each page as values, and renders it with security headers.

Texts of templates and CRDs are a provider's, those of bindings an app cluster's: all are hostile,
and shown as text alone.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from bind.door.catalogue import Offer
from reconciler.blueprints.consent import Terms
from reconciler.web import templates

# The shape beside a word: a disc, a ring, a triangle, a square.
Shape: TypeAlias = Literal["good", "waiting", "bad", "silent"]


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame of a page.

    `here` is the part of the site that the page belongs to; `csrf` is what the form of sign-out
    carries. Without `ui` nothing leads to pages of `/ui/`, nor to the stylesheet.
    """

    provider: str = ""
    user: str = ""
    csrf: str = ""
    here: Literal["", "catalogue", "bindings"] = ""
    ui: bool = True


NO_FRAME = Frame()


@dataclass(frozen=True, slots=True)
class ClaimView:
    """A permission claim in words; `index` is its place among the claims of the offer."""

    index: int
    terms: Terms
    required: bool


@dataclass(frozen=True, slots=True)
class Card:
    """A service that may be bound with one link."""

    offer: Offer
    href: str
    claims: Sequence[ClaimView] = ()


@dataclass(frozen=True, slots=True)
class ResourcesView:
    """The page after a CLI's sign-in: services to choose from, and the receiver of credentials."""

    cards: Sequence[Card]
    cid: str
    target: str
    signed_in: bool
    called: str = ""
    frame: Frame = NO_FRAME


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferForm:
    """A form about an offer. `chosen` are the places of claims that were checked before."""

    offer: Offer
    claims: Sequence[ClaimView]
    csrf: str
    action: str
    problem: str = ""
    chosen: Collection[int] = ()
    frame: Frame = NO_FRAME


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsentView(OfferForm):
    """The consent page of a CLI that calls the cluster `called`.

    `decline` leads back to the CLI without an agreement. Of a `dry_run`, nothing is bound.
    """

    target: str
    cid: str = ""
    called: str = ""
    decline: str = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The binding of an offer with the choices of a person: by us, by the original, by files."""

    command: str
    original: str
    fleet: str
    remarks: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferView(OfferForm):
    """An offer, and how to bind it. `may_bind` is None where nobody signed in."""

    may_bind: bool | None = None
    result: Result | None = None


@dataclass(frozen=True, slots=True)
class OfferRow:
    """An offer in the catalogue; `asks` names the kinds of its permission claims."""

    offer: Offer
    asks: Sequence[str]
    may_bind: bool | None
    href: str


@dataclass(frozen=True, slots=True)
class CatalogueView:
    """The offers that a search left, of `total`."""

    rows: Sequence[OfferRow]
    total: int
    query: str = ""
    frame: Frame = NO_FRAME


@dataclass(frozen=True, slots=True)
class ConditionRow:
    """A condition of a binding space."""

    type: str
    status: str
    reason: str
    message: str
    since: str
    shape: Shape = "waiting"


@dataclass(frozen=True, slots=True)
class BindingRow:
    """A binding space: an app cluster, and its bound resources. `next` is a step for its user."""

    space: str
    cid: str
    owner: str
    services: Sequence[str]
    word: str
    shape: Shape
    heartbeat: str
    href: str
    conditions: Sequence[ConditionRow] = ()
    name: str = ""
    next: str = ""


@dataclass(frozen=True, slots=True)
class BindingsView:
    """The bindings of a person, or of everybody."""

    rows: Sequence[BindingRow]
    everybody: bool = False
    frame: Frame = NO_FRAME


@dataclass(frozen=True, slots=True)
class BindingView:
    """A binding space, and the way to end it."""

    row: BindingRow
    unbind: Sequence[str]
    frame: Frame = NO_FRAME


@dataclass(frozen=True, slots=True)
class HomeView:
    """The first page; `sign_in` is "" for signed-in people, and they see some `offers`."""

    sign_in: str
    offers: Sequence[OfferRow] = ()
    frame: Frame = NO_FRAME


@dataclass(frozen=True, slots=True)
class ErrorView:
    """The reason why there is no page, and the next step."""

    status: int
    title: str
    sentence: str
    advice: str
    request_id: str
    frame: Frame = NO_FRAME


View: TypeAlias = (
    HomeView
    | CatalogueView
    | OfferView
    | ResourcesView
    | ConsentView
    | BindingsView
    | BindingView
    | ErrorView
)
_TEMPLATES: Final[dict[type[View], str]] = {
    HomeView: "home.html",
    CatalogueView: "catalogue.html",
    OfferView: "offer.html",
    ResourcesView: "resources.html",
    ConsentView: "consent.html",
    BindingsView: "bindings.html",
    BindingView: "binding.html",
    ErrorView: "error.html",
}
_TYPES: Final = {"door.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"}
_ENVIRONMENT: Final = templates.environment(
    "bind.door.pages", {"link": templates.link, "host": templates.host, "bare": templates.bare}
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
    return _ENVIRONMENT.get_template(_TEMPLATES[type(view)]).render(view=view, frame=view.frame)


def security_headers(
    form_action: str = "", *, forms: bool = False, secure: bool = False
) -> tuple[tuple[str, str], ...]:
    """Return the headers of a page.

    `form_action` is the URL that a form's answer redirects to, if that is elsewhere: browsers hold
    redirects of forms against the policy. `forms` means that there is a form which leads to this
    site alone. `secure` means that the page comes over HTTPS.
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
