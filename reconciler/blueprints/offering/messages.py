"""Requests to a broker as values, and how each looks on the wire (OSB API 2.17).

Nothing is sent here. A field that is newer than the version that a broker is spoken to in is left
out. Does not know what an answer means.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, assert_never
from urllib.parse import quote, urlencode

from reconciler.core import manifest as m
from reconciler.core.manifest import JSON
from reconciler.core.secret import Secret

PLATFORM: Final = "kubernetes"
_NO_SEGMENTS: Final = ("", ".", "..")
_CONTEXT: Final = (2, 12)
_BIND_CONTEXT: Final = (2, 13)
_MAINTENANCE: Final = (2, 15)
_FETCH_HINTS: Final = (2, 16)
_ROTATION: Final = (2, 17)
_ACCEPTS: Final = {"accepts_incomplete": "true"}

Version: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class OriginatingIdentity:
    """The person on whose behalf a call is made."""

    value: Mapping[str, JSON]

    def header(self) -> str:
        """Return the value of X-Broker-API-Originating-Identity."""
        return f"{PLATFORM} {base64.b64encode(m.canonical(self.value)).decode()}"


@dataclass(frozen=True, slots=True)
class _OfInstance:
    instance: str
    service: str
    plan: str


@dataclass(frozen=True, slots=True)
class _OfBinding:
    instance: str
    binding: str
    service: str
    plan: str


@dataclass(frozen=True, slots=True)
class Provision(_OfInstance):
    """Makes an instance."""

    organization: str
    space: str
    context: Mapping[str, JSON] = field(default_factory=dict)
    parameters: Mapping[str, JSON] | None = None
    maintenance: str = ""


@dataclass(frozen=True, slots=True)
class Previous:
    """The state of an instance before an update."""

    plan: str
    organization: str = ""
    space: str = ""
    maintenance: str = ""


@dataclass(frozen=True, slots=True)
class Update(_OfInstance):
    """Changes an instance. Without `parameters` or `maintenance` those stay."""

    previous: Previous
    parameters: Mapping[str, JSON] | None = None
    context: Mapping[str, JSON] = field(default_factory=dict)
    maintenance: str = ""


@dataclass(frozen=True, slots=True)
class Deprovision(_OfInstance):
    """Deletes an instance."""


@dataclass(frozen=True, slots=True)
class LastOperation(_OfInstance):
    """Asks how far an operation is: the instance's, or where one is named the binding's."""

    operation: Secret | None = None
    binding: str = ""


@dataclass(frozen=True, slots=True)
class FetchInstance(_OfInstance):
    """Reads an instance."""


@dataclass(frozen=True, slots=True)
class FetchBinding(_OfBinding):
    """Reads a binding, with its credentials."""


@dataclass(frozen=True, slots=True)
class Bind(_OfBinding):
    """Makes a binding; with `predecessor`, one that takes the place of that one.

    State `app` and `parameters` then too: a broker that is spoken to in a version without rotation
    gets them, any other has them from the predecessor. Without `may_wait` it is made at once, as
    its credentials could not be read later.
    """

    app: str = ""
    context: Mapping[str, JSON] = field(default_factory=dict)
    parameters: Mapping[str, JSON] | None = None
    predecessor: str = ""
    may_wait: bool = True


@dataclass(frozen=True, slots=True)
class Unbind(_OfBinding):
    """Deletes a binding."""


@dataclass(frozen=True, slots=True)
class ReadCatalogue:
    """Reads the broker's catalogue."""


Call: TypeAlias = (
    Provision
    | Update
    | Deprovision
    | LastOperation
    | FetchInstance
    | FetchBinding
    | Bind
    | Unbind
    | ReadCatalogue
)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A call on the wire. The path is below the broker's URL, percent-encoded, with its query.

    Operation keys are in queries, and parameters in bodies: neither is shown.
    """

    method: str
    path: str = field(repr=False)
    body: bytes | None = field(default=None, repr=False)


def is_mutating(call: Call) -> bool:
    """Return whether a call changes something at the broker."""
    return isinstance(call, Provision | Update | Deprovision | Bind | Unbind)


def version_of(api_version: str) -> Version:
    """Return a version as numbers. Raises ValueError for any but version 2 of the API."""
    major, _, minor = api_version.partition(".")
    if major != "2" or not (minor.isascii() and minor.isdigit() and len(minor) < 4):
        raise ValueError("no version of the Open Service Broker API such as 2.17")
    return 2, int(minor)


def http_request(call: Call, *, api_version: str) -> HttpRequest:
    """Return a call as it goes over the wire.

    Raises ValueError: an id can be no part of a path, or the version is none.
    """
    version = version_of(api_version)
    path = _path(call)
    match call:
        case ReadCatalogue():
            return HttpRequest("GET", path)
        case LastOperation():
            operation = "" if call.operation is None else call.operation.reveal()
            return HttpRequest("GET", path + _query(_ids(call), {"operation": operation}))
        case FetchInstance() | FetchBinding():
            hints = _ids(call) if version >= _FETCH_HINTS else {}
            return HttpRequest("GET", path + _query(hints))
        case Provision() | Bind() | Update():
            method = "PATCH" if isinstance(call, Update) else "PUT"
            accepts = {} if isinstance(call, Bind) and not call.may_wait else _ACCEPTS
            return HttpRequest(method, path + _query(accepts), m.canonical(_body(call, version)))
        case Deprovision() | Unbind():
            return HttpRequest("DELETE", path + _query(_ids(call), _ACCEPTS))
        case _:
            assert_never(call)


def _path(call: Call) -> str:
    if isinstance(call, ReadCatalogue):
        return "/v2/catalog"
    path = f"/v2/service_instances/{_segment(call.instance)}"
    match call:
        case Bind() | Unbind() | FetchBinding():
            return f"{path}/service_bindings/{_segment(call.binding)}"
        case LastOperation(binding=""):
            return f"{path}/last_operation"
        case LastOperation():
            return f"{path}/service_bindings/{_segment(call.binding)}/last_operation"
    return path


def _segment(identity: str) -> str:
    if identity in _NO_SEGMENTS:
        raise ValueError("an id at a broker is empty, or one that leads out of its path")
    return quote(identity, safe="")


def _query(*parts: Mapping[str, str]) -> str:
    stated = {name: value for part in parts for name, value in part.items() if value}
    return f"?{urlencode(stated, quote_via=quote)}" if stated else ""


def _ids(call: _OfInstance | _OfBinding) -> dict[str, str]:
    return {"service_id": call.service, "plan_id": call.plan}


def _body(call: Provision | Update | Bind, version: Version) -> dict[str, JSON]:
    body: dict[str, JSON] = {**_ids(call)}
    if isinstance(call, Bind):
        body |= _binding(call, version)
    else:
        body |= {"parameters": call.parameters, **_maintenance(call.maintenance, version)}
    if isinstance(call, Provision):
        body |= {"organization_guid": call.organization, "space_guid": call.space}
    if isinstance(call, Update):
        body["previous_values"] = _previous(call, version)
    if version >= (_BIND_CONTEXT if isinstance(call, Bind) else _CONTEXT):
        body["context"] = call.context or None
    return {key: value for key, value in body.items() if value is not None and value != ""}


def _binding(call: Bind, version: Version) -> dict[str, JSON]:
    if call.predecessor and version >= _ROTATION:
        return {"predecessor_binding_id": call.predecessor}
    resource = {"app_guid": call.app} if call.app else None
    return {"bind_resource": resource, "parameters": call.parameters}


def _maintenance(stated: str, version: Version) -> dict[str, JSON]:
    return {"maintenance_info": {"version": stated}} if stated and version >= _MAINTENANCE else {}


def _previous(call: Update, version: Version) -> dict[str, JSON]:
    previous = call.previous
    values: dict[str, JSON] = {
        "service_id": call.service,
        "plan_id": previous.plan,
        "organization_id": previous.organization,
        "space_id": previous.space,
    }
    values |= _maintenance(previous.maintenance, version)
    return {key: value for key, value in values.items() if value}
