"""The PostgreSQL server: what there is, and how work is done there. No decisions.

Everything is looked at first and stated anew, so that whatever was begun and cut off is completed
by doing it again. Passwords reach the server as SCRAM verifiers only: neither its log nor
pg_stat_activity can tell them.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, LiteralString

import psycopg
from psycopg import AsyncConnection, sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow

from postgresql_server.works import Deprovision, LetIn, Place, Provision, Role, ShutOut, is_database
from reconciler.core.errors import KlutchError, Retry
from reconciler.core.secret import Secret, scrub

_TIMEOUT: Final = 10  # seconds to connect
# The owner of a database may give it settings for all who come in. What is said here goes first.
_OPTIONS: Final = (
    "-c statement_timeout=120s -c lock_timeout=30s"
    " -c role=none -c default_transaction_read_only=off"
)
_HURRY: Final = "SET statement_timeout = '10s'"
_READS_ALL: Final = "pg_read_all_data"
_DATABASE: Final = "SELECT 1 FROM pg_database WHERE datname = %s"
_NEW_DATABASE: Final = "CREATE DATABASE {} OWNER {} TEMPLATE template0 CONNECTION LIMIT 0{}"
_MEMBER_OF: Final = (
    "SELECT owner.rolname FROM pg_auth_members m JOIN pg_roles owner ON owner.oid = m.roleid "
    "WHERE m.member = %s AND owner.rolname <> %s"
)
# Databases in which a role owns something or has rights; 0 stands for what all share.
_TRACES: Final = (
    "SELECT DISTINCT d.datname, pg_get_userbyid(d.datdba) FROM pg_shdepend s "
    "JOIN pg_database d ON d.oid = s.dbid "
    "WHERE s.refclassid = 'pg_authid'::regclass AND s.refobjid = %s"
)
_TERMINATE: Final = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usesysid = %s"
)

_Connection = AsyncConnection[TupleRow]


class ServerTrouble(KlutchError):
    """The server did not answer, or said no: it may do later."""

    retry = Retry.LATER


class JobFailed(KlutchError):
    """pg_dump or pg_restore said no: the same again would fail again."""


@dataclass(frozen=True, slots=True)
class Address:
    """How the administrator gets in."""

    place: Place
    user: str
    password: Secret
    database: str


def new_password() -> Secret:
    """Return a new password."""
    return Secret(secrets.token_urlsafe(24))


class Postgres:
    """One server, whose address is read from a file at each use: it may move while we run.

    `name` is what the server knows us by.
    """

    def __init__(self, file: Path, name: str) -> None:
        self._file, self._name = file, name
        self._shared = asyncio.Lock()  # PostgreSQL refuses two changes of one right at a time

    def address(self) -> Address:
        """Return the way there. Raises ServerTrouble."""
        try:
            reported = conninfo_to_dict(self._file.read_text().strip())
            place = Place(str(reported["host"]), int(str(reported["port"])))
            secret = Secret(str(reported["password"]))
            return Address(place, str(reported["user"]), secret, str(reported["dbname"]))
        except (OSError, ValueError, KeyError, psycopg.Error) as error:
            why = f"{self._file} does not tell where PostgreSQL is ({type(error).__name__})"
            raise ServerTrouble(f"{why}: it needs one line postgresql://…") from None

    async def has_database(self, name: str) -> bool:
        """Return whether there is such a database. Raises ServerTrouble."""
        async with self.session() as session:
            return await _has(session, _DATABASE, name)

    async def role(self, name: str) -> Role | None:
        """Return a role, None where there is none. Raises ServerTrouble."""
        async with self.session() as session:
            found = await _row(
                session, "SELECT oid, rolpassword FROM pg_authid WHERE rolname = %s", name
            )
            if found is None:
                return None
            rows = await session.execute(_MEMBER_OF, (found[0], _READS_ALL))
            owners = frozenset(str(row[0]) for row in await rows.fetchall())
            return Role(owners, str(found[1] or ""))

    async def provision(self, work: Provision) -> None:
        """Have the database. Raises ServerTrouble."""
        name = sql.Identifier(work.database)
        async with self._shared, self.session() as session:
            if not await _has(session, "SELECT 1 FROM pg_roles WHERE rolname = %s", work.database):
                await _run(session, "CREATE ROLE {} NOLOGIN", name)
            if work.new and not await _has(session, _DATABASE, work.database):
                # Nobody gets in before PUBLIC has no right to.
                await _run(session, _NEW_DATABASE, name, name, _encoding(work.encoding))
            # Roles of one instance get into no other database, not even into those of the server.
            for each in (name, sql.Identifier("postgres"), sql.Identifier("template1")):
                await _run(session, "REVOKE ALL ON DATABASE {} FROM PUBLIC", each)
            limit = sql.Literal(work.connections)
            await _run(session, "ALTER DATABASE {} CONNECTION LIMIT {}", name, limit)
            await _run(session, "COMMENT ON DATABASE {} IS {}", name, sql.Literal(work.about))

    async def deprovision(self, work: Deprovision) -> None:
        """Have no such database, and no owner of it. Raises ServerTrouble."""
        name = sql.Identifier(work.database)
        async with self.session() as session:
            # One whose drop was cut off is a template no more, and cannot be altered.
            if await _has(session, _DATABASE + " AND datistemplate", work.database):
                await _run(session, "ALTER DATABASE {} IS_TEMPLATE false", name)
            # PostgreSQL 15 and later may wait here for ever, for a session that begins just now.
            # What was cut off is completed by the next try, which does not wait for it.
            await _run(session, _HURRY)
            await _run(session, "DROP DATABASE IF EXISTS {} WITH (FORCE)", name)
        await self.shut_out(ShutOut(work.database))

    async def let_in(self, work: LetIn, *, reads_all: bool = False) -> None:
        """Have the role, with this password. `reads_all`: also what the owner may not read.

        Raises ServerTrouble.
        """
        role, owner = sql.Identifier(work.role), sql.Identifier(work.database)
        async with self.session() as session, session.transaction():
            if not await _has(session, "SELECT 1 FROM pg_roles WHERE rolname = %s", work.role):
                await _run(session, "CREATE ROLE {} NOLOGIN", role)
            verifier = session.pgconn.encrypt_password(
                work.password.reveal().encode(), work.role.encode(), b"scram-sha-256"
            )
            await _run(session, "GRANT {} TO {}", owner, role)
            if reads_all:
                await _run(session, "GRANT {} TO {}", sql.Identifier(_READS_ALL), role)
            else:
                # What one role makes is the owner's: it outlives the role, and is there for all.
                await _run(session, "ALTER ROLE {} SET role TO {}", role, owner)
            password = sql.Literal(verifier.decode())
            await _run(
                session,
                "ALTER ROLE {} LOGIN CONNECTION LIMIT {} PASSWORD {}",
                role,
                sql.Literal(work.sessions),
                password,
            )

    async def shut_out(self, work: ShutOut) -> None:
        """Have no such role; sessions of it end. Raises ServerTrouble."""
        role = sql.Identifier(work.role)
        async with self.session() as session:
            found = await _row(session, "SELECT oid FROM pg_roles WHERE rolname = %s", work.role)
            if found is None:
                return
            await _run(session, "ALTER ROLE {} NOLOGIN", role)
            await session.execute(_TERMINATE, found)
            rows = await session.execute(_TRACES, found)
            for database, owner in await rows.fetchall():
                async with self.session(str(database)) as inside:
                    # Never to an administrator, who would then run what a tenant wrote.
                    if is_database(str(owner)) and owner != work.role:
                        heir = sql.Identifier(str(owner))
                        await _run(inside, "REASSIGN OWNED BY {} TO {}", role, heir)
                    await _run(inside, "DROP OWNED BY {}", role)
            await _run(session, "DROP OWNED BY {}", role)
            await _run(session, "DROP ROLE {}", role)

    @asynccontextmanager
    async def session(self, database: str = "") -> AsyncIterator[_Connection]:
        """Connect as the administrator for the length of the block. Raises ServerTrouble."""
        way = self.address()
        where = f"PostgreSQL at {way.place.host}:{way.place.port}"
        try:
            async with contextlib.AsyncExitStack() as stack:
                session = await AsyncConnection.connect(
                    host=way.place.host,
                    port=way.place.port,
                    user=way.user,
                    password=way.password.reveal(),
                    dbname=database or way.database,
                    connect_timeout=_TIMEOUT,
                    application_name=self._name,
                    options=_OPTIONS,
                    autocommit=True,
                )
                stack.push_async_callback(session.close)
                yield session
        except psycopg.Error as error:
            raise ServerTrouble(f"{where}: {_reported(error, way.password)}") from None


def _reported(error: psycopg.Error, password: Secret) -> str:
    """Return what the server said, in one line; details may quote data."""
    lines = (error.diag.message_primary or str(error)).splitlines()
    return scrub(lines[0] if lines else type(error).__name__, (password.reveal(),))


def _encoding(name: str) -> sql.Composable:
    """Return the words for an encoding; the one locale that goes with every one is C."""
    if not name:
        return sql.SQL("")
    return sql.SQL(" ENCODING {} LC_COLLATE 'C' LC_CTYPE 'C'").format(sql.Literal(name))


async def _run(session: _Connection, statement: LiteralString, *parts: sql.Composable) -> None:
    await session.execute(sql.SQL(statement).format(*parts))


async def _row(session: _Connection, query: LiteralString, value: str) -> TupleRow | None:
    return await (await session.execute(query, (value,))).fetchone()


async def _has(session: _Connection, query: LiteralString, value: str) -> bool:
    return await _row(session, query, value) is not None
