"""The outcomes of calls to a broker, as values. No text in them has a secret."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeAlias

from reconciler.core.manifest import JSON, Manifest
from reconciler.core.secret import Secret


@dataclass(frozen=True, slots=True)
class Unsent:
    """Surely nothing was done: the same call may be made later."""

    problem: str
    retry_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody knows whether it was done. `malformed`: said to be done, or begun, in no known words.

    `status` is 0 where there was no answer.
    """

    problem: str
    status: int = 0
    malformed: bool = False


@dataclass(frozen=True, slots=True)
class Denied:
    """The broker does not accept our credentials."""

    status: int
    problem: str


@dataclass(frozen=True, slots=True)
class Done:
    """The call is done, or this is its answer. `credentials` is the text of a JSON object.

    `ignored` are the parts of a binding that come into no Secret.
    """

    dashboard_url: str = ""
    credentials: Secret | None = None
    parameters: Mapping[str, JSON] | None = field(default=None, repr=False)
    plan: str = ""
    maintenance: str = ""
    endpoints: tuple[Manifest, ...] = ()
    expires_at: datetime | None = None
    renew_before: datetime | None = None
    ignored: tuple[str, ...] = ()
    created: bool = False


@dataclass(frozen=True, slots=True)
class Accepted:
    """The call has begun; its operation can be polled."""

    operation: Secret | None = None
    dashboard_url: str = ""
    retry_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Absent:
    """404. It proves nothing where it is not even JSON: a gateway may say so."""

    is_json: bool


@dataclass(frozen=True, slots=True)
class Conflict:
    """409 to a PUT: something with this id is there, and is another."""

    problem: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The object is not there any more: 410, or a DELETE that was done."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """412: not in the version of the API that we speak."""

    problem: str


@dataclass(frozen=True, slots=True)
class Busy:
    """Another operation is in progress on it."""

    problem: str


@dataclass(frozen=True, slots=True)
class MaintenanceConflict:
    """The catalogue has another version of maintenance by now."""

    problem: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker will not do it, and nothing was done. `code` is its `error`, where it is one."""

    status: int
    code: str
    problem: str
    instance_usable: bool | None = None
    update_repeatable: bool | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of an operation; `state` is "" where the broker states no known one."""

    state: str
    problem: str = ""
    retry_after: timedelta | None = None
    instance_usable: bool | None = None
    update_repeatable: bool | None = None


Outcome: TypeAlias = (
    Unsent
    | Unknown
    | Denied
    | Done
    | Accepted
    | Absent
    | Conflict
    | Gone
    | Unsupported
    | Busy
    | MaintenanceConflict
    | Refused
    | Progress
)
