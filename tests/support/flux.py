"""Flux as a controller sees it: the status it writes, the archives it serves."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from reconciler.source.flux import flux_name

SOURCE = flux_name("default/fleet", where="tests")


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content = self.server.archives.get(self.path)  # type: ignore[attr-defined]
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_: object) -> None:
        pass


class Archives(ThreadingHTTPServer):
    """Serves `archives` by path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.archives: dict[str, bytes] = {}

    def offers(self, content: bytes, commit: str, path: str = "/fleet.tar.gz") -> dict[str, str]:
        """Serve an archive; return what a status says of it."""
        self.archives[path] = content
        return {
            "url": f"http://localhost:{self.server_port}{path}",
            "digest": f"sha256:{hashlib.sha256(content).hexdigest()}",
            "revision": f"main@sha1:{commit}",
        }


@contextmanager
def archives() -> Iterator[Archives]:
    with Archives() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def condition(kind: str, status: str, message: str = "", **more: Any) -> dict[str, Any]:
    time = "2026-11-26T12:00:00Z"
    fixed = {"reason": "Tests", "lastTransitionTime": time}
    return {"type": kind, "status": status, "message": message, **fixed, **more}
