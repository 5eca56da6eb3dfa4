"""Collects spans instead of exporting them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from reconciler.controller.tracing import Ended


class Collector:
    """A tracer that keeps all: `opened` with the spans around them, as `round > read`."""

    def __init__(self) -> None:
        self.ended: list[Ended] = []
        self.opened: list[str] = []
        self.attributes: list[Mapping[str, str]] = []
        self._around: list[str] = []

    @contextmanager
    def span(self, name: str, attributes: Mapping[str, str]) -> Iterator[None]:
        self._around.append(name)
        self.opened.append(" > ".join(self._around))
        self.attributes.append(attributes)
        try:
            yield
        finally:
            self._around.pop()

    def record(self, span: Ended) -> None:
        self.ended.append(span)

    def lines(self) -> list[str]:
        """Return what ended, in its order."""
        return [
            f"{one.name} {one.began:.1f}-{one.ended:.1f}{' root' * one.is_root}"
            for one in self.ended
        ]
