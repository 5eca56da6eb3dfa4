"""The table of the life cycle beside the specification's, transcribed from OSB 2.17 by hand."""

import pytest

from bind.osb import engine
from bind.osb.engine import Move, Standing
from reconciler.blueprints.offering import answers, messages, outcomes

PUTS = {
    "Provision": messages.Provision("i", "s", "p", "o", "a"),
    "Bind": messages.Bind("i", "b", "s", "p"),
}
UPDATE = messages.Update("i", "s", "p", messages.Previous("p"))
DELETES = {
    "Deprovision": messages.Deprovision("i", "s", "p"),
    "Unbind": messages.Unbind("i", "b", "s", "p"),
}
POLL = messages.LastOperation("i", "s", "p")
BUSY = b'{"error": "ConcurrencyError"}'
# "Orphan Mitigation": status and body of an answer to a PUT, and whether its orphan is deleted.
MITIGATES = [
    (200, b"{}", False),
    (201, b"{}", False),
    (201, b"{", True),
    (202, b"{}", False),
    (202, b"{", True),
    (204, b"{}", True),
    (206, b"{}", True),
    (400, b"{}", False),
    (401, b"{}", False),
    (403, b"{}", False),
    (404, b"{}", False),
    (408, b"{}", False),
    (410, b"{}", False),
    (412, b"{}", False),
    (422, b"{}", False),
    (422, BUSY, False),
    (429, b"{}", False),
    (500, b"{}", True),
    (502, b"<html>", True),
    (503, b"{}", True),
    (0, b"", True),
]


def outcome(call, status, body=b"{}"):
    if not status:
        return answers.unreadable(call, 0, "silence")
    return answers.outcome(call, status, {}, body)


@pytest.mark.parametrize("row", PUTS)
@pytest.mark.parametrize(("status", "body", "mitigates"), MITIGATES)
def test_what_the_specification_calls_an_orphan_is_mitigated(row, status, body, mitigates):
    came = outcome(PUTS[row], status, body)
    last = engine.move(row, came, Standing(tries=engine.MOST_TRIES, has_reread=True))
    # What a repeated bind finds may be half a binding, of which the specification says nothing.
    if not (row == "Bind" and status == 200):
        assert (last is Move.MITIGATE) == mitigates
    first = engine.move(row, came, Standing())
    assert first in ({Move.MITIGATE, Move.REPEAT} if mitigates else set(Move) - {Move.MITIGATE})
    assert (first is Move.REFUSE) == (status in (400, 404, 410, 412, 422) and body != BUSY)


# "Response" of each other call, and of polling: status, body, the move.
OTHERS = [
    ("Update", UPDATE, 200, b"{}", Move.DONE),
    ("Update", UPDATE, 202, b"{}", Move.ACCEPT),
    ("Update", UPDATE, 202, b"{", Move.REPEAT),
    ("Update", UPDATE, 400, b"{}", Move.REFUSE),
    *(("Update", UPDATE, status, b"{}", Move.REFUSE) for status in (412, 422)),
    ("Update", UPDATE, 422, BUSY, Move.BUSY),
    ("Update", UPDATE, 500, b"{}", Move.REPEAT),
    ("Update", UPDATE, 410, b"{}", Move.MISSING),
    *((row, call, 200, b"{}", Move.GONE) for row, call in DELETES.items()),
    *((row, call, 202, b"{}", Move.ACCEPT) for row, call in DELETES.items()),
    *((row, call, 400, b"{}", Move.AGAIN) for row, call in DELETES.items()),
    *((row, call, 404, b"{}", Move.GONE) for row, call in DELETES.items()),
    *((row, call, 404, b"<html>", Move.UNPROVED) for row, call in DELETES.items()),
    *((row, call, 410, b"{}", Move.GONE) for row, call in DELETES.items()),
    *((row, call, 422, BUSY, Move.BUSY) for row, call in DELETES.items()),
    *((row, call, 500, b"{}", Move.AGAIN) for row, call in DELETES.items()),
    ("making", POLL, 200, b'{"state": "in progress"}', Move.POLL),
    ("making", POLL, 200, b'{"state": "succeeded"}', Move.DONE),
    ("making", POLL, 200, b'{"state": "failed"}', Move.MITIGATE),
    ("binding", POLL, 200, b'{"state": "succeeded"}', Move.UNREAD),
    ("binding", POLL, 200, b'{"state": "failed"}', Move.MITIGATE),
    ("changing", POLL, 200, b'{"state": "succeeded"}', Move.DONE),
    ("changing", POLL, 200, b'{"state": "failed"}', Move.FAIL),
    ("leaving", POLL, 200, b'{"state": "succeeded"}', Move.GONE),
    ("leaving", POLL, 200, b'{"state": "failed"}', Move.AGAIN),
    ("leaving", POLL, 410, b"{}", Move.GONE),
    ("leaving", POLL, 404, b"{}", Move.DELETE),
    # "Any other status SHOULD NOT be interpreted": keep polling until the longest duration.
    *(
        (row, POLL, status, body, Move.POLL)
        for row in ("making", "binding", "changing", "making late", "binding late")
        for status, body in ((500, b"{}"), (302, b""), (200, b"{"), (404, b"<html>"), (0, b""))
    ),
    *(("making", POLL, status, b"{}", Move.POLL) for status in (400, 410, 412)),
    *((f"{row} late", POLL, 410, b"{}", Move.MISS) for row in ("making", "binding", "changing")),
    ("making late", POLL, 200, b'{"state": "in progress"}', Move.POLL),
    ("making late", POLL, 200, b'{"state": "failed"}', Move.STOP),
    ("binding late", POLL, 200, b'{"state": "in progress"}', Move.MITIGATE),
    ("changing late", POLL, 200, b'{"state": "in progress"}', Move.FAIL),
]


@pytest.mark.parametrize(("row", "call", "status", "body", "move"), OTHERS)
def test_an_answer_means_what_the_specification_says(row, call, status, body, move):
    assert engine.move(row, outcome(call, status, body), Standing(confirmed=True)) is move


@pytest.mark.parametrize(
    ("row", "lost"), [("making", Move.FORGET), ("binding", Move.MITIGATE), ("changing", Move.FAIL)]
)
def test_an_operation_that_is_not_known_is_given_up_at_the_third_answer(row, lost):
    unknown = outcomes.Absent(is_json=True)
    moves = [engine.move(row, unknown, Standing(misses=misses)) for misses in range(3)]
    assert moves == [Move.MISS, Move.MISS, lost]


def test_nothing_is_deleted_unasked_but_what_was_never_whole():
    deletes = {row for row, moves in engine.TABLE.items() if Move.MITIGATE in moves.values()}
    asked = {"edited", "asking", "asking again"}
    assert deletes == {"Provision", "Bind", "making", "binding", "binding late", *asked}
