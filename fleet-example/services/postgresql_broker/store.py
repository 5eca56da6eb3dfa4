"""What the broker remembers, in PostgreSQL: instances with their last operation, and bindings.

No password is in there: those follow from a key, of which it knows the digest alone.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass
from typing import Final

from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from postgresql_broker.instances import Binding, Instance, Verb
from postgresql_server.postgres import Postgres
from reconciler.core.errors import ConfigError

_TABLES: Final = (
    "CREATE SCHEMA IF NOT EXISTS postgresql_broker",
    "CREATE TABLE IF NOT EXISTS postgresql_broker.key (digest text NOT NULL)",
    "CREATE TABLE IF NOT EXISTS postgresql_broker.instances (id text PRIMARY KEY,"
    " service text NOT NULL, plan text NOT NULL, parameters jsonb NOT NULL, about text NOT NULL,"
    " verb text NOT NULL, operation text NOT NULL, done boolean NOT NULL, problem text NOT NULL)",
    "CREATE TABLE IF NOT EXISTS postgresql_broker.bindings ("
    " instance text NOT NULL REFERENCES postgresql_broker.instances, id text NOT NULL,"
    " plan text NOT NULL, parameters jsonb NOT NULL, app text NOT NULL,"
    " predecessor text NOT NULL, PRIMARY KEY (instance, id))",
)
_LOCK: Final = "SELECT pg_advisory_lock(hashtextextended('postgresql_broker ' || %s, 0))"
_GET_INSTANCE: Final = "SELECT * FROM postgresql_broker.instances WHERE id = %s"
_PUT_INSTANCE: Final = (
    "INSERT INTO postgresql_broker.instances VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)"
    " ON CONFLICT (id) DO UPDATE SET plan = excluded.plan, parameters = excluded.parameters,"
    " verb = excluded.verb, operation = excluded.operation, done = excluded.done,"
    " problem = excluded.problem"
)
_DROP_INSTANCE: Final = "DELETE FROM postgresql_broker.instances WHERE id = %s"
_GET_BINDING: Final = "SELECT * FROM postgresql_broker.bindings WHERE instance = %s AND id = %s"
_PUT_BINDING: Final = (
    "INSERT INTO postgresql_broker.bindings VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
)
_DROP_BINDING: Final = "DELETE FROM postgresql_broker.bindings WHERE instance = %s AND id = %s"
_COUNT: Final = "SELECT count(*) FROM postgresql_broker.bindings WHERE instance = %s"
_OPEN: Final = "SELECT id FROM postgresql_broker.instances WHERE NOT done"


@dataclass(frozen=True, slots=True)
class Rows:
    """What is remembered, by way of one session."""

    session: AsyncConnection[TupleRow]

    async def instance(self, instance: str) -> Instance | None:
        """Return an instance."""
        row = await self._row(_GET_INSTANCE, instance)
        if row is None:
            return None
        name, service, plan, parameters, about, verb, *operation = row
        return Instance(name, service, plan, parameters, about, Verb(verb), *operation)

    async def put_instance(self, known: Instance) -> None:
        """Remember an instance."""
        fields = list(astuple(known))
        await self.session.execute(_PUT_INSTANCE, [*fields[:3], Jsonb(fields[3]), *fields[4:]])

    async def drop_instance(self, instance: str) -> None:
        """Forget an instance."""
        await self.session.execute(_DROP_INSTANCE, (instance,))

    async def binding(self, instance: str, binding: str) -> Binding | None:
        """Return a binding."""
        row = await self._row(_GET_BINDING, instance, binding)
        return None if row is None else Binding(*row)

    async def put_binding(self, known: Binding) -> None:
        """Remember a binding, which never changes."""
        fields = list(astuple(known))
        await self.session.execute(_PUT_BINDING, [*fields[:3], Jsonb(fields[3]), *fields[4:]])

    async def drop_binding(self, known: Binding) -> None:
        """Forget a binding."""
        await self.session.execute(_DROP_BINDING, (known.instance, known.id))

    async def bindings(self, instance: str) -> int:
        """Return how many bindings an instance has."""
        row = await self._row(_COUNT, instance)
        assert row is not None
        return int(row[0])

    async def _row(self, query: str, *values: str) -> TupleRow | None:
        return await (await self.session.execute(query.encode(), values)).fetchone()


class Store:
    """What is remembered in a server."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    async def open(self, digest: str) -> list[str]:
        """Make the tables; return the ids of instances whose operation is not done.

        Raises ServerTrouble, and ConfigError where passwords are of another key.
        """
        async with self._postgres.session() as session:
            for statement in _TABLES:
                await session.execute(statement.encode())
            query = "INSERT INTO postgresql_broker.key SELECT %s WHERE NOT EXISTS (TABLE {})"
            await session.execute(query.format("postgresql_broker.key").encode(), (digest,))
            known = await (await session.execute("TABLE postgresql_broker.key")).fetchall()
            if known != [(digest,)]:
                why = "the passwords of the bindings in PostgreSQL are of another key"
                raise ConfigError(why, where="--data", hint="Bring the file back that was there")
            rows = await (await session.execute(_OPEN)).fetchall()
            return [str(row[0]) for row in rows]

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Rows]:
        """Look at what is remembered. Raises ServerTrouble."""
        async with self._postgres.session() as session:
            yield Rows(session)

    @asynccontextmanager
    async def turn(self, instance: str) -> AsyncIterator[Rows]:
        """Have an instance and its bindings alone, also among several brokers.

        The lock ends with the session, whatever ends that. Raises ServerTrouble.
        """
        async with self._postgres.session() as session:
            await session.execute(_LOCK, (instance,))
            yield Rows(session)
