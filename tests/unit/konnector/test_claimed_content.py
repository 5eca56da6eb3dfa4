"""What is written of claimed objects, and what is told (protocol-konnector.md E.2, H12, H19)."""

from typing import Any

import pytest

from konnector.claim.orphans import Confirmation, Terms
from konnector.permission_claim.decide import CONFLICT, decide, needs_content
from reconciler.core.decision import NOTHING, Patch
from reconciler.core.manifest import drop, get_map, put
from tests.support.claimed_objects import (
    ANY,
    APP,
    BLUE,
    BLUE_UP,
    DOWN,
    NAMED,
    ONE,
    ORIGIN,
    ORIGIN_SPACE,
    ORPHANED,
    OTHER_NAME,
    OTHER_PLACE,
    OWNER,
    PLANE,
    RED,
    SINCE,
    TLS_UP,
    TWO,
    UP,
    VOUCHER,
    app,
    brought,
    looked,
    on,
    plane,
    reported,
    rules,
    uid_at,
)

OWNERS = [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}]


def test_credentials_come_down_in_two_writes():
    origin = plane(
        labels={"team": "a", "app.kubernetes.io/managed-by": "Helm"},
        annotations={"note": "n", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
    )
    origin["metadata"] |= {"ownerReferences": OWNERS, "finalizers": ["x.example/y"]}
    (task,) = decide(looked(DOWN, origin, None)).tasks
    steps: Any = task.steps
    made, mark = steps
    assert mark == Patch(
        mark.ref,
        {"metadata": {"uid": f"uid-{PLANE.namespace}", "resourceVersion": "7",
                      "annotations": {OWNER: "Provider"}}},
    )  # fmt: skip
    assert (mark.ref.cluster, mark.ref.namespace) == ("control-plane", PLANE.namespace)
    assert (made.cluster, made.manifest) == (
        "app-cluster",
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": "creds",
                "namespace": "team-a",
                "labels": {"team": "a"},
                "annotations": {"note": "n", OWNER: "Provider", **brought(PLANE)},
            },
            "type": "Opaque",
            "data": ONE,
        },
    )


def bodies(claims, provider, consumer, **more):
    """Return what the patches say beside their preconditions."""
    (task,) = decide(looked(claims, provider, consumer, **more)).tasks
    steps: Any = task.steps
    found = []
    for step in steps:
        assert isinstance(step, Patch)
        metadata = dict(get_map(step.body, "metadata"))
        assert metadata.pop("uid") == f"uid-{step.ref.namespace}"
        assert metadata.pop("resourceVersion") == "7"
        found.append(
            put(step.body, metadata, "metadata") if metadata else drop(step.body, "metadata")
        )
    return found


LAST_APPLIED = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
UPDATES = {
    "a rotated password": (
        plane("Provider", {"password": "MQ==", "user": "dQ=="}),
        app("Provider", {"password": "Mg==", "user": "dQ=="}),
        [{"data": {"password": "MQ=="}}],
    ),
    "a key more and a key less": (
        plane("Provider", {"new": "MQ=="}), app("Provider", {"old": "Mg=="}),
        [{"data": {"new": "MQ==", "old": None}}],
    ),
    "no data any more": (plane("Provider", None), app("Provider"), [{"data": None}]),
    "labels": (
        plane("Provider", labels={"a": "1", "b": "2"}),
        app("Provider", labels={"a": "0", "c": "3"}),
        [{"metadata": {"labels": {"a": "1", "b": "2", "c": None}}}],
    ),
    "annotations": (
        plane("Provider", annotations={"a": "1"}), app("Provider", annotations={"b": "2"}),
        [{"metadata": {"annotations": {"a": "1", "b": None}}}],
    ),
    "all in one write": (
        plane("Provider", TWO, labels=BLUE),
        app("", ONE, labels=RED, annotations=brought(PLANE)),
        [{"metadata": {"labels": BLUE, "annotations": {OWNER: "Provider"}}, "data": TWO}],
    ),
    "it becomes immutable": (
        plane("Provider", TWO, immutable=True), app("Provider"), [{"data": TWO, "immutable": True}],
    ),
    "labels of an immutable one": (
        plane("Provider", labels=BLUE, immutable=True), app("Provider", immutable=True),
        [{"metadata": {"labels": BLUE}}],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("provider", "consumer", "want"), UPDATES.values(), ids=UPDATES.keys())
def test_an_update_says_only_what_differs(provider, consumer, want):
    assert bodies(DOWN, provider, consumer) == want


EQUAL = {
    "tracking marks of one side": (
        plane("Provider", annotations=LAST_APPLIED, labels={"helm.sh/chart": "x"}),
        app("Provider", labels={"app.kubernetes.io/instance": "y"},
            annotations={"argocd.argoproj.io/tracking-id": "z"}),
    ),
    "a status": (plane("Provider", status={"a": 1}), app("Provider", status={"b": 2})),
    "a null and nothing": (
        plane("Provider", spec={"a": None, "l": [{"x": None}]}), app("Provider", spec={"l": [{}]}),
    ),
    "immutable on both": (plane("Provider", immutable=True), app("Provider", immutable=True)),
    "owners and finalizers": (
        plane("Provider"), {**app("Provider"), "metadata": {
            **app("Provider")["metadata"], "ownerReferences": OWNERS, "finalizers": ["x"]}},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("provider", "consumer"), EQUAL.values(), ids=EQUAL.keys())
def test_what_says_the_same_is_not_written(provider, consumer):
    assert decide(looked(DOWN, provider, consumer)) is NOTHING


SPECS = {
    "a field in depth": ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a": {"c": 2}}),
    "a field less": ({"a": {"b": 1}}, {"a": {"b": 1, "c": 3}}, {"a": {"c": None}}),
    "a list goes whole": ({"a": [1, 2]}, {"a": [1, 3]}, {"a": [1, 2]}),
    "a list of objects": ({"a": [{"x": 1, "y": None}]}, {"a": [{"x": 2}]}, {"a": [{"x": 1}]}),
    "true is not 1": ({"a": True}, {"a": 1}, {"a": True}),
    "also in a list": ({"a": [True]}, {"a": [1]}, {"a": [True]}),
    "an object for a text": ({"a": {"b": {"c": None, "d": 1}}}, {"a": "x"}, {"a": {"b": {"d": 1}}}),
    "a text for an object": ({"a": "x"}, {"a": {"b": 1}}, {"a": "x"}),
    "an object for a list": ({"a": {}}, {"a": [1]}, {"a": {}}),
    "an empty object for nothing": ({"a": {}}, {}, {"a": {}}),
    "nothing for a list": ({}, {"a": []}, {"a": None}),
}


@pytest.mark.parametrize(("wanted", "held", "patch"), SPECS.values(), ids=SPECS.keys())
def test_claimed_custom_resources_are_patched_too(wanted, held, patch):
    origin, copy = plane("Provider", None, spec=wanted), app("Provider", None, spec=held)
    assert bodies(DOWN, origin, copy, kind=VOUCHER) == [{"spec": patch}]


ANEW = ["delete app-cluster", "create app-cluster Provider"]
REPLACED = {
    "an immutable one with other data": (
        plane("Provider", TWO),
        app("Provider", immutable=True),
        ANEW,
    ),
    "another type": (plane("Provider", type="x/y"), app("Provider"), ANEW),
    "immutable no more": (plane("Provider"), app("Provider", immutable=True), ANEW),
    "with an origin that is not yet marked": (
        plane("", TWO),
        app("Provider", immutable=True),
        [*ANEW, "mark control-plane Provider"],
    ),
}


@pytest.mark.parametrize(("provider", "consumer", "steps"), REPLACED.values(), ids=REPLACED.keys())
def test_what_cannot_be_updated_is_made_anew_in_one_task(provider, consumer, steps):
    decision = decide(looked(DOWN, provider, consumer))
    assert reported(decision) == steps
    assert len(decision.tasks) == 1


def test_made_anew_it_is_on_the_control_plane_too():
    steps = reported(decide(looked(UP, plane("Consumer", immutable=True), app("Consumer", TWO))))
    assert steps == ["delete control-plane", "create control-plane Consumer"]


def test_only_kinds_that_know_immutability_are_made_anew():
    origin, copy = plane("Provider", TWO, type="a"), app("Provider", immutable=True, type="b")
    assert reported(decide(looked(DOWN, origin, copy, kind=VOUCHER))) == ["patch app-cluster"]


ANOTHER = "The provider has another Secret creds, so both stay as they are. Rename this one"
DOWNWARD, UPWARD = (
    f", or {how} klutch.anynines.com/resource-owner: {owner} to have it overwritten"
    for how, owner in (
        ("annotate this one", "Provider"), ("have the provider's annotated", "Consumer"),
    )
)  # fmt: skip
CONFLICTS = {
    "nobody's, under a claim of the provider's": (DOWN, ANOTHER + DOWNWARD),
    "under a claim of the consumer's": (UP, ANOTHER + UPWARD),
    "under one that names it": (NAMED, ANOTHER + DOWNWARD + UPWARD),
}


@pytest.mark.parametrize(("claims", "message"), CONFLICTS.values(), ids=CONFLICTS.keys())
def test_a_conflict_is_reported_and_nothing_written(claims, message):
    decision = decide(looked(claims, plane("", TWO), app()))
    assert decision.tasks == ()
    ((note),) = decision.notes
    assert (note.reason, note.message, note.type) == (CONFLICT, message, "Warning")
    assert decide(looked(claims, plane(), app())) is NOTHING


def test_what_no_claim_concerns_is_no_conflict():
    for claims in ((), OTHER_NAME, OTHER_PLACE):
        assert decide(looked(claims, plane("", TWO), app())) is NOTHING


def test_a_claim_may_replace_what_is_nobodys():
    claims = rules({"owner": "Provider"}, create={"replaceExisting": True})
    steps = ["patch app-cluster Provider", "mark control-plane Provider"]
    assert reported(decide(looked(claims, plane("", TWO), app()))) == steps
    assert reported(decide(looked(claims, plane("", TWO), app("Me")))) == []
    upward = rules({"owner": "Consumer"}, create={"replaceExisting": True})
    assert reported(decide(looked(upward, plane("", TWO), app()))) == []


def test_a_copy_that_was_deleted_may_stay_deleted_until_its_origin_changes():
    once = rules({}, onConflict={"recreateWhenConsumerSideDeleted": False})
    create = ["create app-cluster Provider"]
    assert reported(decide(looked(once, plane("Provider"), None, deleted_at="7"))) == []
    assert reported(decide(looked(once, plane("Provider"), None, deleted_at="6"))) == create
    assert reported(decide(looked(once, plane("Provider"), None))) == create
    assert (
        reported(decide(looked((*once, *DOWN), plane("Provider"), None, deleted_at="7"))) == create
    )


def legacy(owner):
    """Return a copy as konnectors without uids left it."""
    return on(APP if owner == "Provider" else PLANE, owner)


THEIRS, OTHER = brought(PLANE, "theirs"), {**brought(PLANE), ORIGIN: "another"}
ORPHAN = {ORPHANED: SINCE}
SEEN, CONFIRMED = uid_at(PLANE), Terms("secrets", Confirmation("secrets"))
# P, C, the uid of the last origin that a watch saw deleted, steps.
LIVES: Any = {
    "its end was seen": (None, app("Provider"), SEEN, ["delete app-cluster"]),
    "also after it was an orphan": (
        None, app("Provider", annotations=ORPHAN), SEEN, ["delete app-cluster"],
    ),
    "that of another one was seen": (None, app("Provider"), "another", ["orphan app-cluster"]),
    "none was seen": (None, app("Provider"), "", ["orphan app-cluster"]),
    "an orphan stays": (None, app("Provider", annotations=ORPHAN), "", []),
    "it is back": (
        plane("Provider"), app("Provider", annotations=ORPHAN), "", ["patch app-cluster"],
    ),
    "its end was seen, another is there": (plane("Provider"), app("Provider"), SEEN, []),
    "another is on its way out": (
        plane("Provider", hold=True), app("Provider", annotations=OTHER), "",
        ["orphan app-cluster"],
    ),
    "another has its place": (
        plane("", TWO), app("Provider", annotations=OTHER), "another",
        ["patch app-cluster", "mark control-plane Provider"],
    ),
    "it was never named": (plane("Provider"), legacy("Provider"), "", ["mark app-cluster"]),
    "nor when its end was seen": (None, legacy("Provider"), SEEN, ["delete app-cluster"]),
    "nor when it was lost": (None, legacy("Provider"), "", ["orphan app-cluster"]),
    "nor when it is on its way out": (
        plane("Provider", hold=True), legacy("Provider"), "", ["delete app-cluster"],
    ),
    "another space's, gone here": (None, app("Provider", annotations=THEIRS), SEEN, []),
    "another space's, on its way out here": (
        plane("Provider", hold=True), app("Provider", annotations=THEIRS), "", [],
    ),
    "another space's, here with other content": (
        plane("Provider", TWO), app("Provider", annotations=THEIRS), "", [],
    ),
    "another space's that lost the annotation": (
        plane("Provider", TWO), app("", annotations=THEIRS), "", [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("provider", "consumer", "ended", "steps"), LIVES.values(), ids=LIVES)
def test_a_copy_that_came_down_follows_the_origin_that_it_names(provider, consumer, ended, steps):
    assert reported(decide(looked(DOWN, provider, consumer, ended=ended))) == steps


def test_an_orphan_in_the_app_cluster_goes_on_a_persons_word():
    seen = looked(DOWN, None, app("Provider", annotations=ORPHAN), terms=CONFIRMED)
    assert reported(decide(seen)) == ["delete app-cluster"]


# C, P, the uid of the last origin that a watch saw deleted, steps.
UPWARD_LIVES: Any = {
    "its end was seen": (None, plane("Consumer"), uid_at(APP), ["delete control-plane"]),
    "that of another one was seen": (None, plane("Consumer"), "x", ["orphan control-plane"]),
    "another has its place": (
        app("Consumer", TWO), plane("Consumer", annotations={ORIGIN: "x"}), "",
        ["patch control-plane"],
    ),
    "it was never named": (app("Consumer"), legacy("Consumer"), "", ["mark control-plane"]),
    "the space has another uid: its service namespace is that of the space": (
        app("Consumer"), plane("Consumer", annotations={ORIGIN_SPACE: "x"}), "",
        ["mark control-plane"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("consumer", "provider", "ended", "steps"), UPWARD_LIVES.values(), ids=UPWARD_LIVES
)
def test_a_copy_that_went_up_follows_the_origin_that_it_names(consumer, provider, ended, steps):
    assert reported(decide(looked(UP, provider, consumer, ended=ended))) == steps


def test_a_name_that_another_space_has_is_a_conflict_with_a_way_out():
    seen = looked(DOWN, plane("Provider", TWO), app("Provider", annotations=THEIRS))
    (note,) = decide(seen).notes
    assert (note.reason, note.type) == (CONFLICT, "Warning")
    assert note.message == (
        "Another space brought the Secret creds here, so it stays as it is. Rename one of them, "
        "or annotate this one klutchctl.dev/origin-space-uid: ours to have it overwritten"
    )


# Claims, P, C, whether the content of C is needed.
PARTIAL = {
    "to bring it up": (UP, None, app(), True),
    "to bring it up by its name": (NAMED, None, app(), True),
    "to see its type": (TLS_UP, None, app(), True),
    "to compare it with what came up": (UP, plane("Consumer"), app(), True),
    "to compare it with its origin": (DOWN, plane("Provider"), app(), True),
    "to see whether it is in the way": (DOWN, plane(), app(), True),
    "not if no claim lets it up (H1)": (DOWN, None, app(), False),
    "not if it is not annotated": (ANY, None, app(), False),
    "not if another name is claimed": (OTHER_NAME, plane(), app(), False),
    "not if other labels are": (BLUE_UP, None, app(labels=RED), False),
    "not if it goes": (UP, None, app(hold=True), False),
    "not to be deleted": (DOWN, None, app("Provider"), False),
    "not if it is not there": (DOWN, plane(), None, False),
}


@pytest.mark.parametrize(
    ("claims", "provider", "consumer", "want"), PARTIAL.values(), ids=PARTIAL.keys()
)
def test_when_the_content_is_needed(claims, provider, consumer, want):
    known = None if consumer is None else {"metadata": consumer["metadata"]}
    partial = looked(claims, provider, known, consumer_partial=True)
    whole = looked(claims, provider, consumer)
    assert needs_content(partial) is want
    assert needs_content(whole) is False
    assert decide(partial) == (NOTHING if want else decide(whole))


def test_nothing_of_an_object_is_in_a_repr():
    assert "b25l" not in repr(looked(ANY, plane(), app()))


def test_a_note_holds_no_content():
    (note,) = decide(looked(NAMED, plane("", TWO), app())).notes
    assert not {"b25l", "dHdv", "password"} & set(note.message.replace(".", " ").split())
