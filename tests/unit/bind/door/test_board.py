"""What pages say of a binding space: a word, a shape, a heartbeat."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bind.door import choices

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
        (bound(), "Waiting for the konnector", "waiting", "never"),
        (bound(30, "True"), "Ready", "good", "30 s ago"),
        (bound(30, "False"), "Not ready", "bad", "30 s ago"),
        (bound(30, "Unknown"), "Unknown", "waiting", "30 s ago"),
        (bound(30), "Unknown", "waiting", "30 s ago"),
        (bound(600, "True"), "Ready", "good", "10 min ago"),
        (bound(601, "True"), "No heartbeat", "silent", "10 min ago"),
        (bound(3 * 86_400, "True"), "No heartbeat", "silent", "3 d ago"),
        (bound(30, "True", is_deleting=True), "Being deleted", "waiting", "30 s ago"),
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
    assert (condition.since, condition.shape) == ("2 h ago", "bad")


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "in the future"), (0, "0 s ago"), (59, "59 s ago"), (60, "1 min ago"), (7200, "2 h ago")],
)
def test_ages_are_short(seconds, text):
    assert choices.ago(timedelta(seconds=seconds)) == text
