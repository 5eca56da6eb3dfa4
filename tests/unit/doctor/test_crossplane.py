"""What a doctor says of Crossplane's compositions before and after an upgrade to 2.x."""

import re
from pathlib import Path
from typing import Any

import pytest

import klutchctl
from klutchctl import sandbox
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
    found = installed(second=second, compositions=compositions, used=used)
    (first,) = [one for one in crossplane.findings(found) if one.level is not Level.WARNING]
    assert first.level is level
    assert said in first.message
    assert ("Upgrade Crossplane from 1.20 to 2.x" in first.remedy) is (level is Level.PROBLEM)


def test_many_are_counted():
    found = installed(compositions=[of(f"c{n}", "Resources") for n in range(12)])
    assert "Composition c9 and 2 more" in next(crossplane.pipelines(found)).message


def definition(plural="databases", **spec):
    names = {"kind": "Database", "plural": plural}
    return {"metadata": {"name": plural}, "spec": {"group": "x.example", "names": names, **spec}}


def offer(*claims, plural="databases"):
    service = {"group": "x.example", "resource": plural}
    spec = {"APIServiceSelector": service, "permissionClaims": list(claims)}
    return {"metadata": {"name": f"of-{plural}"}, "spec": spec}


OLD_KIND = definition("xdatabases", claimNames={"plural": "databases"}, scope="LegacyCluster")
FREE = definition(scope="Namespaced")
NAMESPACED = definition(scope="Namespaced", defaultCompositionRef={"name": "pg"})
SECRETS = {"group": "", "resource": "secrets", "selector": {"owner": "Provider"}}
LABELLED = {**SECRETS, "selector": {"labelSelectors": [{"a": "b"}]}}
STEPS = [{"functionRef": {"name": "fn"}}]
CALLING: Any = {"spec": {"compositeTypeRef": {"kind": "Database"}, "pipeline": STEPS}}
CALLS: Any = {"compositions": [CALLING]}


def answered(state: str = "Active", endpoint: str = "127.0.0.1:9443") -> Any:
    """Return a composition with a revision of its function."""
    labels = {"pkg.crossplane.io/package": "fn"}
    found = {"spec": {"desiredState": state}, "status": {"endpoint": endpoint}}
    return CALLS | {"functions": [{"metadata": {"labels": labels}, **found}]}


def offered(one: Any, *claims: Any, **more: Any) -> Any:
    """Return a definition with the template of its kind."""
    return {"definitions": [one], "templates": [offer(*claims)], **more}


GONE: Any = {**OLD_KIND, "metadata": {"name": "xdatabases", "deletionTimestamp": "2026-11-28"}}
WIDE: Any = [offer(), offer(SECRETS, plural="others")]
# What is there, with the level of the finding and a part of it; "" where nothing may be found.
BAD, WARN = Level.PROBLEM, Level.WARNING
LINES: dict[str, tuple[dict[str, Any], Level, str]] = {
    "function, none": (CALLS, BAD, "function fn has no active"),
    "function, idle": (answered("Inactive"), BAD, "resources of Database stay as they are"),
    "function, unreached": (answered(endpoint=""), BAD, "function fn"),
    "function": (answered(), BAD, ""),
    "two want one": ({"definitions": [OLD_KIND, NAMESPACED]}, BAD, "one CRD: databases.x.example."),
    "deleted": (offered(GONE), BAD, "xdatabases is being deleted"),
    "deleted, bound by nobody": ({"definitions": [GONE]}, BAD, ""),
    "no default": (offered(FREE), WARN, "take any composition: databases"),
    "1.20": ({"second": False}, WARN, "support of Crossplane 1.20 ends with 2.5"),
    "too old": ({"second": False, "version": "1.20.4"}, WARN, "1.20.4 is older than 1.20.5"),
    "untested": ({"version": "2.3.0"}, WARN, "2.3.0 is not among the tested versions"),
    "left": ({"crds": {"storeconfigs.secrets.crossplane.io"}}, WARN, "CRDs of 1.x"),
    "claims": (
        offered(OLD_KIND),
        WARN,
        "deprecated in Crossplane 2.x, and these kinds have them: x",
    ),
    "all Secrets": (
        {"definitions": [NAMESPACED], "templates": WIDE},
        WARN,
        "templates of-others claim all Secrets, and databases compose theirs",
    ),
    "Secrets by label": (offered(NAMESPACED, LABELLED), WARN, ""),
    "all Secrets, of claims alone": (offered(OLD_KIND, SECRETS, second=False), BAD, ""),
}


def installed(**changed: Any) -> crossplane.Installation:
    usual: dict[str, Any] = {"second": True, "version": "", "crds": set()}
    lists = ("compositions", "used", "definitions", "functions", "templates")
    return crossplane.Installation(**usual | {one: [] for one in lists} | changed)


@pytest.mark.parametrize(("there", "level", "said"), LINES.values(), ids=LINES.keys())
def test_lines(there, level, said):
    found = [one for one in crossplane.findings(installed(**there)) if one.level is level]
    assert [said in one.message and bool(one.remedy) for one in found] == [True] * bool(said)


def test_all_is_well():
    there = offered(NAMESPACED, version="2.4.0")
    (found,) = crossplane.findings(installed(**there))
    assert (found.level, found.remedy, found.message[:16]) == (Level.OK, "", "Crossplane 2.4.0")
    assert "0 by claims, 1 by composite resources" in found.message


def test_the_tested_versions_are_those_of_the_sandbox_and_of_the_book():
    modules = Path(sandbox.__file__).parent / "crossplane"
    built = {
        one
        for file in modules.rglob("go.mod")
        for one in re.findall(r"crossplane/crossplane(?:/v2)? v([0-9.]+)", file.read_text())
    }
    assert set(crossplane.TESTED) == built
    book = Path(klutchctl.__file__).parent.joinpath("docs/install/crossplane.md").read_text()
    assert all(f"| {version} " in book for version in crossplane.TESTED)


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
