"""The headers of every page: what a browser may do with it."""

import re
from typing import Final
from urllib.parse import urlsplit

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
