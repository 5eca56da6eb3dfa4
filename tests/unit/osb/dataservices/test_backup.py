"""What Backups and Restores have a backup manager do, and what follows from each answer."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from bind.osb.dataservices import jobs as wire
from bind.osb.dataservices import managed as kinds
from bind.osb.dataservices import rules
from bind.osb.dataservices.jobs import Reply, Seen, answered, next_step
from reconciler.blueprints.offering.outcomes import Unknown, Unsent
from reconciler.core import keys
from reconciler.core.decision import Decision
from reconciler.core.manifest import finalizers_of, put
from reconciler.core.secret import Secret
from tests.support import dataservices as objects
from tests.support.dataservices import NOW, after, annotation, at_provider, conditions, message

BACKUP, RESTORE = kinds.BACKUP, kinds.RESTORE
SPECS = {
    BACKUP: "spec: {forProvider: {instanceName: orders}}\n",
    RESTORE: "spec: {forProvider: {backupName: orders}}\n",
}
IDS = {BACKUP: "instanceId: i-1", RESTORE: "instanceId: i-1, backupId: 101"}
NUMBERS = {BACKUP: "id: 7, status: ", RESTORE: "restoreId: 7, state: "}
INSTANCE = "status: {atProvider: {instanceId: i-1, state: provisioned}}"
DONE = "status: {atProvider: {instanceId: i-1, id: 101, status: done}}"
SOURCES = {
    BACKUP: objects.managed(kinds.SERVICE_INSTANCE, INSTANCE),
    RESTORE: objects.managed(BACKUP, DONE),
}
WORDS = {BACKUP: "status", RESTORE: "state"}
SORTS = {BACKUP: "backups", RESTORE: "restores"}
DELETED = {"deletionTimestamp": objects.ago(5)}
both = pytest.mark.parametrize("kind", [BACKUP, RESTORE], ids=str)


def live(kind, state="", *, spec="", annotations=None, ids=True, **metadata):
    at = IDS[kind] if ids else ""
    if state:
        at += f", {NUMBERS[kind]}{state}"
    text = (spec or SPECS[kind]) + f"status: {{atProvider: {{{at}}}}}"
    marks = {keys.EXTERNAL_NAME: "x", **(annotations or {})}
    return objects.managed(kind, text, annotations=marks, **metadata)


def seen(of, **more):
    kind = BACKUP if of["kind"] == "Backup" else RESTORE
    known: dict[str, Any] = {"config": objects.CONFIG, "usage": objects.USAGE}
    return Seen("cp", kind, of, NOW, **(known | {"source": SOURCES[kind]} | more))


def step(of, **more) -> Any:
    return next_step(seen(of, **more))


def follow(of, ask, answer, **more):
    decision = answered(seen(of, **more), ask, answer)
    assert isinstance(decision, Decision)
    return after(of, decision), decision


def sent(of, purpose) -> tuple[str, str]:
    one = wire.request(seen(of), purpose)
    return one.method, one.path


def jobs(*numbers, backup=101):
    return Reply(200, [{"id": number, "backup_id": backup} for number in numbers])


@both
def test_a_job_is_made_once_what_was_there_before_is_written_down(kind):
    fresh = live(kind, ids=False, finalizers=[])
    held = after(fresh, step(fresh))
    assert finalizers_of(held) == [keys.MANAGED_RESOURCE]
    assert at_provider(held)["instanceId"] == "i-1"
    mark = step(held)
    assert (mark, sent(held, mark)) == ("mark", ("GET", f"/instances/i-1/{SORTS[kind]}"))
    marked, _ = follow(held, mark, jobs(3, 5, 4))
    assert annotation(marked, keys.OSB_AFTER) == "5"
    find = step(marked)
    assert (find, sent(marked, find)) == ("find", sent(held, mark))
    create = answered(seen(marked), find, jobs(3, 5, 4))
    paths = {BACKUP: "/instances/i-1/backups", RESTORE: "/instances/i-1/backups/101/restore"}
    assert sent(marked, create) == ("POST", paths[kind])
    named, _ = follow(marked, create, Reply(201, {"id": 6}))
    key = keys.BACKUP_ID if kind is BACKUP else keys.RESTORE_ID
    assert annotation(named, key) == "6"
    assert at_provider(named)[WORDS[kind]] == "queued"
    assert conditions(named)["Ready"] == "Creating"
    assert sent(named, step(named)) == ("GET", f"/instances/i-1/{SORTS[kind]}/6")


def test_no_job_before_is_a_fact_too():
    marked, _ = follow(live(BACKUP), "mark", jobs())
    assert annotation(marked, keys.OSB_AFTER) == "0"


@both
def test_after_a_crash_the_newer_one_that_no_object_names_is_ours(kind):
    marked = live(kind, annotations={keys.OSB_AFTER: "5"})
    named, _ = follow(marked, step(marked), jobs(4, 5, 6, 7, 8), named=frozenset({6}))
    assert at_provider(named)["id" if kind is BACKUP else "restoreId"] == 7


@both
@pytest.mark.parametrize("purpose", ["find", "configure"])
@pytest.mark.parametrize("gone", ["wish", "pause", "config"])
def test_what_is_not_asked_for_any_more_once_an_answer_comes_is_not_begun(kind, purpose, gone):
    marks = {keys.OSB_AFTER: "5", keys.PAUSED: str(gone == "pause").lower()}
    marked = live(kind, annotations=marks, **(DELETED if gone == "wish" else {}))
    config = None if gone == "config" else objects.CONFIG
    assert isinstance(answered(seen(marked, config=config), purpose, jobs(3, 5)), Decision)


UNREAD = [Unsent("no way"), Unknown("HTTP 500", 500), Reply(200, {"id": 1}), Reply(404, {})]


@both
@pytest.mark.parametrize("answer", UNREAD, ids=str)
@pytest.mark.parametrize("marks", [{}, {keys.OSB_AFTER: "5"}], ids=["before", "after"])
def test_a_list_that_cannot_be_read_is_not_an_empty_one(kind, answer, marks):
    of = live(kind, annotations=marks)
    known, decision = follow(of, step(of), answer)
    assert conditions(known)["Synced"] == "ReconcileError"
    assert not decision.steps
    assert step(known) == step(of)


@pytest.mark.parametrize("answer", [Unknown("cut"), Reply(201, {}), Reply(500, {}), Reply(409, {})])
def test_a_lost_creation_is_looked_for(answer):
    known, decision = follow(live(BACKUP, annotations={keys.OSB_AFTER: "5"}), "create", answer)
    assert decision.again >= rules.POLL
    assert step(known) == "find"


def test_how_backups_are_treated_is_said_before_one_is_made():
    spec = (
        "spec: {forProvider: {instanceName: o, encryption_key: k, exclude_from_auto_backup: no}}\n"
    )
    marked = live(BACKUP, spec=spec, annotations={keys.OSB_AFTER: "5"})
    configure: Any = answered(seen(marked), step(marked), jobs(5))
    assert sent(marked, configure) == ("PUT", "/instances/i-1")
    body = wire.request(seen(marked), configure).body
    assert body == b'{"encryption_key":"k","exclude_from_auto_backup":false}'
    create: Any = answered(seen(marked), configure, Reply(200, {"message": "instance updated"}))
    assert create == "create"
    refused, _ = follow(marked, configure, Reply(400, {}, "too short"))
    assert message(refused) == "too short"


WAITING = [
    (BACKUP, {"source": None, "lookup": "none"}, "none"),
    (BACKUP, {"source": objects.managed(kinds.SERVICE_INSTANCE, "{}")}, "instance is not ready"),
    (RESTORE, {"source": objects.managed(BACKUP, "{}")}, "The backup is not there yet"),
    (RESTORE, {"source": objects.managed(BACKUP, DONE.replace("done", "running"))}, "is running"),
]


@pytest.mark.parametrize(("kind", "more", "problem"), WAITING)
def test_nothing_is_asked_before(kind, more, problem):
    of = live(kind, ids=False)
    assert problem in message(after(of, step(of, **more)))


STATES = [
    ("queued", "Creating", ""),
    ("running", "Creating", ""),
    ("done", "Available", ""),
    ("failed", "Unavailable", "Backup has failed"),
    ("deleted", "Unavailable", "Backup has been deleted"),
]


@pytest.mark.parametrize(("state", "reason", "words"), STATES)
def test_what_a_backup_has_come_to(state, reason, words):
    job: Any = {
        "id": 7, "size": 9, "status": state, "triggered_at": "t", "finished_at": None,
    }  # fmt: skip
    known, decision = follow(live(BACKUP, "queued"), step(live(BACKUP, "queued")), Reply(200, job))
    assert conditions(known) == {"Ready": reason, "Synced": "ReconcileSuccess"}
    assert message(known, "Ready") == words
    assert at_provider(known) == {
        "instanceId": "i-1", "id": 7, "status": state, "size": 9, "triggered_at": "t",
        "downloadable": False,
    }  # fmt: skip
    assert decision.again == (timedelta(seconds=2) if reason == "Creating" else rules.RESYNC)


def test_a_long_job_is_asked_for_less_and_less():
    of = live(BACKUP, "running")
    job: Any = {"id": 7, "status": "running"}
    known, _ = follow(of, step(of), Reply(200, job))
    for seconds, pause in ((1, 2), (30, 15), (9999, 60)):
        later = replace(seen(known), now=NOW + timedelta(seconds=seconds))
        then: Any = answered(later, step(known), Reply(200, job))
        assert then.again == timedelta(seconds=pause)


def test_what_a_restore_has_come_to():
    job: Any = {"id": 7, "status": "done", "triggered_at": "t", "finished_at": "f"}
    of = live(RESTORE, "running")
    known, _ = follow(of, step(of), Reply(200, job))
    assert message(known, "Ready") == "Restore completed successfully"
    assert at_provider(known) == {
        "instanceId": "i-1", "backupId": 101, "restoreId": 7, "state": "done",
        "triggeredAt": "t", "finishedAt": "f",
    }  # fmt: skip


@both
def test_what_is_missing_is_not_made_anew(kind):
    of = live(kind, "done")
    lost, _ = follow(of, step(of), Reply(404, {"error": "NotFound"}))
    assert conditions(lost)["Ready"] == "Missing"
    assert step(lost) == "read"
    gateway, _ = follow(of, step(of), Reply(404, None))
    assert "Ready" not in conditions(gateway)


@both
def test_a_number_of_the_original_is_found_in_its_annotation(kind):
    of = live(kind, annotations={keys.BACKUP_ID if kind is BACKUP else keys.RESTORE_ID: "42"})
    assert sent(of, step(of)) == ("GET", f"/instances/i-1/{SORTS[kind]}/42")


def test_a_backup_is_deleted():
    leaving = live(BACKUP, "done", **DELETED)
    ask = step(leaving)
    assert sent(leaving, ask) == ("DELETE", "/instances/i-1/backups/7")
    for answer in (Reply(200, {}), Reply(404, {}), Reply(410, {})):
        assert finalizers_of(follow(leaving, ask, answer)[0]) == []
    waits: Any = (Reply(423, {}), Reply(404, None), Unsent("no"), Reply(500, {}))
    for answer in waits:
        assert finalizers_of(follow(leaving, ask, answer)[0]) == [keys.MANAGED_RESOURCE]


def test_a_restore_is_only_forgotten_and_not_while_it_runs():
    for state in ("done", "failed", "deleted"):
        ended = live(RESTORE, state, **DELETED)
        assert finalizers_of(after(ended, step(ended))) == []
    running = live(RESTORE, "running", **DELETED)
    ask = step(running)
    assert ask == "read"
    waiting, _ = follow(running, ask, Reply(200, {"id": 7, "status": "running"}))
    assert message(waiting) == "The restore is still running"
    assert finalizers_of(waiting)
    ended, _ = follow(running, ask, Reply(200, {"id": 7, "status": "done"}))
    assert finalizers_of(ended) == []


def test_denied_credentials_wait():
    assert follow(live(BACKUP, "queued"), "read", Reply(401, {}))[1].again == rules.DENIED


def test_nothing_is_asked_while_an_answer_is_rested_on():
    for of in (live(BACKUP), live(BACKUP, "queued"), live(BACKUP, "done", **DELETED)):
        assert step(of, rest=rules.POLL) == Decision(again=rules.POLL, sums_up=False)


def test_answers_are_read_within_bounds_and_without_secrets():
    assert wire.reply(200, b"[1", ()).value is None
    assert wire.reply(200, b"", ()).value is None
    assert wire.reply(200, b'[{"id":1}]', ()).jobs == [{"id": 1}]
    said = wire.reply(400, b'{"description":"not sesame-1"}', (Secret("sesame-1"),))
    assert "sesame" not in said.problem
    of = put(live(BACKUP), "a/b", "status", "atProvider", "instanceId")
    assert "a%2Fb" in wire.request(seen(of), "mark").path
