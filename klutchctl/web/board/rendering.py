"""Pages as HTML. Everything is escaped, and a name that a page lacks is an error.

The only module of klutchctl that knows the template engine.
"""

from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from typing import Final, TypeAlias

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from klutchctl.web.board.pages.cluster import ClusterPage
from klutchctl.web.board.pages.file import FilePage
from klutchctl.web.board.pages.history import HistoryPage
from klutchctl.web.board.pages.overview import Overview
from klutchctl.web.board.pages.plan import PlanPage
from klutchctl.web.board.pages.refusal import RefusalPage
from klutchctl.web.board.pages.unit import UnitPage
from reconciler.health.verdict import State
from reconciler.inbound import foreign

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
    return foreign.foreign(" ".join(text.split()), most)


_ENVIRONMENT: Final = Environment(
    loader=PackageLoader("klutchctl.web.board"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_ENVIRONMENT.filters.update(
    foreign=foreign.foreign,
    brief=foreign.brief,
    cleaned=foreign.cleaned,
    shape=_SHAPES.__getitem__,
    short=_short,
)


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that pages refer to."""

    content_type: str
    body: bytes


ASSETS: Final = {
    name: Asset(kind, resources.files("klutchctl.web.board").joinpath("assets", name).read_bytes())
    for name, kind in _TYPES.items()
}
_STYLE: Final = ASSETS["board.css"].body.decode()
_STYLE_HASH: Final = b64encode(sha256(_STYLE.encode()).digest()).decode()


def html(page: Page) -> str:
    """Return a whole page."""
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
