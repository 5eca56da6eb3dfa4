"""What a plan's schemas refuse, in which words, and at which cost."""

import json
import time

import pytest
from jsonschema import Draft7Validator

from reconciler.blueprints.offering import validation
from reconciler.blueprints.offering.catalogue import Plan, Schemas
from reconciler.core.manifest import Manifest
from tests.support.random_catalogues import Catalogues

DEEP = {
    f"d{one}": {"anyOf": [{"$ref": f"#/definitions/d{one + 1}"}] * 2} for one in range(40)
} | {"d40": {"type": "string"}}  # fmt: skip


def of(**properties):
    return {"type": "object", "properties": properties}


REFUSED = {
    "a bound": (of(a={"maximum": 5}), {"a": 6}, "parameters.a does not fit maximum: 5"),
    "within a list": (
        of(a={"items": of(b={"type": "integer"})}), {"a": [{"b": "s3cret"}]},
        'parameters.a[0].b does not fit type: "integer"',
    ),
    "a value": (of(a={"enum": ["x"]}), {"a": "s3cret"}, 'parameters.a does not fit enum: ["x"]'),
    "what is missing": ({"required": ["a"]}, {}, "parameters.a is missing"),
    "what is none": ({"additionalProperties": False}, {"s": 1}, "parameters.s is no parameter"),
    "a pattern": (of(a={"pattern": r"^\d+$"}), {"a": "\u0664"}, r'does not fit pattern: "^\\d+$"'),
    "a condition": (
        {"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"a": 1}, "parameters.b is",
    ),
    "one of several": ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {}, "fit oneOf"),
    "a part elsewhere": (
        {"definitions": {"x": {"type": "integer"}}} | of(a={"$ref": "#/definitions/x"}),
        {"a": ""}, "parameters.a does not fit type",
    ),
    "a bound of draft 4": (of(a={"minimum": 5, "exclusiveMinimum": True}), {"a": 5}, "minimum: 5"),
    "a place of draft 2020": (
        {"$schema": "https://json-schema.org/draft/2020-12/schema"}
        | of(a={"prefixItems": [{"type": "integer"}]}),
        {"a": [""]}, "parameters.a[0] does not fit type",
    ),
    "the same twice": (of(a={"uniqueItems": True}), {"a": [{"b": 1}, {"b": 1}]}, "uniqueItems"),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "given", "said"), REFUSED.values(), ids=REFUSED)
def test_a_sentence_names_place_and_rule_and_no_value(schema, given, said):
    (problem,) = validation.checked(schema).problems(given)
    assert said in problem
    assert "s3cret" not in problem


# What no library may be asked at any cost: left to the broker, and a warning where it can be known.
LEFT = {
    "no schema": ("no", "no schema, which is an object"),
    "a truth as text": ({"additionalProperties": "false"}, '/additionalProperties: "false" is not'),
    "required of draft 3": (of(a={"required": True}), "/properties/a/required: true is not valid"),
    "a part elsewhere": (of(a={"$ref": "http://x/y"}), "/properties/a/$ref leads out of"),
    "a pattern that looks ahead": (of(a={"pattern": "(?=b)"}), "/properties/a/pattern: "),
    "a pattern that is large": (of(a={"pattern": r"(\w{200}){200}"}), "/properties/a/pattern: "),
    "names by patterns": (
        {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, "/patternProperties",
    ),
    "more than is read": (of(a={"enum": ["x" * 70_000]}), "68 kB, or its patterns, are too much"),
    "many patterns": (of(**{f"a{one}": {"pattern": "^x"} for one in range(101)}), "are too much"),
    "another class of validator": (
        of(a={"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "(?=b)"}), "pattern",
    ),
    "what turns an unknown around": ({"not": of(a={"pattern": "(?=b)"})}, "/not/properties/a"),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "flaw"), LEFT.values(), ids=LEFT)
def test_what_is_not_checked_is_said_and_left_to_the_broker(schema, flaw):
    found = validation.checked(schema)
    assert any(flaw in one for one in found.flaws), found.flaws
    assert found.problems({"a": "a" * 40 + "!"}) == []


HOSTILE = {
    "itself": ({"$ref": "#"}, {"a": 1}),
    "itself among all": ({"allOf": [{"$ref": "#"}]}, {"a": 1}),
    "twice at each level": ({"definitions": DEEP, "$ref": "#/definitions/d0"}, {"a": 1}),
    "backtracking": (of(a={"pattern": "^(a+)+$"}), {"a": "a" * 10_000 + "!"}),
    "many values of each of many": (
        of(a={"items": {"enum": [[one] for one in range(7_000)]}}), {"a": [[-1]] * 7_000},
    ),
    "many that are to differ": (
        of(a={"uniqueItems": True}), {"a": [[one] for one in range(9_000)] + [""]},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "given"), HOSTILE.values(), ids=HOSTILE)
def test_no_schema_costs_more_than_a_bound(schema, given):
    began = time.process_time()
    validation.checked(schema).problems(given)
    assert time.process_time() - began < 4  # 0.7 s on one core; without a bound, hours


@pytest.mark.parametrize("seed", range(25))
def test_what_a_schema_takes_is_never_refused(seed):
    random = Catalogues(seed)
    schema = random.parameters()
    for given in random.fitting(schema, tries=10):
        assert validation.checked(schema).problems(given) == [], json.dumps([schema, given])


def test_what_a_schema_refuses_is_found():
    refused = 0
    for random in map(Catalogues, range(25)):
        schema, others = random.parameters(), [random.parameters() for _ in range(6)]
        found, oracle = validation.checked(schema), Draft7Validator(schema)
        for given in (one for other in others for one in random.fitting(other, tries=4)):
            wrong = not oracle.is_valid(given)
            refused += wrong
            assert bool(found.problems(given)) == wrong or found.flaws, json.dumps([schema, given])
    assert refused > 100


CLOSED, SIZED = {"additionalProperties": False}, [{"required": ["size"]}]
FITS = ({"size": 6, "zone": "a"}, ["size"], "")
SMALL: Manifest = {"type": "object", "required": ["size"], "properties": {"size": {"maximum": 5}}}


@pytest.mark.parametrize(
    ("update", "given", "changed", "said"),
    [
        (None, {"size": 6}, ["size"], "parameters.size does not fit maximum: 5"),
        ({"type": "object"}, {}, ["size"], "parameters.size is missing"),
        (of(size={"maximum": 9}), {"size": 6, "zone": "a"}, ["size"], ""),
        (of(size={"maximum": 9}), {"size": 6, "zone": "b"}, ["zone"], "zone cannot be changed"),
        (CLOSED, {"size": 1}, ["size"], "size cannot be changed"),
        (of(size={}) | {"additionalProperties": True}, {"zone": "b"}, ["zone"], ""),
        (of(size={}) | {"anyOf": SIZED}, {"zone": "b"}, ["zone"], "zone cannot be changed"),
        (of(size={}) | {"allOf": SIZED}, {"zone": "b", "size": 6}, ["zone"], ""),
        *((of(size={}) | CLOSED | {one: SIZED}, *FITS) for one in ("allOf", "anyOf", "oneOf")),
    ],
)
def test_a_change_is_to_fit_what_the_plan_says_of_changes(update, given, changed, said):
    plan = Plan("plan-s", "small", schemas=Schemas(create=SMALL, update=update))
    problem = validation.of_update(plan, given, changed)
    assert (said in problem, bool(problem)) == (True, bool(said))
    assert problem.startswith("plan small refuses it: ") or not problem


def test_many_problems_are_counted():
    plan = Plan("plan-s", "small", schemas=Schemas(bind={"required": ["a", "b", "c", "d", "e"]}))
    said = validation.of_new(plan, plan.schemas.bind, {})
    assert said.endswith("parameters.c is missing; and 2 more")
    assert validation.of_new(plan, plan.schemas.create, {}) == ""
