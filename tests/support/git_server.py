"""A Git server over HTTPS, as far as fetching goes, that can be told to misbehave."""

import base64
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pygit2
import pytest
from pygit2.enums import ConfigLevel

from klutchctl.sandbox import credentials
from klutchctl.sandbox.credentials import Use
from klutchctl.sandbox.state import LOOPBACK

_TYPE = "application/x-git-upload-pack"
_LEVELS: Final = (ConfigLevel.GLOBAL, ConfigLevel.XDG, ConfigLevel.SYSTEM, ConfigLevel.PROGRAMDATA)


@dataclass
class GitServer:
    """A server of bare repositories in `root`. `seen` are (path, Authorization) of all requests.

    `token` is what it wants, `redirect` where it sends everybody who may come in, and `broken`
    makes it answer 500.
    """

    root: Path
    host: str = "localhost"
    port: int = 0
    token: str = ""
    redirect: str = ""
    broken: bool = False
    seen: list[tuple[str, str]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}"

    def allows(self, authorization: str) -> bool:
        wanted = base64.b64encode(f"git:{self.token}".encode()).decode()
        return not self.token or authorization == f"Basic {wanted}"


@contextmanager
def served(root: Path, folder: Path, *, host: str = "localhost") -> Iterator[GitServer]:
    """Serve; `folder`/ca.crt is the authority to trust, of all servers with this folder.

    `host` may be an address of this machine that others reach.
    """
    if not (folder / "ca.crt").exists():
        now = datetime.now(UTC)
        authority = credentials.authority("git", now=now)
        address = LOOPBACK if host == "localhost" else host
        pair = credentials.issue(authority, host, use=Use.SERVER, address=address, now=now)
        (folder / "ca.crt").write_bytes(authority.certificate_pem)
        (folder / "server.pem").write_bytes(pair.certificate_pem + pair.key_pem)
    server = GitServer(root, host)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    with _Http(server) as http:
        http.socket = context.wrap_socket(http.socket, server_side=True)
        server.port = http.server_port
        thread = threading.Thread(target=http.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """An empty home, and settings of libgit2 that are put back afterwards."""
    settings: Any = pygit2.settings
    paths = {level: settings.search_path[level] for level in _LEVELS}
    before = settings.homedir, settings.server_timeout, settings.server_connect_timeout
    settings.homedir = str(tmp_path / "home")
    yield tmp_path / "home"
    settings.homedir, settings.server_timeout, settings.server_connect_timeout = before
    for level, path in paths.items():
        settings.search_path[level] = path


@pytest.fixture
def server(tmp_path: Path, home: Path) -> Iterator[GitServer]:
    (tmp_path / "root").mkdir()
    with served(tmp_path / "root", tmp_path) as one:
        settings: Any = pygit2.settings
        before = settings.ssl_cert_file
        settings.ssl_cert_file = str(tmp_path / "ca.crt")
        yield one
        settings.ssl_cert_file = before


@pytest.fixture
def repository(server: GitServer) -> pygit2.Repository:
    """A repository of that server, without a commit."""
    return pygit2.init_repository(server.root / "fleet.git", bare=True, initial_head="main")


class _Http(ThreadingHTTPServer):
    def __init__(self, server: GitServer) -> None:
        self.git = server
        super().__init__((server.host, 0), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that breaks off is what some tests are about


class _Handler(BaseHTTPRequestHandler):
    server: _Http
    timeout = 60

    def do_GET(self) -> None:
        if self.lets_in():
            head = b"001e# service=git-upload-pack\n0000"
            self.answer("advertisement", head + self.git("--http-backend-info-refs"))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.lets_in():
            self.answer("result", self.git(body=body))

    def lets_in(self) -> bool:
        git, authorization = self.server.git, self.headers.get("Authorization", "")
        git.seen.append((self.path, authorization))
        if git.broken:
            self.send_response(500)
        elif not git.allows(authorization):
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
        elif git.redirect:
            self.send_response(302)
            self.send_header("Location", git.redirect + self.path)
        else:
            return True
        self.send_header("Content-Length", "0")
        self.end_headers()
        return False

    def git(self, *options: str, body: bytes = b"") -> bytes:
        repository = self.server.git.root / self.path.strip("/").partition("/")[0]
        command = ["git", "upload-pack", "--stateless-rpc", *options, str(repository)]
        return subprocess.run(command, input=body, capture_output=True, check=True).stdout

    def answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", f"{_TYPE}-{kind}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass
