"""How requests for exports are answered (protocol-bind.md C.2, F3, F24)."""

from datetime import timedelta

import pytest

from bind.export.decide import RequestView, answer, resources
from reconciler.blueprints.export import Terms
from reconciler.core.decision import NOTHING, Delete
from reconciler.core.manifest import name_of
from tests.support.space_objects import (
    CONTROL_PLANE,
    NOW,
    SECRETS,
    condition,
    crd,
    deleting,
    export,
    live_like,
    request,
    template,
    version,
)

DATABASES, QUEUES, REGIONS = "databases.shop.example", "queues.shop.example", "regions.shop.example"
CRDS = {DATABASES: crd(), QUEUES: crd("queues"), REGIONS: crd("regions", scope="Cluster")}
TEMPLATES = {
    DATABASES: template(claims=[SECRETS]),
    QUEUES: template("queues"),
    REGIONS: template("regions"),
}
EXPORTS = {DATABASES: export(), QUEUES: export(crd("queues"))}
OFFERED = {"crds": CRDS, "templates": TEMPLATES, "offered": [QUEUES, DATABASES, QUEUES]}
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def seen(wish=None, **facts):
    return RequestView(CONTROL_PLANE, wish or request(), **{**OFFERED, **facts})


def look(facts, **terms):
    return answer(facts, terms=Terms(**terms), now=NOW)


def made(decision):
    return [name_of(step.manifest) for task in decision.tasks for step in task.steps]


def reported(decision):
    return [(one.status, one.reason, one.message) for one in decision.conditions]


def test_what_the_app_cluster_binding_lists_is_exported():
    assert made(look(seen(listed=frozenset({DATABASES})))) == [DATABASES]


@pytest.mark.parametrize(
    "facts",
    [
        {"bound": frozenset({DATABASES})},
        {"listed": frozenset({DATABASES}), "bound": frozenset()},
        {"listed": None, "bound": None},
    ],
    ids=["bound", "listed", "neither counts"],
)
def test_what_a_space_may_have_is_exported(facts):
    assert made(look(seen(**facts))) == [DATABASES]


def test_an_export_is_not_taken_away_from_a_space_that_may_not_have_it_any_more():
    decision = look(seen(exports={DATABASES: export()}, bound=frozenset()))
    assert (decision.tasks, decision.fields) == ((), {"phase": "Succeeded"})


def test_success_is_reported_when_all_exports_are_seen_and_not_before():
    both = request("databases", "queues")
    first = look(seen(both))
    assert (made(first), reported(first), first.fields) == ([DATABASES, QUEUES], [], {})
    half = look(seen(both, exports={DATABASES: export()}))
    assert (made(half), reported(half), half.fields) == ([QUEUES], [], {})
    done = look(seen(both, exports=EXPORTS))
    assert (made(done), reported(done)) == ([], [("True", "", "")])
    assert done.fields == {"phase": "Succeeded"}
    assert done.again == timedelta(minutes=10)


def test_an_export_that_is_there_is_taken_as_it_is_also_without_a_template():
    strange = live_like(export(), annotations={}, labels={"made": "by-hand"})
    decision = look(seen(exports={DATABASES: strange}, templates={}))
    assert (decision.tasks, decision.fields) == ((), {"phase": "Succeeded"})


MISSING = (
    "CustomResourceDefinition databases.shop.example in the service provider cluster not found"
)
PROBLEMS = {
    "no CRD": ({"crds": {}}, "CRDNotFound", MISSING),
    "not for this app cluster": (
        {"listed": frozenset({QUEUES})}, "NotListed",
        "No AppClusterBinding of this app cluster lists databases.shop.example in "
        "apiExports",
    ),
    "not bound at a front door that asks": (
        {"bound": frozenset({QUEUES})}, "NotListed",
        "databases.shop.example was not bound for this app cluster at the front door, which asks "
        "for the right; bind it there (klutchctl bind, kubectl bind)",
    ),
    "no template": (
        {"templates": {}}, "TemplateNotFound",
        "No APIServiceExportTemplate offers databases.shop.example; "
        "offered: databases.shop.example, queues.shop.example",
    ),
    "nothing offered at all": (
        {"templates": {}, "offered": []}, "TemplateNotFound",
        "No APIServiceExportTemplate offers databases.shop.example; offered: nothing",
    ),
    "a CRD that cannot be exported": (
        {"crds": {DATABASES: crd(versions=[version("v1", served=False, storage=True)])}},
        "CRDInvalid", "CustomResourceDefinition databases.shop.example serves no version",
    ),
    "a cluster-scoped CRD, which an API server would refuse for ever": (
        {"crds": {DATABASES: crd(scope="Cluster")}}, "ScopeNotSupported",
        "CustomResourceDefinition databases.shop.example is cluster-scoped, and this backend "
        "exports to namespaces only (--consumer-scope=Namespaced)",
    ),
    "an export on its way out": (
        {"exports": {DATABASES: deleting(export())}}, "APIServiceExportCreateFailed",
        "APIServiceExport databases.shop.example is being deleted; it is made again "
        "when it is gone",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "reason", "message"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_what_stands_in_the_way_is_reported_at_once_and_fails_after_a_minute(
    facts, reason, message
):
    fresh = look(seen(**facts))
    assert reported(fresh) == [("False", reason, message)]
    assert (fresh.tasks, fresh.fields, fresh.again) == ((), {}, MINUTE)
    late = look(seen(request(age=MINUTE - SECOND), **facts))
    assert (late.fields, late.again) == ({}, SECOND)
    over = look(seen(request(age=MINUTE), **facts))
    assert over.fields == {"phase": "Failed", "terminalMessage": message}
    assert reported(over) == [("False", reason, message)]
    assert over.again == timedelta(minutes=9)


REFUSED = [condition("ExportsReady", "False", "APIServiceExportCreateFailed", message="422: no")]


def test_a_refused_export_is_tried_again_for_a_minute_and_then_fails_with_its_words():
    again = look(seen(request(conditions=REFUSED, phase="Pending", age=MINUTE - SECOND)))
    assert (made(again), again.fields, again.again) == ([DATABASES], {}, SECOND)
    over = look(seen(request(conditions=REFUSED, phase="Pending", age=MINUTE)))
    assert (made(over), over.fields) == ([], {"phase": "Failed", "terminalMessage": "422: no"})


def test_a_request_from_before_our_start_is_tried_before_it_fails():
    decision = look(seen(request(age=timedelta(minutes=3))))
    assert (made(decision), decision.fields, decision.again) == ([DATABASES], {}, None)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_answer_stands_for_ten_minutes_and_then_the_request_goes(phase):
    young = look(seen(request(phase=phase, age=timedelta(minutes=9, seconds=59)), crds={}))
    assert (young.tasks, young.conditions, young.fields, young.again) == ((), (), {}, SECOND)
    ((task,),) = [look(seen(request(phase=phase, age=timedelta(minutes=10)), crds={})).tasks]
    (step,) = task.steps
    assert isinstance(step, Delete)
    assert (step.ref.name, step.uid, step.resource_version) == ("r", "uid-of-r", "7")


def test_a_pending_request_is_never_deleted():
    decision = look(seen(request(phase="Pending", age=timedelta(days=1)), crds={}))
    assert decision.tasks == ()
    assert decision.fields["phase"] == "Failed"


def test_a_request_that_goes_is_left_alone():
    assert look(seen(deleting(request()))) == NOTHING


NAMED = {
    "in their order, each once": (
        [("shop.example", "b"), ("shop.example", "a"), ("shop.example", "b")],
        ["b.shop.example", "a.shop.example"],
    ),
    "with a dot at the end for the core group": ([("", "secrets")], ["secrets."]),
}


@pytest.mark.parametrize(("wanted", "want"), NAMED.values(), ids=NAMED.keys())
def test_resources_are_named_as_the_original_does(wanted, want):
    spec = {"resources": [{"group": group, "resource": one} for group, one in wanted]}
    assert resources({"spec": spec}) == want
