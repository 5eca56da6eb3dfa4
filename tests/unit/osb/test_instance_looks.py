"""One look at an instance: what follows, row by row of the design's table 4."""

from dataclasses import replace
from datetime import timedelta

import pytest

from bind.osb.decisions import instance, record
from bind.osb.decisions.view import BindingView, InstanceView, Pause
from reconciler.blueprints.offering import messages
from reconciler.blueprints.offering.catalogue import Schemas
from reconciler.core import keys
from reconciler.core.manifest import Manifest
from reconciler.core.times import format_time
from tests.support.osb_views import (
    BROKER,
    CATALOGUE,
    KIND,
    NOW,
    OTHER_UID,
    UID,
    claim,
    follows,
    held,
    intent,
    message,
    operation,
    phase,
    sent,
    view,
)

MINUTE = timedelta(minutes=1)
BIG = claim(plan="big")
CHANGED = claim(parameters={"a": 1})
DRIFTED = {"InSync": ("False", "Drifted")}
REFUSED = intent(closed=record.REFUSED, catalog="catalogue-1")
FAILED = intent(closed=record.FAILED, catalog="catalogue-1")
NEW = held(record.INTENDED, intent=intent())
THERE = held(record.PRESENT, sent=sent())
MISSING = replace(THERE, intent=intent(closed=record.MISSING))
LEAVING = held(record.LEAVING, sent=sent())


def offering(**fields):
    """Return the broker of an offering with other fields."""
    made = replace(CATALOGUE.offerings[0], **fields)
    return replace(BROKER, catalogue=replace(CATALOGUE, offerings=(made,)))


def retry(text="1", **more):
    return claim(marks={keys.OSB_RETRY: text}, **more)


def closed(intent_, live=None, **fields):
    return view(live or claim(), held(record.INTENDED, intent=intent_), **fields)


def changing(live, target, *, before=None, **fields):
    """Return an instance with an open update."""
    there = held(record.PRESENT, sent=before or sent(), intent=intent("Update", target))
    return view(live, there, **fields)


def goes(*records, spec=None, **fields):
    return view(claim(deleting=True, **(spec or {})), *records, **fields)


def bound(*, live=True, records=()):
    kind = replace(KIND, instances="databaseinstances")
    return (BindingView("plane", kind, claim() if live else None, records),)


def left(state, mark="", **fields):
    return view(None, others=(held(state, sent=sent(), mark=mark),), **fields)


def beside(state, mark=""):
    """Return a claim beside the record of a predecessor of its name."""
    return view(claim(), others=(held(state, uid=OTHER_UID, mark=mark, sent=sent()),))


WITHOUT_SMALL = offering(plans=CATALOGUE.offerings[0].plans[1:])
NOTHING_OFFERED = replace(BROKER, catalogue=replace(CATALOGUE, offerings=()))
AWAY = replace(BROKER, closed="it does not answer")
ANOTHER = replace(BROKER, catalogue=replace(CATALOGUE, digest="catalogue-2"))
CONFIRMED = replace(BROKER, mass_delete=format_time(NOW))
CONFIRMED_ONCE = replace(BROKER, mass_delete=format_time(NOW - timedelta(hours=1)))
PAUSED = {UID: Pause(until=NOW + MINUTE)}
READ = {UID: Pause(checked=NOW - 4 * MINUTE)}
TO_BIG = sent(BIG, maintenance="")

BOUND = bound(live=False, records=(THERE,))
AGAIN = "Intended, Provision; begins"
WORDS = {"Forget": "delete record", "Deprovision": "Leaving; begins"}

# Sentence: the instance, what follows.
LOOKS: dict[str, tuple[InstanceView, str]] = {
    # No record yet
    "the finalizer comes first": (view(claim(held=False)), "patch claim"),
    "then a record, before the first call": (view(CHANGED), "create Intended, Provision; begins"),
    "nothing begins beside something else": (
        view(claim(), free=False), "Provisioned/Pending; again 30 s",
    ),
    "no broker": (view(claim(), broker=None), "Provisioned/NoServiceBroker"),
    "no catalogue": (
        view(claim(), broker=replace(BROKER, catalogue=None)), "Provisioned/Pending; again 30 s",
    ),
    "a broker that is away": (view(claim(), broker=AWAY), "Provisioned/Pending; again 30 s"),
    "an offering that is gone": (view(claim(), broker=NOTHING_OFFERED), "Provisioned/NotOffered"),
    "a plan whose id is gone": (view(claim(), broker=WITHOUT_SMALL), "Provisioned/NotOffered"),
    "a predecessor is taken over": (beside(record.ORPHANED, "Adopt"), "Present"),
    "a predecessor is an orphan": (
        beside(record.PRESENT), "Orphaned; Event Orphaned; Provisioned/PredecessorThere",
    ),
    "a predecessor waits for a word": (beside(record.ORPHANED), "Provisioned/PredecessorThere"),
    "a predecessor is deleted": (
        beside(record.ORPHANED, "Deprovision"), "Leaving; begins; Provisioned/PredecessorThere",
    ),
    "a predecessor is being deleted": (
        beside(record.LEAVING), "Deprovision plan-s; Provisioned/PredecessorThere",
    ),
    # An intent
    "an open one is the same PUT again": (
        view(claim(), NEW, free=False), "Provision plan-s; Provisioned/Provisioning",
    ),
    "the claim changed since": (
        view(CHANGED, NEW), "LastOperation plan-s; Provisioned/Provisioning",
    ),
    "it was never sent": (closed(intent(since=NOW + MINUTE), CHANGED), "Intended, Provision"),
    "it waits for its pause": (
        view(claim(), NEW, pauses=PAUSED), "Provisioned/Provisioning; again 60 s",
    ),
    "it waits for its broker": (
        view(claim(), NEW, broker=AWAY), "Provisioned/Provisioning; again 30 s",
    ),
    "a further number waits for its time": (
        view(claim(), held(record.INTENDED, number=1, intent=intent(since=NOW + 5 * MINUTE))),
        "Provisioned/Provisioning; again 300 s",
    ),
    "refused": (closed(REFUSED), "Provisioned/Refused"),
    "failed": (closed(FAILED), "Provisioned/Failed"),
    "failed, and it is stated": (
        closed(FAILED, claim(says={"Provisioned": ("False", "Failed")})), "",
    ),
    "refused, and the wish was answered": (
        view(retry(), held(record.INTENDED, intent=REFUSED, asked="1")), "Provisioned/Refused",
    ),
    "failed, then another catalogue": (closed(FAILED, broker=ANOTHER), "Provisioned/Failed"),
    "refused, then another catalogue": (closed(REFUSED, broker=ANOTHER), AGAIN),
    **{
        f"refused, then {what}": (closed(REFUSED, live), AGAIN)
        for what, live in (("a plan", BIG), ("parameters", CHANGED), ("a wish", retry()))
    },
    # It is there
    "it is read": (
        view(claim(), THERE), "FetchInstance plan-s; Provisioned; UpToDate; again 600 s",
    ),
    "and again at each resync": (
        view(claim(), THERE, pauses=READ), "Provisioned; UpToDate; again 360 s",
    ),
    "it cannot be read": (
        view(claim(), THERE, broker=offering(instances_retrievable=False)), "Provisioned; UpToDate",
    ),
    **{
        f"another {what}": (view(live, THERE), "Present, Update; begins")
        for what, live in (
            ("plan", BIG), ("value", CHANGED), ("version", claim(maintenanceVersion="2.0.1")),
        )
    },
    "a new version of the catalogue": (
        view(claim(), held(record.PRESENT, sent=sent(maintenance="1.0.0")), pauses=READ),
        "Provisioned; UpToDate; again 360 s",
    ),
    "an update of which nothing is known is read first": (
        view(BIG, replace(THERE, intent=intent("Update", TO_BIG, tries=1))),
        "FetchInstance plan-s; UpToDate/Updating",
    ),
    "and then made": (
        view(BIG, replace(THERE, intent=intent("Update", TO_BIG, tries=1)),
             pauses={UID: Pause(tried=1)}), "Update plan-b; UpToDate/Updating",
    ),
    **{
        f"a refused update, {reason}": (
            view(
                claim(plan="big", says={"Provisioned": ("False", reason)}),
                replace(THERE, intent=replace(REFUSED, verb="Update", target=TO_BIG)),
            ),
            f"FetchInstance plan-s{stated}; UpToDate/Refused; again 600 s",
        )
        for reason, stated in (("PredecessorThere", "; Provisioned"), ("NotUsable", ""))
    },
    "an update at work is asked for with the plan before it": (
        view(claim(), held(record.PRESENT, sent=sent(), plan="plan-b", operation=operation())),
        "LastOperation plan-s; UpToDate/Updating",
    ),
    "drift": (
        view(claim(says=DRIFTED), THERE),
        "FetchInstance plan-s; Provisioned; UpToDate; again 600 s",
    ),
    "drift, then a wish": (view(retry(says=DRIFTED), THERE), "Present, Update; begins"),
    "missing": (view(BIG, MISSING), "FetchInstance plan-s; again 600 s"),
    "missing, then a wish": (view(retry(), MISSING), "Intended, Provision; begins"),
    # It goes
    "never asked for": (goes(), "patch claim"),
    "refused at first": (goes(held(record.INTENDED, intent=REFUSED)), "delete record; patch claim"),
    "refused after an unknown answer": (
        goes(held(record.INTENDED, intent=replace(REFUSED, tries=1))), "Leaving; begins",
    ),
    "a further number was not sent yet": (
        goes(held(record.INTENDED, number=1, intent=intent(since=NOW + MINUTE))),
        "delete record; patch claim",
    ),
    "there": (goes(THERE), "Leaving; begins"),
    "leaving, with the ids of its record": (
        goes(held(record.LEAVING, sent=sent(), service="old-service", plan="old-plan")),
        "Deprovision old-plan; DeletesAllowed",
    ),
    "while it is provisioned": (
        goes(replace(NEW, operation=operation()), free=False), "Leaving; begins",
    ),
    "bound": (goes(THERE, bindings=bound()), "DeletesAllowed/StillBound"),
    "bound, at once": (
        goes(THERE, bindings=bound(), spec={"deletionPolicy": "Immediate"}), "Leaving; begins",
    ),
    "bound by records, at once": (
        goes(THERE, bindings=bound(records=(THERE,)), spec={"deletionPolicy": "Immediate"}),
        "DeletesAllowed/StillBound",
    ),
    "retained": (
        goes(THERE, bindings=bound(), spec={"deletionPolicy": "Retain"}), "Retained; patch claim",
    ),
    "with its CRD": (goes(THERE, crd_is_deleting=True), "DeletesAllowed/MassDeletion"),
    "with its CRD, confirmed": (
        goes(THERE, crd_is_deleting=True, broker=CONFIRMED), "Leaving; begins",
    ),
    "with its CRD, confirmed once": (
        goes(THERE, crd_is_deleting=True, broker=CONFIRMED_ONCE), "DeletesAllowed/MassDeletion",
    ),
    "nobody sees its CRD": (
        goes(THERE, unsure="no answer"), "DeletesAllowed/CrdsNotRead; again 30 s",
    ),
    "nobody sees its CRD, while it leaves": (
        goes(LEAVING, unsure="no answer"), "DeletesAllowed/CrdsNotRead; again 30 s",
    ),
    "nobody sees its CRD, confirmed": (
        goes(THERE, unsure="no answer", broker=CONFIRMED), "Leaving; begins",
    ),
    "without its broker": (goes(THERE, broker=None), "DeletesAllowed/NoServiceBroker"),
    "a failed try, before the next number": (
        view(claim(), held(record.LEAVING), held(record.INTENDED, number=1, intent=intent())),
        "Deprovision plan-s",
    ),
    # The claim is absent: law 1
    "an orphan": (left(record.PRESENT), "Orphaned; Event Orphaned"),
    **{
        f"{state}, and the word {mark}": (left(state, mark), WORDS.get(mark, ""))
        for state in (record.ORPHANED, record.RETAINED)
        for mark in ("", "Adopt", "Forget", "Deprovision", "deprovision")
    },
    **{
        f"a bound orphan, and the word {mark}": (left(record.ORPHANED, mark, bindings=BOUND), "")
        for mark in WORDS
    },
    "a deletion that was begun": (left(record.LEAVING), "Deprovision plan-s"),
    "the claim is back": (view(claim(), held(record.ORPHANED, sent=sent())), "Present"),
    "the claim is back of what was begun": (
        view(claim(), held(record.ORPHANED, intent=intent())), "Intended, Provision",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("seen", "expected"), LOOKS.values(), ids=LOOKS)
def test_what_follows(seen, expected):
    assert follows(seen, instance.look(seen)) == expected


def test_phases():
    for seen, wanted in (
        (view(claim(), broker=None), "Pending"),
        (closed(REFUSED), "Failed"),
        (view(claim(), NEW), "Provisioning"),
        (view(claim(), THERE), "Ready"),
        (view(BIG, MISSING), "Failed"),
        (goes(THERE, broker=None), "Deleting"),
    ):
        assert phase(instance.look(seen)) == wanted


def call(seen):
    found = instance.look(seen).ask
    assert found is not None
    return found.call


def test_a_put_names_the_claim_and_its_space():
    asked = call(view(claim(), NEW))
    known = asked.organization, asked.space, asked.parameters, asked.maintenance
    assert known == ("cluster-uid", "space-uid", None, "2.0.0")
    assert asked.context["instance_name"] == "orders"


def test_a_newer_version_of_maintenance_is_shown():
    found = instance.look(LOOKS["a new version of the catalogue"][0])
    assert found.decision.fields["maintenance"] == {
        "installed": "1.0.0", "available": "2.0.0", "description": "a newer system",
    }  # fmt: skip


UPDATES = [
    (BIG, sent(BIG, maintenance=""), sent(), ("plan-b", None, "")),
    (CHANGED, sent(CHANGED), sent(), ("plan-s", {"a": 1}, "")),
    (claim(), sent(), sent(CHANGED), ("plan-s", {}, "")),
]


@pytest.mark.parametrize(("live", "target", "before", "wanted"), UPDATES)
def test_an_update_sends_the_parameters_whole_if_they_differ(live, target, before, wanted):
    asked = call(changing(live, target, before=before))
    assert isinstance(asked, messages.Update)
    assert (asked.plan, asked.parameters, asked.maintenance) == wanted
    assert asked.previous.plan == "plan-s"


# A plan with schemas


def strict(*, update=None):
    """Return a broker that has schemas for the small plan."""
    create: Manifest = {"required": ["size"], "properties": {"size": {"maximum": 5}, "zone": {}}}
    small, *others = CATALOGUE.offerings[0].plans
    return offering(plans=(replace(small, schemas=Schemas(create=create, update=update)), *others))


@pytest.mark.parametrize(
    "records",
    [(), (NEW,), (held(record.INTENDED, intent=replace(REFUSED, catalog="another")),), (MISSING,)],
    ids=["new", "not sent yet", "refused before", "made anew"],
)
def test_parameters_that_a_plan_refuses_are_never_sent(records):
    seen = view(retry(parameters={"size": 6}), *records, broker=strict())
    found = instance.look(seen)
    assert follows(seen, found) == "Provisioned/InvalidParameters"
    wrong = "plan small refuses it: parameters.size does not fit maximum: 5"
    assert message(found, "Provisioned") == wrong


def test_what_may_have_been_sent_is_found_out_whatever_the_plan_says_now():
    live = claim(parameters={"size": 6})
    there = held(record.INTENDED, intent=intent(target=sent(live), tries=1))
    assert isinstance(call(view(live, there, broker=strict())), messages.Provision)


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"size": 6, "zone": "a"}, "parameters.size does not fit maximum: 5"),
        ({"size": 4, "zone": "b"}, "parameters.zone cannot be changed"),
        ({"size": 4}, "parameters.zone cannot be changed"),
        ({"size": 4, "zone": "a"}, ""),
    ],
)
def test_a_change_that_a_plan_refuses_is_never_sent(parameters, problem):
    broker = strict(update={"properties": {"size": {"maximum": 5}}})
    before, changed = sent(claim(parameters={"size": 3, "zone": "a"})), claim(parameters=parameters)
    for seen in (
        view(changed, held(record.PRESENT, sent=before), broker=broker),
        changing(changed, sent(changed), before=before, broker=broker),
    ):
        found = instance.look(seen)
        if not problem:
            assert found.begins or found.ask
            continue
        assert follows(seen, found) == "UpToDate/InvalidParameters"
        assert message(found, "UpToDate") == f"plan small refuses it: {problem}"
