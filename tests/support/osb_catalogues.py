"""Catalogues of scripted brokers: other ids at each call, as brokers have that keep none."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.osb_wire import Members


def plan(name: str, *, rotatable: bool = False, maintenance: str = "", **more: Any) -> Members:
    """Return a plan; `more` are members as they stand in catalogues."""
    known: Members = {"id": str(uuid.uuid4()), "name": name, "description": f"the plan {name}"}
    if rotatable:
        known["binding_rotatable"] = True
    if maintenance:
        known["maintenance_info"] = {"version": maintenance, "description": "a new system"}
    return known | more


def offering(
    name: str = "database", plans: Sequence[str | Members] = ("small", "big"), **more: Any
) -> Members:
    """Return an offering that can be bound, updated and fetched, unless `more` says otherwise."""
    made = [plan(one) if isinstance(one, str) else one for one in plans]
    return {
        "id": str(uuid.uuid4()),
        "name": name,
        "description": f"the offering {name}",
        "bindable": True,
        "plan_updateable": True,
        "instances_retrievable": True,
        "bindings_retrievable": True,
        "plans": made,
        **more,
    }


def catalogue(*offerings: Members) -> Members:
    """Return a catalogue of these, or of one with two plans."""
    return {"services": list(offerings) or [offering()]}


def found(of: Mapping[str, Any], service: str, plan_id: str = "") -> tuple[Members, Members]:
    """Return the offering and the plan with these ids; empty ones where there are none."""
    services: list[Members] = of.get("services", [])
    one = next((each for each in services if each["id"] == service), {})
    plans: list[Members] = one.get("plans", [])
    return one, next((each for each in plans if each["id"] == plan_id), {})


def flag(name: str, one: Mapping[str, Any], of_plan: Mapping[str, Any]) -> bool:
    """Return what a plan says of itself, else what its offering says."""
    return bool(of_plan.get(name, one.get(name, False)))
