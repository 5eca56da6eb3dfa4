"""The realm that a sandbox's Keycloak imports: people, groups, clients. Pure, but for secrets."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

from reconciler.core.secret import Secret

NAME: Final = "klutch"
DOOR_CLIENT: Final = "klutch-bind"
CLI_CLIENT: Final = "klutchctl"
MACHINE: Final = "machine"
KEYED_MACHINE: Final = "machine-with-key"
ADMINISTRATOR: Final = "admin"

_Json: TypeAlias = dict[str, Any]
# The port of a loopback address is not compared (RFC 8252 7.3).
_CALLBACKS: Final = ("http://127.0.0.1/callback", "http://localhost/callback")
_IDS: Final = uuid.UUID("b0d3a5b2-6a0e-4f6f-9a3c-2f0a5a9d7c11")


class Purpose(StrEnum):
    """The secrets of a realm; the values are their file names."""

    ADMIN = "admin.password"
    ALICE = "alice.password"
    BOB = "bob.password"
    DOOR = "klutch-bind.secret"
    MACHINE = "machine.secret"


@dataclass(frozen=True, slots=True)
class Person:
    """A user, in one group."""

    name: str
    first: str
    last: str
    group: str
    password: Purpose


PEOPLE: Final = (
    Person("alice", "Alice", "Archer", "team-a", Purpose.ALICE),
    Person("bob", "Bob", "Baker", "team-b", Purpose.BOB),
)


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
    """Return the realm as Keycloak imports it, with its secrets."""
    content = {
        "realm": NAME,
        "displayName": "Klutch sandbox",
        "enabled": True,
        "sslRequired": "external",  # not on loopback
        "registrationAllowed": False,
        "bruteForceProtected": True,
        "accessTokenLifespan": 300,
        "groups": [{"name": one.group, "path": f"/{one.group}"} for one in PEOPLE],
        "users": [*(_person(realm, one) for one in PEOPLE), _administrator(realm)],
        "clients": _clients(realm),
    }
    return json.dumps(content, indent=1).encode()


def _person(realm: Realm, person: Person) -> _Json:
    """Return a user; without e-mail and names, a page would ask for them at the first sign-in."""
    return {
        "id": subject(realm.seed, person.name),
        "username": person.name,
        "enabled": True,
        "email": f"{person.name}@example.org",
        "emailVerified": True,
        "firstName": person.first,
        "lastName": person.last,
        "groups": [f"/{person.group}"],
        "requiredActions": [],
        "credentials": _password(realm, person.password),
    }


def _administrator(realm: Realm) -> _Json:
    """Return who may change this realm: Keycloak's own, by its environment, is not needed then."""
    return {
        "username": ADMINISTRATOR,
        "enabled": True,
        "email": f"{ADMINISTRATOR}@example.org",
        "emailVerified": True,
        "firstName": "Ada",
        "lastName": "Admin",
        "clientRoles": {"realm-management": ["realm-admin"]},
        "credentials": _password(realm, Purpose.ADMIN),
    }


def _password(realm: Realm, purpose: Purpose) -> Sequence[_Json]:
    return [{"type": "password", "value": realm.secrets[purpose].reveal(), "temporary": False}]


def _clients(realm: Realm) -> Sequence[_Json]:
    return (
        # The audience of tokens, not the web client: what that gets is no key to the door.
        {"clientId": realm.door, "enabled": True, "bearerOnly": True},
        _client(
            DOOR_CLIENT,
            realm,
            secret=realm.secrets[Purpose.DOOR].reveal(),
            standardFlowEnabled=True,
            redirectUris=[*_CALLBACKS],
            attributes={"pkce.code.challenge.method": "S256"},
        ),
        _client(
            CLI_CLIENT,
            realm,
            publicClient=True,
            attributes={
                "oauth2.device.authorization.grant.enabled": "true",
                "oauth2.device.polling.interval": "1",  # instead of 5 s, which nobody gains here
                "pkce.code.challenge.method": "S256",
            },
        ),
        _client(
            MACHINE,
            realm,
            secret=realm.secrets[Purpose.MACHINE].reveal(),
            serviceAccountsEnabled=True,
            attributes={"standard.token.exchange.enabled": "true"},
        ),
        _client(
            KEYED_MACHINE,
            realm,
            serviceAccountsEnabled=True,
            clientAuthenticatorType="client-jwt",
            attributes={"use.jwks.string": "true", "jwks.string": realm.key},
        ),
    )


def _client(name: str, realm: Realm, **more: Any) -> _Json:
    mappers = [_groups_mapper()]
    if name == CLI_CLIENT:  # its ID tokens go to the door, and to no other that names this client
        mappers += [_audience_mapper(realm.door, of_people="true")]
    if more.get("serviceAccountsEnabled"):
        mappers += [_audience_mapper(realm.door), _audience_mapper(MACHINE)]
    common = {
        "clientId": name,
        "enabled": True,
        "protocol": "openid-connect",
        "publicClient": False,
        "standardFlowEnabled": False,
        "implicitFlowEnabled": False,
        "directAccessGrantsEnabled": False,
        "serviceAccountsEnabled": False,
        "protocolMappers": mappers,
    }
    return {**common, **more}


def _groups_mapper() -> _Json:
    return _mapper(
        "groups",
        "oidc-group-membership-mapper",
        {"claim.name": "groups", "full.path": "false", "userinfo.token.claim": "true"},
    )


def _audience_mapper(audience: str, *, of_people: str = "false") -> _Json:
    """Return a mapper; a machine is also one of its own, so that another's token is exchanged."""
    config = {"included.client.audience": audience, "id.token.claim": of_people}
    return _mapper(f"audience {audience}", "oidc-audience-mapper", config)


def _mapper(name: str, kind: str, config: Mapping[str, str]) -> _Json:
    return {
        "name": name,
        "protocol": "openid-connect",
        "protocolMapper": kind,
        "config": {"access.token.claim": "true", "id.token.claim": "true", **config},
    }
