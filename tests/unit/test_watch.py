"""`apply --watch`: what it tells people."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO

import pygit2
import pytest
import typer

from klutchctl.commands.watch import Speaker, address
from klutchctl.controller.sources import Followed, followed
from klutchctl.render import apply_report
from klutchctl.settings import Settings
from reconciler.apply import Status
from reconciler.core.errors import ConfigError, Locked, Origin, Problem
from reconciler.planning.changes import Tripped, UnseenCluster
from reconciler.watch.agenda import Task, Trigger
from reconciler.watch.fleet_state import RoundResult
from tests.support import fleets
from tests.support.checkouts import commit_work_tree
from tests.support.reports import report

ADDRESSES = {"127.0.0.1:9090": ("127.0.0.1", 9090), "[::1]:0": ("::1", 0)}


@pytest.mark.parametrize(("text", "want"), ADDRESSES.items(), ids=map(str, ADDRESSES))
def test_where_to_listen(text, want):
    assert address(text) == want


@pytest.mark.parametrize("port", ["٩٠", "9" * 5_000], ids=["another script", "many digits"])
def test_where_not_to_listen(port):
    with pytest.raises(typer.BadParameter, match="is not ADDR:PORT"):
        address(f"localhost:{port}")


FOLLOWED = {"a folder": (None, "not committed"), "a ref": ("main", "committed")}


@pytest.mark.parametrize(("ref", "text"), FOLLOWED.values(), ids=FOLLOWED.keys())
async def test_a_ref_is_followed_in_place_of_the_work_tree(ref, text, tmp_path):
    (tmp_path / "fleet.yaml").write_text("committed")
    commit_work_tree(pygit2.init_repository(tmp_path, initial_head="main"))
    (tmp_path / "fleet.yaml").write_text("not committed")
    options = Followed(path=tmp_path, url=None, ref=ref, poll=1.0)
    async with followed(options, Settings({})) as source:
        state = await source.look("")
    assert state is not None
    assert state.snapshot.files == {"fleet.yaml": text.encode()}


ALL = Task(Trigger.DRIFT, None)
CHANGED = Task(Trigger.SOURCE, None)
NOW = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)


TRIPPED = Tripped("max-deletes", "3 units \x1b[2J would be released", ("shop",))


def test_a_round_in_words():
    output = report(
        Status.DONE,
        Status.FAILED,
        Status.FAILED,
        held=[TRIPPED],
        unseen=[UnseenCluster("cafe", "connect timeout")],
    )
    said = "a look at everything (1.2 s). Applied: 1 done, 2 failed; 1 cluster not read."
    assert apply_report.round_ended(ALL, output, 1.24).splitlines() == [
        said,
        "  held: max-deletes: 3 units \\x1b[2J would be released",
        "  not read: cafe: connect timeout",
        "  shop: 2 failed",
    ]


SILENT = report()
LATER = "the files have changed"
TIME = "2026-11-20T09:30:00Z "
STORIES = {
    "the first round is told": ([SILENT], ["start"]),
    "silence is not told again": ([SILENT, SILENT, SILENT], ["start"]),
    "what is done is always told": ([report(Status.DONE)] * 2, ["start", LATER]),
    "a guard is told once": ([report(held=[TRIPPED]), report(held=[TRIPPED])], ["start"]),
    "and when it lets go": ([report(held=[TRIPPED]), SILENT], ["start", LATER]),
    "what fails again is told once": ([report(Status.FAILED), report(Status.FAILED)], ["start"]),
}


@pytest.mark.parametrize(("rounds", "want"), STORIES.values(), ids=STORIES.keys())
def test_what_is_reported_of_rounds(rounds, want, capsys):
    speaker = Speaker(lambda: NOW)
    for one in rounds:
        speaker.ended(CHANGED, RoundResult(one), 1.0)
    said = [line.removeprefix(TIME) for line in capsys.readouterr().out.splitlines()]
    assert [line.partition(" (1.0 s)")[0] for line in said if "1.0 s" in line] == want


def test_a_source_is_reported_when_it_is_another_one(capsys):
    speaker, fleet = Speaker(lambda: NOW), fleets.fleet()
    speaker.read(fleet, None, (Problem(Origin("a.yaml", 1, 1), "odd", "is odd"),))
    speaker.read(fleet, None, None)
    for _ in range(3):
        speaker.unreadable(ConfigError("there is nothing", where="x"))
    speaker.unreadable(KeyError("hunter2canary"))
    speaker.read(fleet, None, None)
    speaker.read(replace(fleet, revision="4c1e9d2", digest="another"), None, ())
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith(TIME) for line in lines)
    assert [line.removeprefix(TIME) for line in lines] == [
        "Fleet acme: 1 units",
        "Warning: a.yaml:1:1: is odd [odd]",
        "x: there is nothing",
        "Nothing is changed until the files can be used again.",
        "unexpected KeyError at an unknown place. This is a defect of klutchctl; run the command"
        " again as `klutchctl -v ...` for the details that a report needs",
        "Nothing is changed until the files can be used again.",
        "Fleet acme: 1 units",
        "Fleet acme @ 4c1e9d2: 1 units, as before: nothing to apply",
    ]


def test_the_end_is_reported_at_once_with_what_it_waits_for():
    stream = StringIO()
    lines = apply_report.Lines(stream, lambda: NOW)
    for sent in (0, 2):
        lines.note(apply_report.ends("ended by SIGTERM", sent))
    lines.note(apply_report.ends("ended by SIGTERM", 1, fetches=True))
    assert stream.getvalue().splitlines() == [
        f"{TIME}ended by SIGTERM: no new write starts, and no write is waited for",
        f"{TIME}ended by SIGTERM: no new write starts, and 2 writes on the way are waited for",
        f"{TIME}ended by SIGTERM: no new write starts, and 1 write on the way is waited for; a"
        " fetch is, if one has begun",
    ]


def test_a_lock_is_reported_once_for_each_holder(capsys):
    speaker = Speaker()
    for holder, age in (("a", 1), ("a", 2), ("b", 1)):
        speaker.failed(ALL, Locked("eu", holder, timedelta(seconds=age)), 0.1)
    speaker.ended(ALL, RoundResult(SILENT), 1.0)
    speaker.failed(ALL, Locked("eu", "b", timedelta(seconds=3)), 0.1)
    said = capsys.readouterr().err
    assert (said.count("fleet: a,"), said.count("fleet: b,")) == (1, 2)
