"""HTTP servers of tests: a function answers each request, in a thread of its own."""

import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Asked:
    """A request. `target` is its path with its query."""

    method: str
    target: str
    headers: Message
    body: bytes


Answer = tuple[int, Mapping[str, str], bytes]


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that breaks off is what some tests are about


@contextmanager
def answering(
    answer: Callable[[Asked], Answer], *, host: str = "127.0.0.1", pem: Path | None = None
) -> Iterator[int]:
    """Serve for the length of the block; `pem` has certificate and key. Yields the port."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 60

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, headers, text = answer(Asked(self.command, self.path, self.headers, body))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(text))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_PUT = do_PATCH = do_GET  # noqa: N815 - the names that the library calls

        def log_message(self, format: str, *args: object) -> None:
            pass

    with _Server((host, 0), Handler) as server:
        if pem is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(pem)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
