"""What a broker offers, as values: tolerant, but for what does not tell its parts apart."""

import json
from datetime import timedelta

import pytest

from reconciler.blueprints.offering.catalogue import (
    MOST_OCTETS,
    CatalogueFault,
    MaintenanceInfo,
    catalogue_of,
)
from reconciler.blueprints.offering.parameters import FREE, of_bindings, of_instances

PLAN = {"id": "p1", "name": "small", "description": "A small one"}
SERVICE = {"id": "s1", "name": "db", "description": "A database", "bindable": True, "plans": [PLAN]}


def document(*services, **more):
    return json.dumps({"services": services, **more}).encode()


def service(**changes):
    return {**SERVICE, **changes}


def plan(**changes):
    return {**PLAN, **changes}


def offering_of(text):
    catalogue = catalogue_of(text)
    (offering,) = catalogue.offerings
    assert catalogue.offering("s1") is offering
    return offering


def only_plan(of, **offering):
    return offering_of(document(service(plans=[of], **offering))).plans[0]


def test_a_catalogue_with_everything():
    schema = {"type": "object", "properties": {"size": {"type": "integer"}}}
    whole = plan(
        free=False,
        bindable=False,
        plan_updateable=True,
        binding_rotatable=True,
        maximum_polling_duration=3600,
        maintenance_info={"version": "2.1.1", "description": "a patch"},
        metadata={"bullets": ["x"]},
        schemas={
            "service_instance": {"create": {"parameters": schema}, "update": {"parameters": {}}},
            "service_binding": {"create": {"parameters": {"type": "object"}}},
        },
    )
    offered = service(
        plans=[whole],
        tags=["sql"],
        instances_retrievable=True,
        bindings_retrievable=True,
        allow_context_updates=True,
        metadata={"displayName": "DB"},
    )
    found = offering_of(document(offered))
    assert (found.name, found.description) == ("db", "A database")
    assert found.instances_retrievable
    assert found.bindings_retrievable
    assert found.metadata == {"displayName": "DB"}
    (read,) = found.plans
    assert found.plan("p1") is read
    assert (read.bindable, read.plan_updateable) == (False, True)
    assert read.binding_rotatable
    assert read.maximum_polling_duration == timedelta(hours=1)
    assert read.maintenance == MaintenanceInfo("2.1.1", "a patch")
    assert (read.schemas.create, read.schemas.update) == (schema, {})
    assert read.schemas.bind == {"type": "object"}


# Sentence: (offering, plan), the plan's (bindable, plan_updateable, binding_rotatable).
DEFAULTS: dict[str, tuple[dict[str, object], dict[str, object], tuple[bool, ...]]] = {
    "a plan says nothing": ({}, {}, (True, False, False)),
    "the offering is not bindable": ({"bindable": False}, {}, (False, False, False)),
    "the offering's bindable is missing": ({"bindable": None}, {}, (False, False, False)),
    "the plan alone is bindable": ({"bindable": False}, {"bindable": True}, (True, False, False)),
    "the plan alone is not bindable": ({}, {"bindable": False}, (False, False, False)),
    "the offering's plans can change": ({"plan_updateable": True}, {}, (True, True, False)),
    "but not this one": (
        {"plan_updateable": True},
        {"plan_updateable": False},
        (True, False, False),
    ),
}


@pytest.mark.parametrize(("offering", "own", "flags"), DEFAULTS.values(), ids=DEFAULTS)
def test_flags_of_a_plan_where(offering, own, flags):
    read = only_plan(plan(**own), **offering)
    assert (read.bindable, read.plan_updateable, read.binding_rotatable) == flags


# Sentence: what of a plan, its value, what of the plan is read, as what.
TOLERATED: dict[str, tuple[str, object, object]] = {
    "a duration that is negative": ("maximum_polling_duration", -1, None),
    "a duration that is nothing": ("maximum_polling_duration", 0, None),
    "no duration": ("maximum_polling_duration", None, None),
    "a duration beyond all times": ("maximum_polling_duration", 2**62, timedelta(days=366)),
    "a description that is a number": ("description", 7, ""),
}


@pytest.mark.parametrize(("key", "value", "read"), TOLERATED.values(), ids=TOLERATED)
def test_a_plan_is_read_with(key, value, read):
    assert getattr(only_plan(plan(**{key: value})), key) == read


# What stands in place of a schema, by where it stands.
NO_SCHEMAS = {
    "schemas": lambda value: value,
    "service_instance": lambda value: {"service_instance": value},
    "create": lambda value: {"service_instance": {"create": value}},
    "parameters": lambda value: {"service_instance": {"create": {"parameters": value}}},
}


@pytest.mark.parametrize("place", NO_SCHEMAS.values(), ids=NO_SCHEMAS)
@pytest.mark.parametrize("value", [[], True, False, 7, "eyJ0eXBlIjoib2JqZWN0In0="])
def test_what_is_no_schema_takes_anything_with_a_warning(place, value):
    plans = [only_plan(plan(schemas=place(value)))]
    instances, bindings = of_instances(plans), of_bindings(plans)
    assert instances.form == bindings.form == FREE
    assert instances.warnings
    for warning in (*instances.warnings, *bindings.warnings):
        assert "no schema, which is an object: it is left to the broker" in warning


def test_a_key_that_stands_twice_is_said_with_its_place():
    text = json.dumps({"services": [SERVICE]})
    text = text.replace(
        '"name": "small"', '"name": "tiny", "x": [{"a": 1, "a": 1e9}], "name": "small"'
    )
    found = catalogue_of(text.encode())
    assert found.offerings[0].plans[0].name == "small"
    assert set(found.repeated) == {
        "/services/0/plans/0: key 'name' stands twice: the last counts",
        "/services/0/plans/0/x/0: key 'a' stands twice: the last counts",
    }
    assert catalogue_of(json.dumps({"services": [SERVICE]}).encode()).repeated == ()


def test_equal_content_has_an_equal_digest():
    one = catalogue_of(b'{"services": []}')
    assert one.digest == catalogue_of(b'\xef\xbb\xbf{ "services" : [ ] , "x": 1}').digest
    assert one.digest != catalogue_of(document(SERVICE)).digest


DEEP = b'{"services": ' + b"[" * 70 + b"]" * 70 + b"}"
FAULTS = {
    "no JSON": (b"<html>", "no JSON object"),
    "a cut text": (document(SERVICE)[:-1], "no JSON object"),
    "not UTF-8": (b'{"services": ["\xff"]}', "no JSON object"),
    "a list": (b"[]", "no JSON object"),
    "nothing": (b"", "no JSON object"),
    "too deep a document": (DEEP, "too deep"),
    "far too deep a document": (b"[" * 10**6, "no JSON object"),
    "millions of empty objects": (b'{"services": [' + b"{}," * 2 * 10**6 + b"{}]}", "too wide"),
    "more than 8 MiB": (b" " * MOST_OCTETS + b"{}", "larger than 8 MiB"),
    "no services": (b"{}", "no list `services`"),
    "services that are an object": (b'{"services": {}}', "no list `services`"),
    "a service that is a text": (document("db"), "a service is no object"),
    "a service without id": (document(service(id=None)), "service 'db' has no id"),
    "a service without name": (document(service(name="")), "service 1 has no name"),
    "an id that is a number": (document(service(id=7)), "service 'db' has no id"),
    "a name with a line break": (document(service(name="a\nb")), r"'a\nb' is longer than 255, or"),
    "a name that is too long": (document(service(name="a" * 256)), "is longer than 255"),
    "a service without plans": (document(service(plans=[])), "'db' has no list of plans"),
    "plans that are a text": (document(service(plans="p")), "'db' has no list of plans"),
    "a plan that is a text": (document(service(plans=[PLAN, "p"])), "or a plan is no object"),
    "a plan without id": (
        document(service(plans=[plan(id=None)])),
        "plan 'small' of service 'db' has no id",
    ),
    "a plan without name": (
        document(service(plans=[plan(name=None)])),
        "plan 1 of service 'db' has no name",
    ),
    "bindable that is a text": (
        document(service(bindable="true")),
        "bindable of service 'db' is neither true nor false",
    ),
    "a plan that is free as a number": (
        document(service(plans=[plan(free=1)])),
        "free of plan 'small' of service 'db' is neither true nor false",
    ),
    "a duration that is a text": (
        document(service(plans=[plan(maximum_polling_duration="60")])),
        "maximum_polling_duration of plan 'small' of service 'db' is no whole number",
    ),
    "two services of one id": (
        document(SERVICE, service(name="kv", plans=[plan(id="p2")])),
        "2 services have the id 's1'",
    ),
    "two services of one name": (
        document(SERVICE, service(id="s2", plans=[plan(id="p2")])),
        "2 services have the name 'db'",
    ),
    "two plans of one id": (
        document(SERVICE, service(id="s2", name="kv", plans=[plan(name="big")])),
        "2 plans have the id 'p1'",
    ),
    "two plans of one name": (
        document(service(plans=[PLAN, plan(id="p2")])),
        "2 plans have the name 'small' in service 'db'",
    ),
}


@pytest.mark.parametrize(("text", "problem"), FAULTS.values(), ids=FAULTS)
def test_a_catalogue_cannot_be_used_with(text, problem):
    with pytest.raises(CatalogueFault) as fault:
        catalogue_of(text)
    (found,) = fault.value.problems
    assert problem in found
    assert len(str(fault.value)) < 500


def test_all_faults_are_named_but_not_without_end():
    with pytest.raises(CatalogueFault) as fault:
        catalogue_of(document(*[{"plans": []}] * 50))
    assert len(fault.value.problems) == 20
