"""What OSB 2.17 demands of platforms, and what this product promises beyond.

Each breach is a sentence. Looked at is a request by itself, and beside what the broker holds.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tests.support.osb_catalogues import flag, found
from tests.support.osb_wire import MUTATING, Asked, Members, Verb

_VERSION: Final = re.compile(r"2\.(\d+)")
_MAINTENANCE: Final = 15  # the minor versions that brought a field
_PREDECESSOR: Final = 17
_CONTEXT: Final = ("platform", "namespace", "clusterid", "instance_name")


def breaches(
    asked: Asked, catalogue: Members, instances: Mapping[str, Members], bindings: Mapping[str, Any]
) -> Iterator[str]:
    yield from _headers(asked)
    if asked.verb == "catalogue":
        return
    if asked.verb in MUTATING - {"bind"} and asked.query.get("accepts_incomplete") != "true":
        yield "no accepts_incomplete=true"
    if asked.method in ("PUT", "PATCH"):
        yield from _body(asked)
    elif asked.body:
        yield "a body where none belongs"
    known = instances.get(asked.instance)
    if asked.verb in ("deprovision", "unbind", "poll", "poll-binding"):
        yield from _queried(asked, known)
    if rule := _RULES.get(asked.verb):
        yield from rule(asked, catalogue, known, bindings)


def _headers(asked: Asked) -> Iterator[str]:
    if not _VERSION.fullmatch(asked.headers.get("x-broker-api-version", "")):
        yield "no X-Broker-API-Version"
    if not asked.headers.get("x-broker-api-request-identity"):
        yield "no X-Broker-API-Request-Identity"
    identity = asked.headers.get("x-broker-api-originating-identity")
    if identity is not None and not is_identity(identity):
        yield "X-Broker-API-Originating-Identity is not a platform and base64 of an object"


def is_identity(text: str) -> bool:
    """Return whether a header is an identity at Kubernetes, as profile.md has it."""
    platform, _, value = text.partition(" ")
    try:
        members = json.loads(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        return False
    return platform == "kubernetes" and isinstance(members, dict) and "username" in members


def _body(asked: Asked) -> Iterator[str]:
    if not asked.headers.get("content-type", "").startswith("application/json"):
        yield "a body without Content-Type application/json"
    stated = asked.members
    names = ("service_id",) if asked.verb == "update" else ("service_id", "plan_id")
    yield from (f"no {name}" for name in names if not _is_text(stated.get(name)))
    for name in ("parameters", "context", "bind_resource", "previous_values", "maintenance_info"):
        if name in stated and not isinstance(stated[name], dict):
            yield f"{name} is no object"
    match = _VERSION.fullmatch(asked.headers.get("x-broker-api-version", ""))
    minor = int(match[1]) if match else 0
    if "maintenance_info" in stated:
        if minor < _MAINTENANCE:
            yield f"maintenance_info, which 2.{minor} does not know"
        if not _is_text(stated["maintenance_info"].get("version")):
            yield "maintenance_info without version"
    if "predecessor_binding_id" in stated and minor < _PREDECESSOR:
        yield f"predecessor_binding_id, which 2.{minor} does not know"


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _queried(asked: Asked, known: Members | None) -> Iterator[str]:
    """Yield what is wrong with the ids in a query, which are those that are recorded."""
    for name in ("service_id", "plan_id"):
        stated = asked.query.get(name, "")
        if not stated:
            yield f"no {name}"
        elif known is not None and stated not in _recorded(known, name):
            yield f"another {name} than the instance has"


def _recorded(known: Members, name: str) -> tuple[str, ...]:
    """Return the ids that an instance has, or has had before an update that is not settled."""
    return tuple(filter(None, (known.get(name, ""), known.get("old_" + name, ""))))


def _provision(
    asked: Asked, catalogue: Members, known: Members | None, _: Mapping[str, Any]
) -> Iterator[str]:
    stated = asked.members
    for name in ("organization_guid", "space_guid"):
        if not _is_text(stated.get(name)):
            yield f"no {name}"
    context = stated.get("context", {})
    yield from (f"no {name} in context" for name in _CONTEXT if not context.get(name))
    if context.get("platform") != "kubernetes":
        yield "context of another platform"
    of_plan = found(catalogue, stated.get("service_id", ""), stated.get("plan_id", ""))[1]
    if known is None and not of_plan:
        yield "a plan that is not in the catalogue"
    if "maintenance_info" in stated and known is None and "maintenance_info" not in of_plan:
        yield "maintenance_info for a plan that has none"


def _update(
    asked: Asked, catalogue: Members, known: Members | None, _: Mapping[str, Any]
) -> Iterator[str]:
    stated = asked.members
    if not stated.keys() & {"plan_id", "parameters", "maintenance_info", "context"}:
        yield "an update of nothing"
    if "previous_values" not in stated:
        yield "no previous_values"
    if known is None:
        return
    if stated.get("service_id") != known["service_id"]:
        yield "another service_id than the instance has"
    was = stated.get("previous_values", {}).get("plan_id")
    if was and was not in _recorded(known, "plan_id"):
        yield "previous_values.plan_id is not that of the instance"
    one, of_plan = found(catalogue, known["service_id"], known["plan_id"])
    changes = stated.get("plan_id", known["plan_id"]) != known["plan_id"]
    if changes and one and not flag("plan_updateable", one, of_plan):
        yield "a change from a plan that cannot be changed"


def _fetch(
    asked: Asked, catalogue: Members, known: Members | None, _: Mapping[str, Any]
) -> Iterator[str]:
    name = "bindings_retrievable" if asked.binding else "instances_retrievable"
    one = found(catalogue, known["service_id"])[0] if known else {}
    if one and not one.get(name):
        yield f"a fetch without {name}"


def _bind(
    asked: Asked, catalogue: Members, known: Members | None, bindings: Mapping[str, Any]
) -> Iterator[str]:
    stated = asked.members
    if known is None:
        yield "a binding of an instance that is not there"
        return
    one, of_plan = found(catalogue, known["service_id"], known["plan_id"])
    if one and not flag("bindable", one, of_plan):
        yield "a binding of a plan that cannot be bound"
    may_wait = asked.query.get("accepts_incomplete") == "true"
    if one and may_wait != one.get("bindings_retrievable", False):
        yield "a binding later that cannot be read, or at once where it can"
    predecessor = stated.get("predecessor_binding_id")
    if predecessor is None:
        if not _is_text(stated.get("bind_resource", {}).get("app_guid")):
            yield "no bind_resource.app_guid"
        return
    if not of_plan.get("binding_rotatable"):
        yield "predecessor_binding_id for a plan without binding_rotatable"
    if "parameters" in stated:
        yield "parameters in a rotation, which takes those of the predecessor"
    if bindings.get(predecessor, {}).get("instance_id") != asked.instance:
        yield "a predecessor that is not there"


def _deprovision(
    asked: Asked, _: Members, __: Members | None, bindings: Mapping[str, Any]
) -> Iterator[str]:
    if any(one["instance_id"] == asked.instance for one in bindings.values()):
        yield "a deprovision while bindings are there"


_Rule = Callable[[Asked, Members, Members | None, Mapping[str, Any]], Iterator[str]]
_RULES: Final[dict[Verb, _Rule]] = {
    "provision": _provision,
    "update": _update,
    "deprovision": _deprovision,
    "fetch": _fetch,
    "fetch-binding": _fetch,
    "bind": _bind,
}
