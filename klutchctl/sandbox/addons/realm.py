"""The realm that a sandbox's Keycloak imports, of realm.json: people, groups, clients. Pure."""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from string import Template
from typing import Final

from reconciler.core.secret import Secret

# As realm.json has them.
NAME: Final = "klutch"
DOOR_CLIENT: Final = "klutch-bind"
CLI_CLIENT: Final = "klutchctl"
MACHINE: Final = "machine"
KEYED_MACHINE: Final = "machine-with-key"
ADMINISTRATOR: Final = "admin"
PEOPLE: Final = {"alice": "team-a", "bob": "team-b"}  # by name, the group

_TEMPLATE: Final = Path(__file__).with_name("realm.json")
_IDS: Final = uuid.UUID("b0d3a5b2-6a0e-4f6f-9a3c-2f0a5a9d7c11")


class Purpose(StrEnum):
    """The secrets of a realm; the values are their file names."""

    ADMIN = "admin.password"
    ALICE = "alice.password"
    BOB = "bob.password"
    DOOR = "klutch-bind.secret"
    MACHINE = "machine.secret"


@dataclass(frozen=True, slots=True)
class Realm:
    """What differs between sandboxes.

    `door` is the public URL of klutch-bind, which tokens for it name as audience; `key` the JWK
    Set, public, of the machine with a private key; `seed` makes the subjects of the people, so
    that they keep them.
    """

    door: str
    secrets: Mapping[Purpose, Secret]
    key: str
    seed: str


def issuer(port: int) -> str:
    """Return the issuer of the realm, of a Keycloak on this loopback port."""
    return f"http://127.0.0.1:{port}/realms/{NAME}"


def subject(seed: str, name: str) -> str:
    """Return the subject of a person's tokens, for a realm of this seed."""
    return str(uuid.uuid5(_IDS, f"{seed}/{name}"))


def document(realm: Realm) -> bytes:
    """Return the realm as Keycloak imports it, with its secrets.

    A port of a loopback address in `redirectUris` is not compared (RFC 8252 7.3). The client with
    the URL of the door is the audience of tokens; the web client is none, so that its own tokens
    are no keys to the door. A machine is an audience of itself, so that it exchanges tokens.
    """
    blanks = {purpose.name.lower(): secret.reveal() for purpose, secret in realm.secrets.items()}
    blanks |= {f"{name}_id": subject(realm.seed, name) for name in PEOPLE}
    blanks |= {"url": realm.door, "keys": realm.key}
    quoted = {name: json.dumps(text)[1:-1] for name, text in blanks.items()}
    return Template(_TEMPLATE.read_text()).substitute(quoted).strip().encode()
