"""An APIServiceBinding: its conditions, each trouble a row, and the CRD that it brings."""

from datetime import timedelta
from typing import Any

import pytest

from konnector import APP_CLUSTER
from konnector.binding import crd
from konnector.binding.crd import Owner
from konnector.binding.decide import Provider, Seen, decide, synced_kind
from konnector.kubeconfig.judge import Judged
from reconciler.api import API_SERVICE_BINDING
from reconciler.core import conditions
from reconciler.core.decision import NOTHING, Create, Patch, Task, status_patch
from reconciler.core.manifest import ref_of
from reconciler.core.refs import CRD, Kind
from tests.support.json_values import NO_OBJECTS
from tests.support.space_objects import NOW, condition, deleting, live, live_like

NAME = "databases.shop.example"
VALID = Judged(conditions.true("SecretValid"), "identity", "cluster-a1", b"content")
GONE = Judged(conditions.false(conditions.KUBECONFIG_SECRET_NOT_FOUND, "It is gone."))
SCHEMA = {"openAPIV3Schema": {"type": "object"}}
ESTABLISHED = [
    {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts"},
    {"type": "Established", "status": "True", "reason": "InitialNamesAccepted"},
]


def bound(*held, **status):
    return live(
        API_SERVICE_BINDING,
        NAME,
        namespace="klutch-bind",
        metadata={"uid": "new"},
        status={**status, "conditions": list(held)},
    )


def offer(**spec):
    version = {"name": "v1", "served": True, "storage": True, "schema": SCHEMA}
    said = {
        "group": "shop.example",
        "names": {
            "plural": "databases",
            "singular": "database",
            "kind": "Database",
            "listKind": "DatabaseList",
        },
        "scope": "Namespaced",
        "versions": [version],
        **spec,
    }
    return {"metadata": {"name": NAME}, "spec": said}


def installed(of=None, *, reported=ESTABLISHED, owner="new", **metadata):
    made = crd.wanted(of or offer(), Owner(live_like(bound(), uid=owner)))
    held = live_like(made, uid="uid-of-crd", resourceVersion="7", **metadata)
    return {**held, "status": {"conditions": reported}}


PRETTY = {"spec": {"providerPrettyName": "Shop Inc"}}


def provider(**more):
    facts = {"synced": True, "heartbeat": "", "cluster_binding": PRETTY, "export": offer()}
    return Provider(**{**facts, **more})


def seen(**more):
    facts = {
        "binding": bound(),
        "judged": VALID,
        "provider": provider(),
        "crd": installed(),
        "live_uids": frozenset({"new"}),
    }
    return Seen(**{**facts, **more})


def written(look, now=NOW):
    """Return the status that is written, if it is; all tasks of the decision went well."""
    ref = ref_of(APP_CLUSTER, API_SERVICE_BINDING, look.binding)
    patch = status_patch(look.binding, ref, decide(look), failed=(), now=now)
    return None if patch is None else patch.body["status"]


def said(look):
    """Return every condition but Ready as (status, severity, reason)."""
    return {
        one.type: " ".join(filter(None, (one.status, one.severity, one.reason)))
        for one in decide(look).conditions
    }


WELL = {
    "Connected": "True",
    "Heartbeating": "True",
    "InformersSynced": "True",
    "SchemaInSync": "True",
    "SecretValid": "True",
}
EVERY = tuple(condition(type_, "True") for type_ in WELL)
NOT_KNOWN = "Unknown Unknown"


def test_a_healthy_one_to_the_byte():
    """Section I, and SchemaInSync (H16); also for a binding that joins a running provider."""
    time = "2026-06-01T12:00:00Z"
    assert written(seen()) == {
        "providerPrettyName": "Shop Inc",
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": time},
            {"type": "Connected", "status": "True", "lastTransitionTime": time},
            {"type": "Heartbeating", "status": "True", "lastTransitionTime": time},
            {"type": "InformersSynced", "status": "True", "lastTransitionTime": time},
            {"type": "SchemaInSync", "status": "True", "lastTransitionTime": time},
            {"type": "SecretValid", "status": "True", "lastTransitionTime": time},
        ],
    }
    assert decide(seen()).tasks == ()
    assert decide(seen()).notes == ()


CASES = {
    "all is well": ({}, {}),
    "the Secret is gone, its provider goes on": (
        {"judged": GONE},
        {"SecretValid": "False Error KubeconfigSecretNotFound"},
    ),
    "no export": (
        {"provider": provider(export=None)},
        {"Connected": "False Error APIServiceExportNotFound", "SchemaInSync": NOT_KNOWN},
    ),
    "an export that is none": (
        {"provider": provider(export=offer(versions=[]))},
        {"Connected": "False Error APIServiceExportInvalid", "SchemaInSync": NOT_KNOWN},
    ),
    "H32: an isolation that is not supported": (
        {"provider": provider(export=offer(scope="Cluster", clusterScopedIsolation="None"))},
        {"Connected": "False Error IsolationUnsupported", "SchemaInSync": NOT_KNOWN},
    ),
    "G 25: a foreign CRD": (
        {"crd": installed(ownerReferences=[])},
        {"Connected": "False Error ForeignCustomResourceDefinition", "SchemaInSync": NOT_KNOWN},
    ),
    "G 24: no CRD": (
        {"crd": None},
        {"SchemaInSync": "False Info CustomResourceDefinitionNotEstablished"},
    ),
    "a CRD that is not served yet": (
        {"crd": installed(reported=[])},
        {"SchemaInSync": "False Info CustomResourceDefinitionNotEstablished"},
    ),
    "a CRD whose names are taken": (
        {"crd": installed(reported=[condition("NamesAccepted", "False", "KindConflict")])},
        {"SchemaInSync": "False Error NamesNotAccepted"},
    ),
    "a CRD that goes": (
        {"crd": deleting(installed())},
        {"SchemaInSync": "False Warning CustomResourceDefinitionTerminating"},
    ),
    "a CRD that says something else": (
        {"crd": installed(offer(versions=[{"name": "v2"}]))},
        {"SchemaInSync": "False Info CustomResourceDefinitionOutdated"},
    ),
    "H15: a CRD that another binding left": ({"crd": installed(owner="gone")}, {}),
    "H16: no heartbeat": (
        {"provider": provider(heartbeat="control-plane: no answer")},
        {"Heartbeating": "False Warning ClusterBindingUpdateFailed"},
    ),
    "H16: old views": (
        {"provider": provider(late="APIServiceExports: no answer since 12:00")},
        {"InformersSynced": "False Error InformerSyncTimeout"},
    ),
    "H16: nothing was ever seen": (
        {"provider": provider(synced=False, heartbeat=None, late="No answer.", export=None)},
        {
            "Connected": NOT_KNOWN,
            "Heartbeating": NOT_KNOWN,
            "InformersSynced": "False Error InformerSyncTimeout",
            "SchemaInSync": NOT_KNOWN,
        },
    ),
    "no provider for want of a Secret": (
        {"judged": GONE, "provider": None},
        {
            "Connected": NOT_KNOWN,
            "Heartbeating": NOT_KNOWN,
            "InformersSynced": NOT_KNOWN,
            "SchemaInSync": NOT_KNOWN,
            "SecretValid": "False Error KubeconfigSecretNotFound",
        },
    ),
    "H18: a claim that cannot be served": (
        {"claim_problems": ["Secrets may not be listed."]},
        {"PermissionClaimsInSync": "False Warning PermissionClaimsDegraded"},
    ),
    "H17: instances that are refused": (
        {"refusals": ["One Database is over quota."]},
        {"InstancesInSync": "False Warning InstancesRefused"},
    ),
}


@pytest.mark.parametrize(("facts", "want"), CASES.values(), ids=CASES.keys())
def test_conditions(facts, want):
    assert said(seen(**{"binding": bound(*EVERY), **facts})) == WELL | want


@pytest.mark.parametrize(("facts", "want"), CASES.values(), ids=CASES.keys())
def test_what_was_never_reported_does_not_begin_as_unknown(facts, want):
    expected = {type_: text for type_, text in (WELL | want).items() if text != NOT_KNOWN}
    assert said(seen(**facts)) == expected


@pytest.mark.parametrize(("facts", "want"), CASES.values(), ids=CASES.keys())
def test_h31_the_second_look_writes_nothing(facts, want):
    """However late it is: no time moves, and no second trouble is told."""
    first = written(seen(**{"binding": bound(*EVERY), **facts}))
    after = live_like(bound(*(first or {}).get("conditions", EVERY)))
    after["status"]["providerPrettyName"] = (first or {}).get("providerPrettyName", "")
    again = seen(**{**facts, "binding": after})
    if first is not None:
        assert written(again, NOW + timedelta(hours=1)) is None
    assert not [note for note in decide(again).notes if note.type == "Warning"]


STARTING = {
    "its provider is not there yet": {"provider": None},
    "its provider is being read": {"provider": Provider()},
    "the uid of its space is not known yet": {
        "control_plane_mode": True,
        "provider": provider(heartbeat=None, synced=True),
    },
}


@pytest.mark.parametrize("facts", STARTING.values(), ids=STARTING.keys())
def test_what_is_still_starting_changes_nothing(facts):
    held = bound(condition("Ready", "True"), *EVERY, providerPrettyName="Shop Inc")
    look = seen(binding=held, crd=None, **facts)
    assert written(look) is None
    assert decide(look).tasks == ()


def test_ready_speaks_of_the_secret_where_that_is_the_trouble():
    look = seen(binding=bound(*EVERY), judged=GONE, provider=None)
    ready, *_ = written(look)["conditions"]
    assert (ready["reason"], ready["message"]) == ("KubeconfigSecretNotFound", "It is gone.")


LITERAL = {
    "Foreign": (
        {"crd": installed(ownerReferences=[])},
        "CustomResourceDefinition databases.shop.example is not owned by klutch.anynines.com.",
    ),
    "NotFound": (
        {"provider": provider(export=None)},
        "APIServiceExport databases.shop.example not found on the service provider cluster.",
    ),
}


@pytest.mark.parametrize(("facts", "want"), LITERAL.values(), ids=LITERAL.keys())
def test_literal_messages(facts, want):
    (reported,) = [one for one in decide(seen(**facts)).conditions if one.type == "Connected"]
    assert reported.message == want


def test_g24_a_missing_crd_is_made_in_the_app_cluster():
    decision = decide(seen(crd=None))
    made = crd.wanted(offer(), Owner(bound()))
    assert decision.tasks == (
        Task((Create(CRD, made, APP_CLUSTER),), conditions.CRD_CREATE_FAILED),
    )


def test_an_old_crd_is_changed_in_the_app_cluster():
    decision = decide(seen(crd=installed(offer(versions=[{"name": "v2"}]))))
    (task,) = decision.tasks
    assert task.failure == conditions.CRD_UPDATE_FAILED
    (step,) = task.steps
    assert isinstance(step, Patch)
    assert step.ref.cluster == APP_CLUSTER


def test_a_foreign_crd_is_left_alone():
    look = seen(crd=installed(ownerReferences=[]))
    assert decide(look).tasks == ()
    assert synced_kind(look) is None


def test_troubles_are_events_when_they_begin_and_when_they_change():
    def notes(*held, late):
        decision = decide(seen(binding=bound(*held), provider=provider(late=late)))
        return [(one.type, one.reason, one.message) for one in decision.notes]

    reported = {"type": "InformersSynced", "status": "False", "severity": "Error",
            "reason": "InformerSyncTimeout", "message": "Old."}  # fmt: skip
    assert notes(late="Old.") == [("Warning", "InformerSyncTimeout", "Old.")]
    assert notes(reported, late="Old.") == []
    assert notes(reported, late="Older.") == [("Warning", "InformerSyncTimeout", "Older.")]


def test_a_take_over_and_a_missing_owner_are_reported():
    noted = [note.reason for note in decide(seen(crd=installed(owner="gone"))).notes]
    assert noted == ["CustomResourceDefinitionTakenOver"]
    noted = [note.reason for note in decide(seen(crd=None, unowned=True)).notes]
    assert noted == ["CustomResourceDefinitionCreated", "CustomResourceDefinitionUnowned"]


OURS = {
    "claims": ("PermissionClaimsInSync", "claim_problems"),
    "instances": ("InstancesInSync", "refusals"),
}


@pytest.mark.parametrize(("type_", "field"), OURS.values(), ids=OURS.keys())
def test_conditions_of_ours_appear_with_the_first_trouble(type_, field):
    sentences = [f"Sentence {number}." for number in range(7)]
    assert type_ not in said(seen())
    assert said(seen(binding=bound(condition(type_, "False", "X"))))[type_] == "True"
    for order in (sentences, sentences[::-1], sentences * 2):
        reported = decide(seen(**{field: order})).conditions
        (one,) = [each for each in reported if each.type == type_]
        assert one.message.startswith("Sentence 0. Sentence 1.")
        assert one.message.endswith("And 2 more.")


def test_h14_versions_that_lose_something():
    other = {"name": "v2", "served": True, "schema": {"openAPIV3Schema": {"type": "string"}}}
    both = offer(versions=[*offer()["spec"]["versions"], other])
    look = seen(provider=provider(export=both), crd=installed(both))
    assert said(look)["VersionsCompatible"] == "False Warning SchemasDiffer"
    assert synced_kind(look) == Kind("shop.example", "v1", "Database", "databases")


def test_what_is_synced():
    kind = Kind("shop.example", "v1", "Database", "databases")
    assert synced_kind(seen()) == kind
    # A change of the schema, or a Secret that is away, interrupts nothing.
    outdated = installed(offer(versions=[{**offer()["spec"]["versions"][0], "deprecated": True}]))
    assert synced_kind(seen(crd=outdated)) == kind
    assert synced_kind(seen(judged=GONE)) == kind
    assert synced_kind(seen(crd=installed(owner="gone"))) == kind
    assert synced_kind(seen(crd=deleting(installed()))) == kind  # so that instances can go
    for nothing in (
        {"crd": None},
        {"crd": installed(reported=[])},
        {"provider": provider(export=None)},
        {"binding": deleting(bound())},
    ):
        assert synced_kind(seen(**nothing)) is None


def test_the_version_that_works_is_synced_until_the_crd_has_followed():
    first = offer()["spec"]["versions"][0]
    switched = provider(export=offer(versions=[{**first, "name": "v2"}]))
    look = seen(provider=switched)
    assert synced_kind(look) == Kind("shop.example", "v1", "Database", "databases")
    followed = seen(provider=switched, crd=installed(switched.export))
    assert synced_kind(followed) == Kind("shop.example", "v2", "Database", "databases")
    unserved = installed(offer(versions=[{**first, "served": False}]))
    assert synced_kind(seen(provider=switched, crd=unserved)) is None


def test_the_pretty_name_goes_with_the_cluster_binding():
    named = bound(providerPrettyName="Shop Inc")
    assert decide(seen(binding=named)).fields == {}
    without = seen(binding=named, provider=provider(cluster_binding=None))
    assert decide(without).fields == {"providerPrettyName": ""}
    assert decide(seen(provider=provider(cluster_binding=None))).fields == {}


def test_a_binding_that_goes_is_left_alone():
    assert decide(seen(binding=deleting(bound()), crd=None)) == NOTHING


HOSTILE = [*NO_OBJECTS, {"spec": []}, {"metadata": [], "spec": {"versions": [7]}}]


@pytest.mark.parametrize("odd", HOSTILE, ids=repr)
def test_odd_values_never_raise(odd):
    whole = odd if isinstance(odd, dict) else {"metadata": odd, "spec": odd, "status": odd}
    for facts in (
        {"provider": provider(export=whole, cluster_binding=whole)},
        {"crd": whole},
        {"binding": whole},
    ):
        decide(seen(**facts))
        synced_kind(seen(**facts))


def test_nothing_of_the_kubeconfig_is_shown():
    judged = Judged(VALID.condition, "identity", "cluster-a1", b"canary-token")
    assert "canary-token" not in repr(seen(judged=judged))


SILENT = "False Warning ControlPlaneUnreachable"
REFUSED = "False Warning Unauthorized"
STARTING = {"synced": False, "heartbeat": None, "silent_since": NOW}
# What the provider shows, what was told before, what Connected says.
SILENCE: Any = {
    "one that was read": ({"silent_since": NOW}, (), SILENT),
    "one that was read by who was here before": (STARTING, EVERY, SILENT),
    "and is still silent": (
        STARTING, (condition("Connected", "False", "ControlPlaneUnreachable"),), SILENT,
    ),
    "one that was never reached": (STARTING, (), "False Info Pending"),
    "one that takes the token no more": ({"refused_since": NOW}, EVERY, REFUSED),
}  # fmt: skip


@pytest.mark.parametrize(("shown", "held", "want"), SILENCE.values(), ids=SILENCE.keys())
def test_a_control_plane_that_does_not_answer_is_reported(shown, held, want):
    look = seen(binding=bound(*held), provider=provider(**shown))
    assert said(look)["Connected"] == want
    (connected,) = (one for one in decide(look).conditions if one.type == "Connected")
    assert ("since 2026-" in connected.message) == (want in (SILENT, REFUSED))
