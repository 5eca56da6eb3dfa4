"""A real PostgreSQL server for tests, as a sandbox runs it, and what its clients see."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from klutchctl import files
from klutchctl.sandbox import lifecycle, processes, startup
from klutchctl.sandbox.addons import postgresql as sandboxed
from klutchctl.sandbox.addons import services
from klutchctl.sandbox.addons.postgresql import PostgresqlPlace
from klutchctl.sandbox.addons.services import ServicesKit
from klutchctl.sandbox.manifests import Suite
from klutchctl.sandbox.state import Component, Layout, Member, Role, State, layout_of
from reconciler.core.errors import HostError
from tests.support.quiet import Quiet

_SETTINGS: Final = (
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
        found = self.ask("SELECT datname FROM pg_database WHERE datname LIKE 'instance%'")
        return {str(name) for (name,) in found}

    def roles(self) -> set[str]:
        """Return the names of the roles that somebody made."""
        found = self.ask(
            "SELECT rolname FROM pg_roles WHERE rolname <> 'postgres' AND rolname !~ '^pg_'"
        )
        return {str(name) for (name,) in found}


@contextmanager
def served() -> Iterator[Server]:
    """Run a server for the length of the block; it leaves nothing behind."""
    with tempfile.TemporaryDirectory(prefix="klutchctl-postgresql-") as home:
        layout = layout_of("postgresql", state_home=Path(home))
        place = _found(layout)
        try:
            yield _started(layout, place)
        finally:
            lifecycle.down(layout, delete=True, progress=Quiet())


def _found(layout: Layout) -> PostgresqlPlace:
    """Return what to run. Without it a test is skipped, but never in CI."""
    try:
        return sandboxed.find(layout, os.environ)
    except HostError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def _started(layout: Layout, place: PostgresqlPlace) -> Server:
    for folder in (layout.root.parent, layout.root, layout.services, layout.logs):
        files.private_folder(folder)
    password = sandboxed.ensure_data(layout, place, progress=Quiet())
    kit = ServicesKit(Suite(layout.services, (Component.POSTGRESQL,), (), ()), {}, place)
    plane = State(1, 2, (Member("none", Role.CONTROL_PLANE, 3),))
    state = services.extend(plane, kit, processes.free_ports)
    (server,) = services.servers(layout, state, kit)
    (port,) = server.ports
    files.write(layout.postgresql_address, f"{services.address(port, password)}\n".encode())
    more = tuple(word for each in _SETTINGS for word in ("-c", each))
    server = replace(server, arguments=(*server.arguments, *more))
    startup.ensure_running(layout, [server], {}, progress=Quiet())
    return Server(port, place.binaries, layout.postgresql_address, server.log)
