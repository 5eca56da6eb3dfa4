"""What is written of claimed objects, and what is told (protocol-konnector.md E.2, H12, H19)."""

from typing import Any

import pytest

from konnector.permission_claim.decide import CONFLICT, decide, needs_content
from reconciler.core.decision import NOTHING, Create, Patch
from reconciler.core.manifest import annotations_of, drop, get_map, put
from tests.support.claimed_objects import (
    ANY,
    BLUE,
    BLUE_UP,
    DOWN,
    NAMED,
    ONE,
    OTHER_NAME,
    OTHER_PLACE,
    OWNER,
    PLANE,
    RED,
    TLS_UP,
    TWO,
    UP,
    VOUCHER,
    app,
    looked,
    plane,
    rules,
    told,
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
    mark, made = steps
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
                "annotations": {"note": "n", OWNER: "Provider"},
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
        plane("Provider", TWO, labels=BLUE), app("", ONE, labels=RED),
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
        ["mark control-plane Provider", *ANEW],
    ),
}


@pytest.mark.parametrize(("provider", "consumer", "steps"), REPLACED.values(), ids=REPLACED.keys())
def test_what_cannot_be_updated_is_made_anew_in_one_task(provider, consumer, steps):
    decision = decide(looked(DOWN, provider, consumer))
    assert told(decision) == steps
    assert len(decision.tasks) == 1


def test_made_anew_it_is_on_the_control_plane_too():
    consumer = app("Consumer", TWO)
    steps = told(decide(looked(UP, plane("Consumer", immutable=True), consumer)))
    assert steps == ["delete control-plane", "create control-plane Consumer"]


def test_only_kinds_that_know_immutability_are_made_anew():
    origin, copy = plane("Provider", TWO, type="a"), app("Provider", immutable=True, type="b")
    assert told(decide(looked(DOWN, origin, copy, kind=VOUCHER))) == ["patch app-cluster"]


ANNOTATE = (
    "The provider has another Secret creds, and neither says whose it is, so both stay as they "
    "are. Rename this one, or annotate it klutch.anynines.com/resource-owner: {}, whose content "
    "then replaces the other's"
)
CONFLICTS = {
    "nobody's, under a claim of the provider's": (DOWN, ANNOTATE.format("Provider")),
    "under a claim of the consumer's": (UP, ANNOTATE.format("Consumer")),
    "under one that names it": (NAMED, ANNOTATE.format("Provider or Consumer")),
}


@pytest.mark.parametrize(("claims", "message"), CONFLICTS.values(), ids=CONFLICTS.keys())
def test_a_conflict_is_told_and_nothing_written(claims, message):
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
    steps = ["mark control-plane Provider", "patch app-cluster Provider"]
    assert told(decide(looked(claims, plane("", TWO), app()))) == steps
    assert told(decide(looked(claims, plane("", TWO), app("Me")))) == []
    upward = rules({"owner": "Consumer"}, create={"replaceExisting": True})
    assert told(decide(looked(upward, plane("", TWO), app()))) == []


def test_a_copy_that_was_deleted_may_stay_deleted_until_its_origin_changes():
    once = rules({}, onConflict={"recreateWhenConsumerSideDeleted": False})
    create = ["create app-cluster Provider"]
    assert told(decide(looked(once, plane("Provider"), None, deleted_at="7"))) == []
    assert told(decide(looked(once, plane("Provider"), None, deleted_at="6"))) == create
    assert told(decide(looked(once, plane("Provider"), None))) == create
    assert told(decide(looked((*once, *DOWN), plane("Provider"), None, deleted_at="7"))) == create


# P, C, steps where another provider perhaps has such an object, and where it has.
RIVALS = {
    "a copy without an origin is perhaps the other's": (None, app("Provider"), [], []),
    "one whose origin goes is most likely ours": (
        plane("Provider", hold=True), app("Provider"), ["delete app-cluster"], [],
    ),
    "an update": (plane("Provider", TWO), app("Provider"), ["patch app-cluster"], []),
    "the first one": (
        plane("Provider"), None, ["create app-cluster Provider"], ["create app-cluster Provider"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("provider", "consumer", "perhaps", "there"), RIVALS.values(), ids=RIVALS)
def test_two_providers_do_not_fight_over_a_copy(provider, consumer, perhaps, there):
    for rival, steps in (("perhaps", perhaps), ("there", there)):
        assert told(decide(looked(DOWN, provider, consumer, rival=rival))) == steps


def brought_by(space):
    return {"klutchctl.dev/origin-space-uid": space}


OURS, THEIRS = brought_by("ours"), brought_by("theirs")
# P, C, steps where no other provider has such an object, and where nobody can be asked.
MARKED = {
    "another's without an origin here": (None, app("Provider", annotations=THEIRS), [], []),
    "ours without an origin": (
        None, app("Provider", annotations=OURS), ["delete app-cluster"], ["delete app-cluster"],
    ),
    "one of an older konnector": (
        None, app("Provider"), ["delete app-cluster"], ["delete app-cluster"],
    ),
    "another's, where ours has the same name": (
        plane("Provider", TWO), app("Provider", annotations=THEIRS), ["patch app-cluster"], [],
    ),
    "another's, where ours goes": (
        plane("Provider", hold=True), app("Provider", annotations=THEIRS), [], [],
    ),
    "one of an older konnector, with its origin": (
        plane("Provider"), app("Provider"), ["patch app-cluster"], ["patch app-cluster"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("provider", "consumer", "alone", "unasked"), MARKED.values(), ids=MARKED)
def test_a_copy_belongs_to_the_space_that_brought_it(provider, consumer, alone, unasked):
    for rival, steps in (("none", alone), ("unasked", unasked)):
        seen = looked(DOWN, provider, consumer, rival=rival, space_uid="ours")
        assert told(decide(seen)) == steps


# What is known of the provider that brought a copy, the steps towards that of another one.
ITS_OWNER: Any = {
    "its space is not read yet": ({"rival": "perhaps"}, []),
    "its binding is not followed yet, and there is no other": ({"unread": True}, []),
    "its binding is not followed yet, others have none": ({"rival": "none", "unread": True}, []),
    "it has its own": ({"rival": "there", "unread": True}, []),
    "it is gone, with no other": ({}, ["patch app-cluster"]),
    "it has none any more": ({"rival": "none"}, ["patch app-cluster"]),
}


@pytest.mark.parametrize(("facts", "steps"), ITS_OWNER.values(), ids=ITS_OWNER)
def test_a_copy_waits_for_the_space_that_brought_it(facts, steps):
    provider, consumer = plane("Provider", TWO), app("Provider", annotations=THEIRS)
    decision = decide(looked(DOWN, provider, consumer, space_uid="ours", **facts))
    assert told(decision) == steps
    assert [note.reason for note in decision.notes] == ([] if steps else [CONFLICT])


def test_ours_and_what_bears_no_mark_wait_for_nobody():
    for annotations in (OURS, None):
        seen = looked(
            DOWN, plane("Provider", TWO), app("Provider", annotations=annotations),
            rival="perhaps", unread=True, space_uid="ours",
        )  # fmt: skip
        assert decide(seen).tasks


BROUGHT = {
    "a new one": (plane("Provider"), None),
    "one that is written anyway": (plane("Provider", TWO), app("Provider")),
    "one that another left": (plane("Provider"), app("Provider", annotations=THEIRS)),
}


@pytest.mark.parametrize(("provider", "consumer"), BROUGHT.values(), ids=BROUGHT)
def test_what_is_brought_says_from_which_space(provider, consumer):
    ((step,),) = (
        task.steps
        for task in decide(looked(DOWN, provider, consumer, rival="none", space_uid="ours")).tasks
    )
    match step:
        case Create(_, written, _) | Patch(_, written):
            assert OURS.items() <= annotations_of(written).items()
        case _:
            pytest.fail(f"{step}")


def test_who_is_alone_marks_nothing():
    assert decide(looked(DOWN, plane("Provider"), app("Provider"), space_uid="ours")) is NOTHING


def test_what_goes_up_is_marked_by_its_namespace():
    up = decide(looked(UP, None, app("Consumer"), rival="none", space_uid="ours"))
    (made,) = (one for task in up.tasks for one in task.steps if isinstance(one, Create))
    assert "klutchctl.dev/origin-space-uid" not in annotations_of(made.manifest)


def test_two_origins_for_one_place_are_told():
    (note,) = decide(looked(DOWN, plane("Provider", TWO), app("Provider"), rival="there")).notes
    assert (note.reason, note.type) == (CONFLICT, "Warning")
    assert note.message == (
        "Two providers have a Secret creds for this namespace, so the one here stays as it is. "
        "Wait while an APIServiceBinding is not Ready; else one of them has to rename its own"
    )


def metadata_of(live):
    return None if live is None else {"metadata": live["metadata"]}


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
    partial = looked(claims, provider, metadata_of(consumer), consumer_partial=True)
    whole = looked(claims, provider, consumer)
    assert needs_content(partial) is want
    assert needs_content(whole) is False
    assert decide(partial) == (NOTHING if want else decide(whole))


def test_nothing_of_an_object_is_in_a_repr():
    assert "b25l" not in repr(looked(ANY, plane(), app()))


def test_a_note_holds_no_content():
    (note,) = decide(looked(NAMED, plane("", TWO), app())).notes
    assert not {"b25l", "dHdv", "password"} & set(note.message.replace(".", " ").split())
