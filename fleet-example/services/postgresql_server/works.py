"""What there is to be in a PostgreSQL server. Pure.

Work can be done again: each kind of it ends in a state, whatever was there before.
"""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from reconciler.core.secret import Secret

_DATABASE: Final = "instance_"


def is_database(name: str) -> bool:
    """Return whether this is the name of an instance's database, and so of its owner."""
    return name.startswith(_DATABASE)


def database_name(mark: str) -> str:
    """Return the name of the database of the instance with this mark."""
    return _DATABASE + mark


@dataclass(frozen=True, slots=True)
class Place:
    """Where clients find the server."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Role:
    """A role as the server has it: whose databases it gets into, and what proves its password."""

    member_of: frozenset[str]
    verifier: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Provision:
    """There is this database, with an owner of the same name; nobody else gets in.

    Only a `new` one is made; one that was there and is lost meanwhile is not made again empty.
    `connections` is how many sessions it takes, `about` what it is to a person who finds it.
    `encoding` is how a new one stores texts, "" as the server does.
    """

    database: str
    connections: int
    about: str
    new: bool
    encoding: str = ""


@dataclass(frozen=True, slots=True)
class Deprovision:
    """There is neither the database nor its owner, whoever is connected."""

    database: str


@dataclass(frozen=True, slots=True)
class LetIn:
    """The role logs in with this password, acts as the owner of the database, and may no more.

    `sessions` is how many of it may be open at once; less than 0: as many as the database takes.
    """

    role: str
    database: str
    password: Secret
    sessions: int = -1


@dataclass(frozen=True, slots=True)
class ShutOut:
    """There is no such role and no session of it; what it made belongs to the owner."""

    role: str


def credentials(place: Place, login: LetIn) -> dict[str, str]:
    """Return how a client of a database gets in."""
    user, password = login.role, login.password.reveal()
    where = f"{place.host}:{place.port}/{login.database}"
    return {
        "host": place.host,
        "hosts": place.host,
        "port": str(place.port),
        "database": login.database,
        "name": login.database,
        "username": user,
        "password": password,
        "uri": f"postgresql://{user}:{quote(password, safe='')}@{where}",
    }
