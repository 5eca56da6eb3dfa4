"""What Ready means, sentence by sentence (mapping.md 11)."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.api import KubeconfigFacts, credential_note, heartbeat_of
from reconciler.api.leases import Behind, Stopped
from reconciler.core import keys
from reconciler.core.manifest import drop, put
from reconciler.core.times import format_time
from reconciler.fleet.values import UnitKey
from reconciler.health.verdict import State, UnitFacts, awaits_definition, judge

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


def noting(
    held: KubeconfigFacts, source: KubeconfigFacts, *, conditions: Sequence[Any] = ()
) -> UnitFacts:
    """Kubeconfigs as they are noted: that of the app cluster, and that of the space."""
    notes = [{keys.CREDENTIAL: credential_note(one, "uid")} for one in (held, source)]
    return having(
        binding=binding(*CONDITIONS, *conditions, annotations=notes[0]),
        cluster_binding={**cluster_binding(), "metadata": {"annotations": notes[1]}},
    )


SOURCE = KubeconfigFacts("https://new:1", "ca", "", "space", "token")
FINE = UnitFacts(
    secret=K,
    export={"metadata": metadata()},
    binding=binding(),
    cluster_binding=cluster_binding(),
    definition=definition(),
)


def having(**changes: Any) -> UnitFacts:
    return replace(FINE, **changes)


CONDITIONS = binding()["status"]["conditions"]


def with_condition(*more: Any) -> UnitFacts:
    """A binding with these conditions in place of its own of the same types."""
    types = {one["type"] for one in more}
    return having(binding=binding(*[one for one in CONDITIONS if one["type"] not in types], *more))


def reporting(kind: str, status: str, reason: str = "", ago: timedelta = LONG_AGO) -> UnitFacts:
    """A binding on which one of the three conditions is different."""
    return with_condition(condition(kind, status, ago, reason=reason, message="so it says"))


def without(kind: str) -> UnitFacts:
    return having(binding=binding(*(one for one in CONDITIONS if one["type"] != kind)))


def beating(ago: timedelta, interval: str = "5m0s") -> UnitFacts:
    return having(cluster_binding=cluster_binding(ago, interval))


def asking(value: Any, field: str, **more: Any) -> UnitFacts:
    """No export is there, and the request for it has this in its status."""
    return having(export=None, asked=put(REQUEST, value, "status", field), **more)


REQUEST = {"metadata": metadata(), "status": {"phase": "Pending"}}
GONE: dict[str, Any] = {"deletionTimestamp": at(LONG_AGO)}
ASKED_FALSE = condition("ExportsReady", "False", reason="CRDNotFound", message="no such CRD")
READY, DEGRADED, UNKNOWN = State.READY, State.DEGRADED, State.UNKNOWN
MINUTE = timedelta(minutes=1)

HOUR = timedelta(hours=1)
BEHIND = Behind(2 * HOUR)

SOUND: dict[str, UnitFacts] = {
    "a clock a little behind": replace(beating(9 * MINUTE), trouble=Behind(MINUTE)),
    "all that mapping.md asks for": FINE,
    "InformersSynced is ignored": with_condition(condition("InformersSynced", "False")),
    "no Heartbeating condition is none that is False": without("Heartbeating"),
    "Heartbeating Unknown is not False": reporting("Heartbeating", "Unknown"),
    "the binding's own Ready is not asked": with_condition(condition("Ready", "False")),
    "a heartbeat of just 2 x interval": beating(10 * MINUTE),
    "an unreadable interval is the usual one": beating(9 * MINUTE, "soon"),
    "an interval of nothing is the usual one": beating(9 * MINUTE, "0s"),
    "a heartbeat a little ahead of us": beating(-MINUTE),
}
FAULTS: dict[str, tuple[UnitFacts, str]] = {
    "Heartbeating False": (reporting("Heartbeating", "False", "UpdateFailed"), "UpdateFailed"),
    "nothing is there": (having(export=None, binding=None, definition=None), "NotBound"),
    "a binding without an export": (having(export=None), "ExportMissing"),
    "a request that nobody answered": (asking("Pending", "phase", binding=None), "ExportPending"),
    "a request whose CRD is missing says so": (asking([ASKED_FALSE], "conditions"), "CRDNotFound"),
    "a failed request": (asking("Failed", "phase"), "RequestFailed"),
    "an export in deletion": (having(export={"metadata": metadata(**GONE)}), "ExportDeleting"),
    "no binding": (having(binding=None), "BindingMissing"),
    "a binding in deletion": (having(binding=binding(**GONE)), "BindingDeleting"),
    "a binding to another Secret": (
        having(binding=binding(secret=(K[0], "theirs"))), "OtherSecret",
    ),
    "the same name in another namespace is another Secret": (
        having(binding=binding(secret=("default", K[1]))), "OtherSecret",
    ),
    "no ClusterBinding": (having(cluster_binding=None), "ClusterBindingMissing"),
    "no konnector ever": (having(cluster_binding={}), "NoHeartbeat"),
    "no konnector ever, and one that stopped": (
        having(cluster_binding={}, trouble=Stopped(NOW - MINUTE)), "KonnectorStopped",
    ),
    "SecretValid not reported": (without("SecretValid"), "SecretValidMissing"),
    "SecretValid False": (reporting("SecretValid", "False", "SecretInvalid"), "SecretInvalid"),
    "Connected not reported": (without("Connected"), "ConnectedMissing"),
    "Connected Unknown is not True": (reporting("Connected", "Unknown"), "NotConnected"),
    "Connected False": (reporting("Connected", "False", "CrdCreateFailed"), "CrdCreateFailed"),
    "no CRD": (having(definition=None), "CrdMissing"),
    "a CRD without conditions": (
        having(definition={"metadata": metadata()}), "CrdNotEstablished",
    ),
    "a CRD that is not Established": (having(definition=definition("False")), "CrdNotEstablished"),
    "a CRD in deletion, though Established": (
        having(definition=definition(**GONE)), "CrdDeleting",
    ),
    "an unreadable heartbeat is none": (
        having(cluster_binding={"status": {"lastHeartbeatTime": "yesterday"}}), "NoHeartbeat",
    ),
    "a missing export needs no konnector to be known": (
        replace(beating(LONG_AGO), export=None), "ExportMissing",
    ),
}  # fmt: skip
SILENT: dict[str, tuple[UnitFacts, str]] = {
    "a heartbeat older than that": (beating(10 * MINUTE + timedelta(seconds=1)), "HeartbeatTooOld"),
    "an interval of its own": (beating(3 * MINUTE, "1m0s"), "HeartbeatTooOld"),
    "a heartbeat from the far future": (beating(-timedelta(hours=1)), "HeartbeatInFuture"),
    "a clock that is behind": (replace(beating(2 * HOUR), trouble=BEHIND), "ClockBehind"),
    "a clock that is behind, and no heartbeat": (
        replace(beating(2 * HOUR + 11 * MINUTE), trouble=BEHIND),
        "HeartbeatTooOld",
    ),
    "a konnector that renews its Lease no more": (
        having(trouble=Stopped(NOW - MINUTE)),
        "KonnectorStopped",
    ),
    "both: the end is exact": (
        replace(beating(LONG_AGO), trouble=Stopped(NOW)),
        "KonnectorStopped",
    ),
}
CASES: dict[str, tuple[UnitFacts, State, str]] = {
    **{name: (facts, READY, "") for name, facts in SOUND.items()},
    **{name: (facts, DEGRADED, reason) for name, (facts, reason) in FAULTS.items()},
    **{name: (facts, UNKNOWN, reason) for name, (facts, reason) in SILENT.items()},
}


ORPHANED = condition("InstancesInSync", "False", reason="Orphaned", message="3 copies")
LOST = condition("RecreationAllowed", "False", reason="RecreationHeld", message="1 copy")
FORMER = condition(
    "ServiceNamespacesReady",
    "False",
    reason="NamespaceOfFormerSpace",
    message="kubectl annotate namespace x klutchctl.dev/confirm-space=uid --overwrite",
)
REFUSED = condition(
    "InstancesInSync", "False", reason="InstancesRefused", message="quota", severity="Warning"
)
DEGRADED_CLAIMS = condition(
    "PermissionClaimsInSync",
    "False",
    reason="PermissionClaimsDegraded",
    message="no such kind",
    severity="Error",
)
CLASH = condition("NamesAccepted", "False", message='"cl" is already in use')


@pytest.mark.parametrize("message", ["not all names are accepted", ""])
def test_a_crd_that_is_not_served_says_which_name_clashes(message):
    waits = condition("Established", "False", message=message)
    for found, end in (([CLASH, waits], CLASH["message"]), ([waits], message or "yet")):
        facts = having(definition={"metadata": metadata(), "status": {"conditions": found}})
        assert judge(UNIT, facts, now=NOW).message.endswith(end)


OTHER = f"t{UNIT.name}"
LOST_OTHERS = {**LOST, "message": f"of 2 {OTHER} the copies are gone (team/a, team/b)."}
LOST_TOO = {**LOST, "message": f"2 copies are gone: annotate confirm-recreate={OTHER},{UNIT.name}"}


def of_kinds(condition, *exported):
    status = {**cluster_binding()["status"], "conditions": [condition]}
    return replace(having(cluster_binding={"status": status}), exported=exported)


FROZEN = condition("WritesAccepted", "False", reason="BindingNotWritten", message=f"of {OTHER}: no")


@pytest.mark.parametrize(
    ("said", "state"), [(FROZEN["message"], "Ready"), (f"of {UNIT.name}, {OTHER}: no", "Degraded")]
)
def test_a_binding_that_cannot_report_itself_is_degraded_alone(said, state):
    facts = of_kinds({**FROZEN, "message": said}, OTHER, UNIT.name)
    assert judge(UNIT, facts, now=NOW).state == state


LOST_STATUS = {**cluster_binding()["status"], "conditions": [LOST]}
HELD: dict[str, tuple[Any, tuple[str, str]]] = {
    "nothing": (FINE, ("", "")),
    "orphans of its own": (with_condition(ORPHANED), ("Orphaned", "3 copies")),
    "copies that were lost in its space": (
        having(cluster_binding={"status": LOST_STATUS}), ("RecreationHeld", "1 copy"),
    ),
    "copies of its kind, among others": (
        of_kinds(LOST_TOO, OTHER, UNIT.name), ("RecreationHeld", LOST_TOO["message"]),
    ),
    "app namespaces whose data an earlier space left": (
        of_kinds(FORMER, OTHER, UNIT.name), ("NamespaceOfFormerSpace", FORMER["message"]),
    ),
    "copies of another kind": (of_kinds(LOST_OTHERS, OTHER, UNIT.name), ("", "")),
    "copies of a kind that ends alike": (of_kinds(LOST_OTHERS, OTHER, "x"), ("", "")),
    "copies of what is no kind of a unit": (
        of_kinds(LOST, OTHER, UNIT.name), ("RecreationHeld", "1 copy"),
    ),
    "what a quota refuses": (with_condition(REFUSED), ("InstancesRefused", "quota")),
    "the gravest that kubectl shows in READY": (
        with_condition(REFUSED, DEGRADED_CLAIMS), ("PermissionClaimsDegraded", "no such kind"),
    ),
    "a kubeconfig as its source": (noting(SOURCE, SOURCE), ("", "")),
    "one with the token of before": (
        noting(replace(SOURCE, token_digest="old", server="https://old:1"), SOURCE),
        ("TokenRevoked", f"Secret {'/'.join(K)} in the app cluster has a token that is revoked: "
        "`klutchctl apply` writes the present one"),
    ),
    "one with the address of before": (
        noting(replace(SOURCE, server="https://old:1"), SOURCE),
        ("OldAddress", f"Secret {'/'.join(K)} in the app cluster does not lead to https://new:1 "
        "yet: `klutchctl apply` has it done"),
    ),
    "what does not work now comes before a way that may work on": (
        noting(replace(SOURCE, server="https://old:1"), SOURCE, conditions=[REFUSED]),
        ("InstancesRefused", "quota"),
    ),
    "a revoked token comes before that": (
        noting(replace(SOURCE, token_digest="old"), SOURCE, conditions=[REFUSED]),
        ("TokenRevoked", f"Secret {'/'.join(K)} in the app cluster has a token that is revoked: "
        "`klutchctl apply` writes the present one"),
    ),
    "one that the konnector does not take over": (
        having(cluster_binding={"status": {
            **cluster_binding()["status"],
            "conditions": [condition(
                "SecretValid", "False", reason="ProviderSecretInvalid", message="it is empty"
            )],
        }}),
        ("ProviderSecretInvalid", "it is empty"),
    ),
    "one of which nothing readable is noted": (
        having(binding=binding(annotations={keys.CREDENTIAL: "["})), ("", ""),
    ),
    "what is held comes first": (
        having(
            binding=binding(*CONDITIONS, REFUSED), cluster_binding={"status": LOST_STATUS}
        ),
        ("RecreationHeld", "1 copy"),
    ),
    "what the original sets wrongly is not shown": (
        with_condition(condition("InformersSynced", "False", reason="No")), ("", ""),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("facts", "expected"), HELD.values(), ids=HELD.keys())
def test_what_is_held_is_reported_and_no_fault(facts, expected):
    health = judge(UNIT, facts, now=NOW)
    assert (health.state, health.reason, health.message) == (READY, *expected)
    assert bool(health.note) is bool(health.reason)


@pytest.mark.parametrize(("facts", "state", "reason"), CASES.values(), ids=CASES.keys())
def test_the_state_of_a_unit(facts, state, reason):
    found = judge(UNIT, facts, now=NOW)
    assert (found.unit, found.state, found.reason) == (UNIT, state, reason)
    assert found.ready is (state is READY)
    assert bool(found.message) is (state is not READY)


def test_a_space_for_which_no_konnector_is_deployed_names_the_field():
    for deploy, named in ((False, True), (True, False)):
        asked = {"metadata": metadata(), "spec": {"konnector": {"deploy": deploy}}}
        found = judge(UNIT, having(cluster_binding={}, asked=asked), now=NOW)
        assert found.reason == "NoHeartbeat"
        assert ("konnector.deploy" in found.message) is named


INVALID = ("Connected", "False", "APIServiceExportInvalid")
FOREIGN = ("Connected", "False", "ForeignCustomResourceDefinition")
NOT_FOUND = ("Connected", "False", "APIServiceExportNotFound")
NEW = {"metadata": metadata(JUST_NOW)}
FRESH: dict[str, UnitFacts] = {
    "a condition turned": reporting(*INVALID, JUST_NOW),
    "a new request": having(export=None, binding=None, asked=NEW),
    "a new export": having(export=NEW, binding=None),
    "a new binding that no konnector has looked at": having(
        binding=drop(binding(ago=JUST_NOW), "status")
    ),
    "a binding that is going": having(binding=binding(deletionTimestamp=at(JUST_NOW))),
    "a change ahead of our clock": reporting(*INVALID, -MINUTE),
}
SETTLED: dict[str, UnitFacts] = {
    "two minutes later": reporting(*INVALID, 2 * MINUTE),
    "what the original sets anew at each pass is no change": reporting(*FOREIGN, JUST_NOW),
    "a missing export as the original's konnector says it": reporting(*NOT_FOUND, JUST_NOW),
    "Ready repeats the others": with_condition(
        condition("Connected", "False"), condition("Ready", "False", JUST_NOW)
    ),
    "a revoked token waits for somebody": reporting("Connected", "False", "Unauthorized", JUST_NOW),
    "a heartbeat is no change": replace(beating(JUST_NOW), definition=None),
}


@pytest.mark.parametrize("name", [*FRESH, *SETTLED])
def test_what_changed_less_than_two_minutes_ago_is_progressing(name):
    state = judge(UNIT, {**FRESH, **SETTLED}[name], now=NOW).state
    assert state is (State.PROGRESSING if name in FRESH else DEGRADED)


def test_a_konnector_that_stopped_is_dated_by_its_last_renewal():
    at = NOW - timedelta(seconds=40)
    found = judge(UNIT, having(trouble=Stopped(at)), now=NOW)
    assert (found.since, found.last_known) == (at, READY)
    assert "Lease" in found.message
    assert judge(UNIT, having(trouble=Stopped(NOW + MINUTE)), now=NOW).since == NOW


def test_since_is_the_last_change_and_never_after_now():
    changed = timedelta(minutes=7)
    assert judge(UNIT, reporting("Connected", "True", ago=changed), now=NOW).since == NOW - changed
    assert judge(UNIT, reporting("Connected", "True", ago=-changed), now=NOW).since == NOW
    assert judge(UNIT, UnitFacts(secret=K), now=NOW).since is None


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


UNDATED: dict[str, UnitFacts] = {
    "its export": having(export=None),
    "its APIServiceBinding": having(binding=None),
    "its CRD": having(definition=None),
    "its ClusterBinding": having(cluster_binding=None),
}


@pytest.mark.parametrize("facts", UNDATED.values(), ids=UNDATED.keys())
def test_nobody_reports_when_something_went_missing(facts):
    found = judge(UNIT, facts, now=NOW)
    assert (found.state, found.exact) == (DEGRADED, False)
    assert found.since is not None


@pytest.mark.parametrize("facts", BEGAN.values(), ids=BEGAN.keys())
def test_what_is_reported_is_exact(facts):
    assert judge(UNIT, facts, now=NOW).exact


def test_trouble_whose_beginning_nobody_reports_began_after_the_last_change():
    restless = condition(
        "Connected", "False", timedelta(minutes=5), reason="ForeignCustomResourceDefinition"
    )
    facts = having(binding=binding(condition("SecretValid", "True", HOUR), restless))
    found = judge(UNIT, facts, now=NOW)
    assert (found.state, found.since) == (DEGRADED, NOW - HOUR)


LAST: dict[str, tuple[UnitFacts, State]] = {
    "it was Ready": (FINE, State.READY),
    "it was not": (reporting("Connected", "False", "APIServiceExportInvalid"), State.DEGRADED),
    "its CRD is gone": (having(definition=None), State.DEGRADED),
}


@pytest.mark.parametrize(("facts", "last"), LAST.values(), ids=LAST.keys())
def test_an_old_heartbeat_leaves_the_last_known_state_and_its_age(facts, last):
    beat = timedelta(hours=2)
    found = judge(UNIT, replace(facts, cluster_binding=cluster_binding(beat)), now=NOW)
    assert (found.state, found.last_known, found.since) == (UNKNOWN, last, NOW - beat)


@pytest.mark.parametrize("reason", ["Unauthorized", "ControlPlaneUnreachable"])
def test_a_konnector_that_is_cut_off_says_why_there_is_no_heartbeat(reason):
    facts = replace(
        reporting("Connected", "False", reason), cluster_binding=cluster_binding(timedelta(hours=2))
    )
    found = judge(UNIT, facts, now=NOW)
    assert (found.state, found.reason) == (UNKNOWN, reason)
    assert found.message.startswith("so it says; the konnector's last heartbeat was at ")
    stopped = judge(UNIT, replace(facts, trouble=Stopped(NOW - timedelta(hours=2))), now=NOW)
    assert stopped.reason == "KonnectorStopped"


def test_only_what_is_otherwise_fine_awaits_its_definition():
    assert awaits_definition(UNIT, FINE)
    assert awaits_definition(UNIT, having(cluster_binding=cluster_binding(LONG_AGO)))
    for facts in (
        having(export=None),
        having(binding=None),
        having(cluster_binding=None),
        having(cluster_binding={}),
        reporting("Connected", "False"),
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
    assert not judge(UNIT, UnitFacts(K, export, held, asked, beats, crd), now=NOW).ready


def test_an_absent_cluster_binding_has_no_beat():
    assert heartbeat_of(None) is None
