"""When nothing is deleted or made anew, and how a person allows it (mapping.md 10, H4)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konnector.decisions import guard
from konnector.decisions.guard import APP_NAMESPACES, Confirmations, Count, Identity, Seen
from konnector.decisions.sides import APP_CLUSTER
from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.core import conditions, keys
from reconciler.core.decision import Patch, status_patch
from reconciler.core.durations import format_time
from reconciler.core.manifest import get_list, ref_of
from reconciler.core.refs import SECRET, ObjectKey
from tests.support.space_objects import (
    CONTROL_PLANE,
    NOW,
    SPACE,
    condition,
    deleting,
    live,
    live_like,
    mapping,
)

DATABASES = "databases.shop.example"
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
SAME = Identity(
    SPACE,
    app_cluster_uid="app",
    recorded_app_clusters=frozenset({"app"}),
    space_uid="space",
    recorded_spaces=frozenset({"space"}),
)
FIRST_TIME = Identity(SPACE, app_cluster_uid="app", space_uid="space")
OTHER_APP = Identity(SPACE, app_cluster_uid="new", recorded_app_clusters=frozenset({"app", "new"}))
OTHER_SPACE = Identity(SPACE, space_uid="new", recorded_spaces=frozenset({"space"}))
UNKNOWN_APP = Identity(SPACE, recorded_app_clusters=frozenset({"app"}))
UNKNOWN_SPACE = Identity(SPACE, recorded_spaces=frozenset({"space"}))
NONE = Count(DATABASES, 0, 0)
NEVER = Confirmations()


def confirmed(at=NOW):
    return Confirmations(mass_delete=at, recreate=at)


def of(lost, bound):
    return Count(DATABASES, lost, bound)


COUNTS = {
    "nothing is lost": (of(0, 0), False),
    "the only one": (of(1, 1), False),
    "five of five": (of(5, 5), False),
    "six of six": (of(6, 6), True),
    "six of eleven, more than half": (of(6, 11), True),
    "six of twelve, just half": (of(6, 12), False),
    "all of a thousand": (of(1000, 1000), True),
    "half of a thousand": (of(500, 1000), False),
    "one more than half of it": (of(501, 1000), True),
}


@pytest.mark.parametrize(("count", "held"), COUNTS.values(), ids=COUNTS.keys())
def test_how_much_is_too_much(count, held):
    for judge in (guard.deletes, guard.recreations):
        assert bool(judge(SAME, count, confirmations=NEVER, now=NOW)) is held
        assert judge(SAME, count, confirmations=confirmed(), now=NOW) == ""


DELETES = {
    "the same app cluster": (SAME, NEVER, ""),
    "a space of which nothing was recorded": (FIRST_TIME, NEVER, ""),
    "nothing recorded, and nothing known": (Identity(SPACE), NEVER, ""),
    "one mapping of another app cluster": (OTHER_APP, NEVER, "is not the one whose services"),
    "an app cluster that cannot be told": (UNKNOWN_APP, NEVER, "kube-system in the app cluster is"),
    "another space is no reason": (OTHER_SPACE, NEVER, ""),
    "another app cluster, confirmed": (OTHER_APP, confirmed(), ""),
    "confirmed for the other guard": (OTHER_APP, Confirmations(recreate=NOW), "is not the one"),
}


@pytest.mark.parametrize(("identity", "said", "why"), DELETES.values(), ids=DELETES.keys())
def test_deletes(identity, said, why):
    found = guard.deletes(identity, NONE, confirmations=said, now=NOW)
    assert bool(found) == bool(why)
    assert why in found


RECREATIONS = {
    "the same space": (SAME, NEVER, ""),
    "a space of which nothing was recorded": (FIRST_TIME, NEVER, ""),
    "control-plane mode has no Secret to remember it": (Identity(SPACE), NEVER, ""),
    "a space that was made anew": (OTHER_SPACE, NEVER, "is not the one that the app cluster was"),
    "a space that cannot be told": (UNKNOWN_SPACE, NEVER, "space's Namespace is not known"),
    "another app cluster is no reason": (OTHER_APP, NEVER, ""),
    "a space that was made anew, confirmed": (OTHER_SPACE, confirmed(), ""),
    "confirmed for the other guard": (OTHER_SPACE, Confirmations(mass_delete=NOW), "is not the"),
}


@pytest.mark.parametrize(("identity", "said", "why"), RECREATIONS.values(), ids=RECREATIONS.keys())
def test_recreations(identity, said, why):
    found = guard.recreations(identity, NONE, confirmations=said, now=NOW)
    assert bool(found) == bool(why)
    assert why in found


def test_a_sentence_tells_what_to_do():
    found = guard.deletes(SAME, Count(APP_NAMESPACES, 6, 6), confirmations=NEVER, now=NOW)
    assert found == (
        "Nothing is deleted on the control plane: more than half of the bound app namespaces are"
        " gone from the app cluster at once. If this is meant, allow it for an hour, on the control"
        " plane: kubectl annotate clusterbindings.klutch.anynines.com cluster -n cluster-a1"
        ' --overwrite klutchctl.dev/confirm-mass-delete="$(date -u +%Y-%m-%dT%H:%M:%SZ)"'
    )
    again = guard.recreations(SAME, of(6, 6), confirmations=NEVER, now=NOW)
    assert "--overwrite klutchctl.dev/confirm-recreate=" in again


TIMES = {
    "never": (None, False, None),
    "just now": (NOW, True, HOUR),
    "half an hour ago": (NOW - 30 * MINUTE, True, 30 * MINUTE),
    "a second less than an hour ago": (NOW - HOUR + SECOND, True, SECOND),
    "an hour ago": (NOW - HOUR, False, None),
    "by a clock that is a little ahead": (NOW + MINUTE, True, HOUR + MINUTE),
    "in the future": (NOW + 3 * MINUTE, False, 2 * MINUTE),
    "far in the future": (datetime.max.replace(tzinfo=UTC), False, HOUR),
    "at the beginning of time": (datetime.min.replace(tzinfo=UTC), False, None),
}


@pytest.mark.parametrize(("time", "holds", "again"), TIMES.values(), ids=TIMES.keys())
def test_how_long_a_confirmation_holds(time, holds, again):
    assert guard.is_confirmed(time, NOW) is holds
    assert guard.changes_in(Confirmations(mass_delete=time), NOW) == again
    assert guard.changes_in(Confirmations(recreate=time), NOW) == again


def test_the_first_change_counts():
    both = Confirmations(NOW - 50 * MINUTE, NOW - 10 * MINUTE)
    assert guard.changes_in(both, NOW) == 10 * MINUTE


SAID: dict[str, tuple[object, Confirmations]] = {
    "there is none": (None, NEVER),
    "nothing": ({"metadata": {}}, NEVER),
    "no annotations but a list": ({"metadata": {"annotations": [1]}}, NEVER),
    "true is no time": ({"metadata": {"annotations": {keys.CONFIRM_RECREATE: "true"}}}, NEVER),
    "a number is no time": ({"metadata": {"annotations": {keys.CONFIRM_RECREATE: 5}}}, NEVER),
    "a time": (
        {"metadata": {"annotations": {keys.CONFIRM_MASS_DELETE: format_time(NOW)}}},
        Confirmations(mass_delete=NOW),
    ),
}


@pytest.mark.parametrize(("binding", "expected"), SAID.values(), ids=SAID.keys())
def test_what_a_cluster_binding_confirms(binding, expected):
    assert guard.confirmations_of(binding) == expected


@given(
    lost=st.integers(0, 200),
    kept=st.integers(0, 200),
    more=st.integers(0, 200),
    strangers=st.frozensets(st.sampled_from(["app", "a", "b"])),
    joined=st.booleans(),
)
def test_more_loss_never_opens_a_guard(lost, kept, more, strangers, joined):
    identity = Identity(SPACE, app_cluster_uid="app", recorded_app_clusters=strangers)
    before = Count(DATABASES, lost, lost + kept)
    # What is lost more was bound and not lost before, or is bound besides.
    bound = before.bound + more if joined else before.bound
    after = Count(DATABASES, min(lost + more, bound), bound)
    wider = Identity(
        SPACE,
        app_cluster_uid="app",
        recorded_app_clusters=strangers | {"c"} if joined else strangers,
    )
    for judge in (guard.deletes, guard.recreations):
        if judge(identity, before, confirmations=NEVER, now=NOW):
            assert judge(wider, after, confirmations=NEVER, now=NOW)


@given(lost=st.integers(0, 5), kept=st.integers(0, 50))
def test_few_are_never_held(lost, kept):
    count = Count(DATABASES, lost, lost + kept)
    for judge in (guard.deletes, guard.recreations):
        assert judge(SAME, count, confirmations=NEVER, now=NOW) == ""


def binding(*held, **annotations):
    made = live(CLUSTER_BINDING, "cluster", namespace=SPACE, status={"conditions": list(held)})
    return live_like(made, annotations=annotations)


def told(*, held=(), identity=SAME, copies=(), claims=(), **annotations):
    seen = Seen(binding(*held, **annotations), identity, copies=copies, claims=claims)
    return guard.told(seen, now=NOW)


def said(decision):
    return [(one.type, one.status, one.reason) for one in decision.conditions]


MASS = (of(6, 9), Count(APP_NAMESPACES, 7, 8), Count("few.shop.example", 1, 1))
TOLD = {
    "nothing is said before the first trouble": ({}, [], []),
    "most of a kind is gone": (
        {"copies": MASS}, [("DeletesAllowed", "False", "MassDeleteHeld")], ["MassDeleteHeld"],
    ),
    "most copies are gone": (
        {"claims": MASS},
        [("RecreationAllowed", "False", "MassRecreationHeld")], ["MassRecreationHeld"],
    ),
    "another app cluster": (
        {"identity": OTHER_APP},
        [("DeletesAllowed", "False", "AppClusterChanged")], ["AppClusterChanged"],
    ),
    "an app cluster that cannot be told": (
        {"identity": UNKNOWN_APP},
        [("DeletesAllowed", "False", "AppClusterUnknown")], ["AppClusterUnknown"],
    ),
    "another space": (
        {"identity": OTHER_SPACE},
        [("RecreationAllowed", "False", "SpaceChanged")], ["SpaceChanged"],
    ),
    "a space that cannot be told": (
        {"identity": UNKNOWN_SPACE},
        [("RecreationAllowed", "False", "SpaceUnknown")], ["SpaceUnknown"],
    ),
    "another app cluster says more than its losses": (
        {"identity": OTHER_APP, "copies": MASS},
        [("DeletesAllowed", "False", "AppClusterChanged")], ["AppClusterChanged"],
    ),
    "what is over is said to be over": (
        {"held": [condition("DeletesAllowed", "False", "MassDeleteHeld")]},
        [("DeletesAllowed", "True", "")], [],
    ),
    "what is confirmed is allowed": (
        {"held": [condition("DeletesAllowed", "False", "MassDeleteHeld")], "copies": MASS,
         keys.CONFIRM_MASS_DELETE: format_time(NOW)},
        [("DeletesAllowed", "True", "")], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "expected", "notes"), TOLD.values(), ids=TOLD.keys())
def test_what_the_cluster_binding_tells(facts, expected, notes):
    decision = told(**facts)
    assert said(decision) == expected
    assert [note.reason for note in decision.notes] == notes
    assert not decision.tasks


def test_the_event_has_the_figures_and_the_condition_has_none():
    decision = told(copies=MASS)
    (note,), (held,) = decision.notes, decision.conditions
    assert note.message.startswith("Lost are 6 of 9 databases.shop.example, 7 of 8 app namespaces.")
    assert note.message.endswith(held.message)
    assert not any(figure in held.message for figure in ("6", "9"))
    assert told(copies=(of(8, 9), Count(APP_NAMESPACES, 8, 8))).conditions == (held,)


def test_an_event_comes_once():
    first = told(copies=MASS)
    held = conditions.dump(first.conditions)
    assert told(copies=MASS, held=held).notes == ()
    assert told(copies=(*MASS, Count("z.shop.example", 6, 6)), held=held).notes != ()


def test_many_kinds_are_cut():
    many = [Count(f"kind{i}.shop.example", 6, 6) for i in range(9)]
    (held,) = told(copies=many).conditions
    assert "kind4.shop.example and 4 more" in held.message


def test_what_is_told_already_is_not_written_again():
    before = binding()
    ref = ref_of(CONTROL_PLANE, CLUSTER_BINDING, before)
    decision = told(copies=MASS)
    patch = status_patch(before, ref, decision, failed=(), now=NOW)
    assert patch is not None
    held = get_list(patch.body, "status", "conditions")
    after = binding(*held)
    later = NOW + HOUR
    assert status_patch(after, ref, told(copies=MASS, held=held), failed=(), now=later) is None


LET_THROUGH = {
    "just now": (timedelta(), False, True),
    "within a minute": (MINUTE - SECOND, False, True),
    "a minute ago": (MINUTE, False, False),
    "by a clock that was put back": (-MINUTE, False, False),
    "long ago, while the guard is closed": (HOUR, True, True),
}


@pytest.mark.parametrize(("age", "held", "counts"), LET_THROUGH.values(), ids=LET_THROUGH.keys())
def test_how_long_what_was_let_through_counts_as_lost(age, held, counts):
    before = {ObjectKey("dev", "orders"): NOW - age}
    assert guard.still_lost(before, now=NOW, held=held) == (before if counts else {})


def test_a_guard_that_is_closed_is_looked_at_each_minute():
    assert told(copies=MASS).again == MINUTE
    assert told(identity=OTHER_SPACE).again == MINUTE


def test_a_confirmation_is_looked_at_until_it_ends():
    time = format_time(NOW - 20 * MINUTE)
    assert told(**{keys.CONFIRM_RECREATE: time}).again == 40 * MINUTE
    assert told().again is None


def secret(uid=""):
    made = live(SECRET, "kubeconfig-1", namespace="klutch-bind", data={"kubeconfig": "Y2FuYXJ5"})
    return live_like(made, annotations={keys.SPACE_UID: uid} if uid else {})


RECORDS = {
    "the first time": (secret(), SAME, False, "space"),
    "it is recorded": (secret("space"), SAME, False, ""),
    "another space stays recorded": (secret("old"), SAME, False, ""),
    "until a person confirms": (secret("old"), SAME, True, "space"),
    "what is not known is not recorded": (secret(), UNKNOWN_SPACE, True, ""),
    "nor where the Secret goes": (deleting(secret()), SAME, False, ""),
}


@pytest.mark.parametrize(("held", "identity", "yes", "uid"), RECORDS.values(), ids=RECORDS.keys())
def test_where_a_space_is_recorded(held, identity, yes, uid):
    patch = guard.space_record(held, identity, confirmed=yes)
    if not uid:
        assert patch is None
        return
    assert patch == Patch(
        ref_of(APP_CLUSTER, SECRET, held),
        {
            "metadata": {
                "uid": "uid-of-kubeconfig-1",
                "resourceVersion": "7",
                "annotations": {"klutchctl.dev/space-uid": uid},
            }
        },
    )
    assert "Y2FuYXJ5" not in repr(patch)


def test_what_mappings_record():
    marked = [live_like(mapping(name), annotations={keys.APP_CLUSTER_UID: uid})
              for name, uid in (("a", "1"), ("b", "1"), ("c", "2"), ("d", ""))]  # fmt: skip
    hostile: list[Any] = [
        {},
        {"metadata": None},
        {"metadata": {"annotations": {keys.APP_CLUSTER_UID: 7}}},
    ]
    assert guard.recorded([*marked, mapping(), *hostile], keys.APP_CLUSTER_UID) == {"1", "2"}


@pytest.mark.parametrize("status", [None, [], {"conditions": 5}, {"conditions": [1, {}, None]}])
def test_hostile_cluster_bindings(status):
    seen = Seen({"metadata": "no", "status": status}, SAME, copies=MASS)
    assert said(guard.told(seen, now=NOW)) == [("DeletesAllowed", "False", "MassDeleteHeld")]
