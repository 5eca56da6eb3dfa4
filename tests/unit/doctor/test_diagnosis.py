"""What a doctor says about what it was told, and the admission policies that it looks for."""

import copy
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from reconciler.blueprints import policies as shipped
from reconciler.core.manifest import get_map
from reconciler.core.refs import CRD
from reconciler.doctor import diagnosis, policies
from reconciler.doctor.diagnosis import (
    Check,
    Examination,
    Finding,
    Level,
    Mend,
    Question,
    questions,
)
from reconciler.doctor.rights import Right, Side, Task, scope_of_fleet
from reconciler.fleet.values import Konnector, Mode, Rbac
from reconciler.kube import crds
from tests.support import fleets

SECOND = timedelta(seconds=1)
CLOCKS = {
    "the same": (timedelta(), SECOND, Level.OK, "agrees"),
    "a little off": (timedelta(seconds=9), SECOND, Level.OK, "agrees"),
    "ahead": (timedelta(seconds=21), SECOND, Level.WARNING, "20 s ahead of"),
    "behind": (-timedelta(seconds=21), SECOND, Level.WARNING, "20 s behind"),
    "far ahead": (timedelta(hours=1), SECOND, Level.PROBLEM, "3599 s ahead of"),
    "far behind": (-timedelta(minutes=2), SECOND, Level.PROBLEM, "119 s behind"),
    "a slow answer says little": (timedelta(seconds=30), timedelta(seconds=25), Level.OK, "agrees"),
    "not told": (None, timedelta(), Level.WARNING, "sends no Date header"),
}


@pytest.mark.parametrize(("skew", "doubt", "level", "said"), CLOCKS.values(), ids=CLOCKS.keys())
def test_clocks(skew, doubt, level, said):
    found = diagnosis.clock(skew, doubt)
    assert (found.check, found.level) == (Check.CLOCK, level)
    assert said in found.message


PLANE, APP = Side.CONTROL_PLANE, Side.APP_CLUSTER
DIRECT, WHOLE = frozenset({Mode.DIRECT}), frozenset({Mode.APP_CLUSTER_BINDING})
ALL = frozenset(crds.CONTROL_PLANE)
BINDINGS, APP_BINDINGS = (
    f"{plural}.klutch.anynines.com" for plural in ("apiservicebindings", "appclusterbindings")
)
CRDS = {
    "all there": (PLANE, WHOLE, ALL, Level.OK, "no CRD"),
    "Direct needs fewer": (PLANE, DIRECT, ALL - {BINDINGS, APP_BINDINGS}, Level.OK, "no CRD"),
    "a control plane without bindings": (PLANE, WHOLE, ALL - {BINDINGS}, Level.PROBLEM, BINDINGS),
    "without AppClusterBindings": (PLANE, WHOLE, ALL - {APP_BINDINGS}, Level.PROBLEM, APP_BINDINGS),
    "nothing": (PLANE, DIRECT, frozenset(), Level.PROBLEM, "clusterbindings.klutch"),
    "an app cluster with bindings": (APP, DIRECT, frozenset({BINDINGS}), Level.OK, "no CRD"),
    "an app cluster before an apply": (APP, DIRECT, frozenset(), Level.OK, "an apply"),
    "an app cluster that needs none": (APP, WHOLE, frozenset(), Level.OK, "no CRD"),
}


@pytest.mark.parametrize(
    ("side", "modes", "there", "level", "said"), CRDS.values(), ids=CRDS.keys()
)
def test_crds(side, modes, there, level, said):
    found = diagnosis.crds(side, modes, there)
    assert (found.check, found.level) == (Check.CRDS, level)
    assert said in found.message
    assert (found.mend is Mend.CRDS) is (level is Level.PROBLEM)


def test_a_right_is_a_question_for_each_verb_and_name():
    rights = [
        Right("", "secrets", ("get", "list"), "klutch-bind", ("a", "b")),
        Right(CRD.group, CRD.plural, ("list",)),
    ]
    assert questions(rights) == (
        Question("", CRD.group, CRD.plural, "list"),
        Question("klutch-bind", "", "secrets", "get", "a"),
        Question("klutch-bind", "", "secrets", "get", "b"),
        Question("klutch-bind", "", "secrets", "list", "a"),
        Question("klutch-bind", "", "secrets", "list", "b"),
    )


def test_missing_rights_are_reported_together():
    refused = [
        Question("", CRD.group, CRD.plural, "list"),
        Question("klutch-bind", "", "secrets", "get", "a"),
        Question("klutch-bind", "", "secrets", "get", "b"),
        Question("klutch-bind", "", "secrets", "patch", "a"),
    ]
    found = diagnosis.rights(Task.APPLY, refused, 9)
    assert (found.level, found.mend) == (Level.PROBLEM, Mend.RIGHTS)
    assert found.message == (
        "4 of 9 rights that an apply needs are missing: "
        "list customresourcedefinitions.apiextensions.k8s.io; "
        "get, patch secrets a in namespace klutch-bind; get secrets b in namespace klutch-bind"
    )
    assert diagnosis.rights(Task.APPLY, [], 9).message == "all rights that an apply needs"


@pytest.mark.parametrize("refused", [[], [Question("", CRD.group, CRD.plural, "list")]])
def test_who_has_the_rights_of_a_plan_hears_what_needs_those_of_an_apply(refused):
    finding = diagnosis.rights(Task.PLAN, refused, 9)
    assert finding.level is (Level.PROBLEM if refused else Level.OK)
    shown = finding.remedy if refused else finding.message
    assert "import, release and drift --credentials need those of an apply" in shown


LEVELS = {
    "nothing found": ((), Level.OK),
    "all well": ((Level.OK,), Level.OK),
    "a warning": ((Level.OK, Level.WARNING), Level.WARNING),
    "the worst counts": ((Level.PROBLEM, Level.WARNING), Level.PROBLEM),
}


@pytest.mark.parametrize(("levels", "worst"), LEVELS.values(), ids=LEVELS.keys())
def test_the_worst_finding_is_the_level_of_a_cluster(levels, worst):
    findings = tuple(Finding(Check.CLOCK, level, "") for level in levels)
    assert Examination("shop", APP, "context/shop", "shop", findings).level is worst


PLANE, APP = Side.CONTROL_PLANE, Side.APP_CLUSTER
OWN = "system:serviceaccount:klutch-bind:klutchctl-acme-apply"


def scope(mode=Mode.DIRECT, *, deploy=False, rbac=Rbac.MINIMAL, **claim: Any):
    cluster = fleets.app_cluster(konnector=Konnector(deploy=deploy, rbac=rbac))
    unit = fleets.unit(claims=(fleets.claim(**claim),))
    made = fleets.fleet(
        control_planes=[fleets.control_plane(mode=mode)], clusters=[cluster], units=[unit]
    )
    return scope_of_fleet(replace(made, name="acme"))


EXPECTED = {
    # side, scope, user, names
    "an administrator": (PLANE, scope(), "admin", []),
    "the account": (PLANE, scope(), OWN, ["klutchctl-acme-apply"]),
    "an administrator, and a konnector": (APP, scope(deploy=True), "a", ["klutch-bind-konnector"]),
    "the account, and no konnector": (APP, scope(), OWN, ["klutchctl-acme-apply"]),
    "the account of a konnector elsewhere": (
        APP, scope(Mode.APP_CLUSTER_BINDING), OWN,
        ["klutchctl-acme-apply", "klutch-bind-konnector"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("side", "what", "user", "names"), EXPECTED.values(), ids=EXPECTED)
def test_who_is_there_decides_what_is_expected(side, what, user, names):
    assert [one.name for one in policies.expected(side, what, user)] == names


@pytest.mark.parametrize("side", Side)
def test_a_plan_needs_none(side):
    assert policies.manifests(Task.PLAN, side, scope()) == ()
    assert policies.manifests(Task.APPLY, side, scope())


def test_permission_claims_that_name_namespaces_bound_the_konnector():
    (_, bounded) = policies.wanted(APP, scope(namespaces=("shop",)))
    assert bounded == shipped.konnector(["shop"])
    (_, anywhere) = policies.wanted(APP, scope())
    assert anywhere == shipped.konnector()


def test_only_a_fleet_with_full_rights_may_give_any():
    for rbac, bounded in ((Rbac.MINIMAL, True), (Rbac.FULL, False)):
        (own, _) = policies.wanted(APP, scope(deploy=True, rbac=rbac))
        assert ("object.?rules" in own.rules[-1].expression) is bounded


RULE = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}
SECRETS, SOME = [{**RULE, "resources": ["secrets"]}], {"matchLabels": {"a": "b"}}
CHANGES: Any = {
    # of the policy, of what it is asked about, of its binding
    "it denies nothing": ({}, {}, {"validationActions": ["Audit"]}),
    "it is bound for some": ({}, {}, {"matchResources": {}}),
    "another is bound": ({}, {}, {"policyName": "other"}),
    "it fails open": ({"failurePolicy": "Ignore"}, {}, {}),
    "it says less": ({"validations": []}, {}, {}),
    "it has parameters": ({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}, {}, {}),
    "but for Secrets": ({}, {"excludeResourceRules": SECRETS}, {}),
    "only for Secrets": ({}, {"resourceRules": SECRETS}, {}),
    "for no namespace": ({}, {"resourceRules": [{**RULE, "scope": "Cluster"}]}, {}),
    "in some namespaces": ({}, {"namespaceSelector": SOME}, {}),
    "about some objects": ({}, {"objectSelector": SOME}, {}),
}


@pytest.mark.parametrize(("of_policy", "of_matches", "of_binding"), CHANGES.values(), ids=CHANGES)
def test_a_policy_counts_only_as_it_was_printed(of_policy, of_matches, of_binding):
    policy = shipped.konnector()
    made: Any
    made, bound = map(copy.deepcopy, policy.manifests())
    assert policies.in_force(policy, made, bound)
    assert not policies.in_force(policy, None, bound)
    assert not policies.in_force(policy, made, None)
    made["spec"].update(of_policy)
    made["spec"]["matchConstraints"].update(of_matches)
    assert not policies.in_force(policy, made, {"spec": {**get_map(bound, "spec"), **of_binding}})


def test_what_is_missing_is_a_warning_with_the_command():
    found = diagnosis.policies(["b", "a"])
    assert (found.level, found.mend) == (Level.WARNING, Mend.RIGHTS)
    assert "a, b" in found.message
    assert diagnosis.policies([]).level is Level.OK
    old = diagnosis.policies((), served=False)
    assert (old.level, old.mend) == (Level.WARNING, None)
    assert "1.30" in old.message
