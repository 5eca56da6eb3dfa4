"""Renders pages as HTML."""

from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import Any, Final

from markupsafe import Markup

from klutchctl.render import plan_rows
from klutchctl.render.status import age
from klutchctl.render.terminal import plural
from klutchctl.web.board.index import column_of
from klutchctl.web.board.parts import Page, path_of, unit_path
from reconciler.core.times import format_time
from reconciler.health.verdict import State
from reconciler.web import templates

_TYPES: Final = {
    "board.css": "text/css; charset=utf-8",
    "board.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


# The look of a state: the class of its colour and shape.
_SHAPES: Final = {
    State.READY: "r",
    State.PROGRESSING: "p",
    State.DEGRADED: "d",
    State.UNKNOWN: "u",
    State.SUSPENDED: "h",
    State.RELEASED: "l",
}
# The look of a round's result.
_RESULTS: Final = {
    "done": State.READY,
    "nothing": State.READY,
    "held": State.PROGRESSING,
    "partial": State.DEGRADED,
    "failed": State.DEGRADED,
}


# How templates show the values of a state.
_FILTERS: Final[Mapping[str, Callable[..., Any]]] = {
    "age": age,
    "cluster_path": lambda name: path_of("clusters", name),
    "column": column_of,
    "commit": plan_rows.short_commit,
    "note": lambda health: f"({health.note})" if health.note else "",
    "result": lambda word: _RESULTS.get(word, State.UNKNOWN),
    "row": partial(plan_rows.row, steps=True),
    "sentences": lambda parts: ". ".join(filter(None, parts)),
    "shape": _SHAPES.__getitem__,
    "short": lambda text, most=60: templates.foreign(" ".join(text.split()), most),
    "time": format_time,
    "unit_path": unit_path,
    "units": lambda count: plural(count, "unit"),
    "why": lambda health: f"{health.reason}: {health.message}" if health.reason else "",
}
_ENVIRONMENT: Final = templates.environment("klutchctl.web.board", _FILTERS)
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
    return template.render(page=page, style=Markup(_STYLE), style_hash=_STYLE_HASH)


def _rendered(page: Page, layout: str) -> str:
    return _ENVIRONMENT.get_template(page.template).render(page=page, layout=layout)
