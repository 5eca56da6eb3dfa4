"""What kinds say of several plans: one form, and rules for what each of them refuses."""

from typing import Any

import pytest

from reconciler.blueprints.offering import crd as crds
from reconciler.blueprints.offering import forms, rules
from reconciler.blueprints.offering.catalogue import CatalogueFault
from reconciler.core.manifest import canonical, get_list, get_map, get_maps, get_text
from tests.support.offerings import crd, made, plan, rules_of, service, spec_of

THERE = "!has(self.parameters) || !has(self.parameters.x) || self.parameters.x"


def texts(**more: Any) -> Any:
    return {"type": "string", **more}


def x(**more: Any) -> Any:
    """Return a schema with one parameter, `x`."""
    return {"type": "object", "properties": {"x": more}}


def both(small: Any, big: Any, **more: Any) -> Any:
    return [plan("small", small, **more), plan("big", big, **more)]


ONE = "self == oldSelf"
RULES: dict[str, tuple[list[Any], list[str]]] = {
    "equal parameters": (both(x(type="integer", maximum=5), x(type="integer", maximum=5)), []),
    "required by one plan": (
        both({**x(type="string"), "required": ["x"]}, x(type="string")),
        ["self.plan in ['big'] || (has(self.parameters) && has(self.parameters.x))"],
    ),
    "required by one plan, within an object": (
        both(
            x(type="object", properties={"y": texts()}, required=["y"]),
            x(type="object", properties={"y": texts()}),
        ),
        ["self.plan in ['big'] || !has(self.parameters) || !has(self.parameters.x) || "
         "has(self.parameters.x.y)"],
    ),
    "absent in one plan": (
        both({"type": "object", "properties": {}, "additionalProperties": False}, x(type="string")),
        ["self.plan in ['big'] || !has(self.parameters) || !has(self.parameters.x)"],
    ),
    "absent in a plan that welcomes any": (both({"type": "object"}, x(type="string")), []),
    "absent in a plan that says nothing": (both(None, x(type="string")), []),
    "other values": (
        both(x(**texts(enum=["a", "b"])), x(**texts(enum=["b", "c"]))),
        [f"{THERE} in {{'big': ['b', 'c'], 'small': ['a', 'b']}}[self.plan]"],
    ),
    "values in one plan only": (
        both(x(**texts(enum=["it's"])), x(type="string")),
        [f"self.plan in ['big'] || {THERE} in ['it\\'s']"],
    ),
    "other bounds": (
        both(x(type="integer", minimum=1, maximum=5), x(type="integer", minimum=1, maximum=9)),
        [f"self.plan in ['big'] || {THERE} <= 5"],
    ),
    "a bound that it must not reach": (
        both(x(type="number", exclusiveMinimum=1), x(type="number")),
        [f"self.plan in ['big'] || {THERE} > 1.0"],
    ),
    "another length": (
        both(x(**texts(maxLength=3)), x(**texts(maxLength=9))),
        ["self.plan in ['big'] || !has(self.parameters) || !has(self.parameters.x) || "
         "size(self.parameters.x) <= 3"],
    ),
    "an integer in one plan, a text in another": (
        both(x(type="integer", enum=[1]), x(type="string", enum=["a"])),
        [f"{THERE} in {{'big': [dyn('a')], 'small': [dyn(1)]}}[self.plan]"],
    ),
    "names that CEL escapes": (
        both(
            {"type": "object", "properties": {}, "additionalProperties": False},
            {"type": "object", "properties": {"a-b.c/d": texts(), "in": texts(), "__x": texts()}},
        ),
        [f"self.plan in ['big'] || !has(self.parameters) || !has(self.parameters.{name})"
         for name in ("__underscores__x", "a__dash__b__dot__c__slash__d", "__in__")],
    ),
    "a scalar that is only there when creating": (
        [plan("small", x(type="string"), {"properties": {"y": texts()}})],
        ["(has(self.parameters) && has(self.parameters.x) ? has(oldSelf.parameters) && "
         "has(oldSelf.parameters.x) && self.parameters.x == oldSelf.parameters.x : "
         "!(has(oldSelf.parameters) && has(oldSelf.parameters.x)))"],
    ),
    "an update of which nothing is said": (
        [plan("small", x(type="string"), {"type": "object"})], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("plans", "expected"), RULES.values(), ids=RULES)
def test_a_rule_for_what_a_plan_refuses(plans, expected):
    assert rules_of(made(service(*plans))) == expected


def test_of_plans_in_which_a_scalar_is_frozen_both_the_old_and_the_new_one_count():
    frozen = {"type": "object", "properties": {"y": texts()}}
    plans = [plan("small", x(type="string"), frozen), plan("big", x(type="string"))]
    (rule,) = [str(one) for one in rules_of(made(service(*plans))) if "oldSelf" in str(one)]
    assert rule.startswith("!(self.plan in ['small']) || !(oldSelf.plan in ['small']) || (has(")


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


LOST: dict[str, tuple[Any, Any, str]] = {
    "another type": (x(type="boolean"), x(), "x: its type and all that it holds"),
    "another pattern": (x(**texts(pattern="a")), x(type="string"), "x: its pattern"),
    "another format": (x(**texts(format="ipv4")), x(type="string"), "x: its format"),
    "an integer among numbers": (x(type="integer"), x(type="number"), "x: that it is integer"),
    "no null": (x(type="string"), x(type=["string", "null"]), "x: that it is not null"),
    "items of another form": (
        x(type="array", items={"type": "integer", "maximum": 5}),
        x(type="array", items={"type": "integer"}), "x.[]: its maximum",
    ),
    "values of a map of another form": (
        x(type="object", additionalProperties=texts(enum=["a"])),
        x(type="object", additionalProperties=texts()), "x.*: which values it may have",
    ),
    "bounds of what may be null": (
        x(type=["integer", "null"], maximum=5), x(type=["integer", "null"]), "x: its maximum",
    ),
    "a name that CEL cannot read": (
        {"properties": {"a b": texts()}, "required": ["a b"]}, {"properties": {"a b": texts()}},
        "a b: that it has to be there",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("small", "big", "what"), LOST.values(), ids=LOST)
def test_what_no_rule_says_is_a_warning_with_its_plan_and_path(small, big, what):
    warnings = made(service(*both(small, big))).warnings
    assert f"offering db: plan small: parameters.{what} is not checked" in warnings


def test_a_property_of_the_update_alone_is_added():
    update = {"type": "object", "properties": {"y": {"type": "boolean"}}}
    spec = spec_of(made(service(plan("small", x(type="string"), update))))
    assert get_map(spec, "properties", "parameters", "properties").keys() == {"x", "y"}


def test_what_differs_for_creating_and_updating_is_loosened_with_a_warning():
    output = made(service(plan("small", x(type="integer", maximum=5), x(type="integer"))))
    form = get_map(spec_of(output), "properties", "parameters", "properties", "x")
    assert form == {"type": "integer"}
    assert output.warnings == (
        "offering db: plan small: parameters.x: its maximum differs for creating and updating:"
        " dropped",
    )


def test_a_list_that_is_only_there_when_creating_can_be_changed_with_a_warning():
    update = {"type": "object", "properties": {"y": texts()}}
    output = made(service(plan("small", x(type="array", items=texts()), update)))
    assert output.warnings == (
        "offering db: plan small: parameters.x: that it cannot be changed, as it is no scalar",
    )


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


def test_parameters_of_bindings_are_of_no_plan():
    plans = [plan("small", bind=x(**texts(enum=["a"]))), plan("big", bind=x(type="string"))]
    assert made(service(*plans)).warnings == (
        "offering db: bindings: plan small: parameters.x: which values it may have is not checked",
    )


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


def test_too_many_rules_share_their_places():
    def own(place: int) -> Any:
        return {"type": "object", "properties": {f"only{place}": texts()}}

    found = rules_of(made(service(*(plan(f"p{place}", own(place)) for place in range(210)))))
    assert len(found) <= rules.MOST
    assert sum(str(one).count("!has(self.parameters.only") for one in found) == 210


def test_words_and_then_what_is_deepest_give_way_where_a_crd_is_too_large():
    def of(words: str) -> Any:
        inner = {f"{words}{one}": texts(description="x" * 300) for one in range(60)}
        return [
            plan(f"p{place}", x(type="object", properties={f"o{place}": {"properties": inner}}))
            for place in range(20)
        ]

    output = made(service(*of("k")))
    assert "more than 400 KiB: descriptions are dropped" in output.warnings[-1]
    output = made(service(*of("k" * 500)))
    assert len(canonical(crd(output))) <= crds.MOST_OCTETS
    assert "more than 400 KiB: what is deeper than 2 levels is accepted" in output.warnings[-1]
    kept = get_map(spec_of(output), "properties", "parameters", "properties", "x", "properties")
    assert kept["o3"] == {"type": "object", forms.OPEN: True}


def test_texts_without_a_bound_are_compared_as_often_as_a_server_takes():
    many = {"type": "object", "properties": {f"x{one}": texts() for one in range(250)}}
    output = made(service(plan("small", many, {"properties": {"y": texts()}})))
    assert sum(str(one).count("== oldSelf.parameters.x") for one in rules_of(output)) == 200
    assert len([one for one in output.warnings if "cannot be changed is not checked" in one]) == 50


def test_more_plans_than_a_crd_can_name_are_refused():
    plans = [plan(f"{place:04}{'x' * 200}") for place in range(2000)]
    with pytest.raises(CatalogueFault, match="2000 plans are too many"):
        made(service(*plans))
