"""What kinds say of several plans: one form, and rules for what each of them refuses."""

from typing import Any

import pytest

from reconciler.blueprints.offering import crd as crds
from reconciler.blueprints.offering import parameters as forms
from reconciler.blueprints.offering.catalogue import CatalogueFault
from reconciler.core.manifest import canonical, get_list, get_map, get_maps, get_text
from tests.support.offerings import crd, made, plan, rules_of, service, spec_of


def texts(**more: Any) -> Any:
    return {"type": "string", **more}


def x(**more: Any) -> Any:
    """Return a schema with one parameter, `x`."""
    return {"type": "object", "properties": {"x": more}}


def both(small: Any, big: Any, update: Any = None) -> Any:
    return [plan("small", small, update), plan("big", big, update)]


ONE = "self == oldSelf"


def parameters(*plans: Any, plural: str = "dbinstances") -> Any:
    return get_map(spec_of(made(service(*plans)), plural), "properties", "parameters")


def test_equal_schemas_are_the_form_of_all_plans():
    form = parameters(*both(x(type="integer", maximum=5), x(type="integer", maximum=5)))
    assert form["properties"] == {"x": {"type": "integer", "maximum": 5}}


def test_schemas_that_differ_are_any_object_with_the_names_of_each_plan():
    form = parameters(*both(x(type="integer"), x(type="string")), plan("free"))
    assert form == {
        "type": "object",
        forms.OPEN: True,
        "description": "Parameters for the broker, besides the plan. "
        "Of plan big: x; of plan free: none is named; of plan small: x.",
    }


FIXED = {
    "all may be left": ((True, True), []),
    "one may not": ((False, True), ["self == oldSelf || !(oldSelf in ['small'])"]),
    "none may": ((False, False), [ONE]),
}


@pytest.mark.parametrize(("updateable", "expected"), FIXED.values(), ids=FIXED)
def test_a_plan_that_its_instances_stay_in(updateable, expected):
    small, big = updateable
    offering = service(plan("small", plan_updateable=small), plan("big"), plan_updateable=big)
    named = get_maps(spec_of(made(offering)), "properties", "plan", "x-kubernetes-validations")
    assert [one["rule"] for one in named] == expected


def test_what_nobody_checks_is_a_warning_with_its_plans_and_place():
    odd = {"type": "object", "properties": {"x": {"type": "string", "required": True}}}
    output = made(service(*both(odd, odd), plan("free", bind={"additionalProperties": "false"})))
    assert output.warnings == (
        "offering db: plan big, small: schema to create: /properties/x/required: true is not valid"
        " there: it is left to the broker",
        'offering db: bindings: plan free: schema to bind: /additionalProperties: "false" is not'
        " valid there: it is left to the broker",
    )


FREEZES = {
    "only when creating": (x(type="string"), {"properties": {"y": texts()}}, True),
    "an update of which nothing is said": (x(type="string"), {"type": "object"}, False),
    "an update that takes any": (x(type="string"), {"additionalProperties": True}, False),
    "no scalar": (x(type="array", items=texts()), {"properties": {"y": texts()}}, False),
    "null, too": (x(type=["string", "null"]), {"properties": {"y": texts()}}, False),
}


@pytest.mark.parametrize(("create", "update", "freezes"), FREEZES.values(), ids=FREEZES)
def test_what_an_update_does_not_name_keeps_its_value(create, update, freezes):
    form = parameters(*both(create, create, update=update))["properties"]["x"]
    rules = [one["rule"] for one in form.get("x-kubernetes-validations", ())]
    assert rules == ([ONE] if freezes else [])


def test_no_more_texts_are_compared_than_a_server_takes():
    many = {"type": "object", "properties": {f"x{one}": texts() for one in range(250)}}
    found = parameters(plan("small", many, {"properties": {"y": texts()}}))["properties"]
    assert len([one for one in found.values() if "x-kubernetes-validations" in one]) == 100


def test_parameters_are_required_where_one_of_them_is_in_all_plans():
    schema = {**x(type="string"), "required": ["x"]}
    assert get_list(spec_of(made(service(*both(schema, schema)))), "required") == [
        "parameters", "plan",
    ]  # fmt: skip


def test_what_a_binding_holds_to():
    output = made(service(plan("small", bind=x(type="string"))))
    spec = spec_of(output, "dbbindings")
    assert rules_of(output, "dbbindings") == [
        f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || "
        f"self.{name} == oldSelf.{name})"
        for name in ("secretName", "parameters")
    ]
    assert get_maps(spec, "properties", "instanceRef", "x-kubernetes-validations") == [
        {"rule": ONE, "message": "instanceRef is immutable"}
    ]
    named = crd(output, "dbbindings")
    assert get_map(named, "metadata", "annotations") == {
        "klutchctl.dev/osb-offering": "service-db",
        "klutchctl.dev/osb-plans": '{"small":"plan-small"}',
        "klutchctl.dev/osb-instances": "dbinstances",
    }
    assert get_text(named, "metadata", "labels", "klutchctl.dev/osb-broker") == "acme"


def test_columns_and_names():
    output = made(service(plan("small")))
    (version,) = get_maps(crd(output), "spec", "versions")
    columns = [one["name"] for one in get_maps(version, "additionalPrinterColumns")]
    assert columns == ["Plan", "Ready", "Age"]
    (rule,) = get_maps(version, "schema", "openAPIV3Schema", "x-kubernetes-validations")
    assert rule["rule"] == "self.metadata.name.size() <= 63"
    (bindings,) = get_maps(crd(output, "dbbindings"), "spec", "versions")
    (rule,) = get_maps(bindings, "schema", "openAPIV3Schema", "x-kubernetes-validations")
    assert rule["rule"] == "self.metadata.name.size() <= 247"


def test_a_form_that_is_too_large_gives_way():
    inner = {f"{'k' * 60}{one}": texts(description="x" * 60) for one in range(300)}
    wide = [x(type="object", properties={f"o{one}": {"properties": inner} for one in range(20)})]
    wide += [{"properties": {f"p{one}": texts(enum=["v" * 900]) for one in range(64)}}]
    for schema in wide:
        assert len(canonical(crd(made(service(plan("small", schema)))))) <= crds.MOST_OCTETS


def test_more_plans_than_a_crd_can_name_are_refused():
    plans = [plan(f"{place:04}{'x' * 200}") for place in range(2000)]
    with pytest.raises(CatalogueFault, match="2000 plans are too many"):
        made(service(*plans))
