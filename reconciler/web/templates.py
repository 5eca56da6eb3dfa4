"""Builds the template engine of pages, and escapes untrusted texts.

Everything is escaped, and a name that a view lacks is an error. Escaping keeps markup out,
isolation keeps the direction of a text inside of it. Both would be undone by characters that steer
direction: these go. The only module that knows the template engine.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final
from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

# Marks, embeddings, overrides and isolates of direction, and controls but for tab and newline.
_STEERING: Final = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)
_PLAIN_PATH: Final = re.compile(r"/(?!/)[A-Za-z0-9/._~-]*(\?[A-Za-z0-9=&%._~+-]*)?")
_LINK: Final = re.compile(r"https://[!-~]+")
_SHORT: Final = 160


def cleaned(text: str) -> str:
    """Return a text without characters that are not to be seen."""
    return _STEERING.sub("", text)


def foreign(text: str, most: int = 0) -> Markup:
    """Return a text as an element of its own, cut where it is longer than `most`."""
    shown = cleaned(text)
    if most and len(shown) > most:
        shown = f"{shown[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
    return Markup("<bdi>{}</bdi>").format(shown)


def brief(text: str) -> Markup:
    """Return the beginning of a text, for a cell or a heading."""
    return foreign(" ".join(text.split()), _SHORT)


def link(url: str) -> str:
    """Return a URL of others if it leads to a web site over HTTPS, else ""."""
    if len(url) > 2_000 or not _LINK.fullmatch(url):
        return ""
    try:
        parts = urlsplit(url)
        good = bool(parts.hostname) and "@" not in parts.netloc and "\\" not in url
        _ = parts.port
    except ValueError:
        return ""
    return url if good else ""


def host(url: str) -> str:
    return urlsplit(url).netloc


def bare(href: str) -> Markup:
    """Return a link of ours, with bare `&` in its query as the original writes it (B.3)."""
    return Markup(href) if _PLAIN_PATH.fullmatch(href) else escape(href)


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that pages refer to."""

    content_type: str
    body: bytes


def environment(package: str, filters: Mapping[str, Callable[..., Any]]) -> Environment:
    """Return the engine for the templates of a package, with its own filters beside ours."""
    engine = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    engine.filters.update(foreign=foreign, brief=brief, cleaned=cleaned)
    engine.filters.update(filters)
    return engine


def assets(package: str, types: Mapping[str, str]) -> Mapping[str, Asset]:
    """Return the assets of a package by their names, of which `types` has the content types."""
    folder = resources.files(package).joinpath("assets")
    return {name: Asset(kind, folder.joinpath(name).read_bytes()) for name, kind in types.items()}
