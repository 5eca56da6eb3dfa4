"""Pages as HTML."""

from base64 import b64encode
from hashlib import sha256
from typing import Final

from markupsafe import Markup

from klutchctl.web.board.pages.parts import Page
from reconciler.health.verdict import State
from reconciler.web import templates

_TYPES: Final = {
    "board.css": "text/css; charset=utf-8",
    "board.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


# What a state looks like: the class of its colour and shape.
_SHAPES: Final = {
    State.READY: "r",
    State.PROGRESSING: "p",
    State.DEGRADED: "d",
    State.UNKNOWN: "u",
    State.SUSPENDED: "h",
    State.RELEASED: "l",
}


def _short(text: str, most: int = 60) -> Markup:
    """Return the beginning of a name, for a table."""
    return templates.foreign(" ".join(text.split()), most)


_ENVIRONMENT: Final = templates.environment(
    "klutchctl.web.board", {"shape": _SHAPES.__getitem__, "short": _short}
)
ASSETS: Final = templates.assets("klutchctl.web.board", _TYPES)
_STYLE: Final = ASSETS["board.css"].body.decode()
_STYLE_HASH: Final = b64encode(sha256(_STYLE.encode()).digest()).decode()


def html(page: Page) -> str:
    return _rendered(page, "base.html")


def fragment(page: Page) -> str:
    """Return the part of a page that changes with the fleet."""
    return _rendered(page, "fragment.html")


def file(page: Page) -> str:
    """Return a page that needs nothing beside itself, and may load nothing."""
    template = _ENVIRONMENT.get_template(page.template)
    return template.render(
        page=page, frame=page.frame, style=Markup(_STYLE), style_hash=_STYLE_HASH
    )


def _rendered(page: Page, layout: str) -> str:
    template = _ENVIRONMENT.get_template(page.template)
    return template.render(page=page, frame=page.frame, layout=layout)
