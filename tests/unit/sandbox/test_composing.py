"""The composition function of the sandbox: what each patch, transform and check makes of values."""

from typing import Any

import pytest
import yaml

from klutchctl.sandbox.composing import patches
from klutchctl.sandbox.composing.patches import Observed, Refused, compose

READY: Any = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
XR: Any = {"spec": {"size": "small", "count": 3, "ref": {"name": "orders"}}}


def composed(*, live: Any = None, **template: Any) -> Any:
    base: Any = {"kind": "Object", "metadata": {"labels": {"own": "1"}}}
    observed = {"one": Observed(live, {"pw": b"secret"})} if live else {}
    return compose([{"name": "one", "base": base, **template}], XR, {}, observed)


def downward(source, target, **more):
    kind = "FromCompositeFieldPath"
    return {"type": kind, "fromFieldPath": source, "toFieldPath": target, **more}


TRANSFORMS = """
- [x, {type: string, string: {type: Format, fmt: "%s-creds"}}, x-creds]
- [7, {type: string, string: {type: Format, fmt: n%d}}, n7]
- [aB, {type: string, string: {type: Convert, convert: ToUpper}}, AB]
- [a, {type: string, string: {type: Convert, convert: ToBase64}}, YQ==]
- [YQ==, {type: string, string: {type: Convert, convert: FromBase64}}, a]
- [v-13, {type: string, string: {type: Regexp, regexp: {match: "-(.*)", group: 1}}}, "13"]
- [nano, {type: map, map: {nano: 10}}, 10]
- ["7", {type: convert, convert: {toType: int64}}, 7]
- [true, {type: convert, convert: {toType: string}}, "true"]
- [Done, {type: match, match: {patterns: [{type: regexp, regexp: ^D, result: true}]}}, true]
- [x, {type: match, match: {patterns: [], fallbackValue: false}}, false]
"""
CHECKS = """
- [{type: None}, true]
- [{type: NonEmpty, fieldPath: "status.conditions[0]"}, true]
- [{type: NonEmpty, fieldPath: status.absent}, false]
- [{type: MatchString, fieldPath: status.phase, matchString: Up}, true]
- [{type: MatchInteger, fieldPath: status.n, matchInteger: 2}, false]
- [{type: MatchTrue, fieldPath: status.ok}, true]
- [{type: MatchFalse, fieldPath: status.ok}, false]
- [{type: MatchCondition, matchCondition: {type: Synced, status: "True"}}, false]
"""
DETAILS = """
- {name: password, type: FromConnectionSecretKey, fromConnectionSecretKey: pw}
- {name: later, type: FromConnectionSecretKey, fromConnectionSecretKey: later}
- {name: host, type: FromFieldPath, fromFieldPath: status.host}
- {name: port, type: FromFieldPath, fromFieldPath: status.port}
- {name: kind, type: FromValue, value: postgresql}
"""


@pytest.mark.parametrize(("value", "transform", "expected"), yaml.safe_load(TRANSFORMS))
def test_a_transform(value, transform, expected):
    assert patches.transformed(value, [transform]) == expected


def test_values_go_down_to_what_is_composed_and_up_from_what_is_there():
    up = downward("status", "status.managed", type="ToCompositeFieldPath")
    name = "metadata.annotations[a.b/c]"
    down = [downward("spec.ref.name", name), downward("spec.absent", "spec.absent"), up]
    first = composed(patches=down)
    made, ready = first.resources["one"]
    assert made["metadata"] == {"labels": {"own": "1"}, "annotations": {"a.b/c": "orders"}}
    assert (ready, first.composite) == (False, {})
    again = composed(patches=down, live={"metadata": {"name": "one-x"}, **READY})
    made, ready = again.resources["one"]
    assert made["metadata"]["name"] == "one-x", "another name would be another resource"
    assert (ready, again.composite) == (True, {"status": {"managed": READY["status"]}})


def test_what_is_required_holds_back_what_is_not_there_and_never_takes_away_what_is():
    needy = downward("spec.absent", "spec.x", policy={"fromFieldPath": "Required"})
    first = composed(patches=[needy])
    assert (first.resources, len(first.warnings)) == ({}, 1)
    again = composed(patches=[needy], live=READY)
    assert (set(again.resources), len(again.warnings)) == ({"one"}, 1)


@pytest.mark.parametrize(("check", "passes"), yaml.safe_load(CHECKS))
def test_readiness(check, passes):
    live = {"status": {**READY["status"], "phase": "Up", "n": 1, "ok": True}}
    assert composed(live=live, readinessChecks=[check]).resources["one"][1] is passes


def test_connection_details_are_those_that_are_there():
    found = composed(live={"status": {"port": 5432}}, connectionDetails=yaml.safe_load(DETAILS))
    assert found.details == {"password": b"secret", "port": b"5432", "kind": b"postgresql"}


@pytest.mark.parametrize(
    "template",
    [
        {"patches": [{"type": "PatchSet"}]},
        {"patches": [downward("spec.size", "spec.list[0]")]},
        {"patches": [downward("spec.size", "x", transforms=[{"type": "math"}])]},
        {"patches": [downward("spec.size", "x", transforms=[{"type": "map", "map": {"big": 1}}])]},
        {"live": READY, "readinessChecks": [{"type": "Sometimes"}]},
        {"live": READY, "connectionDetails": [{"type": "FromAir"}]},
    ],
)
def test_what_is_not_known_or_does_not_fit_is_refused_with_the_name_of_the_resource(template):
    with pytest.raises(Refused, match=r"^resource one: "):
        composed(**template)
