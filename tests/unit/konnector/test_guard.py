"""When writes are held, since one side may have lost or been exchanged (T8, T11, T16)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from konnector import APP_CLUSTER
from konnector.mass_loss import decide as mass_loss_decide
from konnector.mass_loss import rules
from konnector.mass_loss.decide import ALL, Confirmations, Guarded, Identity, Recreation, Seen
from konnector.mass_loss.waves import Record, Wave
from reconciler.api import CLUSTER_BINDING
from reconciler.core import conditions, keys
from reconciler.core.decision import Patch, status_patch
from reconciler.core.manifest import get_list, ref_of
from reconciler.core.refs import NAMESPACE, SECRET, ObjectKey
from reconciler.core.times import format_time, is_confirmed
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


def place(name):
    return ObjectKey("dev", name)


STRANGERS = {
    "the same app cluster": (SAME, "", ""),
    "a space of which nothing was recorded": (FIRST_TIME, "", ""),
    "nothing recorded, and nothing known": (Identity(SPACE), "", ""),
    "another space is no reason": (OTHER_SPACE, "", ""),
    "one mapping of another app cluster": (OTHER_APP, "", "is not the one whose services"),
    "an app cluster that cannot be told": (UNKNOWN_APP, "", "in the app cluster is not known"),
    "another app cluster, confirmed by its uid": (OTHER_APP, "new", ""),
    "the old one confirmed": (OTHER_APP, "app", "is not the one whose services"),
    "a word that is no uid": (OTHER_APP, "true", "is not the one whose services"),
    "nobody can confirm what is not known": (UNKNOWN_APP, "app", "is not known"),
}


@pytest.mark.parametrize(("identity", "confirmed", "why"), STRANGERS.values(), ids=STRANGERS.keys())
def test_strangers(identity, confirmed, why):
    found = mass_loss_decide.mismatch(identity, confirmed)
    assert (found is not None) == bool(why)
    assert why in (found or (None, ""))[1]


SPACES = {
    "the same space": (SAME, ""),
    "a space of which nothing was recorded": (FIRST_TIME, ""),
    "control-plane mode has no Secret to remember it": (Identity(SPACE), ""),
    "a space that was made anew": (OTHER_SPACE, "is not the one that the app cluster was"),
    "a space that cannot be told": (UNKNOWN_SPACE, "space's Namespace is not known"),
    "another app cluster is no reason": (OTHER_APP, ""),
}


@pytest.mark.parametrize(("identity", "why"), SPACES.values(), ids=SPACES.keys())
def test_spaces(identity, why):
    found = mass_loss_decide.other_space(identity)
    assert (found is not None) == bool(why)
    assert why in (found or (None, ""))[1]


def test_sentences_name_the_next_step():
    _, mismatch = mass_loss_decide.mismatch(OTHER_APP, "") or (None, "")
    command = "kubectl annotate clusterbindings.klutch.anynines.com cluster -n cluster-a1"
    assert f"{command} --overwrite klutchctl.dev/confirm-app-cluster=new" in mismatch
    lost = mass_loss_decide.lost(DATABASES, SPACE)
    assert f"{command} --overwrite klutchctl.dev/confirm-recreate={DATABASES}" in lost
    others = {f"dev-{one:02}": "new" for one in range(12)}
    another = mass_loss_decide.another_namespace(others, SPACE)
    assert f"{command} --overwrite klutchctl.dev/confirm-namespaces=dev-00=new,dev-" in another
    assert "in dev-00, dev-01, dev-02 and 9 more:" in another
    deleted = mass_loss_decide.mass_deletion(DATABASES, "why", SPACE)
    assert f"{command} --overwrite klutchctl.dev/confirm-mass-delete=" in deleted
    ends = [text.partition("If not: ")[2] for text in (mismatch, lost, another, deleted)]
    reasons = ("AppClusterChanged", "RecreationHeld", "AnotherNamespace", "MassDeletion")
    assert ends == [f"klutchctl explain {one}" for one in reasons]


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
    assert is_confirmed(time, NOW) is holds
    assert mass_loss_decide.changes_in(Confirmations(mass_delete=time), NOW) == again
    recreate = Recreation(frozenset({ALL}), time)
    assert mass_loss_decide.changes_in(Confirmations(recreate=recreate), NOW) == again
    assert recreate.allows(DATABASES, NOW) is holds


def test_the_first_change_counts():
    recreate = Recreation(frozenset({ALL}), NOW - 10 * MINUTE)
    both = Confirmations(mass_delete=NOW - 50 * MINUTE, recreate=recreate)
    assert mass_loss_decide.changes_in(both, NOW) == 10 * MINUTE


def annotated(key, value, *writes):
    """Return a ClusterBinding as a view keeps it, and who wrote the annotation when."""
    entries = [
        {"manager": "kubectl", "time": format_time(time), "fieldsV1": {
            "f:metadata": {"f:annotations": {f"f:{one}": {}, ".": {}}}, "f:spec": {"f:x": {}},
        }}
        for one, time in writes
    ]  # fmt: skip
    metadata = {"annotations": {key: value}, "managedFields": entries}
    return mass_loss_decide.trimmed(
        live(CLUSTER_BINDING, "cluster", namespace=SPACE, metadata=metadata)
    )


EARLIER = NOW - 10 * MINUTE
WRITTEN = ((keys.CONFIRM_RECREATE, EARLIER), ("other", NOW))
NOTHING = Confirmations()
SAID: dict[str, tuple[object, Confirmations]] = {
    "there is none": (None, NOTHING),
    "nothing": ({"metadata": {}}, NOTHING),
    "no annotations but a list": ({"metadata": {"annotations": [1]}}, NOTHING),
    "a number is no time": ({"metadata": {"annotations": {keys.CONFIRM_RECREATE: 5}}}, NOTHING),
    "a time": (
        annotated(keys.CONFIRM_MASS_DELETE, format_time(NOW)), Confirmations(mass_delete=NOW),
    ),
    "true is no time": (annotated(keys.CONFIRM_MASS_DELETE, "true"), NOTHING),
    "an app cluster": (
        annotated(keys.CONFIRM_APP_CLUSTER, "uid-1"), Confirmations(app_cluster="uid-1"),
    ),
    "app namespaces": (
        annotated(keys.CONFIRM_NAMESPACES, "a=1, b=2,c,=3,d="),
        Confirmations(namespaces={"a": "1", "b": "2"}),
    ),
    "recreation, the way of before": (
        annotated(keys.CONFIRM_RECREATE, format_time(NOW), *WRITTEN),
        Confirmations(recreate=Recreation(frozenset({ALL}), NOW)),
    ),
    "recreation of one resource, as of when that was said": (
        annotated(keys.CONFIRM_RECREATE, DATABASES, *WRITTEN),
        Confirmations(recreate=Recreation(frozenset({DATABASES}), EARLIER)),
    ),
    "recreation of all": (
        annotated(keys.CONFIRM_RECREATE, "all", *WRITTEN),
        Confirmations(recreate=Recreation(frozenset({ALL}), EARLIER)),
    ),
    "recreation since nobody knows when": (
        annotated(keys.CONFIRM_RECREATE, "all", ("other", NOW)),
        Confirmations(recreate=Recreation(frozenset({ALL}), None)),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("binding", "expected"), SAID.values(), ids=SAID.keys())
def test_what_a_cluster_binding_confirms(binding, expected):
    assert mass_loss_decide.confirmations_of(binding) == expected


def test_what_may_be_made_again():
    one = Recreation(frozenset({DATABASES}), NOW)
    assert one.allows(DATABASES, NOW)
    assert not one.allows("others.shop.example", NOW)
    assert not one.allows(ALL, NOW)
    assert not Recreation(frozenset({ALL}), None).allows(DATABASES, NOW)
    assert not Recreation(frozenset(), NOW).allows(DATABASES, NOW)


def times(number, *, every):
    return [NOW + one * every for one in range(number)]


MASS = {
    "the only one": (times(1, every=SECOND), 1, False),
    "five of five": (times(5, every=SECOND), 5, False),
    "six of six": (times(6, every=SECOND), 6, True),
    "six of eleven, more than half": (times(6, every=SECOND), 11, True),
    "six of twelve, just half": (times(6, every=SECOND), 12, False),
    "six of six at once": ([NOW] * 6, 6, True),
    "six of six, too slow": (times(6, every=12 * SECOND), 6, False),
    "six of six in less than a minute": (times(6, every=11 * SECOND), 6, True),
    "half of a thousand": ([NOW] * 500, 1000, False),
    "one more than half of it": ([NOW] * 501, 1000, True),
    "those of yesterday": ([*times(5, every=SECOND), *[NOW - 24 * HOUR] * 20], 30, False),
}


@pytest.mark.parametrize(("deleted", "total", "held"), MASS.values(), ids=MASS.keys())
def test_how_many_deletions_are_too_many(deleted, total, held):
    assert rules.too_many(deleted, NOW, lambda: total - len(deleted)) is held


def test_what_klutchctl_deletes_is_meant():
    space = live(NAMESPACE, SPACE, metadata={"annotations": {
        keys.LEAVING: f"a.example=Release,{DATABASES}=Delete,b.example=Delete"
    }})  # fmt: skip
    assert rules.is_being_deleted(space, DATABASES)
    assert not rules.is_being_deleted(space, "a.example")
    assert not rules.is_being_deleted(space, "example")
    assert not rules.is_being_deleted({}, DATABASES)


def binding(*held, **annotations):
    made = live(CLUSTER_BINDING, "cluster", namespace=SPACE, status={"conditions": list(held)})
    return live_like(made, annotations=annotations)


def reported(*things, held=(), identity=SAME, others=None, **annotations):
    seen = Seen(binding(*held, **annotations), identity, things, others or {})
    return mass_loss_decide.report(seen, now=NOW)


def said(decision):
    return [(one.type, one.status, one.reason) for one in decision.conditions]


ORPHANS = Guarded(DATABASES, orphans={place("b"), place("a")})
LOST = Guarded(DATABASES, lost={place("a")})
DELETED = Guarded(DATABASES, deletions={"Copies are kept"})
REPORTED: dict[str, Any] = {
    "nothing is said before the first trouble": ([Guarded(DATABASES)], {}, []),
    "orphans": ([ORPHANS], {}, [("InstancesInSync", "False", "Orphaned")]),
    "an app namespace of another uid": (
        [ORPHANS], {"others": {"dev": "new"}}, [("InstancesInSync", "False", "AnotherNamespace")],
    ),
    "copies are gone": ([LOST], {}, [("RecreationAllowed", "False", "RecreationHeld")]),
    "a mass deletion": ([DELETED], {}, [("DeletesAllowed", "False", "MassDeletion")]),
    "another app cluster": (
        [DELETED], {"identity": OTHER_APP}, [("DeletesAllowed", "False", "AppClusterChanged")],
    ),
    "another app cluster, confirmed": (
        [], {"identity": OTHER_APP, keys.CONFIRM_APP_CLUSTER: "new"}, [],
    ),
    "an app cluster that cannot be told": (
        [], {"identity": UNKNOWN_APP}, [("DeletesAllowed", "False", "AppClusterUnknown")],
    ),
    "another space": (
        [], {"identity": OTHER_SPACE}, [("RecreationAllowed", "False", "SpaceChanged")],
    ),
    "another space, confirmed": (
        [], {"identity": OTHER_SPACE, keys.CONFIRM_RECREATE: format_time(NOW)}, [],
    ),
    "a space that cannot be told": (
        [], {"identity": UNKNOWN_SPACE}, [("RecreationAllowed", "False", "SpaceUnknown")],
    ),
    "what is over is said to be over": (
        [], {"held": [condition("DeletesAllowed", "False", "MassDeletion")]},
        [("DeletesAllowed", "True", "")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("things", "facts", "expected"), REPORTED.values(), ids=REPORTED.keys())
def test_what_the_cluster_binding_tells(things, facts, expected):
    decision = reported(*things, **facts)
    assert said(decision) == expected
    assert [note.reason for note in decision.notes] == [reason for *_, reason in expected if reason]
    assert not decision.tasks


def test_an_event_comes_once_for_the_same():
    held = conditions.dump(reported(ORPHANS).conditions)
    assert reported(ORPHANS, held=held).notes == ()
    assert reported(Guarded(DATABASES, orphans={place("a")}), held=held).notes != ()


def test_what_is_reported_already_is_not_written_again():
    before = binding()
    ref = ref_of(CONTROL_PLANE, CLUSTER_BINDING, before)
    patch = status_patch(before, ref, reported(ORPHANS), failed=(), now=NOW)
    assert patch is not None
    held = get_list(patch.body, "status", "conditions")
    later = NOW + HOUR
    after = reported(ORPHANS, held=held)
    assert status_patch(binding(*held), ref, after, failed=(), now=later) is None


def test_a_guard_that_is_closed_is_looked_at_each_minute():
    assert reported(LOST).again == MINUTE
    assert reported(identity=OTHER_SPACE).again == MINUTE


def test_a_confirmation_is_looked_at_until_it_ends():
    time = format_time(NOW - 20 * MINUTE)
    assert reported(**{keys.CONFIRM_RECREATE: time}).again == 40 * MINUTE
    assert reported().again is None


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
    patch = mass_loss_decide.space_record(held, identity, confirmed=yes)
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
    assert mass_loss_decide.recorded([*marked, mapping(), *hostile], keys.APP_CLUSTER_UID) == {
        "1",
        "2",
    }


@pytest.mark.parametrize("status", [None, [], {"conditions": 5}, {"conditions": [1, {}, None]}])
def test_hostile_cluster_bindings(status):
    seen = Seen({"metadata": "no", "status": status}, SAME, [ORPHANS])
    assert said(mass_loss_decide.report(seen, now=NOW)) == [
        ("InstancesInSync", "False", "Orphaned")
    ]


@pytest.mark.parametrize(
    ("said", "few"),
    [("20", 20), ("0", 0), ("", rules.FEW), ("-1", rules.FEW), ("1" * 5000, rules.FEW)],
)
def test_how_many_deletions_a_binding_allows_at_once(said, few):
    live_one = {"metadata": {"annotations": {keys.DELETIONS_AT_ONCE: said}}}
    assert rules.few_of(live_one) == few


def ends(at, uid="now"):
    return {"metadata": {"uid": uid, "deletionTimestamp": format_time(at)}}


MAPPED = {"metadata": {"annotations": {keys.APP_NAMESPACE_UID: "now"}}}
GOES_WITH = {
    "at the same second": (ends(NOW), MAPPED, True),
    "after it": (ends(NOW - MINUTE), MAPPED, True),
    "before it": (ends(NOW + SECOND), MAPPED, False),
    "of another life": (ends(NOW, "then"), MAPPED, False),
    "of a mapping that does not say": (ends(NOW), {"metadata": {}}, False),
    "without a mapping": (ends(NOW), None, False),
    "that stays": ({"metadata": {"uid": "now"}}, MAPPED, False),
}


@pytest.mark.parametrize(("namespace", "mapped", "goes"), GOES_WITH.values(), ids=GOES_WITH.keys())
def test_claims_that_go_with_a_namespace(namespace, mapped, goes):
    assert rules.goes_with(namespace, mapped, ends(NOW)) is goes


def test_a_deletion_that_is_held_stays_so_until_more_are_allowed():
    wave, there = Wave[str]("", Record()), dict.fromkeys("abcdef", NOW)
    assert wave.too_many("a", there, lambda: 0, rules.FEW)
    assert wave.too_many("a", there, lambda: 1000, rules.FEW)
    assert not wave.too_many("b", there, lambda: 1000, rules.FEW)
    assert not wave.too_many("a", there, lambda: 0, 6)
