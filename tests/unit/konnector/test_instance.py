"""What follows from one look at a claim and its copy (protocol-konnector.md D, F.3, G, H)."""

from datetime import timedelta
from typing import Any

import pytest

from konnector import APP_CLUSTER
from konnector.claim.copies import Pair
from konnector.claim.decide import AT_ONCE, MARKED_WITHIN, NAME_TAKEN, Read, decide, marks_in
from konnector.claim.orphans import Confirmation, Terms
from reconciler.api import claim_status
from reconciler.api.claim_status import noted_in
from reconciler.core import keys
from reconciler.core.decision import NOTHING, Create, Decision, Patch
from reconciler.core.manifest import put, uid_of
from reconciler.core.times import format_time
from tests.support.instance_objects import (
    BOUND,
    CLAIM_UID,
    GONE,
    HELD,
    KIND,
    LARGE,
    LAST_APPLIED,
    ORPHANED,
    OWNER,
    READY,
    RELEASED,
    SMALL,
    SYNCER,
    claim,
    copy,
    leaving,
    look,
    reported,
    seen,
)
from tests.support.space_objects import NOW

FRESH = {"finalizers": ["somebody.example/x"]}
UNMARKED = {"labels": {"made-by": "provider"}}
# The claim, its copy, and what follows. D.2 to D.4 and H.2.
TABLE: dict[str, tuple[Any, Any, Any]] = {
    "a new claim is held before it has a copy": (
        claim({}), None, ["hold claim", "create copy"],
    ),
    "one that others hold as well": (
        claim(FRESH), None, ["hold claim", "create copy"],
    ),
    "one that lost its copy, and nothing holds it": (claim(), None, ["create copy"]),
    "held, and no copy could be made so far": (
        claim({"finalizers": [SYNCER]}), None, ["create copy"],
    ),
    "marked, and not held": (
        claim({"annotations": {BOUND: "true"}}), None, ["hold claim", "create copy"],
    ),
    "both there and alike": (claim(), copy(), []),
    "with a status that is there": (claim(**READY), copy(**READY), []),
    "without spec": (claim(spec=None), copy(spec=None), []),
    "a spec that changed": (claim(spec=LARGE), copy(), ["apply copy"]),
    "drift on the control plane": (claim(), copy(spec=LARGE), ["apply copy"]),
    "what the provider adds stays, and costs nothing (H26)": (
        claim(), copy(spec={**SMALL, "resourceRef": {"name": "x"}}), [],
    ),
    "nothing stated, and something added": (
        claim(spec={}), copy(spec={"resourceRef": {"name": "x"}}), [],
    ),
    "one item of a list less": (
        claim(spec={"users": ["a"]}), copy(spec={"users": ["a", "b"]}), ["apply copy"],
    ),
    "one field of an item of a list less": (
        claim(spec={"users": [{"name": "a"}]}),
        copy(spec={"users": [{"name": "a", "admin": True}]}),
        ["apply copy"],
    ),
    "a status to bring": (claim(), copy(**READY), ["status to status"]),
    "a status that is no more": (claim(**READY), copy(), ["status to status"]),
    "both ways at once": (claim(spec=LARGE), copy(**READY), ["status to status", "apply copy"]),
    "a claim that lost finalizer and mark": (claim({}), copy(), ["hold claim and mark claim"]),
    "a copy that lost its mark": (claim(), copy(UNMARKED), ["mark copy"]),
    "the same name born on both sides": (
        claim({}), copy(UNMARKED), ["hold claim and mark claim", "mark copy"],
    ),
    "a released copy whose claim came back": (
        claim(), copy({"annotations": {BOUND: "true", RELEASED: GONE}}), ["mark copy"],
    ),
    "a copy on its way out is only looked at": (
        claim(spec=LARGE), leaving(copy(**READY), "provider.example/x"), ["status to status"],
    ),
    "a claim on its way out takes its copy along": (
        leaving(claim(), SYNCER), copy(), ["delete copy"],
    ),
    "and stays as long as that does (H11)": (
        leaving(claim(), SYNCER), leaving(copy(), "provider.example/x"), [],
    ),
    "told how that goes": (
        leaving(claim(), SYNCER), leaving(copy(**READY), "x.example/x"), ["status to status"],
    ),
    "and goes then": (leaving(claim(), SYNCER), None, ["let the claim go"]),
    "held by others only": (leaving(claim(), "somebody.example/x"), None, []),
    "one that never was held leaves a copy behind that is not its own": (
        leaving(claim({}), "somebody.example/x"), copy(UNMARKED), [],
    ),
    "a marked copy of a claim that somebody stripped": (
        leaving(claim({}), "somebody.example/x"), copy(), [],
    ),
    "an orphan whose claim came back": (
        claim(), copy({"annotations": {BOUND: "true", ORPHANED: GONE}}), ["mark copy"],
    ),
    "a held deletion of a claim that a restore brought back": (
        claim(), copy({"annotations": {BOUND: "true", keys.DELETION_HELD: "u/5"}}), ["mark copy"],
    ),
    "an orphan is kept": (None, copy({"annotations": {BOUND: "true", ORPHANED: GONE}}), []),
    "the original marks no copy that it adopted": (
        leaving(claim(), SYNCER), copy(UNMARKED), ["delete copy"],
    ),
    "a released copy stays": (
        leaving(claim(), SYNCER), copy({"annotations": {RELEASED: GONE}}), ["let the claim go"],
    ),
    "a copy that nobody's konnector made comes down": (None, copy(UNMARKED), ["create claim"]),
    "but not on its way out": (None, leaving(copy(UNMARKED), "x.example/x"), []),
    "a marked copy without a claim: is it really gone?": (None, copy(), Read.CLAIM),
    "a mark of any value": (None, copy({"annotations": {BOUND: ""}}), Read.CLAIM),
    "a marked copy on its way out": (None, leaving(copy(), "x.example/x"), []),
    "nothing at all": (None, None, []),
}  # fmt: skip


@pytest.mark.parametrize(("one", "other", "steps"), TABLE.values(), ids=TABLE.keys())
def test_what_follows(one, other, steps):
    assert reported(look(one, other)) == steps


def test_an_orphan_goes_when_it_is_meant_and_its_claim_is_gone_for_the_server_too():
    orphan = copy({"annotations": {BOUND: "true", ORPHANED: GONE}})
    meant = {"terms": Terms(KIND.resource, Confirmation(KIND.resource))}
    assert look(None, orphan, **meant) is Read.CLAIM
    assert reported(look(None, orphan, claim_gone=True, **meant)) == ["delete copy"]


def test_what_a_guard_holds_is_reported_at_the_claim():
    goes = leaving(claim(), SYNCER)
    known = copy({"annotations": {BOUND: "true", keys.DELETION_HELD: f"{uid_of(goes)}/5"}})
    for one, other, held, steps in (
        (goes, copy(), {"delete_guard": "Why."}, ["mark copy"]),
        (goes, known, {"delete_guard": "Why."}, []),
        (claim(), None, {"create_guard": "Why."}, []),
    ):
        found = look(one, other, **held)
        assert isinstance(found, Decision)
        assert (reported(found), [note.message for note in found.notes]) == (steps, ["Why."])
        assert [note.type for note in found.notes] == ["Warning"]


def test_what_is_bound_again_without_its_copy_says_no_more_that_it_is_unbound():
    stop: Any = claim_status.stopped(claim(), claim_status.RELEASED, now=NOW)
    ready = {"type": "Ready", "status": "True"}
    said = {"conditions": [ready, *stop["conditions"]]}
    for held in ({"create_guard": "Why."}, {"taken": True}):
        found = look(claim(status=said), None, **held)
        assert one_step(found).operations[1]["value"] == [ready]
        assert len(found.notes) == 1
        assert look(claim(status={"conditions": [ready]}), None, **held).tasks == ()


def goes_on(since, **status):
    """Return the Event about a claim that waits for its copy, as (type, message)."""
    going = leaving(claim(), SYNCER)
    going["metadata"]["deletionTimestamp"] = format_time(NOW - timedelta(seconds=since))
    found = look(going, leaving(copy(status=status), "provider.example/x"))
    assert isinstance(found, Decision)
    return [(note.type, note.message) for note in found.notes]


def test_a_claim_that_waits_for_its_copy_repeats_what_that_says():
    ready = {"type": "Ready", "status": "False", "reason": "Deleting"}
    done = {"type": "Synced", "status": "True", "message": "all is well"}
    why = {"type": "Released", "status": "False", "reason": "StillBound", "message": "by grain"}
    words = "The control plane is still deleting it: StillBound: by grain"
    assert goes_on(0, conditions=[done, ready, why]) == [("Warning", words)]
    assert goes_on(0, conditions=[done, ready]) == []
    (silent,) = goes_on(10, conditions=[done, ready])
    assert silent[0] == "Normal"
    assert "provider.example/x" in silent[1]


def test_a_claim_that_waits_is_looked_at_again():
    ages = (-5, 0, 4, 10, 3600)
    again = [noted_in(timedelta(seconds=age)).total_seconds() for age in ages]
    assert again == [10, 10, 6, 1800, 1800]


CREATED = "waits for the composite"
NESTED = {"type": "Ready", "status": "False", "reason": "Failed", "message": "no instance dogh"}
UNREADY: dict[str, tuple[Any, int, str]] = {  # a Ready of which age, and the Event
    "it lasts": ({"message": CREATED}, 10, f"Not ready: {CREATED}"),
    "unknown": ({"status": "Unknown", "reason": "Asked"}, 99, "gives no reason"),
    "never composed": ({"type": "Synced", "message": "no such field"}, 99, "no such field"),
    "of an older spec": ({"message": CREATED, "observedGeneration": 1}, 99, ""),
    "of no time": ({"message": CREATED, "lastTransitionTime": None}, 99, CREATED),
}


@pytest.mark.parametrize(("said", "age", "message"), UNREADY.values(), ids=UNREADY)
def test_a_claim_repeats_what_its_copy_waits_for(said, age, message):
    since = format_time(NOW - timedelta(seconds=age))
    one = {"type": "Ready", "status": "False", "lastTransitionTime": since, **said}
    metadata = {"annotations": {BOUND: "true"}, "generation": 2, "creationTimestamp": since}
    below = {} if "reason" in said else {"managed": {"conditions": [NESTED]}}
    found = look(claim(), copy(metadata, status={"conditions": [one], **below}))
    notes = [(note.reason, note.message) for note in found.notes]
    assert [reason for reason, _ in notes] == ["NotReady"] * bool(message)
    assert all(message in one and bool(below) is ("no instance dogh" in one) for _, one in notes)


def test_a_guard_against_recreation_lets_new_claims_through():
    assert reported(look(claim({}), None, create_guard="Why.")) == ["hold claim", "create copy"]
    assert reported(look(claim({}), None, create_guard="Why.", withdrawn=True)) == []


def test_nothing_is_adopted_into_a_namespace_that_is_not_there():
    assert look(None, copy(UNMARKED), unmapped=True) == NOTHING
    assert reported(look(None, copy(), unmapped=True, claim_gone=True)) == ["mark copy"]


def test_a_name_that_somebody_else_has_is_reported_and_left_alone():
    found = look(claim({}), None, taken="Ask.")
    assert isinstance(found, Decision)
    assert found.tasks == ()
    assert [note.reason for note in found.notes] == [NAME_TAKEN]
    assert "cluster-a1-dev/orders" in found.notes[0].message
    assert reported(look(leaving(claim(), SYNCER), None, taken="x")) == ["let the claim go"]


def one_step(found: Any) -> Any:
    assert isinstance(found, Decision)
    (task,) = found.tasks
    return task.steps[-1]


def step_of(found: Any, kind: type) -> Any:
    assert isinstance(found, Decision)
    (step,) = [step for task in found.tasks for step in task.steps if isinstance(step, kind)]
    return step


def test_a_claim_is_held_before_and_marked_after_its_copy_is_made():
    first = step_of(look(claim(FRESH), None), Patch)
    last = step_of(look(claim({"finalizers": [SYNCER]}), made_for("uid-dev")), Patch)
    identity = {"uid": "uid-dev", "resourceVersion": "7"}
    assert first.body["metadata"] == {**identity, "finalizers": ["somebody.example/x", SYNCER]}
    marks = {BOUND: "true", CLAIM_UID: "uid-dev"}
    assert last.body["metadata"] == {**identity, "annotations": marks}


def made_for(uid, **notes):
    return copy({"annotations": {BOUND: "true", CLAIM_UID: uid, **notes}})


def bound(uid):
    return claim({"annotations": {BOUND: "true", CLAIM_UID: uid}, "finalizers": [SYNCER]})


ORPHAN = {ORPHANED: GONE}
OTHERS = made_for("uid-of-former")
DYING = leaving(OTHERS, "provider.example/x")
GOING = leaving(claim(), SYNCER)
BARE = copy(UNMARKED)
SURE = {"same_namespace": True}
# Law 6, identity.md 2: the claim, its copy, what is known beside them, what follows, and Events.
LIVES: dict[str, tuple[Any, Any, Any, Any, Any]] = {
    "a live one gets the copy of a former one": (
        bound("uid-dev"), OTHERS, SURE, ["mark copy"], ["Readopted"],
    ),
    "restored with marks of its former life": (
        bound("uid-of-former"), OTHERS, SURE, ["mark claim", "mark copy"], ["Readopted"],
    ),
    "it gets none that is on its way out, and does not seem to have had one": (
        claim({}), DYING, {}, [], ["FormerCopyPending"],
    ),
    "S7: an old deletion ends no copy of a later life": (
        GOING, OTHERS, {}, ["let the claim go"], [],
    ),
    "S7: nor an orphan": (GOING, made_for("uid-dev", **ORPHAN), {}, ["let the claim go"], []),
    "S7: nor waits for one that goes": (GOING, DYING, {}, ["let the claim go"], []),
    "S7: nor one without uid, where all had one": (
        GOING, BARE, {"stamped": True}, ["let the claim go"], [],
    ),
    "its own goes": (GOING, made_for("uid-dev"), {}, ["delete copy"], []),
    "one of a time without uids goes as it did": (GOING, copy(), {}, ["delete copy"], []),
    "S28: marks that were copied from one that lives are words": (
        bound("uid-of-other"), None, {"create_guard": "Why.", "copied": True}, ["create copy"], [],
    ),
    "S28: those of one that is no more tell of a loss": (
        bound("uid-of-other"), None, {"create_guard": "Why."}, [], ["RecreationHeld"],
    ),
    "S28: its own do": (bound("uid-dev"), None, {"create_guard": "Why."}, [], ["RecreationHeld"]),
    "a pair without uids waits for its turn": (
        claim(), copy(), {"stamps_in": timedelta(seconds=1)}, [], [],
    ),
    "and gets them then": (
        claim(), copy(), {"stamps_in": AT_ONCE}, ["mark claim", "mark copy"], [],
    ),
    "the rest of it": (
        claim(), made_for("uid-dev"), {"stamps_in": AT_ONCE}, ["mark claim"], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("one", "other", "more", "steps", "notes"), LIVES.values(), ids=LIVES)
def test_what_follows_for_another_life(one, other, more, steps, notes):
    if more is SURE:  # a view may still show the Namespace that was mapped
        assert look(one, other) is Read.NAMESPACE
    found = look(one, other, **more)
    assert isinstance(found, Decision)
    assert (reported(found), [note.reason for note in found.notes]) == (steps, notes)


def test_a_status_comes_before_the_mark_and_without_one_the_mark_soon():
    held = claim({"finalizers": [SYNCER]})
    made: Any = made_for("uid-dev")
    new = put(made, format_time(NOW), "metadata", "creationTimestamp")
    assert reported(look(held, new)) == []
    assert reported(look(held, {**new, **READY})) == ["status to status"]
    assert reported(look({**held, **READY}, {**new, **READY})) == ["mark claim"]
    assert reported(look({**held, **READY}, {**new, **READY}, rests=False)) == []
    assert marks_in(seen(held, new), held, new) == MARKED_WITHIN
    for clock in (NOW + MARKED_WITHIN, NOW - timedelta(seconds=1)):
        assert reported(look(held, new, now=clock)) == ["mark claim"]
        late = look(held, {**new, **READY}, now=clock)
        assert reported(late) == ["status to status", "mark claim"]


def test_the_finalizers_of_others_stay():
    patch = one_step(look(leaving(claim(), "a.example/a", SYNCER, "b.example/b"), None))
    assert patch.body["metadata"]["finalizers"] == ["a.example/a", "b.example/b"]


def test_a_claim_says_that_finalizers_of_others_do_not_travel():
    """At its creation, and once nothing but them keeps it; Kubernetes' own are no news."""
    theirs, ours = "operator.example/in-order", [SYNCER, "foregroundDeletion"]
    for found, end in (
        (look(claim({"finalizers": [theirs]}), None), "goes without them"),
        (look(leaving(claim(), theirs, *ours), None), "waits until they are removed"),
        (look(leaving(claim(), theirs, SYNCER), copy({"annotations": {RELEASED: "x"}})), "removed"),
    ):
        (note,) = found.notes
        assert (note.reason, note.type) == ("FinalizersStay", "Warning")
        assert theirs in note.message
        assert SYNCER not in note.message
        assert note.message.endswith(end)
    assert look(claim({}), None).notes == look(leaving(claim(), *ours), None).notes == ()
    assert look(leaving(claim(), theirs, SYNCER), copy()).notes == ()  # it has a copy


TOOLS = {
    LAST_APPLIED: "{}",
    "argocd.argoproj.io/tracking-id": "x",
    "meta.helm.sh/release-name": "x",
    OWNER: "Consumer",
    "klutchctl.dev/cluster": "x",
}


def test_a_copy_has_content_and_what_is_meant_to_travel_and_nothing_else():
    meta = {
        "generateName": "orders-",
        "generation": 4,
        "creationTimestamp": GONE,
        "labels": {"team": "a", "app.kubernetes.io/managed-by": "Helm"},
        "annotations": {"note": "n", **TOOLS},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}],
        "finalizers": ["somebody.example/x"],
        "managedFields": [{"manager": "kubectl"}],
    }
    created = step_of(look(claim(meta, data={"x": "y"}, **READY), None), Create)
    assert created.cluster == "control-plane"
    assert created.manifest == {
        "apiVersion": "shop.example/v1",
        "kind": "Database",
        "metadata": {
            "name": "orders",
            "namespace": "cluster-a1-dev",
            "labels": {"team": "a"},
            "annotations": {"note": "n", BOUND: "true", CLAIM_UID: "uid-dev"},
        },
        "spec": SMALL,
        "data": {"x": "y"},
    }


def test_an_adopted_claim_has_neither_owners_nor_finalizers_of_the_other_side():
    meta = {
        "labels": {"app.kubernetes.io/name": "a", "team": "a", "argocd.argoproj.io/instance": "x"},
        "annotations": {"note": "n", **TOOLS},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}],
        "finalizers": ["provider.example/x"],
    }
    created = step_of(look(None, copy(meta, **READY)), Create)
    assert created.manifest == {
        "apiVersion": "shop.example/v1",
        "kind": "Database",
        "metadata": {
            "name": "orders",
            "namespace": "dev",
            "labels": {"app.kubernetes.io/name": "a"},
            "annotations": {},
            "finalizers": [SYNCER],
        },
        "spec": SMALL,
    }


def test_an_apply_says_what_the_claim_says_of_exactly_that_copy():
    meta = {**HELD, "labels": {"team": "a"}}
    other = copy(spec={"size": "1Gi", "resourceRef": {"name": "x"}})
    assert one_step(look(claim(meta, spec=LARGE), other)).manifest == {
        "apiVersion": "shop.example/v1",
        "kind": "Database",
        "metadata": {
            "name": "orders",
            "namespace": "cluster-a1-dev",
            "uid": "uid-cluster-a1-dev",
            "resourceVersion": "7",
            "labels": {"team": "a"},
            "annotations": {BOUND: "true", CLAIM_UID: "uid-dev"},
        },
        "spec": LARGE,
    }


# What is set where, of a status before and after; of None is removed.
STATUSES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "a field that differs": (
        {"phase": "Pending", "old": 1, "log": "long"},
        {"phase": "Ready", "log": "long"},
        {"/status/old": ..., "/status/phase": "Ready"},
    ),
    "a null in a required field": ({}, {"doneAt": None}, {"/status/doneAt": None}),
    "a null in an item of a list": (
        {"list": [{"x": 1}]},
        {"list": [{"x": 1, "y": None}]},
        {"/status/list": [{"x": 1, "y": None}]},
    ),
    "a null that goes": ({"a": {"b": None}}, {"a": {}}, {"/status/a": {}}),
    "true in place of one": ({"n": 1}, {"n": True}, {"/status/n": True}),
    "a name with marks": ({}, {"a/b~c": 1}, {"/status/a~1b~0c": 1}),
    "the first status": (None, {"phase": "Ready"}, {"/status": {"phase": "Ready"}}),
    "a status that is empty": (None, {}, {"/status": {}}),
    "no status any more": ({"phase": "Ready"}, None, {"/status": ...}),
}


@pytest.mark.parametrize(("before", "after", "wanted"), STATUSES.values(), ids=STATUSES)
def test_what_differs_in_a_status_is_written_as_it_is_and_not_again(before, after, wanted):
    patch = one_step(look(claim(status=before), copy(status=after)))
    assert (patch.ref.cluster, patch.subresource) == (APP_CLUSTER, "status")
    first, *changes = patch.operations
    assert first == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    said = {one["path"]: ... if one["op"] == "remove" else one["value"] for one in changes}
    assert said == wanted
    assert look(claim(status=after), copy(status=after)) == NOTHING


# The copy's generation, the one that was observed, which one the claim shows and is to show; the
# claim's is 9.
OBSERVED = {
    "the newest": (3, 3, None, 9),
    "an older one": (3, 2, None, 8),
    "an older one, and the claim shows an old one": (3, 2, 5, 5),
    "an older one, and the claim shows the newest": (3, 2, 9, 8),
}


@pytest.mark.parametrize(("newest", "observed", "shown", "wanted"), OBSERVED.values(), ids=OBSERVED)
def test_a_status_names_the_generation_of_the_claim(newest, observed, shown, wanted):
    def of(generation):
        ready = {"type": "Ready", "status": "True", "observedGeneration": generation}
        return {"conditions": [ready], "observedGeneration": generation}

    mine = claim({**HELD, "generation": 9}, status=None if shown is None else of(shown))
    theirs = copy({"annotations": {BOUND: "true"}, "generation": newest}, status=of(observed))
    found = look(mine, theirs)
    assert reported(found) == ([] if shown == wanted else ["status to status"])
    if reported(found):
        said = {one["path"]: one["value"] for one in one_step(found).operations[1:]}
        assert said.get("/status", {**of(wanted)}) == of(wanted)
    behind: Any = look(put(mine, LARGE, "spec"), theirs)
    numbers = str([step for task in behind.tasks for step in task.steps])
    assert "'observedGeneration': 9" not in numbers
    bare = Pair(KIND, "cluster-a1", "uid-of-space", has_status=False)
    assert str(observed) in str(one_step(decide(bare, seen(claim(), theirs))).operations)


def test_without_the_subresource_a_status_is_a_field_like_others():
    pair = Pair(KIND, "cluster-a1", "uid-of-space", has_status=False)
    assert reported(decide(pair, seen(claim(), copy(**READY)))) == ["status to the object"]
