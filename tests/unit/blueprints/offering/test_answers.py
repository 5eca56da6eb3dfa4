"""Table 5 of the design: what each answer of a broker to each call comes to."""

import json
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from reconciler.blueprints.offering import answers, messages
from reconciler.blueprints.offering.answers import outcome
from reconciler.blueprints.offering.outcomes import (
    Absent,
    Accepted,
    Denied,
    Done,
    Gone,
    Progress,
    Refused,
    Unknown,
    Unsent,
)
from reconciler.core.secret import Secret

PUTS: Final = (messages.Provision("i", "s", "p", "o", "s"), messages.Bind("i", "b", "s", "p"))
PATCH: Final = (messages.Update("i", "s", "p", messages.Previous("p")),)
DELETES: Final = (messages.Deprovision("i", "s", "p"), messages.Unbind("i", "b", "s", "p"))
FETCHES: Final = (messages.FetchInstance("i", "s", "p"), messages.FetchBinding("i", "b", "s", "p"))
POLLS: Final = (
    messages.LastOperation("i", "s", "p"),
    messages.LastOperation("i", "s", "p", Secret("k"), "b"),
)
GETS: Final = (*FETCHES, *POLLS)
MUTATING: Final = (*PUTS, *PATCH, *DELETES)
ALL: Final = (*MUTATING, *GETS)

WORDS: Final = b'{"description": "no", "error": "Why"}'
CONCURRENT: Final = b'{"error": "ConcurrencyError", "description": "no"}'
OUTDATED: Final = b'{"error": "MaintenanceInfoConflict", "description": "no"}'
HTML: Final = b"<html>no</html>"
SOON: Final = {"retry-after": "7"}
LATER: Final = timedelta(seconds=7)

# Sentence: calls, (status, headers, body), the outcome.
TABLE = {
    "a PUT that is done: it was there": (PUTS, (200, {}, b"{}"), Done()),
    "a PUT that is done: it is new": (PUTS, (201, {}, b"{}"), Done(created=True)),
    "a PATCH that is done": (PATCH, (200, {}, b"{}"), Done()),
    "a PATCH cannot make anything": (PATCH, (201, {}, b"{}"), Unknown),
    "a DELETE that is done": (DELETES, (200, {}, b"{}"), Gone()),
    "a DELETE cannot make anything": (DELETES, (201, {}, b"{}"), Unknown),
    "what a GET reads": (FETCHES, (200, {}, b"{}"), Done()),
    "a GET cannot make anything": (GETS, (201, {}, b"{}"), Unknown),
    "an operation in a state that is not known": (POLLS, (200, {}, b'{"state": "?"}'), Progress),
    "begun, without a key": (MUTATING, (202, {}, b"{}"), Accepted()),
    "begun, and poll in 7 s": (MUTATING, (202, SOON, b"{}"), Accepted(retry_after=LATER)),
    "begun, with a key": (
        MUTATING,
        (202, {}, b'{"operation": "k1"}'),
        Accepted(operation=Secret("k1")),
    ),
    "a GET cannot begin anything": (GETS, (202, {}, b"{}"), Unknown),
    "401": (ALL, (401, {}, WORDS), Denied(401, "no")),
    "403": (ALL, (403, {}, HTML), Denied),
    "404 to a PUT is a refusal": (PUTS, (404, {}, WORDS), Refused("no")),
    "404 to a PATCH is a refusal": (PATCH, (404, {}, WORDS), Refused("no")),
    "404 to a DELETE": (DELETES, (404, {}, b"{}"), Absent(is_json=True)),
    "404 to a DELETE by a gateway": (DELETES, (404, {}, HTML), Absent(is_json=False)),
    "404 to a GET": (GETS, (404, {}, WORDS), Absent(is_json=True)),
    "404 to a GET by a gateway": (GETS, (404, {}, b""), Absent(is_json=False)),
    "409 to a PUT": (PUTS, (409, {}, WORDS), Refused("no", "conflict")),
    "409 to a PATCH is a refusal": (PATCH, (409, {}, WORDS), Refused("no")),
    "409 to a DELETE": (DELETES, (409, {}, WORDS), Refused("no")),
    "409 to a GET": (GETS, (409, {}, WORDS), Refused("no")),
    "410 to a PUT is a refusal": (PUTS, (410, {}, WORDS), Refused("no")),
    "410 to a PATCH": (PATCH, (410, {}, b"{}"), Gone()),
    "410 to a DELETE": (DELETES, (410, {}, b""), Gone()),
    "410 to a GET": (GETS, (410, {}, b"{}"), Gone()),
    "412": (ALL, (412, {}, WORDS), Refused("no", "unsupported")),
    "422 because another operation is in progress": (
        ALL,
        (422, {}, CONCURRENT),
        Refused("no", "busy"),
    ),
    "422 because of another maintenance": (
        (PUTS[0], *PATCH),
        (422, {}, OUTDATED),
        Refused("no", "maintenance"),
    ),
    "the same to a call that names none": (
        (PUTS[1], *DELETES, *GETS),
        (422, {}, OUTDATED),
        Refused("no"),
    ),
    "422 for any other reason": (ALL, (422, {}, WORDS), Refused("no")),
    "any other 4xx": (ALL, (400, {}, WORDS), Refused("no")),
    "any other 4xx by a gateway": (ALL, (418, {}, HTML), Refused("HTTP 418, without a reason")),
    "408": (ALL, (408, {}, HTML), Unsent("HTTP 408, without a reason")),
    "429": (ALL, (429, SOON, WORDS), Unsent("no", LATER)),
    "503 that says until when": (ALL, (503, SOON, HTML), Unsent),
    "503 that does not": (ALL, (503, {}, WORDS), Unknown("no", 503)),
    "503 that says it in no known words": (ALL, (503, {"retry-after": "soon"}, b"{}"), Unknown),
    "500": (ALL, (500, {}, WORDS), Unknown("no", 500)),
    "500 that says until when": (ALL, (500, SOON, WORDS), Unknown("no", 500)),
    "599": (ALL, (599, {}, HTML), Unknown("HTTP 599, without a reason", 599)),
    "a redirect": (ALL, (302, {"location": "https://x.example"}, b"{}"), Unknown),
    "304": (ALL, (304, {}, b""), Unknown),
    "204": (ALL, (204, {}, b""), Unknown),
    "206 with an object": (ALL, (206, {}, b"{}"), Unknown),
    "a status that is none": (ALL, (999, {}, b"{}"), Unknown),
    "done, but no JSON": (ALL, (200, {}, HTML), Unknown),
    "done, but nothing": (ALL, (200, {}, b""), Unknown),
    "done, but a list": (ALL, (200, {}, b"[]"), Unknown),
    "done, but too deep": (ALL, (200, {}, b'{"a":' * 65 + b"1" + b"}" * 65), Unknown),
    "made, but no JSON": (
        MUTATING,
        (201, {}, HTML),
        Unknown("the answer is no JSON object that can be read", 201, malformed=True),
    ),
    "begun, but a list": (
        MUTATING,
        (202, {}, b"[]"),
        Unknown("the answer is no JSON object that can be read", 202, malformed=True),
    ),
    "begun, with a key that fits nowhere": (
        MUTATING,
        (202, {}, json.dumps({"operation": "k" * 10_001}).encode()),
        Unknown("the key of its operation is too long", 202, malformed=True),
    ),
}


@pytest.mark.parametrize(("calls", "answer", "expected"), TABLE.values(), ids=TABLE)
def test_the_outcome_of(calls, answer, expected):
    status, headers, body = answer
    for call in calls:
        found = outcome(call, status, headers, body)
        if isinstance(expected, type):
            assert type(found) is expected
        else:
            assert found == expected


@pytest.mark.parametrize("call", ALL)
def test_only_what_was_said_to_be_made_or_begun_is_malformed(call):
    flags = [
        found.malformed
        for status in (200, 201, 202, 204, 302, 500)
        if isinstance(found := outcome(call, status, {}, HTML), Unknown)
    ]
    begun = call in MUTATING
    assert flags == [False, begun, begun, False, False, False]


def test_an_operation_key_of_10_000_characters_is_kept():
    body = json.dumps({"operation": "k" * 10_000}).encode()
    assert outcome(PUTS[0], 202, {}, body) == Accepted(Secret("k" * 10_000))


@pytest.mark.parametrize("operation", ["", None, 7, ["k"], {}])
def test_an_operation_key_that_is_none(operation):
    body = json.dumps({"operation": operation}).encode()
    assert outcome(PUTS[0], 202, {}, body) == Accepted()


@pytest.mark.parametrize("state", ["in progress", "succeeded", "failed"])
def test_progress(state):
    said = {"state": state, "description": "33 %", "instance_usable": False}
    found = outcome(POLLS[0], 200, SOON, json.dumps({**said, "update_repeatable": True}).encode())
    assert found == Progress(state, "33 %", LATER, instance_usable=False, update_repeatable=True)


@pytest.mark.parametrize("state", ["In Progress", "", None, 7, "deleted"])
def test_a_state_that_is_not_known_is_none(state):
    body = json.dumps({"state": state, "instance_usable": "no", "update_repeatable": 0}).encode()
    assert outcome(POLLS[0], 200, {}, body) == Progress("")


BINDING = {
    "credentials": {"uri": "pg://u:pw@db", "port": 5432},
    "metadata": {"expires_at": "2026-01-31T12:00:00Z", "renew_before": "2026-01-30T12:00:00.0Z"},
    "endpoints": [
        {"host": "db.example", "ports": ["5432", "6000-6010"], "protocol": "tcp"},
        {"host": "db\n.example", "ports": ["1"]},
        {"host": "db", "ports": ["x", 7, "1-2-3"]},
        {"host": "db", "ports": ["1"], "protocol": "sctp"},
        "db",
    ],
    "parameters": {"ro": True},
    "volume_mounts": [{"driver": "nfs"}],
    "syslog_drain_url": "syslog://x",
    "route_service_url": "",
}


def test_a_binding():
    found = outcome(PUTS[1], 201, {}, json.dumps(BINDING).encode())
    assert isinstance(found, Done)
    assert found.credentials == Secret('{"port":5432,"uri":"pg://u:pw@db"}')
    assert found.expires_at == datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert found.renew_before == datetime(2026, 1, 30, 12, tzinfo=UTC)
    assert found.endpoints == (
        {"host": "db.example", "ports": ["5432", "6000-6010"], "protocol": "tcp"},
        {"host": "db", "ports": ["1"]},
    )
    assert found.parameters == {"ro": True}
    assert found.ignored == ("volume_mounts", "syslog_drain_url")
    assert found.created
    assert not any(text in repr(found) for text in ("pg://", "{'ro': True}"))


@pytest.mark.parametrize("credentials", [None, "text", ["a"], 7])
def test_credentials_that_are_none(credentials):
    body = json.dumps({"credentials": credentials, "metadata": {"expires_at": "soon"}}).encode()
    assert outcome(PUTS[1], 200, {}, body) == Done()


def test_an_instance():
    said = {
        "plan_id": "p2",
        "maintenance_info": {"version": "2.1.1"},
        "dashboard_url": "https://dash.example/i?x=1",
        "parameters": [],
    }
    assert outcome(FETCHES[0], 200, {}, json.dumps(said).encode()) == Done(
        plan="p2", maintenance="2.1.1", dashboard_url="https://dash.example/i?x=1"
    )


@pytest.mark.parametrize("name", ["p\n2", "p" * 256, 7, None, ""])
def test_a_plan_and_a_version_that_are_no_names(name):
    said = {"plan_id": name, "maintenance_info": {"version": name}}
    assert outcome(FETCHES[0], 200, {}, json.dumps(said).encode()) == Done()


@pytest.mark.parametrize("time", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "never", 7, ""])
def test_a_time_that_nobody_can_reckon_with_is_none(time):
    said = {"metadata": {"expires_at": time, "renew_before": time}}
    assert outcome(FETCHES[1], 200, {}, json.dumps(said).encode()) == Done()


URLS = [
    "javascript:alert(1)",
    "javascript://dash.example/%0aalert(1)",
    "https://user:pw@dash.example/",
    "https://dash.example/a b",
    "https://dash.example/\n",
    "https://" + "a" * 2048,
    "https:///x",
    "https://[::1",
    "dash.example",
    7,
]


@pytest.mark.parametrize("url", URLS)
def test_a_dashboard_that_is_not_shown(url):
    body = json.dumps({"dashboard_url": url}).encode()
    assert outcome(PUTS[0], 201, {}, body) == Done(created=True)
    assert outcome(PUTS[0], 202, {}, body) == Accepted()


DATE: Final = "Wed, 21 Oct 2026 07:28:00 GMT"
# Sentence: headers, seconds.
PAUSES = {
    "not said": ({}, None),
    "in seconds": ({"retry-after": " 120 "}, 120),
    "at once": ({"retry-after": "0"}, 1),
    "in ten minutes": ({"retry-after": "600"}, 600),
    "tomorrow": ({"retry-after": "86400"}, 600),
    "beyond all numbers": ({"retry-after": "9" * 5000}, 600),
    "with a fraction": ({"retry-after": "1.5"}, None),
    "in the past": ({"retry-after": "-5"}, None),
    "in other digits": ({"retry-after": "١٢"}, None),
    "at a date": ({"retry-after": "Wed, 21 Oct 2026 07:29:30 GMT", "date": DATE}, 90),
    "at a date that is over": ({"retry-after": DATE, "date": DATE}, 1),
    "at a date far away": ({"retry-after": "Wed, 21 Oct 2099 07:28:00 GMT", "date": DATE}, 600),
    "at a date, by no clock": ({"retry-after": DATE}, None),
    "at a date without a zone": ({"retry-after": "21 Oct 2026 07:29:30", "date": DATE}, None),
    "at no date": ({"retry-after": "soon", "date": DATE}, None),
    "at a date that no calendar has": (
        {"retry-after": "Wed, 99 Oct 99999999 07:28:00 GMT", "date": DATE},
        None,
    ),
}


@pytest.mark.parametrize(("headers", "seconds"), PAUSES.values(), ids=PAUSES)
def test_a_pause(headers, seconds):
    wanted = None if seconds is None else timedelta(seconds=seconds)
    assert answers.retry_after(headers) == wanted


def test_no_secret_of_the_same_answer_is_repeated():
    said = {
        "description": "user made with s3cr3t-pw, key op-key-1",
        "operation": "op-key-1",
        "credentials": {"list": [{"pw": "s3cr3t-pw"}]},
        "error": "X",
    }
    found = outcome(PUTS[1], 400, {}, json.dumps(said).encode())
    assert found == Refused("user made with <redacted>, key <redacted>")


def test_neither_ours_nor_the_key_that_was_asked_with():
    call = messages.LastOperation("i", "s", "p", Secret("op-key-1"))
    body = b'{"description": "op-key-1 of pa55word", "state": "failed"}'
    found = outcome(call, 200, {}, body, secrets=[Secret("pa55word")])
    assert found == Progress("failed", "<redacted> of <redacted>")
