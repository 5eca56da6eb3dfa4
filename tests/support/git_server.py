"""A Git server over HTTPS, as far as fetching goes, that can be told to misbehave."""

import base64
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pygit2
import pytest
from pygit2.enums import ConfigLevel

from klutchctl.sandbox import credentials
from klutchctl.sandbox.credentials import Use
from klutchctl.sandbox.state import LOOPBACK
from tests.support.answering import Answer, Asked, answering

_TYPE = "application/x-git-upload-pack"
_LEVELS: Final = (ConfigLevel.GLOBAL, ConfigLevel.XDG, ConfigLevel.SYSTEM, ConfigLevel.PROGRAMDATA)


@dataclass
class GitServer:
    """A server of bare repositories in `root`. `seen` are (path, Authorization) of all requests.

    `token` is what it wants, `redirect` where it sends everybody who may come in, `broken`: 500.
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

    def answer(self, asked: Asked) -> Answer:
        authorization = asked.headers.get("Authorization", "")
        self.seen.append((asked.target, authorization))
        if self.broken:
            return 500, {}, b""
        if not self.allows(authorization):
            return 401, {"WWW-Authenticate": 'Basic realm="git"'}, b""
        if self.redirect:
            return 302, {"Location": self.redirect + asked.target}, b""
        if asked.method == "POST":
            return 200, {"Content-Type": f"{_TYPE}-result"}, self._git(asked)
        head = b"001e# service=git-upload-pack\n0000"
        return (
            200,
            {"Content-Type": f"{_TYPE}-advertisement"},
            head + self._git(asked, "--http-backend-info-refs"),
        )

    def _git(self, asked: Asked, *options: str) -> bytes:
        repository = self.root / asked.target.strip("/").partition("/")[0]
        command = ["git", "upload-pack", "--stateless-rpc", *options, str(repository)]
        return subprocess.run(command, input=asked.body, capture_output=True, check=True).stdout


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
    with answering(server.answer, host=host, pem=folder / "server.pem") as server.port:
        yield server


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
