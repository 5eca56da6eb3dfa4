"""Which way claimed objects go (protocol-konnector.md E.2, E.5, G 35-41, 45-48, 54, 55, H)."""

from typing import Any

import pytest

from konnector.permission_claim.decide import decide
from reconciler.core.decision import NOTHING
from reconciler.core.refs import CONFIG_MAP, ObjectKey
from tests.support.claimed_objects import (
    ANY,
    APP,
    BLUE,
    BLUE_ONLY,
    BLUE_UP,
    CREATED_DOWN,
    CREATED_UP,
    DOWN,
    NAMED,
    ORPHANED,
    OTHER_NAME,
    OTHER_PLACE,
    PLANE,
    RED,
    SINCE,
    TLS_UP,
    TWO,
    UP,
    app,
    brought,
    looked,
    on,
    plane,
    reported,
    rules,
    uid_at,
)

# By the table of E.2: owner unset, so that annotations alone decide. P, C, steps.
TABLE = {
    "P Provider, C absent": (plane("Provider"), None, ["create app-cluster Provider"]),
    "P Provider, C Provider, equal": (plane("Provider"), app("Provider"), []),
    "P Provider, C Provider, other data": (
        plane("Provider", TWO), app("Provider"), ["patch app-cluster"],
    ),
    "P Provider, C none: its place is not free (S26)": (plane("Provider", TWO), app(), []),
    "P Provider, C Consumer (S26)": (plane("Provider", TWO), app("Consumer"), []),
    "P Provider, C another word (S26)": (plane("Provider", TWO), app("Me"), []),
    "P Consumer, C absent": (plane("Consumer"), None, ["orphan control-plane"]),
    "P Consumer, C Consumer, equal": (plane("Consumer"), app("Consumer"), []),
    "P Consumer, C Consumer, other data": (
        plane("Consumer"), app("Consumer", TWO), ["patch control-plane"],
    ),
    "P Consumer, C none: annotated by nobody, it does not go up": (plane("Consumer"), app(), []),
    "P Consumer, C Provider: what came down does not go up": (
        plane("Consumer"), app("Provider", TWO), [],
    ),
    "P none, C absent": (plane(), None, CREATED_DOWN),
    "P none, C Provider": (plane(), app("Provider"), ["mark control-plane Provider"]),
    "P none, C Provider, other data": (
        plane("", TWO), app("Provider"), ["patch app-cluster", "mark control-plane Provider"],
    ),
    "P none, C Consumer: its place is not free (S26)": (plane("", TWO), app("Consumer"), []),
    "P none, C none": (plane("", TWO), app(), []),
    "P none, C another word": (plane("", TWO), app("Me"), []),
    "P absent, C Provider": (None, app("Provider"), ["orphan app-cluster"]),
    "P absent, C Consumer": (None, app("Consumer"), ["create control-plane Consumer"]),
    "P absent, C none: annotated by nobody, it does not go up": (None, app(), []),
    "P absent, C another word": (None, app("Me"), []),
    "P another word, C absent": (plane("Me"), None, []),
    "P another word, C none": (plane("Me", TWO), app(), []),
    "P another word, C another word": (plane("Me", TWO), app("You"), []),
    "P another word, C Provider": (plane("Me"), app("Provider"), ["mark control-plane Provider"]),
    "P absent, C absent": (None, None, []),
}  # fmt: skip


@pytest.mark.parametrize(("provider", "consumer", "steps"), TABLE.values(), ids=TABLE.keys())
def test_the_owner_decides(provider, consumer, steps):
    assert reported(decide(looked(ANY, provider, consumer))) == steps


# Claims, P, C, steps.
DIRECTIONS = {
    "a claim of the provider's brings down (G 35, 45)": (DOWN, plane(), None, CREATED_DOWN),
    "and never uploads what is nobody's (H1)": (DOWN, None, app(), []),
    "nor what says that it is the consumer's (H1)": (DOWN, None, app("Consumer"), []),
    "nor over what is there": (DOWN, plane("Consumer"), app("Consumer", TWO), []),
    "nor deletes there": (DOWN, plane("Consumer"), None, []),
    "nor overwrites what the developer says is theirs": (DOWN, plane(), app("Consumer"), []),
    "a claim of the consumer's brings up (G 36, 55)": (UP, None, app(), CREATED_UP),
    "and never down (E.5)": (UP, plane(), None, []),
    "nor what says that it is the provider's": (UP, plane("Provider"), None, []),
    "nor over what is there (G 36)": (UP, plane("Provider"), app("Provider", TWO), []),
    "nor deletes there, as no claim goes down": (UP, None, app("Provider"), []),
    "nor uploads what came down": (UP, None, app("Provider"), []),
    "nor if the control plane calls it the consumer's": (
        UP, plane("Consumer"), app("Provider", TWO), [],
    ),
    "its copy that lost the annotation here is marked again": (
        UP, plane("Consumer"), app(), ["mark app-cluster Consumer"],
    ),
    "an edit by the provider is overwritten (G 39, 55)": (
        UP, plane("Consumer", TWO), app("Consumer"), ["patch control-plane"],
    ),
    "its copy that lost the annotation there too (G 39)": (
        UP, plane("", TWO, annotations=brought(APP)), app("Consumer"),
        ["patch control-plane Consumer"],
    ),
    "a copy deleted by the provider comes back (G 55)": (
        UP, None, app("Consumer"), ["create control-plane Consumer"],
    ),
    "a copy whose origin is absent is an orphan": (
        UP, plane("Consumer"), None, ["orphan control-plane"],
    ),
    "an orphan is kept": (
        UP, plane("Consumer", annotations={ORPHANED: SINCE}), None, [],
    ),
    "until its origin is back": (
        UP, plane("Consumer", annotations={ORPHANED: SINCE}), app("Consumer"),
        ["patch control-plane"],
    ),
    "an unset owner lets up what is named": (NAMED, None, app(), CREATED_UP),
    "but not what came down": (NAMED, plane("Consumer"), app("Provider", TWO), []),
    "a copy deleted here comes back (G 46)": (
        DOWN, plane("Provider"), None, ["create app-cluster Provider"],
    ),
    "a change of the provider's arrives (G 47)": (
        DOWN, plane("Provider", TWO), app("Provider"), ["patch app-cluster"],
    ),
    "a copy whose origin is absent is an orphan, too": (
        DOWN, None, app("Provider"), ["orphan app-cluster"],
    ),
    "an edit of the copy is overwritten (G 40, 54)": (
        DOWN, plane("Provider"), app("Provider", TWO), ["patch app-cluster"],
    ),
    "what is equal is left alone (G 41)": (DOWN, plane("Provider"), app("Provider"), []),
    "a removed annotation is repaired (H35)": (
        DOWN, plane("Provider"), app("", annotations=brought(PLANE)), ["mark app-cluster Provider"],
    ),
    "or nothing is done if the origin is gone by then (H35)": (ANY, None, app(), []),
    "without a claim nothing happens": ((), plane(), None, []),
    "without a claim copies stay (E.3)": ((), None, app("Provider"), []),
    "without a claim uploads stay (E.3)": ((), plane("Consumer"), None, []),
}  # fmt: skip


RULES = DIRECTIONS | {
    "another name does not come down (H2)": (OTHER_NAME, plane(), None, []),
    "nor from another app namespace (H2)": (OTHER_PLACE, plane(), None, []),
    "a service namespace is not an app namespace": (
        rules({"namespaces": [PLANE.namespace]}), plane(), None, [],
    ),
    "nor with other labels": (BLUE_ONLY, plane(labels=RED), None, []),
    "with its labels it does": (BLUE_ONLY, plane(labels=BLUE), None, CREATED_DOWN),
    "going up, labels in the app cluster count": (BLUE_UP, None, app(labels=BLUE), CREATED_UP),
    "and no others": (BLUE_UP, None, app(labels=RED), []),
    "an annotation widens no claim": (OTHER_NAME, None, app("Consumer"), []),
    "nor one of labels": (BLUE_UP, None, app("Consumer", labels=RED), []),
    "nor one of a type": (TLS_UP, None, app("Consumer"), []),
    "a type goes up": (TLS_UP, None, app(type="kubernetes.io/tls"), CREATED_UP),
    "one of several claims is enough": (
        (*OTHER_NAME, *BLUE_UP), None, app(labels=BLUE), CREATED_UP,
    ),
    "two halves of two claims are not": (
        (*rules({"owner": "Provider"}), *OTHER_NAME), None, app("Consumer"), [],
    ),
    "a copy whose labels are claimed no more stays as it is": (
        BLUE_ONLY, plane("Provider", TWO, labels=RED), app("Provider"), [],
    ),
    "and ends with its origin": (BLUE_ONLY, None, app("Provider"), ["orphan app-cluster"]),
    "not if its name is claimed no more": (OTHER_NAME, None, app("Provider"), []),
    "so does a copy on the control plane": (
        BLUE_UP, plane("Consumer"), None, ["orphan control-plane"],
    ),
    "nor there if its namespace is claimed no more": (OTHER_PLACE, plane("Consumer"), None, []),
}  # fmt: skip


@pytest.mark.parametrize(("claims", "provider", "consumer", "steps"), RULES.values(), ids=RULES)
def test_direction_and_selectors(claims, provider, consumer, steps):
    assert reported(decide(looked(claims, provider, consumer))) == steps


KEPT = {
    "tokens of ServiceAccounts": {"type": "kubernetes.io/service-account-token"},
    "tokens of nodes": {"type": "bootstrap.kubernetes.io/token"},
    "Helm releases": {"type": "helm.sh/release.v1"},
    "kubeconfigs of a konnector": {"annotations": {"klutchctl.dev/space-uid": "u"}},
}


@pytest.mark.parametrize("more", KEPT.values(), ids=KEPT.keys())
@pytest.mark.parametrize("owner", ["", "Consumer"])
def test_some_go_up_only_if_they_are_named(more, owner):
    consumer = app(owner, **more)
    assert decide(looked((*ANY, *UP), None, consumer)) is NOTHING
    named = rules({"owner": "Consumer", "names": ["*", "creds"]})
    assert "create control-plane Consumer" in reported(decide(looked(named, None, consumer)))


@pytest.mark.parametrize(
    "kind",
    ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token", "helm.sh/release.v1"],
)
def test_credentials_of_the_control_plane_come_down_only_if_they_are_named(kind):
    for owner in ("", "Provider"):
        assert decide(looked((*ANY, *DOWN), plane(owner, type=kind), None)) is NOTHING
    named = rules({"owner": "Provider", "names": ["*", "creds"]})
    assert reported(decide(looked(named, plane(type=kind), None))) == CREATED_DOWN


def test_a_kubeconfig_that_a_binding_names_goes_up_only_if_it_is_named():
    for owner in ("", "Consumer"):
        assert decide(looked((*ANY, *UP), None, app(owner), is_kubeconfig=True)) is NOTHING
    named = rules({"owner": "Consumer", "names": ["*", "creds"]})
    assert reported(decide(looked(named, None, app(), is_kubeconfig=True))) == CREATED_UP
    assert decide(looked(DOWN, plane("Provider", TWO), app("Provider"), is_kubeconfig=True)).tasks


NAMESPACED = rules({"owner": "Provider", "namespaces": ["*", "team-a"]})
# Claims, what is seen beside the two, whether the provider's object comes down.
ASKED: Any = {
    "by an instance of the binding": (DOWN, {}, True),
    "by one of another binding": (DOWN, {"living": {"c"}}, False),
    "by none": (DOWN, {"living": frozenset()}, False),
    "by none, though all is spelled out": (NAMED, {"living": frozenset()}, False),
    "in a namespace of the cluster's": (DOWN, {"reserved": True}, False),
    "in one that the claim spells out": (NAMESPACED, {"reserved": True}, True),
    "in one of those, by none": (NAMESPACED, {"reserved": True, "living": frozenset()}, False),
}


@pytest.mark.parametrize(("claims", "facts", "comes"), ASKED.values(), ids=ASKED.keys())
def test_what_was_not_asked_for_does_not_come_down(claims, facts, comes):
    assert bool(reported(decide(looked(claims, plane(), None, **facts)))) is comes
    # What came before stays as it is, until its origin goes.
    changed = plane("Provider", TWO)
    assert bool(reported(decide(looked(claims, changed, app("Provider"), **facts)))) is comes
    gone = decide(looked(claims, None, app("Provider"), ended=uid_at(PLANE), **facts))
    assert reported(gone) == ["delete app-cluster"]


NAMED_UP = rules({"owner": "Consumer", "names": ["creds"]})
NAMESPACED_UP = rules({"owner": "Consumer", "namespaces": ["*", "team-a"]})
# Claims, what is seen beside the two, whether the app cluster's object goes up.
USED: Any = {
    "beside an instance of the binding": (UP, {}, True),
    "beside one of another binding of the space": (UP, {"living": {"c"}}, True),
    "beside none": (UP, {"living": frozenset()}, False),
    "beside none, though all is spelled out": (NAMED_UP, {"living": frozenset()}, False),
    "beside a cluster-scoped one": (UP, {"living": frozenset(), "wide": {"b"}}, True),
    "beside one of another binding": (UP, {"living": frozenset(), "wide": {"c"}}, False),
    "from a namespace of the cluster's": (UP, {"reserved": True}, False),
    "from one of those, beside a cluster-scoped one": (
        UP, {"reserved": True, "wide": {"b"}}, False,
    ),
    "from one of those, by its name": (NAMED_UP, {"reserved": True}, False),
    "from one that the claim spells out": (NAMESPACED_UP, {"reserved": True}, True),
    "from one of those, beside none": (
        NAMESPACED_UP, {"reserved": True, "living": frozenset()}, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("claims", "facts", "goes"), USED.values(), ids=USED.keys())
def test_what_nobody_uses_the_service_beside_does_not_go_up(claims, facts, goes):
    for owner in ("", "Consumer"):
        assert bool(decide(looked(claims, None, app(owner), **facts)).tasks) is goes
    # What went up before stays as it is: neither written nor deleted.
    decision = decide(looked(claims, plane("Consumer"), app("Consumer", TWO), **facts))
    assert bool(decision.tasks) is goes
    gone = decide(looked(claims, plane("Consumer"), None, **facts))
    assert reported(gone) == ["orphan control-plane"]


def test_what_each_cluster_makes_for_itself_goes_nowhere_unless_named():
    here, there = ObjectKey("team-a", "kube-root-ca.crt"), ObjectKey("sns", "kube-root-ca.crt")
    facts = {"kind": CONFIG_MAP, "claim_place": here, "copy_place": there}
    assert decide(looked(ANY, on(there), None, **facts)) is NOTHING
    assert decide(looked(UP, None, on(here), **facts)) is NOTHING
    assert decide(looked(ANY, on(there, "", TWO), on(here), **facts)) is NOTHING
    named = rules({"names": ["kube-root-ca.crt"]})
    assert reported(decide(looked(named, on(there), None, **facts))) == CREATED_DOWN


def test_an_instance_is_left_to_its_own_sync():
    bound = {"klutch.anynines.com/bound": "true"}
    assert decide(looked(ANY, plane(annotations=bound), None)) is NOTHING
    assert decide(looked(UP, None, app(annotations=bound))) is NOTHING


# Claims, P, C, steps.
ENDINGS = {
    "a terminating origin takes its copy along (H8)": (
        DOWN, plane("Provider", hold=True), app("Provider"), ["delete app-cluster"],
    ),
    "and nothing that lost the annotation": (DOWN, plane("Provider", hold=True), app(), []),
    "and is not brought down": (DOWN, plane(hold=True), None, []),
    "a terminating copy is waited for": (
        DOWN, plane("", TWO), app("Provider", hold=True), [],
    ),
    "also where its origin goes": (
        DOWN, plane("Provider", hold=True), app("Provider", hold=True), [],
    ),
    "also where it is gone": (DOWN, None, app("Provider", hold=True), []),
    "a terminating origin in the app cluster too": (
        UP, plane("Consumer"), app("Consumer", hold=True), ["delete control-plane"],
    ),
    "it is not brought up": (UP, None, app("Consumer", hold=True), []),
    "it takes nothing along that is not marked as its copy": (
        UP, plane(), app("Consumer", hold=True), [],
    ),
    "a terminating copy on the control plane is waited for": (
        UP, plane("Consumer", TWO, hold=True), app("Consumer"), [],
    ),
    "also where its origin is gone": (UP, plane("Consumer", hold=True), None, []),
    "nobody's, and one of them goes": (DOWN, plane("", TWO), app(hold=True), []),
}  # fmt: skip


@pytest.mark.parametrize(
    ("claims", "provider", "consumer", "steps"), ENDINGS.values(), ids=ENDINGS.keys()
)
def test_endings(claims, provider, consumer, steps):
    decision = decide(looked(claims, provider, consumer))
    assert (reported(decision), decision.notes) == (steps, ())
