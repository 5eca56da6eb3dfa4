"""Builds the engine of pages. Everything is escaped, and a name that a view lacks is an error.

The only module that knows the template engine.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from reconciler.inbound import foreign


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
    engine.filters.update(foreign=foreign.foreign, brief=foreign.brief, cleaned=foreign.cleaned)
    engine.filters.update(filters)
    return engine


def assets(package: str, types: Mapping[str, str]) -> Mapping[str, Asset]:
    """Return the assets of a package by their names, of which `types` has the content types."""
    folder = resources.files(package).joinpath("assets")
    return {name: Asset(kind, folder.joinpath(name).read_bytes()) for name, kind in types.items()}
