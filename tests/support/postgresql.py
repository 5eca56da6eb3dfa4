"""A real PostgreSQL server for tests, and what its clients see."""

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

_DEBIAN: Final = Path("/usr/lib/postgresql")
_SETTINGS: Final = (
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "shared_buffers=32MB",
    "fsync=off",
    # Everything that it was told, so that a test can look for what it must not have been told.
    "log_statement=all",
)


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs. `address` is a file with the URL of its superuser."""

    port: int
    binaries: Path
    address: Path
    log: Path

    def ask(self, query: str, **way: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query; as the superuser unless `way` tells another."""
        given: dict[str, Any] = {"host": "127.0.0.1", "port": self.port, **way}
        conninfo = "" if way else self.address.read_text().strip()
        with psycopg.connect(conninfo, **(given if way else {}), autocommit=True) as session:
            answer = session.execute(query.encode())
            return answer.fetchall() if answer.description else []

    def databases(self) -> set[str]:
        """Return the names of the databases of instances."""
        found = self.ask("SELECT datname FROM pg_database WHERE datname LIKE 'instance%'")
        return {str(name) for (name,) in found}

    def roles(self) -> set[str]:
        """Return the names of the roles that somebody made."""
        found = self.ask(
            "SELECT rolname FROM pg_roles WHERE rolname <> 'postgres' AND rolname !~ '^pg_'"
        )
        return {str(name) for (name,) in found}


def binaries() -> Path:
    """Return the folder of initdb, postgres, pg_dump and pg_restore.

    Without it a test is skipped, but never in CI.
    """
    on_path = shutil.which("initdb")
    found = [Path(on_path).resolve().parent] if on_path else []
    found += sorted(_DEBIAN.glob("*/bin"), reverse=True)
    for folder in found:
        if (folder / "postgres").exists() and (folder / "pg_dump").exists():
            return folder
    missing = "PostgreSQL is not installed: apt-get install postgresql"
    if os.environ.get("CI"):
        pytest.fail(missing, pytrace=False)
    pytest.skip(missing)


@contextmanager
def served() -> Iterator[Server]:
    """Run a server for the length of the block; it leaves nothing behind."""
    programs, folder = (
        binaries(),
        Path(tempfile.mkdtemp(prefix="klutchctl-postgresql-", dir="/tmp")),
    )
    try:
        password, data = secrets.token_urlsafe(16), folder / "data"
        told = folder / "password"
        told.write_text(password)
        user = _owner(folder)
        initdb: list[str | Path] = [
            programs / "initdb",
            f"--pgdata={data}",
            f"--pwfile={told}",
            "--no-sync",
        ]
        initdb += ["--username=postgres", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]
        subprocess.run(initdb, check=True, capture_output=True, cwd=folder, **user)
        port, log, address = _free_port(), folder / "log", folder / "address"
        address.write_text(f"postgresql://postgres:{password}@127.0.0.1:{port}/postgres\n")
        server = Server(port, programs, address, log)
        command: list[str | Path] = [programs / "postgres", "-D", data, "-p", str(port)]
        command += [part for each in _SETTINGS for part in ("-c", each)]
        with _running(command, log, folder, user):
            _wait(server)
            yield server
    finally:
        shutil.rmtree(folder)


@contextmanager
def _running(
    command: Sequence[str | Path], log: Path, folder: Path, user: Mapping[str, Any]
) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder, **user)
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)


def _owner(folder: Path) -> Mapping[str, Any]:
    """Return how to run a program that refuses to run as root, which then owns the folder."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("postgres")
    for path in (folder, *folder.iterdir()):
        os.chown(path, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _wait(server: Server, *, within: float = 30.0) -> None:
    deadline = time.monotonic() + within
    while True:
        try:
            server.ask("SELECT 1")
            return
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise AssertionError(server.log.read_text()) from None
            time.sleep(0.05)
