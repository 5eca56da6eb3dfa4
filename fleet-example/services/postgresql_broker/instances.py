"""What a call means for an instance or a binding as the broker remembers it. Pure.

An instance carries its last operation: what was begun and is not done is done again, by the next
call or by the next broker, until it is done. So a crash between any two steps only costs time.
"""

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from postgresql_broker import catalogue, refusal
from postgresql_broker.catalogue import ENCODING, MAINTENANCE
from postgresql_broker.refusal import Refusal, busy
from postgresql_server.works import Deprovision, LetIn, Provision, database_name
from reconciler.core.manifest import JSON
from reconciler.core.secret import Secret

_LONGEST_ID: Final = 255
_MARK: Final = 32


class Verb(StrEnum):
    """What the last operation of an instance is about."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance. `operation` names the last operation, `problem` why it takes so long.

    `about` is what the instance is to a person who finds its database.
    """

    id: str
    service: str
    plan: str
    parameters: Mapping[str, JSON]
    about: str
    verb: Verb
    operation: str
    done: bool = False
    problem: str = ""

    @property
    def is_there(self) -> bool:
        """Whether a client can use it, also while it changes."""
        return self.verb is not Verb.DELETE and (self.done or self.verb is Verb.UPDATE)


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding: a login for the database of an instance."""

    instance: str
    id: str
    plan: str
    parameters: Mapping[str, JSON]
    app: str = ""
    predecessor: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """What a platform asks an instance to become. None: as it is."""

    instance: str
    service: str
    operation: str
    plan: str = ""
    parameters: Mapping[str, JSON] | None = None
    maintenance: str = ""
    about: str = ""


def provision(known: Instance | None, change: Change) -> Instance:
    """Return the instance that there is to be; `known` itself where it is that one. Raises Refusal.

    One of the same service, plan and parameters is the same; its context may differ.
    """
    parameters = change.parameters or {}
    catalogue.wanted(change.service, change.plan, parameters)
    _check_maintenance(change)
    if known is None:
        _check_id(change.instance)
        new = (change.service, change.plan, parameters, change.about)
        return Instance(change.instance, *new, Verb.CREATE, change.operation)
    if known.verb is Verb.DELETE:
        raise busy()
    same = (known.service, known.plan, known.parameters)
    if same != (change.service, change.plan, parameters):
        raise Refusal(409, "There is an instance with this id and another plan or parameters")
    return known


def update(known: Instance | None, change: Change) -> Instance:
    """Return what the instance becomes; `known` itself where it is so already. Raises Refusal.

    Parameters replace all that were there, but what cannot change: that may be left out.
    """
    if known is None or not (known.is_there or known.verb is Verb.CREATE):
        raise Refusal(404, "There is no such instance")
    if change.service != known.service:
        raise Refusal(400, "The instance is of another service")
    _check_maintenance(change)
    plan = change.plan or known.plan
    parameters = known.parameters if change.parameters is None else change.parameters
    if ENCODING in known.parameters:
        parameters = {ENCODING: known.parameters[ENCODING], **parameters}
    encodings = [catalogue.wanted(change.service, plan, parameters).encoding, _encoding(known)]
    if len({*encodings}) > 1:
        raise Refusal(400, f"The {ENCODING} of a database cannot change")
    if (plan, parameters) == (known.plan, known.parameters):
        return known
    if not known.done:
        raise busy()
    begun = replace(known, verb=Verb.UPDATE, operation=change.operation, done=False, problem="")
    return replace(begun, plan=plan, parameters=parameters)


def deprovision(known: Instance | None, bindings: int, operation: str) -> Instance:
    """Return the instance on its way out. Raises Refusal.

    One that is only being made goes as well: a platform may have lost the answer.
    """
    if known is None:
        raise Refusal(410, "There is no such instance")
    if bindings:
        raise Refusal(400, f"The instance has {bindings} bindings, which go first")
    if known.verb is Verb.DELETE:
        return known
    return replace(known, verb=Verb.DELETE, operation=operation, done=False, problem="")


def fetched(known: Instance | None) -> Instance:
    """Return the instance as a platform may see it. Raises Refusal."""
    if known is None or not known.is_there:
        raise Refusal(404, "There is no such instance, or not yet")
    if not known.done:
        raise busy()
    return known


def bind(known: Binding | None, instance: Instance | None, binding: Binding) -> Binding:
    """Return the binding that there is to be. Raises Refusal.

    Of the same parameters it is the same.
    """
    if instance is None or instance.verb is Verb.DELETE:
        raise Refusal(400, "There is no such instance")
    if not instance.done:
        raise busy()
    catalogue.login_sessions(instance.plan, binding.parameters)
    if known is None:
        _check_id(binding.id)
        return replace(binding, plan=instance.plan)
    if (known.parameters, known.app) != (binding.parameters, binding.app):
        raise Refusal(409, "There is a binding with this id and other parameters")
    return known


def successor(predecessor: Binding | None, binding: Binding) -> Binding:
    """Return the binding that takes over from another, which stays. Raises Refusal."""
    if predecessor is None:
        raise Refusal(400, "There is no such predecessor of the binding")
    return replace(binding, parameters=predecessor.parameters, app=predecessor.app)


def unbind(known: Binding | None) -> Binding:
    """Return the binding that is to go. Raises Refusal."""
    if known is None:
        raise Refusal(410, "There is no such binding")
    return known


def work_of(instance: Instance) -> Provision | Deprovision:
    """Return what an operation that is not done has PostgreSQL be."""
    database = database_of(instance.id)
    if instance.verb is Verb.DELETE:
        return Deprovision(database)
    wanted = catalogue.wanted(instance.service, instance.plan, instance.parameters)
    new = instance.verb is Verb.CREATE
    encoding = wanted.encoding
    return Provision(database, wanted.sessions, instance.about, new=new, encoding=encoding)


def login_of(binding: Binding, key: Secret) -> LetIn:
    """Return the login of a binding. Its password follows from the key, and is kept nowhere."""
    parts = f"{binding.instance}\0{binding.id}".encode()
    password = urlsafe_b64encode(hmac.digest(key.reveal().encode(), parts, "sha256"))
    return LetIn(
        role_of(binding),
        database_of(binding.instance),
        Secret(password.decode().rstrip("=")),
        sessions=catalogue.login_sessions(binding.plan, binding.parameters),
    )


def database_of(instance: str) -> str:
    """Return the database of an instance. Ids may be any text."""
    return database_name(f"osb_{_mark(instance)}")


def role_of(binding: Binding) -> str:
    """Return the role of a binding."""
    return f"osb_binding_{_mark(binding.instance, binding.id)}"


def _encoding(known: Instance) -> str:
    return catalogue.wanted(known.service, known.plan, known.parameters).encoding


def _mark(*ids: str) -> str:
    return hashlib.sha256("\0".join(ids).encode()).hexdigest()[:_MARK]


def _check_id(text: str) -> None:
    if not text.isprintable() or len(text) > _LONGEST_ID:
        raise Refusal(400, "An id is printable, and no longer than 255 characters")


def _check_maintenance(change: Change) -> None:
    if change.maintenance not in ("", MAINTENANCE):
        why = f"The maintenance of this plan is at {MAINTENANCE}"
        raise Refusal(422, why, refusal.MAINTENANCE)
