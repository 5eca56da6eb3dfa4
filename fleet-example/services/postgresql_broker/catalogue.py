"""What the broker offers, and what a plan takes as parameters. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from postgresql_broker.refusal import Refusal
from reconciler.core.manifest import JSON

OFFERING: Final = "6e3a1a0c-5d0f-4f0b-9c55-2b8f3c9d7a10"
SMALL: Final = "6e3a1a0c-5d0f-4f0b-9c55-2b8f3c9d7a11"
BIG: Final = "6e3a1a0c-5d0f-4f0b-9c55-2b8f3c9d7a12"
MAINTENANCE: Final = "1.0.0"
SESSIONS: Final = "sessions"
ENCODING: Final = "encoding"
_ENCODINGS: Final = ("UTF8", "LATIN1")
_LONGEST_OPERATION: Final = 600  # seconds
_DESCRIPTION: Final = "A PostgreSQL database of its own, and logins for it."


# Without a maximum, which is the plan's: a binding names no plan.
_OF_LOGIN: Final = {
    "type": "integer",
    "minimum": 1,
    "description": "How many sessions of this login may be open at once; else all of the plan.",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan: how many sessions a database of it takes."""

    id: str
    name: str
    sessions: int
    free: bool


PLANS: Final = {
    plan.id: plan for plan in (Plan(SMALL, "small", 5, free=True), Plan(BIG, "big", 20, free=False))
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What parameters come to."""

    sessions: int
    encoding: str


def services() -> list[dict[str, Any]]:
    """Return the content of `services` in the catalogue."""
    return [
        {
            "id": OFFERING,
            "name": "postgresql-database",
            "description": _DESCRIPTION,
            "tags": ["postgresql", "relational"],
            "bindable": True,
            "plan_updateable": True,
            "instances_retrievable": True,
            "bindings_retrievable": True,
            "metadata": {"displayName": "PostgreSQL database"},
            "plans": [_plan(plan) for plan in PLANS.values()],
        }
    ]


def wanted(service: str, plan: str, parameters: Mapping[str, JSON]) -> Wanted:
    """Return what these parameters come to in a plan. Raises Refusal."""
    if service != OFFERING or plan not in PLANS:
        raise Refusal(400, "There is no such service, or no such plan of it")
    _refuse_others(parameters, SESSIONS, ENCODING)
    encoding = parameters.get(ENCODING, _ENCODINGS[0])
    if encoding not in _ENCODINGS:
        raise Refusal(400, f"{ENCODING} is one of {', '.join(_ENCODINGS)}")
    return Wanted(_sessions(parameters, PLANS[plan].sessions), str(encoding))


def login_sessions(plan: str, parameters: Mapping[str, JSON]) -> int:
    """Return how many sessions a login may have by its parameters. Raises Refusal."""
    _refuse_others(parameters, SESSIONS)
    return _sessions(parameters, PLANS[plan].sessions)


def _refuse_others(parameters: Mapping[str, JSON], *known: str) -> None:
    if not parameters.keys() <= {*known}:
        raise Refusal(400, f"The parameters are {', '.join(known)}, and there is another one")


def _sessions(parameters: Mapping[str, JSON], most: int) -> int:
    sessions = parameters.get(SESSIONS, most)
    if not isinstance(sessions, int) or isinstance(sessions, bool) or not 1 <= sessions <= most:
        raise Refusal(400, f"{SESSIONS} is a number from 1 to {most} in this plan")
    return sessions


def _plan(plan: Plan) -> dict[str, Any]:
    sessions = {
        "type": "integer",
        "minimum": 1,
        "maximum": plan.sessions,
        "description": f"How many sessions may be open at once; else {plan.sessions}.",
    }
    encoding = {"type": "string", "enum": [*_ENCODINGS], "description": "How texts are stored."}
    return {
        "id": plan.id,
        "name": plan.name,
        "description": f"Up to {plan.sessions} sessions at once.",
        "free": plan.free,
        "binding_rotatable": True,
        "maximum_polling_duration": _LONGEST_OPERATION,
        "maintenance_info": {"version": MAINTENANCE, "description": "The server's own version."},
        "schemas": {
            "service_instance": {
                "create": _schema({SESSIONS: sessions, ENCODING: encoding}),
                "update": _schema({SESSIONS: sessions}),
            },
            "service_binding": {"create": _schema({SESSIONS: _OF_LOGIN})},
        },
    }


def _schema(properties: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {"parameters": {"$schema": "http://json-schema.org/draft-06/schema#", **schema}}
