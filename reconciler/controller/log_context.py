"""Adds fields about the current work, such as its key, to each log record, and sets levels.

`fleet`, `control_plane`, `cluster`, `unit`, `round`, `plan`; of a reconciler `controller` and
`key`; with traces `trace_id` and `span_id`. A record's own fields are stronger.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

# Others are not asked for debug records: hpack's hold the headers of each request, with its token.
_OURS: Final = ("bind", "klutchctl", "konnector", "reconciler")
_NONE: Final[Mapping[str, object]] = MappingProxyType({})
_CURRENT: ContextVar[Mapping[str, object]] = ContextVar("log context", default=_NONE)


def set_levels(*, debug: bool) -> None:
    for name in _OURS if debug else ():
        logging.getLogger(name).setLevel(logging.DEBUG)
    if not debug:
        # Event loops log tracebacks of connections that were cut; the calls tell that themselves.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)


def current() -> Mapping[str, object]:
    """Return the fields of the work at hand."""
    return _CURRENT.get()


def bind(**ids: object) -> None:
    """Add fields until the present task ends. Their texts are made where a record is written."""
    _CURRENT.set({**_CURRENT.get(), **ids})


@contextmanager
def fields(**ids: object) -> Iterator[None]:
    """Add fields for the length of the block."""
    token = _CURRENT.set({**_CURRENT.get(), **ids})
    try:
        yield
    finally:
        _CURRENT.reset(token)
