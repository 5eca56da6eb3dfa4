"""The choices of people for an offer, and what pages say of a binding space."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from bind.door import choices
from reconciler.fleet.load import load
from tests.support.door_pages import DATABASES
from tests.support.fleet_texts import tree

URL = "https://bind.example.org"
BEGIN = f"klutchctl bind {URL} --resource databases.shop.example"
SECRETS = {"resource": "secrets", "version": "v1", "selector": {"owner": "Provider"}}
NAMED = {
    "group": "shop.example",
    "resource": "queues",
    "version": "v1",
    "selector": {
        "owner": "Consumer",
        "names": ["b", "a"],
        "namespaces": [],
        "labelSelectors": [{"app": "shop"}],
    },
}
BY_FIELDS = {
    "resource": "configmaps",
    "version": "v1",
    "selector": {"owner": "Provider", "fieldSelectors": ["metadata.name=a"]},
}
UNOWNED = {"resource": "configmaps", "version": "v1", "selector": {"names": ["*"]}}


def offer(*claims):
    return dataclasses.replace(DATABASES, claims=claims)


@pytest.mark.parametrize(
    ("claims", "chosen", "more"),
    [
        ((), (), ""),
        ((SECRETS,), (), " --claims none"),
        ((SECRETS, SECRETS), (0,), " --claims ask"),
    ],
)
def test_the_command_accepts_what_was_chosen_and_nothing_else(claims, chosen, more):
    assert choices.command(offer(*claims), chosen, url=URL) == BEGIN + more


def test_no_word_of_a_provider_ends_up_as_more_than_an_argument():
    hostile = dataclasses.replace(
        offer({"resource": "x; rm -rf /", "version": "v1"}), title="$(reboot)"
    )
    assert choices.command(hostile, (0,), url=URL) == (
        f"{BEGIN} --claims none --accept 'x; rm -rf /'"
    )


@pytest.mark.parametrize(
    ("claims", "chosen"),
    [((), ()), ((SECRETS,), ()), ((SECRETS,), (0,)), ((SECRETS, NAMED, UNOWNED), (1, 2))],
)
def test_a_fleet_takes_the_files(claims, chosen):
    text = choices.fleet(offer(*claims), chosen).replace("your-cluster", "shop")
    _, problems = load(tree({"bindings/databases.yaml": text}))
    assert not problems


def test_the_ceiling_is_what_was_accepted():
    template, binding = yaml.safe_load_all(choices.fleet(offer(SECRETS, NAMED), (1,)))
    queues = {
        "group": "shop.example",
        "resource": "queues",
        "version": "v1",
        "owner": "Consumer",
        "names": ["b", "a"],
        "namespaces": [],
        "labels": [{"app": "shop"}],
    }
    secrets = {"group": "", "resource": "secrets", "version": "v1", "owner": "Provider"}
    assert template["spec"] == {
        "resources": [{"group": "shop.example", "resource": "databases"}],
        "claims": [queues],
    }
    assert binding["spec"] == {
        "template": "databases",
        "clusters": {"names": ["your-cluster"]},
        "claims": [
            {**secrets, "names": ["*"], "state": "Rejected"},
            {**queues, "state": "Accepted"},
        ],
    }


@pytest.mark.parametrize("claim", [UNOWNED, BY_FIELDS])
def test_what_files_cannot_say_is_said_beside_them(claim):
    remarks = choices.result(offer(claim), (0,), url=URL).remarks
    assert [one for one in remarks if "configmaps" in one]
    assert "claims" not in choices.fleet(offer(claim), (0,))


NOW = datetime(2026, 11, 25, 12, 0, 0, tzinfo=UTC)


def bound(beat=None, ready=None, *, there=True, is_deleting=False):
    status: dict[str, Any] = {}
    if beat is not None:
        status["lastHeartbeatTime"] = (NOW - timedelta(seconds=beat)).isoformat()[:19] + "Z"
        status["heartbeatInterval"] = "5m0s"
    if ready is not None:
        status["conditions"] = [
            {
                "type": "Ready",
                "status": ready,
                "reason": "R",
                "message": "m",
                "lastTransitionTime": "2026-11-25T10:00:00Z",
            }
        ]
    return choices.BoundCluster(
        "cluster-a b",
        "alice",
        "4ceiSr",
        "https://idp.example",
        is_deleting,
        {"status": status} if there else None,
        ("queues.shop.example", "databases.shop.example"),
    )


@pytest.mark.parametrize(
    ("one", "word", "shape", "heartbeat"),
    [
        (bound(there=False), "Waiting for the konnector", "waiting", "never"),
        (bound(30, "True"), "Ready", "good", "30s ago"),
        (bound(30, "False"), "Not ready", "bad", "30s ago"),
        (bound(30, "Unknown"), "Unknown", "waiting", "30s ago"),
        (bound(30), "Unknown", "waiting", "30s ago"),
        (bound(601, "True"), "No heartbeat", "silent", "10m ago"),
        (bound(30, "True", is_deleting=True), "Being deleted", "waiting", "30s ago"),
    ],
)
def test_a_state_is_a_word_and_a_shape(one, word, shape, heartbeat):
    row = choices.row(one, NOW)
    assert (row.word, row.shape, row.heartbeat) == (word, shape, heartbeat)


def test_a_row_leads_to_its_page_and_lists_what_was_bound():
    row = choices.row(bound(30, "False"), NOW)
    assert row.href == "/ui/bindings/cluster-a%20b"
    assert row.services == ["databases.shop.example", "queues.shop.example"]
    (condition,) = row.conditions
    assert (condition.type, condition.reason) == ("Ready", "R")
    assert (condition.since, condition.shape) == ("2h ago", "bad")


def test_a_condition_is_amber_where_nobody_has_to_act():
    shapes = [
        choices.row(one, NOW).conditions[0].shape
        for one in (bound(30, "False"), bound(None, "False"), bound(30, "True"))
    ]
    assert shapes == ["bad", "waiting", "good"]
    waiting = bound(30, "False")
    waiting.cluster_binding["status"]["conditions"][0]["severity"] = "Info"
    row = choices.row(waiting, NOW)
    assert (row.shape, row.conditions[0].shape) == ("waiting", "waiting")


def test_a_cluster_that_is_not_ready_has_a_next_step():
    steps = [choices.row(one, NOW).next for one in (bound(), bound(601, "True"))]
    assert all("kubectl -n klutch-bind get deployment konnector" in one for one in steps)
    assert "conditions" in choices.row(bound(30, "False"), NOW).next
    assert not choices.row(bound(30, "True"), NOW).next


def test_each_service_is_unbound_by_a_command():
    begin = "kubectl --namespace klutch-bind delete apiservicebindings.klutch.anynines.com"
    assert choices.unbind(bound()) == [
        f"{begin} databases.shop.example",
        f"{begin} queues.shop.example",
    ]


def test_what_is_to_come_has_no_age():
    assert choices.ago(-timedelta(seconds=5)) == "in the future"
