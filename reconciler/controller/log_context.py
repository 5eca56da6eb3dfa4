"""Adds fields about the current work, such as its key, to each log record.

`fleet`, `control_plane`, `cluster`, `unit`, `round`, `plan`; of a reconciler `controller` and
`key`; with traces `trace_id` and `span_id`. A record's own fields are stronger.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

_NONE: Final[Mapping[str, object]] = MappingProxyType({})
_CURRENT: ContextVar[Mapping[str, object]] = ContextVar("log context", default=_NONE)


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
