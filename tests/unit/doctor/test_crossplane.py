"""What a doctor says of Crossplane's compositions before and after an upgrade to 2.x."""

from typing import Any

import pytest

from reconciler.core.refs import Kind
from reconciler.doctor import crossplane
from reconciler.doctor.diagnosis import Level


def of(name, mode="Pipeline", kind="XDatabase"):
    spec = {"compositeTypeRef": {"apiVersion": "x.example/v1", "kind": kind}, "mode": mode}
    body = {"pipeline": [{"step": "one"}]} if mode == "Pipeline" else {"resources": []}
    return {"metadata": {"name": name}, "spec": spec | body}


PRUNED = {"metadata": {"name": "mysql"}, "spec": {"mode": "Resources"}}  # as 2.x shows it
OLD, NEW = of("pg-1", "Resources"), of("pg-2")
CASES = {
    "converted": (False, [of("pg")], [NEW], Level.OK, "every composition in use has a pipeline"),
    "1.20": (False, [of("pg", "Resources"), of("x")], [], Level.PROBLEM, ": Composition pg. They"),
    "in use": (False, [of("pg")], [OLD], Level.PROBLEM, ": CompositionRevision pg-1. They are"),
    "too late": (True, [PRUNED], [], Level.PROBLEM, ": Composition mysql. They compose nothing"),
    "none": (True, [], [], Level.OK, "Crossplane 2.x"),
}


@pytest.mark.parametrize(
    ("second", "compositions", "used", "level", "said"), CASES.values(), ids=CASES.keys()
)
def test_compositions_without_a_pipeline(second, compositions, used, level, said):
    found = crossplane.judged(second, compositions, used)
    assert found.level is level
    assert said in found.message
    assert ("From Crossplane 1.20 to 2.x" in found.remedy) is (level is Level.PROBLEM)


def test_many_are_counted():
    found = crossplane.judged(False, [of(f"c{n}", "Resources") for n in range(12)], [])
    assert "Composition c9 and 2 more" in found.message


@pytest.mark.parametrize("below", [(), ("crossplane",)], ids=["1.20", "2.x"])
def test_a_revision_is_in_use_where_a_composite_resource_names_it(below):
    spec: Any = {"compositionRevisionRef": {"name": "pg-1"}}
    for key in below:
        spec = {key: spec}
    assert crossplane.used([OLD, NEW], [{"spec": spec}, {"spec": {}}]) == [OLD]


@pytest.mark.parametrize(("scope", "namespaced"), [("Namespaced", True), ("", False)])
def test_kinds_of_composite_resources(scope, namespaced):
    names = {"kind": "XDatabase", "plural": "xdatabases"}
    definition: Any = {"spec": {"group": "x.example", "names": names, "scope": scope}}
    other: Any = {"spec": {"group": "x.example", "names": {"kind": "Other", "plural": "others"}}}
    found = list(crossplane.composites([definition, other], [OLD]))
    assert found == [Kind("x.example", "v1", "XDatabase", "xdatabases", namespaced)]
