"""The condition algebra, each rule of protocol-konnector.md 0 and protocol-bind.md A.9 a row."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from reconciler.core import conditions
from reconciler.core.conditions import (
    ERROR,
    FALSE,
    INFO,
    READY,
    TRUE,
    UNKNOWN,
    WARNING,
    Cause,
    Condition,
    copy_conditions,
    dump,
    false,
    find,
    ordered,
    parse,
    set_condition,
    summarize,
    summary,
    true,
)
from reconciler.core.decision import Decision, status_patch
from reconciler.core.refs import NAMESPACE, Ref

if TYPE_CHECKING:
    from reconciler.core.manifest import Manifest

NOW = datetime(2026, 1, 31, 12, 0, 0, 999_999, tzinfo=UTC)
LATER = datetime(2026, 3, 1, tzinfo=UTC)
STAMP = "2026-01-31T12:00:00Z"
BEFORE = "2026-01-01T00:00:00Z"


def yes(name, time=BEFORE):
    return Condition(name, TRUE, last_transition_time=time)


def no(name, severity=ERROR, reason="Broken", message="it broke", time=BEFORE):
    return Condition(name, FALSE, severity, reason, message, time)


def unknown(name, reason="NotSeen", message="not seen", time=BEFORE):
    return Condition(name, UNKNOWN, "", reason, message, time)


SETS = {
    "a new condition gets now, in whole seconds": ([], yes("A", ""), [yes("A", STAMP)]),
    "the same again keeps its time": ([yes("A")], yes("A", ""), [yes("A")]),
    "the same False keeps its time": ([no("A")], no("A", time=""), [no("A")]),
    "another status gets now": ([yes("A")], no("A"), [no("A", time=STAMP)]),
    "another reason gets now": (
        [no("A")],
        no("A", reason="Other"),
        [no("A", reason="Other", time=STAMP)],
    ),
    "another severity gets now": (
        [no("A")],
        no("A", severity=INFO),
        [no("A", severity=INFO, time=STAMP)],
    ),
    "another message gets now": (
        [no("A")],
        no("A", message="other"),
        [no("A", message="other", time=STAMP)],
    ),
    "a time in the new one does not count": (
        [yes("A")],
        yes("A", "1999-01-01T00:00:00Z"),
        [yes("A")],
    ),
    "a held one without a time gets now": ([yes("A", "")], yes("A"), [yes("A", STAMP)]),
    "True carries no reason or severity": ([], Condition("A", TRUE, ERROR, "R"), [yes("A", STAMP)]),
    "it may carry a message": (
        [],
        Condition("A", TRUE, message="m"),
        [Condition("A", TRUE, message="m", last_transition_time=STAMP)],
    ),
    "a True that carried a reason changes": (
        [Condition("A", TRUE, "", "R", "m", BEFORE)],
        true("A"),
        [yes("A", STAMP)],
    ),
    "Ready goes first, the others by type": (
        [yes("Z"), yes(READY), yes("B")],
        true("A"),
        [yes(READY), yes("A", STAMP), yes("B"), yes("Z")],
    ),
    "doubled types become one": ([yes("A"), no("A")], true("A"), [yes("A")]),
}


@pytest.mark.parametrize(("held", "new", "want"), SETS.values(), ids=SETS.keys())
def test_set_condition(held, new, want):
    assert set_condition(held, new, now=NOW) == tuple(want)


def test_an_unchanged_condition_keeps_the_fields_that_we_do_not_know():
    held = parse([{"type": "A", "status": "True", "lastTransitionTime": BEFORE, "new": 1}])
    assert dump(set_condition(held, true("A"), now=NOW))[0]["new"] == 1


SUMMARIES = {
    "no condition, no summary": ([], None),
    "Ready alone, no summary": ([no(READY)], None),
    "all True": ([yes("A"), yes("B")], true(READY)),
    "False/Error before all": (
        [yes("A"), no("B", WARNING), no("C", ERROR, "E", "e"), no("D", INFO), unknown("E")],
        Condition(READY, FALSE, ERROR, "E", "e"),
    ),
    "False/Warning before Info": (
        [yes("A"), no("B", INFO), no("C", WARNING, "W", "w")],
        Condition(READY, FALSE, WARNING, "W", "w"),
    ),
    "False/Info spoils Ready": (
        [yes("A"), no("B", INFO, "I", "i")],
        Condition(READY, FALSE, INFO, "I", "i"),
    ),
    "True hides Unknown": ([unknown("A"), yes("B")], true(READY)),
    "Unknown alone, without severity": (
        [unknown("A", "U", "u")],
        Condition(READY, UNKNOWN, "", "U", "u"),
    ),
    "the alphabetically first of the group speaks": (
        [no("C", ERROR, "third", "c"), no("B", ERROR, "second", "b")],
        Condition(READY, FALSE, ERROR, "second", "b"),
    ),
    "the old Ready does not count": ([no(READY), yes("A")], true(READY)),
    "a False without severity is an error": (
        [yes("A"), no("B", "", "R", "m"), no("C", WARNING)],
        Condition(READY, FALSE, ERROR, "R", "m"),
    ),
    "a status that nobody knows is Unknown": (
        [Condition("A", "Perhaps", "", "R", "m")],
        Condition(READY, UNKNOWN, "", "R", "m"),
    ),
}


@pytest.mark.parametrize(("held", "want"), SUMMARIES.values(), ids=SUMMARIES.keys())
def test_summary(held, want):
    assert summary(held) == want


def test_summarize_sets_ready_first_with_a_time():
    assert summarize([yes("A")], now=NOW) == (yes(READY, STAMP), yes("A"))
    assert summarize([yes(READY), yes("A")], now=NOW) == (yes(READY), yes("A"))
    assert summarize([no(READY)], now=NOW) == (no(READY),)


def test_copied_conditions_keep_time_and_reason_and_are_ordered():
    established = Condition("Established", TRUE, "", "InitialNamesAccepted", "ok", BEFORE)
    held = [yes(READY), yes("ProviderInSync"), no("Established")]
    assert copy_conditions(held, [established, no("Terminating")]) == (
        yes(READY),
        established,
        yes("ProviderInSync"),
        no("Terminating"),
    )


WIRE: list[Manifest] = [
    {"type": "B", "status": "True", "lastTransitionTime": BEFORE, "observedGeneration": 2},
    {
        "type": "A",
        "status": "False",
        "severity": "Info",
        "reason": "R",
        "message": "m",
        "lastTransitionTime": BEFORE,
    },
]


def test_parse_and_dump_keep_everything_and_the_order():
    assert dump(parse(WIRE)) == WIRE


NOT_CONDITIONS = {
    "null": None,
    "text": "Ready",
    "nothing": {},
    "an empty type": {"type": "", "status": "True"},
    "a type that is no text": {"type": 1, "status": "True"},
}


@pytest.mark.parametrize("item", NOT_CONDITIONS.values(), ids=NOT_CONDITIONS.keys())
def test_parse_leaves_out_what_is_no_condition(item):
    assert parse([item, {"type": "A", "status": None}]) == (Condition("A", ""),)


def test_find():
    assert find([yes("A"), no("B")], "B") == no("B")
    assert find([yes("A")], "B") is None


@pytest.mark.parametrize(
    ("own", "whole", "want"),
    [(3, None, True), (2, 3, False), (None, 2, False), (3, 2, True), (None, None, True)],
)
def test_a_condition_is_of_the_newest_generation_or_does_not_count(own, whole, want):
    said = {"type": "A", "status": TRUE} | ({} if own is None else {"observedGeneration": own})
    status = {"conditions": [said]} | ({} if whole is None else {"observedGeneration": whole})
    live: Manifest = {"metadata": {"generation": 3}, "status": status}
    assert conditions.current(live, "A") == (conditions.get(live, "A", TRUE) if want else None)
    assert conditions.current(live, "A", FALSE) == conditions.get(live, "A", FALSE) is None


def test_ordered():
    assert ordered([yes("b"), yes("B"), yes(READY)]) == (yes(READY), yes("B"), yes("b"))


def test_a_false_condition_carries_all_that_its_cause_says():
    assert false(conditions.PENDING, "wait") == Condition(READY, FALSE, INFO, "Pending", "wait")


CAUSES = """
    Healthy            Info    FirstHeartbeatPending
    Healthy            Info    HeartbeatIntervalMissing
    Healthy            Error   HeartbeatTimeout
    Healthy            Warning HeartbeatTimeDrift
    SecretValid        Warning ProviderSecretNotFound
    SecretValid        Warning ProviderSecretInvalid
    ValidVersion       Warning ParseError
    ProviderInSync     Error   CustomResourceDefinitionUpdateFailed
    Connected          Info    APIServiceBindingNotFound
    ConsumerInSync     Info    NA
    ConsumerInSync     Info    Unknown
    ExportsReady       Error   CRDNotFound
    ExportsReady       Error   CRDInvalid
    SecretValid        Error   KubeconfigSecretNotFound
    SecretValid        Error   KubeconfigSecretInvalid
    InformersSynced    Error   InformerSyncTimeout
    Heartbeating       Warning ClusterBindingUpdateFailed
    Connected          Error   APIServiceExportNotFound
    Connected          Error   APIServiceExportInvalid
    Connected          Error   CustomResourceDefinitionCreateFailed
    Connected          Error   CustomResourceDefinitionUpdateFailed
    Connected          Error   ForeignCustomResourceDefinition
    Ready              Info    Pending
    KonnectorDeployed  Error   KonnectorDeploymentFailed
"""
OWN_CAUSES = """
    PermissionsGranted     Error   PermissionsUpdateFailed
    PermissionsGranted     Error   ForeignPermissions
    ServiceNamespacesReady Error   NamespaceCollision
    ServiceNamespacesReady Error   NamespaceOfFormerSpace
    DeletesAllowed         Error   AppClusterChanged
    DeletesAllowed         Error   AppClusterUnknown
    DeletesAllowed         Error   MassDeletion
    DeletesAllowed Warning PartOfService
    RecreationAllowed      Error   SpaceChanged
    RecreationAllowed      Error   SpaceUnknown
    RecreationAllowed      Error   RecreationHeld
    ProviderInSync         Error   CustomResourceDefinitionNotFound
    ProviderInSync         Error   APIServiceExportUpdateFailed
    Connected              Warning Unauthorized
    Offered                Warning TemplateNotFound
    ExportsReady           Error   NotListed
    ExportsReady           Error   TemplateNotFound
    ExportsReady           Error   ScopeNotSupported
    ExportsReady           Error   APIServiceExportCreateFailed
    Connected              Info    Pending
    Connected              Error   IsolationUnsupported
    SchemaInSync           Info    CustomResourceDefinitionNotEstablished
    SchemaInSync           Info    CustomResourceDefinitionOutdated
    SchemaInSync           Warning CustomResourceDefinitionTerminating
    SchemaInSync           Warning KindReplaced
    SchemaInSync           Warning StoredVersionReplaced
    SchemaInSync           Error   NamesNotAccepted
    PermissionClaimsInSync Warning PermissionClaimsDegraded
    InstancesInSync        Warning InstancesRefused
    InstancesInSync        Warning Orphaned
    InstancesInSync        Warning AnotherNamespace
    KonnectorActive        Error   TwoKonnectors
    WritesAccepted         Error   BindingNotWritten
    Connected              Error   AppClusterChanged
    SpaceBounded           Warning BoundsUpdateFailed
    ExportsReady           Error   TooManyResources
    Connected              Warning ControlPlaneUnreachable
    VersionsCompatible     Warning SchemasDiffer
"""


def test_the_causes_are_those_of_the_protocol_and_ours():
    ours = {each for each in vars(conditions).values() if isinstance(each, Cause)}
    rows = [line.split() for line in (CAUSES + OWN_CAUSES).split("\n") if line.strip()]
    assert {(each.type, each.severity, each.reason) for each in ours} == {tuple(r) for r in rows}


def test_the_page_of_a_reason_ends_a_message_and_is_no_part_of_what_it_says():
    site, ref = "https://docs.example.org", Ref("", NAMESPACE, "", "a")
    decided = Decision(conditions=(false(Cause("DeletesAllowed", ERROR, "MassDeletion"), "many"),))
    patch = status_patch({}, ref, decided, failed=(), now=NOW, docs=site)
    assert patch is not None
    held = conditions.of(patch.body)
    assert {one["message"] for one in dump(held)} == {f"many ({site}/reasons/MassDeletion/)"}
    assert dump(parse(lines := [{"type": "A", "message": f"x ({site}/reasons/B/)\n"}])) == lines
    assert {one.message for one in held} == {"many"}
    assert status_patch(patch.body, ref, decided, failed=(), now=LATER, docs=site) is None
