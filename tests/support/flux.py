"""Flux as a controller sees it: the status it writes, the archives it serves."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from reconciler.source.flux import flux_name
from tests.support.answering import Answer, Asked, answering

SOURCE = flux_name("default/fleet", where="tests")


@dataclass
class Archives:
    """Serves `archives` by path."""

    port: int = 0
    archives: dict[str, bytes] = field(default_factory=dict)

    def answer(self, asked: Asked) -> Answer:
        content = self.archives.get(asked.target)
        return 404 if content is None else 200, {}, content or b""

    def offers(self, content: bytes, commit: str, path: str = "/fleet.tar.gz") -> dict[str, str]:
        """Serve an archive; return what a status says of it."""
        self.archives[path] = content
        return {
            "url": f"http://localhost:{self.port}{path}",
            "digest": f"sha256:{hashlib.sha256(content).hexdigest()}",
            "revision": f"main@sha1:{commit}",
        }


@contextmanager
def archives() -> Iterator[Archives]:
    made = Archives()
    with answering(made.answer) as made.port:
        yield made


def condition(kind: str, status: str, message: str = "", **more: Any) -> dict[str, Any]:
    fixed = {"reason": "Tests", "lastTransitionTime": "2026-11-26T12:00:00Z"}
    return {"type": kind, "status": status, "message": message, **fixed, **more}
