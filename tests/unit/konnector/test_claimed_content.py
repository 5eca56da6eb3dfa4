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
    DOWN,
    NAMED,
    ONE,
    ORIGIN,
    ORIGIN_SPACE,
    ORPHANED,
    OWNER,
    PLANE,
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


UPDATES = {
    "annotations": (
        plane("Provider", annotations={"a": "1"}), app("Provider", annotations={"b": "2"}),
        [{"metadata": {"annotations": {"a": "1", "b": None}}}],
    ),
    "labels of an immutable one": (
        plane("Provider", labels=BLUE, immutable=True), app("Provider", immutable=True),
        [{"metadata": {"labels": BLUE}}],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("provider", "consumer", "want"), UPDATES.values(), ids=UPDATES.keys())
def test_an_update_says_only_what_differs(provider, consumer, want):
    assert bodies(DOWN, provider, consumer) == want


def test_claimed_custom_resources_are_patched_too():
    origin = plane("Provider", None, spec={"a": {"b": 1, "c": 2}})
    copy = app("Provider", None, spec={"a": {"b": 1, "c": 3}})
    assert bodies(DOWN, origin, copy, kind=VOUCHER) == [{"spec": {"a": {"c": 2}}}]


ANEW = ["delete app-cluster", "create app-cluster Provider"]


def test_what_is_of_another_type_is_made_anew_in_one_task():
    decision = decide(looked(DOWN, plane("Provider", type="x/y"), app("Provider")))
    assert reported(decision) == ANEW
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
    "to see its type": (TLS_UP, None, app(), True),
    "to see whether it is in the way": (DOWN, plane(), app(), True),
    "not if no claim lets it up (H1)": (DOWN, None, app(), False),
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
