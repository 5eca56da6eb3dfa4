"""What Ready means, sentence by sentence (mapping.md 11)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.heartbeat import beat_of
from reconciler.core.manifest import drop, put
from reconciler.core.times import format_time
from reconciler.fleet.values import UnitKey
from reconciler.health.verdict import (
    State,
    UnitFacts,
    awaits_definition,
    judge,
)

UNIT = UnitKey("shop", "shop.example", "databases")
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LONG_AGO = timedelta(days=3)
JUST_NOW = timedelta(seconds=119)
K = ("klutch-bind", "kubeconfig-abcde")


def at(ago: timedelta) -> str:
    return format_time(NOW - ago)


def metadata(ago: timedelta = LONG_AGO, **more: Any) -> dict[str, Any]:
    return {"name": UNIT.name, "creationTimestamp": at(ago), **more}


def condition(kind: str, status: str = "True", ago: timedelta = LONG_AGO, **more: Any) -> Any:
    return {"type": kind, "status": status, "lastTransitionTime": at(ago), **more}


def binding(*conditions: Any, secret: tuple[str, str] = K, **more: Any) -> dict[str, Any]:
    given = conditions or (
        condition("SecretValid"),
        condition("Connected"),
        condition("Heartbeating"),
    )
    reference = {"namespace": secret[0], "name": secret[1], "key": "kubeconfig"}
    return {
        "metadata": metadata(**more),
        "spec": {"kubeconfigSecretRef": reference},
        "status": {"conditions": list(given)},
    }


def cluster_binding(ago: timedelta = timedelta(minutes=1), interval: str = "5m0s") -> Any:
    return {"status": {"lastHeartbeatTime": at(ago), "heartbeatInterval": interval}}


def definition(status: str = "True", **more: Any) -> dict[str, Any]:
    return {
        "metadata": metadata(**more),
        "status": {"conditions": [condition("Established", status, message="names in conflict")]},
    }


FINE = UnitFacts(
    secret=K,
    export={"metadata": metadata()},
    binding=binding(),
    cluster_binding=cluster_binding(),
    definition=definition(),
)


def having(**changes: Any) -> UnitFacts:
    return replace(FINE, **changes)


def told(kind: str, status: str, reason: str = "", ago: timedelta = LONG_AGO) -> UnitFacts:
    """A binding on which one of the three conditions is different."""
    changed = condition(kind, status, ago, reason=reason, message="so it says")
    usual = [one for one in binding()["status"]["conditions"] if one["type"] != kind]
    return having(binding=binding(*usual, changed))


def without(kind: str) -> UnitFacts:
    usual = [one for one in binding()["status"]["conditions"] if one["type"] != kind]
    return having(binding=binding(*usual))


REQUEST = {"metadata": metadata(), "status": {"phase": "Pending"}}
GONE: dict[str, Any] = {"deletionTimestamp": at(LONG_AGO)}
ASKED_FALSE = condition("ExportsReady", "False", reason="CRDNotFound", message="no such CRD")
READY, DEGRADED, UNKNOWN = State.READY, State.DEGRADED, State.UNKNOWN

CASES: dict[str, tuple[UnitFacts, State, str]] = {
    "all that mapping.md asks for": (FINE, READY, ""),
    "InformersSynced is ignored": (
        having(
            binding=binding(
                *binding()["status"]["conditions"], condition("InformersSynced", "False")
            )
        ),
        READY,
        "",
    ),
    "no Heartbeating condition is none that is False": (without("Heartbeating"), READY, ""),
    "Heartbeating Unknown is not False": (told("Heartbeating", "Unknown"), READY, ""),
    "Heartbeating False": (
        told("Heartbeating", "False", "ClusterBindingUpdateFailed"),
        DEGRADED,
        "ClusterBindingUpdateFailed",
    ),
    "the binding's own Ready is not asked": (
        having(binding=binding(*binding()["status"]["conditions"], condition("Ready", "False"))),
        READY,
        "",
    ),
    "nothing is there": (
        having(export=None, binding=None, definition=None),
        DEGRADED,
        "NotBound",
    ),
    "a binding without an export": (having(export=None), DEGRADED, "ExportMissing"),
    "a request that nobody answered": (
        having(export=None, binding=None, asked=REQUEST),
        DEGRADED,
        "ExportPending",
    ),
    "a request whose CRD is missing says so": (
        having(export=None, asked=put(REQUEST, [ASKED_FALSE], "status", "conditions")),
        DEGRADED,
        "CRDNotFound",
    ),
    "a failed request": (
        having(export=None, asked=put(REQUEST, "Failed", "status", "phase")),
        DEGRADED,
        "RequestFailed",
    ),
    "an export in deletion": (
        having(export={"metadata": metadata(**GONE)}),
        DEGRADED,
        "ExportDeleting",
    ),
    "no binding": (having(binding=None), DEGRADED, "BindingMissing"),
    "a binding in deletion": (having(binding=binding(**GONE)), DEGRADED, "BindingDeleting"),
    "a binding to another Secret": (
        having(binding=binding(secret=(K[0], "theirs"))),
        DEGRADED,
        "OtherSecret",
    ),
    "the same name in another namespace is another Secret": (
        having(binding=binding(secret=("default", K[1]))),
        DEGRADED,
        "OtherSecret",
    ),
    "no ClusterBinding": (having(cluster_binding=None), DEGRADED, "ClusterBindingMissing"),
    "no konnector ever": (having(cluster_binding={}), DEGRADED, "NoHeartbeat"),
    "SecretValid not reported": (without("SecretValid"), DEGRADED, "SecretValidMissing"),
    "SecretValid False": (
        told("SecretValid", "False", "KubeconfigSecretInvalid"),
        DEGRADED,
        "KubeconfigSecretInvalid",
    ),
    "Connected not reported": (without("Connected"), DEGRADED, "ConnectedMissing"),
    "Connected Unknown is not True": (told("Connected", "Unknown"), DEGRADED, "NotConnected"),
    "Connected False": (
        told("Connected", "False", "CustomResourceDefinitionCreateFailed"),
        DEGRADED,
        "CustomResourceDefinitionCreateFailed",
    ),
    "no CRD": (having(definition=None), DEGRADED, "CrdMissing"),
    "a CRD without conditions": (
        having(definition={"metadata": metadata()}),
        DEGRADED,
        "CrdNotEstablished",
    ),
    "a CRD that is not Established": (
        having(definition=definition("False")),
        DEGRADED,
        "CrdNotEstablished",
    ),
    "a CRD in deletion, though Established": (
        having(definition=definition(**GONE)),
        DEGRADED,
        "CrdDeleting",
    ),
    "a heartbeat of just 2 x interval": (
        having(cluster_binding=cluster_binding(timedelta(minutes=10))),
        READY,
        "",
    ),
    "a heartbeat older than that": (
        having(cluster_binding=cluster_binding(timedelta(minutes=10, seconds=1))),
        UNKNOWN,
        "HeartbeatTooOld",
    ),
    "an interval of its own": (
        having(cluster_binding=cluster_binding(timedelta(minutes=3), "1m0s")),
        UNKNOWN,
        "HeartbeatTooOld",
    ),
    "an unreadable interval is the usual one": (
        having(cluster_binding=cluster_binding(timedelta(minutes=9), "soon")),
        READY,
        "",
    ),
    "an interval of nothing is the usual one": (
        having(cluster_binding=cluster_binding(timedelta(minutes=9), "0s")),
        READY,
        "",
    ),
    "a heartbeat a little ahead of us": (
        having(cluster_binding=cluster_binding(-timedelta(minutes=1))),
        READY,
        "",
    ),
    "a heartbeat from the far future": (
        having(cluster_binding=cluster_binding(-timedelta(hours=1))),
        UNKNOWN,
        "HeartbeatInFuture",
    ),
    "an unreadable heartbeat is none": (
        having(cluster_binding={"status": {"lastHeartbeatTime": "yesterday"}}),
        DEGRADED,
        "NoHeartbeat",
    ),
    "a missing export needs no konnector to be known": (
        having(export=None, cluster_binding=cluster_binding(LONG_AGO)),
        DEGRADED,
        "ExportMissing",
    ),
}


ORPHANED = condition("InstancesInSync", "False", reason="Orphaned", message="3 copies")
LOST = condition("RecreationAllowed", "False", reason="RecreationHeld", message="1 copy")
REFUSED = condition("InstancesInSync", "False", reason="InstancesRefused", message="quota")
HELD: dict[str, tuple[Any, tuple[str, str]]] = {
    "nothing": (FINE, ("", "")),
    "orphans of its own": (
        replace(FINE, binding=binding(*binding()["status"]["conditions"], ORPHANED)),
        ("Orphaned", "3 copies"),
    ),
    "copies that were lost in its space": (
        replace(FINE, cluster_binding={
            "status": {**cluster_binding()["status"], "conditions": [LOST]}
        }),
        ("RecreationHeld", "1 copy"),
    ),
    "what a quota refuses is the developer's": (
        replace(FINE, binding=binding(*binding()["status"]["conditions"], REFUSED)), ("", ""),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "expected"), HELD.values(), ids=HELD.keys())
def test_what_is_held_is_told_and_no_fault(facts, expected):
    health = judge(UNIT, facts, now=NOW)
    assert (health.state, health.reason, health.message) == (READY, *expected)


@pytest.mark.parametrize(("facts", "state", "reason"), CASES.values(), ids=CASES.keys())
def test_the_state_of_a_unit(facts, state, reason):
    found = judge(UNIT, facts, now=NOW)
    assert (found.unit, found.state, found.reason) == (UNIT, state, reason)
    assert found.ready is (state is READY)
    assert bool(found.message) is (state is not READY)


FRESH: dict[str, tuple[UnitFacts, State]] = {
    "a condition turned": (
        told("Connected", "False", "APIServiceExportInvalid", JUST_NOW),
        State.PROGRESSING,
    ),
    "two minutes later": (
        told("Connected", "False", "APIServiceExportInvalid", timedelta(minutes=2)),
        DEGRADED,
    ),
    "a new request": (
        having(export=None, binding=None, asked={"metadata": metadata(JUST_NOW)}),
        State.PROGRESSING,
    ),
    "a new export": (
        having(export={"metadata": metadata(JUST_NOW)}, binding=None),
        State.PROGRESSING,
    ),
    "a new binding that no konnector has looked at": (
        having(binding=drop(binding(ago=JUST_NOW), "status")),
        State.PROGRESSING,
    ),
    "a binding that is going": (
        having(binding=binding(deletionTimestamp=at(JUST_NOW))),
        State.PROGRESSING,
    ),
    "a change ahead of our clock": (
        told("Connected", "False", "APIServiceExportInvalid", -timedelta(minutes=1)),
        State.PROGRESSING,
    ),
    "what the original sets anew at each pass is no change": (
        told("Connected", "False", "ForeignCustomResourceDefinition", JUST_NOW),
        DEGRADED,
    ),
    "a missing export as the original's konnector says it": (
        told("Connected", "False", "APIServiceExportNotFound", JUST_NOW),
        DEGRADED,
    ),
    "Ready repeats the others": (
        having(
            binding=binding(
                condition("SecretValid"),
                condition("Connected", "False"),
                condition("Ready", "False", JUST_NOW),
            )
        ),
        DEGRADED,
    ),
    "a heartbeat is no change": (
        having(definition=None, cluster_binding=cluster_binding(JUST_NOW)),
        DEGRADED,
    ),
}


@pytest.mark.parametrize(("facts", "state"), FRESH.values(), ids=FRESH.keys())
def test_what_changed_less_than_two_minutes_ago_is_progressing(facts, state):
    assert judge(UNIT, facts, now=NOW).state is state


def test_since_is_the_last_change_and_never_after_now():
    changed = timedelta(minutes=7)
    facts = told("Connected", "True", ago=changed)
    assert judge(UNIT, facts, now=NOW).since == NOW - changed
    ahead = told("Connected", "True", ago=-changed)
    assert judge(UNIT, ahead, now=NOW).since == NOW
    nothing = UnitFacts(secret=K)
    assert judge(UNIT, nothing, now=NOW).since is None


HOUR = timedelta(hours=1)
BEGAN: dict[str, UnitFacts] = {
    "a condition turned": having(
        binding=binding(
            condition("SecretValid", "False", HOUR),
            condition("Connected", "True", timedelta(minutes=5)),
        )
    ),
    "the export is being deleted": having(
        export={"metadata": metadata(deletionTimestamp=at(HOUR))}
    ),
    "the binding is being deleted": having(
        binding=binding(
            condition("Connected", "False", timedelta(minutes=5)), deletionTimestamp=at(HOUR)
        )
    ),
}


@pytest.mark.parametrize("facts", BEGAN.values(), ids=BEGAN.keys())
def test_trouble_began_when_its_cause_did_whatever_changed_later(facts):
    found = judge(UNIT, facts, now=NOW)
    assert (found.state, found.since) == (DEGRADED, NOW - HOUR)


UNTOLD: dict[str, UnitFacts] = {
    "its export": having(export=None),
    "its APIServiceBinding": having(binding=None),
    "its CRD": having(definition=None),
    "its ClusterBinding": having(cluster_binding=None),
}


@pytest.mark.parametrize("facts", UNTOLD.values(), ids=UNTOLD.keys())
def test_nobody_tells_when_something_went_missing(facts):
    found = judge(UNIT, facts, now=NOW)
    assert (found.state, found.exact) == (DEGRADED, False)
    assert found.since is not None


@pytest.mark.parametrize("facts", BEGAN.values(), ids=BEGAN.keys())
def test_what_is_told_is_exact(facts):
    assert judge(UNIT, facts, now=NOW).exact


def test_trouble_whose_beginning_nobody_tells_began_after_the_last_change():
    restless = condition(
        "Connected", "False", timedelta(minutes=5), reason="ForeignCustomResourceDefinition"
    )
    facts = having(binding=binding(condition("SecretValid", "True", HOUR), restless))
    found = judge(UNIT, facts, now=NOW)
    assert (found.state, found.since) == (DEGRADED, NOW - HOUR)


LAST: dict[str, tuple[UnitFacts, State]] = {
    "it was Ready": (FINE, State.READY),
    "it was not": (told("Connected", "False", "APIServiceExportInvalid"), State.DEGRADED),
    "its CRD is gone": (having(definition=None), State.DEGRADED),
}


@pytest.mark.parametrize(("facts", "last"), LAST.values(), ids=LAST.keys())
def test_an_old_heartbeat_leaves_the_last_known_state_and_its_age(facts, last):
    beat = timedelta(hours=2)
    found = judge(UNIT, replace(facts, cluster_binding=cluster_binding(beat)), now=NOW)
    assert (found.state, found.last_known, found.since) == (UNKNOWN, last, NOW - beat)


def test_only_what_is_otherwise_fine_awaits_its_definition():
    assert awaits_definition(UNIT, FINE)
    assert awaits_definition(UNIT, having(cluster_binding=cluster_binding(LONG_AGO)))
    for facts in (
        having(export=None),
        having(binding=None),
        having(cluster_binding=None),
        having(cluster_binding={}),
        told("Connected", "False"),
    ):
        assert not awaits_definition(UNIT, facts)


def test_what_does_not_await_its_definition_is_judged_alike_without_it():
    for facts, state, _ in CASES.values():
        if not awaits_definition(UNIT, facts):
            bare = replace(facts, definition=None)
            assert judge(UNIT, bare, now=NOW).reason == judge(UNIT, facts, now=NOW).reason
            assert state is not READY


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "status", "spec", "conditions", "type", "name"]), inner
        )
    ),
    max_leaves=12,
)
_OBJECT = st.none() | st.dictionaries(
    st.sampled_from(["metadata", "status", "spec"]), _JSON, max_size=3
)


@given(export=_OBJECT, held=_OBJECT, asked=_OBJECT, beats=_OBJECT, crd=_OBJECT)
def test_no_object_that_anyone_can_write_breaks_it_or_is_ready(export, held, asked, beats, crd):
    facts = UnitFacts(K, export, held, asked, beats, crd)
    assert not judge(UNIT, facts, now=NOW).ready


def test_an_absent_cluster_binding_has_no_beat():
    assert beat_of(None) is None
