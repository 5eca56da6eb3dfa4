"""What a doctor says about what it was told."""

from datetime import timedelta

import pytest

from reconciler.core.refs import CRD
from reconciler.doctor import diagnosis
from reconciler.doctor.diagnosis import (
    Check,
    Examination,
    Finding,
    Level,
    Mend,
    Question,
    questions,
)
from reconciler.doctor.rights import Right, Side, Task
from reconciler.fleet.values import Mode
from reconciler.kube import crds

SECOND = timedelta(seconds=1)
CLOCKS = {
    "the same": (timedelta(), SECOND, Level.OK, "agrees"),
    "a little off": (timedelta(seconds=9), SECOND, Level.OK, "agrees"),
    "ahead": (timedelta(seconds=21), SECOND, Level.WARNING, "20 s ahead of"),
    "behind": (-timedelta(seconds=21), SECOND, Level.WARNING, "20 s behind"),
    "far ahead": (timedelta(hours=1), SECOND, Level.PROBLEM, "3599 s ahead of"),
    "far behind": (-timedelta(minutes=2), SECOND, Level.PROBLEM, "119 s behind"),
    "a slow answer says little": (timedelta(seconds=30), timedelta(seconds=25), Level.OK, "agrees"),
    "not told": (None, timedelta(), Level.WARNING, "does not tell"),
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


def test_missing_rights_are_told_together():
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
