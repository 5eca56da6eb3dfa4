"""Pages as HTML."""

from base64 import b64encode
from hashlib import sha256
from typing import Final, TypeAlias

from markupsafe import Markup

from klutchctl.web.board.pages.cluster import ClusterPage
from klutchctl.web.board.pages.file import FilePage
from klutchctl.web.board.pages.history import HistoryPage
from klutchctl.web.board.pages.overview import Overview
from klutchctl.web.board.pages.parts import RefusalPage
from klutchctl.web.board.pages.plan import PlanPage
from klutchctl.web.board.pages.unit import UnitPage
from reconciler.health.verdict import State
from reconciler.web import templates

Page: TypeAlias = (
    Overview | ClusterPage | UnitPage | PlanPage | HistoryPage | RefusalPage | FilePage
)
_TEMPLATES: Final[dict[type[Page], str]] = {
    Overview: "overview.html",
    ClusterPage: "cluster.html",
    UnitPage: "unit.html",
    PlanPage: "plan.html",
    HistoryPage: "history.html",
    RefusalPage: "refusal.html",
    FilePage: "file.html",
}
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


def file(page: FilePage) -> str:
    """Return a page that needs nothing beside itself, and may load nothing."""
    template = _ENVIRONMENT.get_template(_TEMPLATES[FilePage])
    return template.render(
        page=page, frame=page.frame, style=Markup(_STYLE), style_hash=_STYLE_HASH
    )


def _rendered(page: Page, layout: str) -> str:
    template = _ENVIRONMENT.get_template(_TEMPLATES[type(page)])
    return template.render(page=page, frame=page.frame, layout=layout)
