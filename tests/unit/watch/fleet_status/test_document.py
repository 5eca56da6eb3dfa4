"""The status of a FleetStatus: what it says, that it has room for any fleet, and that it rests."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.api.fleet_status import observed_generation
from reconciler.apply import Status
from reconciler.core.manifest import canonical, get_map
from reconciler.health.verdict import State
from reconciler.kube import crds
from reconciler.planning.changes import Action, Tripped, UnseenCluster
from reconciler.source.following import Looked
from reconciler.source.signature import Signature, VerificationMode
from reconciler.watch import fleet_state
from reconciler.watch.agenda import Task, Trigger
from reconciler.watch.fleet_state import FleetState, SourceProblem, Storm
from reconciler.watch.fleet_status.conditions import cut
from reconciler.watch.fleet_status.document import LARGEST, LISTED, status_of, tells_more
from tests.support.fleet_states import (
    COMMIT,
    NEXT,
    at,
    at_rest,
    begun,
    board,
    cluster,
    ended,
    fleet,
    health,
    record,
    stopped,
)
from tests.support.reports import change, report

TREE = "d" * 40
READY, DEGRADED, UNKNOWN = State.READY, State.DEGRADED, State.UNKNOWN


def status(state, *, before=None, seconds=100, **more) -> Any:
    return status_of(state, at(seconds), before=before, **more)


def troubled(state, **more):
    return [(one["cluster"], one["reason"]) for one in status(state, **more).get("troubled", [])]


# What it says


def test_a_fleet_at_rest():
    said = status(at_rest(), accepted=COMMIT, generation=3)
    conditions = said.pop("conditions")
    assert [one["observedGeneration"] for one in conditions] == [3, 3, 3, 3]
    states = ("ready", "progressing", "degraded", "unknown", "suspended", "released")
    assert said == {
        "observedGeneration": 3,
        "accepted": COMMIT,
        "summary": {"revision": "a" * 12, "units": "2/2", "waiting": 0},
        "source": {"revision": COMMIT, "signature": {"status": "Off"}},
        "units": dict.fromkeys(states, 0) | {"ready": 2},
        "clusters": {"total": 2, "unread": 0, "troubled": 0},
        "history": [
            {
                "at": "2026-11-26T12:00:10Z",
                "trigger": "drift",
                "revision": COMMIT,
                "result": "done",
                "done": 2,
                "failed": 0,
            }
        ],
    }


def test_a_source_says_whence_it_is_and_what_was_refused():
    signed = Signature(VerificationMode.HEAD, "ssh", "ada@acme.example")
    source = replace(at_rest().source, url="https://git.example/x", ref="main", signature=signed)
    state = replace(at_rest(), source=source, shard=("eu", "us"))
    said = status(state)
    assert said["shard"] == ["eu", "us"]
    assert said["source"] == {
        "url": "https://git.example/x",
        "ref": "main",
        "revision": COMMIT,
        "signature": {"status": "Verified", "type": "ssh", "principal": "ada@acme.example"},
    }
    state = fleet_state.source_failed(
        state, SourceProblem.UNVERIFIED, "no", refused=NEXT, now=at(1)
    )
    said = status(state)["source"]
    assert (said["refused"], said["signature"]) == (NEXT, {"status": "Unverified"})


def test_a_source_says_what_was_looked_at_used_or_not():
    state = fleet_state.looked_at(at_rest(), Looked(NEXT, TREE))
    assert status(state)["source"]["looked"] == {"revision": NEXT, "files": TREE}
    state = fleet_state.source_failed(state, SourceProblem.INVALID, "no", refused=NEXT, now=at(1))
    said = status(state)["source"]
    assert (said["revision"], said["looked"]["revision"]) == (COMMIT, NEXT)
    state = fleet_state.looked_at(state, Looked(NEXT))
    assert status(state)["source"]["looked"] == {"revision": NEXT}


OTHER = "e" * 40
ASKED = {  # generation, tree that is asked for, generation observed before, and now
    "nothing is asked for": (3, "", 2, 3),
    "the tree was looked at": (3, TREE, 2, 3),
    "another was looked at": (3, OTHER, 2, 2),
    "nothing was observed before": (1, OTHER, None, 0),
    "an observed one is observed when the branch goes on": (3, OTHER, 3, 3),
    "the object was made again": (1, OTHER, 7, 1),
}


@pytest.mark.parametrize(("generation", "files", "before", "want"), ASKED.values(), ids=ASKED)
def test_a_generation_is_observed_once_its_tree_was_looked_at(generation, files, before, want):
    live = {
        "metadata": {"generation": generation},
        "spec": {"files": files},
        "status": {} if before is None else {"observedGeneration": before},
    }
    assert observed_generation(live, TREE) == want


def test_units_that_leave_do_not_count():
    leaving = replace(health("shop", DEGRADED), leaving=True)
    shop = replace(cluster("shop", READY, State.SUSPENDED, DEGRADED), units=())
    shop = replace(shop, units=(*cluster("shop", READY, State.SUSPENDED).units, leaving))
    said = status(ended(at_rest(), board=board(shop)))
    assert said["summary"]["units"] == "1/2"
    assert (said["units"]["suspended"], said["units"]["degraded"]) == (1, 0)


def test_units_that_were_never_looked_at_are_unknown_and_not_none():
    said = status(begun())
    assert "units" not in said
    assert "units" not in said["summary"]


def test_what_waits_is_counted_by_action_and_by_reason():
    held = replace(change("cafe", Action.RELEASE), held=("max-deletes",))
    more = [held, change(action=Action.BLOCKED), change(action=Action.CREATE)]
    of = report(Status.FAILED, Status.HELD, changes=more)
    said = status(ended(at_rest(), of=replace(of, plan=replace(of.plan, id="abc"))))
    changes = {"update": 2, "release": 1, "blocked": 1, "create": 1}
    assert said["plan"] == {"id": "abc", "changes": changes, "waiting": {"guard": 3}}
    assert said["summary"]["waiting"] == 3


def test_the_gravest_of_each_cluster_is_its_trouble():
    clusters = (
        cluster("bad", DEGRADED, UNKNOWN),
        cluster("gone", UNKNOWN),
        cluster("held", state=DEGRADED, message="m"),
        cluster("lost", UNKNOWN),
        cluster("well", READY, State.PROGRESSING),
    )
    of = report(("bad", Status.FAILED), ("line", Status.STALE), ("kept", Status.HELD))
    said = tuple(replace(one, message="held back: block") for one in of.outcomes[2:])
    of = replace(of, outcomes=(*of.outcomes[:2], *said))
    state = ended(at_rest(), of=of, board=board(*clusters, unread=[("gone", "away")]))
    storms = (Storm(cluster="wild", object="Secret x", manager="m", repairs=3, until=at(9)),)
    assert troubled(replace(state, storms=storms)) == [
        ("bad", "ApplyFailed"),
        ("gone", "NotRead"),
        ("held", "Degraded"),
        ("line", "ApplyFailed"),
        ("lost", "Broken"),
        ("wild", "DriftStorm"),
    ]
    assert status(state)["clusters"] == {"total": 2, "unread": 0, "troubled": 5}


def test_a_line_that_failed_says_why():
    of = report(Status.FAILED, ("cafe", Status.STALE))
    of = replace(of, outcomes=(replace(of.outcomes[0], message="refused"), of.outcomes[1]))
    said = status(ended(at_rest(), of=of))["troubled"]
    assert [one["message"] for one in said] == ["space: stale", "space: refused"]


def test_a_cluster_that_cannot_be_read_is_so_since_its_last_heartbeat():
    gone = cluster("gone", state=UNKNOWN, since=at(3))
    said = status(ended(at_rest(), board=board(gone, unread=[("gone", "away")])))["troubled"]
    assert [(one["message"], one["since"]) for one in said] == [("away", "2026-11-26T12:00:03Z")]


def test_a_control_plane_in_trouble_is_among_them():
    assert troubled(ended(at_rest(), board=stopped("eu"))) == [
        ("control-plane/eu", "BackendStopped")
    ]


def test_an_unread_cluster_of_the_files_counts():
    away = [("control-plane/eu", "away"), ("shop", "away")]
    said = status(ended(at_rest(), board=board(unread=away)))
    assert said["clusters"] == {"total": 2, "unread": 1, "troubled": 2}


def test_trouble_began_when_it_was_first_seen_or_said_to():
    state = ended(at_rest(), board=board(cluster("shop", DEGRADED)))
    first = status(state, seconds=100)
    assert first["troubled"][0]["since"] == "2026-11-26T12:01:40Z"
    assert status(state, before=first, seconds=200)["troubled"] == first["troubled"]
    known = health("shop", DEGRADED, since=at(7))
    state = ended(at_rest(), board=board(replace(cluster("shop"), units=(known,))))
    assert status(state)["troubled"][0]["since"] == "2026-11-26T12:00:07Z"
    other = replace(known, health=replace(known.health, reason="Other"))
    state = ended(at_rest(), board=board(replace(cluster("shop"), units=(other,))))
    assert status(state, before=first)["troubled"][0]["since"] == "2026-11-26T12:00:07Z"


def test_the_rounds_of_earlier_processes_stay_in_the_history():
    before = status(ended(at_rest(), "held", time=20))
    state = fleet_state.round_failed(begun(), record("failed", time=30, why="no route"))
    said = status(state, before=before)["history"]
    found = [(one["result"], one.get("why")) for one in said]
    assert found == [("failed", "no route"), ("held", None), ("done", None)]
    assert status(state, before={"history": said})["history"] == said
    assert status(state, before={"history": [{"at": "noon", "result": "x"}]})["history"] == said[:1]


# That it rests


def test_nothing_in_it_moves_while_nothing_changes():
    state, said = at_rest(), status(at_rest(), accepted=COMMIT)
    for number in range(3):
        seconds = 300 * (number + 1)
        state = fleet_state.source_read(state, fleet(), None, now=at(seconds))
        state = fleet_state.round_began(state, Task(Trigger.DRIFT, None))
        assert status(state, before=said, accepted=COMMIT, seconds=seconds) == said
        good = board(cluster("cafe", READY), cluster("shop", READY), time=seconds)
        of = replace(report(), plan=replace(report().plan, id=str(number)))
        state = ended(state, board=good, time=seconds, of=of)
        assert status(state, before=said, accepted=COMMIT, seconds=seconds) == said


def test_trouble_that_lasts_rests_too():
    state = ended(begun(), "held", of=report(held=[Tripped("block", "", ("shop",))]), time=5)
    state = ended(state, board=board(cluster("shop", UNKNOWN), unread=[("shop", "away")]), time=6)
    said = status(state)
    state = ended(state, board=board(cluster("shop", UNKNOWN), unread=[("shop", "away")]), time=7)
    assert status(state, before=said, seconds=900) == said


THERE = status(at_rest())
NEWS = {
    "files that are known already": (begun(), THERE, False),
    "nothing yet": (FleetState(name=""), THERE, False),
    "other files": (fleet_state.source_read(begun(), fleet(NEXT), None, now=at(1)), THERE, True),
    "files, of which nothing was said": (begun(), {}, True),
    "nothing yet, of which nothing was said": (FleetState(name=""), {}, False),
    "units": (at_rest(), THERE, True),
    "a suspension": (replace(begun(), suspended="x"), THERE, True),
    "a round that failed": (fleet_state.round_failed(begun(), record("failed")), THERE, True),
    "a source that cannot be read": (
        fleet_state.source_failed(
            FleetState(name=""), SourceProblem.UNREADABLE, "", refused="", now=at(1)
        ),
        THERE,
        True,
    ),
}


@pytest.mark.parametrize(("state", "before", "more"), NEWS.values(), ids=NEWS)
def test_a_process_that_began_adds(state, before, more):
    assert tells_more(state, before) is more


# That it has room

HOSTILE = st.text(
    st.sampled_from('a<&"\\\n\t\x00\x7f\u202e\u2028\ud800é漢😀'), min_size=1, max_size=4
).map(lambda text: text * 700)


@pytest.mark.parametrize("most", [20, 300])
@given(text=HOSTILE | st.text(st.characters(exclude_categories=())))
@settings(max_examples=60, deadline=None)
def test_a_text_is_cut_to_its_bytes_on_one_line(text, most):
    made = cut(text, most)
    assert len(json.dumps(made)) - 2 + 5 * sum(map(made.count, "<>&")) <= most
    assert made.isprintable()
    made.encode()


def test_a_text_that_fits_stays():
    assert cut("Wait: é is fine", 40) == "Wait: é is fine"
    assert cut("one\ntwo\r\n  three", 40) == "one two three"
    assert cut("a" * 40, 40) == "a" * 40
    assert cut("a" * 41, 40) == "a" * 37 + "..."


def crowded(number, text):
    """Return a fleet in which all is wrong, and everything is called as somebody likes."""
    names = [f"{text}{index}" for index in range(number)]
    units = {
        name: replace(health(name, DEGRADED, reason=text, message=text), binding=text)
        for name in names
    }
    clusters = [replace(cluster(name), units=(units[name],), message=text) for name in names]
    of = report(
        *((name, Status.FAILED) for name in names[:20]),
        held=[Tripped(text, text, (name,)) for name in names],
        unseen=[UnseenCluster(name, text) for name in names],
    )
    of = replace(of, outcomes=tuple(replace(one, message=text) for one in of.outcomes))
    state = ended(begun(), text, of=of, board=board(*clusters, unread=[("x", text)]), done=1)
    signed = Signature(VerificationMode.HEAD, text, text)
    source = replace(
        state.source, url=text, ref=text, revision=text, refused=text, signature=signed
    )
    rounds = tuple(record(text, time=n, revision=text, why=text) for n in range(10))
    storms = tuple(
        Storm(cluster=name, object=text, manager=text, repairs=3, until=at(9)) for name in names
    )
    state = replace(state, source=source, history=rounds, storms=storms, shard=tuple(names))
    return fleet_state.source_failed(state, SourceProblem.UNVERIFIED, text, refused=text, now=at(1))


@given(text=HOSTILE)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_fleet_has_room(text):
    said = status(crowded(100, text), accepted=text)
    assert len(canonical(said)) <= LARGEST
    assert len(said["troubled"]) == LISTED
    assert len(canonical(status(crowded(100, text), before=said))) <= LARGEST


def test_5000_troubled_clusters_have_room():
    said = status(crowded(5_000, "<é\n" * 200))
    assert len(canonical(said)) <= LARGEST
    assert said["clusters"]["troubled"] == 5_001
    assert len(said["troubled"]) == LISTED


def test_what_somebody_wrote_into_the_status_has_no_room_either():
    rows = [{"at": "2026-01-01T00:00:00Z", "result": "x" * 90_000}] * 50
    said = status(at_rest(), before={"history": rows, "conditions": rows, "troubled": rows})
    assert len(canonical(said)) <= LARGEST
    assert len(said["history"]) == 10


# That the CRD knows it


def unknown(value, schema, path=""):
    """Yield the fields that an API server would prune."""
    if isinstance(value, dict) and "properties" in schema:
        for key, inner in value.items():
            if key in schema["properties"]:
                yield from unknown(inner, schema["properties"][key], f"{path}.{key}")
            else:
                yield f"{path}.{key}"
    elif isinstance(value, list):
        for inner in value:
            yield from unknown(inner, schema["items"], path)


def test_the_crd_knows_every_field():
    (crd,) = crds.load(*crds.CONTROLLER)
    at_status = ("schema", "openAPIV3Schema", "properties", "status")
    schema: Any = get_map(crd, "spec", "versions", 0, *at_status)
    everything = status(crowded(3, "x"), accepted=COMMIT)
    assert not schema["properties"].keys() - everything.keys()
    assert list(unknown(everything, schema)) == []
