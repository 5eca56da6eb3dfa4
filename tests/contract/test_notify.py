"""Notifications over sockets: to receivers that fail, redirect, hang and flood."""

import asyncio
import contextlib
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from reconciler.watch.fleet_state import SourceProblem, source_failed
from reconciler.watch.loop import States
from reconciler.watch.notify import sender
from reconciler.watch.notify.sender import Notifier
from reconciler.watch.notify.sinks_file import read
from tests.support.eventually import eventually
from tests.support.fake_clock import FakeClock
from tests.support.fleet_states import COMMIT, at, at_rest, begun, fleet
from tests.support.sink_server import Sent, SinkServer
from tests.support.webhooks import KEY, generic

HEAD = "apiVersion: notify.klutchctl.dev/v1alpha1\nkind: Notify\nsinks:\n"
START = replace(begun(), source=replace(begun().source, revision=""))


class QuickClock(FakeClock):
    """Notes how long is waited, and waits not."""

    def __init__(self):
        super().__init__()
        self.pauses: list[float] = []

    async def sleep(self, seconds):
        self.pauses.append(seconds)
        self.jump(seconds)
        await asyncio.sleep(0)


class Scene:
    """A fleet whose states are reported."""

    def __init__(self):
        self.clock, self.states = QuickClock(), States(START)
        self.counts: Counter[tuple[str, str]] = Counter()

    def count(self, sink, result):
        self.counts[sink, result] += 1

    async def counted(self, *ends):
        """Wait until so much came of messages, and no more."""
        await eventually(lambda: sorted(self.counts.elements()) == sorted(ends), within=20)


def commit(letter):
    """Return the state of a fleet whose files are of another commit."""
    state = begun()
    revision = letter * 40
    return replace(state, fleet=fleet(revision), source=replace(state.source, revision=revision))


@asynccontextmanager
async def notified(folder, *sinks, clock=None):
    (folder / "key").write_text(KEY)
    (folder / "notify.yaml").write_text(HEAD + "\n".join(sinks))
    scene = Scene()
    notifier = Notifier(read(folder / "notify.yaml"), clock or scene.clock, scene.count)
    task = asyncio.create_task(notifier.run(scene.states))
    await asyncio.sleep(0)
    try:
        yield scene
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def webhook(server, name="hook", more=""):
    return f"- {{name: {name}, webhook: {{url: '{server.url}/in', secretFile: key}}{more}}}"


async def test_every_kind_of_receiver(tmp_path):
    async with SinkServer() as server:
        (tmp_path / "url").write_text(f"{server.url}/chat/s3cr3t")
        async with notified(
            tmp_path,
            webhook(server),
            "- {name: chat, slack: {urlFile: url}, states: [success]}",
            "- name: status\n  commitStatus: {provider: gitea, repository: a/b, tokenFile: key,"
            f" api: '{server.url}/api/v1'}}",
        ) as scene:
            scene.states.put(begun())
            await scene.counted(("hook", "sent"), ("status", "sent"))
            scene.states.put(at_rest())
            twice = [("hook", "sent"), ("status", "sent")] * 2
            await scene.counted(*twice, ("chat", "sent"))
            away = source_failed(at_rest(), SourceProblem.UNREADABLE, "", now=at(60))
            scene.states.put(away)  # which concerns no commit
            await scene.counted(*twice, ("chat", "sent"), ("hook", "sent"))
        by_path: dict[str, list[Sent]] = {}
        for one in server.received:
            by_path.setdefault(one.path, []).append(one)
        states = [one.json["state"] for one in by_path[f"/api/v1/repos/a/b/statuses/{COMMIT}"]]
        assert states == ["pending", "success"]
        [chat] = by_path["/chat/s3cr3t"]
        assert chat.json["text"] == f"acme: commit {COMMIT[:12]}: in place"
        for one in by_path["/in"]:
            signed = generic(one.headers["webhook-id"], body=one.body)
            assert one.headers.items() >= signed.items()
        assert len({one.headers["webhook-id"] for one in by_path["/in"]}) == 3


async def test_what_was_before_is_reported_at_the_start_and_nothing_twice(tmp_path):
    async with SinkServer() as server:
        (tmp_path / "key").write_text(KEY)
        scene = Scene()
        scene.states.put(begun())
        (tmp_path / "notify.yaml").write_text(HEAD + webhook(server))
        notifier = Notifier(read(tmp_path / "notify.yaml"), scene.clock, scene.count)
        task = asyncio.create_task(notifier.run(scene.states))
        await scene.counted(("hook", "sent"))
        for _ in range(5):
            scene.states.put(begun())
        scene.states.put(at_rest())
        await scene.counted(("hook", "sent"), ("hook", "sent"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [one.json["data"]["state"] for one in server.received] == ["pending", "success"]


@pytest.mark.parametrize(
    ("script", "tries", "pauses", "result"),
    [
        ([500], 2, [2.0], "sent"),
        ([429, "cut"], 3, [2.0, 15.0], "sent"),
        ([500, 502, 503], 3, [2.0, 15.0], "failed"),
        (["cut"] * 3, 3, [2.0, 15.0], "failed"),
        ([404], 1, [], "failed"),
        (["redirect"], 1, [], "failed"),
    ],
)
async def test_three_tries_and_no_redirects(tmp_path, caplog, script, tries, pauses, result):
    async with SinkServer(*script) as server:
        async with notified(tmp_path, webhook(server)) as scene:
            scene.states.put(begun())
            await scene.counted(("hook", result))
        assert (len(server.received), scene.clock.pauses) == (tries, pauses)
        assert {one.path for one in server.received} == {"/in"}
        assert len({one.headers["webhook-id"] for one in server.received}) == 1
        assert len(caplog.records) == (result == "failed")


async def test_no_text_holds_a_secret(tmp_path, caplog):
    async with SinkServer(*[404] * 3) as server:
        (tmp_path / "url").write_text(f"{server.url}/chat/s3cr3t")
        (tmp_path / "away").write_text("https://127.0.0.1:1/chat/s3cr3t")
        (tmp_path / "meta").write_text("https://169.254.169.254/s3cr3t")
        names = ("url", "away", "meta")
        sinks = [f"- {{name: {one}, slack: {{urlFile: {one}}}}}" for one in names]
        async with notified(tmp_path, webhook(server), *sinks) as scene:
            scene.states.put(begun())
            await scene.counted(("hook", "failed"), *((name, "failed") for name in names))
    shown = " ".join(str(record.__dict__) for record in caplog.records)
    assert "404" in shown
    assert "169.254.169.254 is a link-local address" in shown
    assert "s3cr3t" not in shown
    assert KEY not in shown


async def test_a_secret_is_read_anew(tmp_path):
    async with SinkServer() as server, notified(tmp_path, webhook(server)) as scene:
        scene.states.put(begun())
        await scene.counted(("hook", "sent"))
        (tmp_path / "key").write_text("short")
        scene.states.put(at_rest())
        await scene.counted(("hook", "sent"), ("hook", "failed"))
        (tmp_path / "key").write_text("another key of these tests")
        scene.states.put(begun())
        await scene.counted(("hook", "sent"), ("hook", "sent"), ("hook", "failed"))
        last = server.received[-1]
        signed = generic(
            last.headers["webhook-id"], body=last.body, key="another key of these tests"
        )
        assert last.headers["webhook-signature"] == signed["webhook-signature"]


async def test_a_hanging_receiver_delays_nothing_and_gets_the_newest(tmp_path, monkeypatch):
    async with SinkServer("hang") as bad, SinkServer() as good:
        sinks = (webhook(bad, "bad"), webhook(good, "good"))
        async with notified(tmp_path, *sinks) as scene:
            scene.states.put(commit("a"))
            await eventually(lambda: bad.received)
            for state in (commit("b"), commit("c"), replace(commit("c"), suspended="x")):
                scene.states.put(state)
            scene.states.put(replace(commit("c"), applied_at=begun().source.read_at))
            await eventually(lambda: scene.counts["good", "sent"] >= 3)
            assert scene.counts["bad", "sent"] == 0
            assert scene.counts["bad", "replaced"] == 2
            bad.cut()
            await eventually(lambda: scene.counts["bad", "sent"] == 3)
        data = [one.json["data"] for one in bad.received]
        assert [(one["commit"][0], one["state"]) for one in data] == [
            ("a", "pending"),
            ("a", "pending"),
            ("b", "pending"),
            ("c", "success"),
        ]


async def test_a_newer_message_ends_the_tries_of_an_older_one(tmp_path):
    clock = FakeClock()
    async with SinkServer(500) as server, notified(tmp_path, webhook(server), clock=clock) as scene:
        scene.states.put(begun())
        await eventually(lambda: clock._sleepers)
        scene.states.put(at_rest())
        await clock.advance(2)
        await scene.counted(("hook", "replaced"), ("hook", "sent"))
        assert [one.json["data"]["state"] for one in server.received] == ["pending", "success"]


async def test_a_queue_is_bounded(tmp_path):
    async with SinkServer("hang") as server, notified(tmp_path, webhook(server)) as scene:
        scene.states.put(commit("a"))
        await eventually(lambda: server.received)
        for number in range(105):
            state = commit("a")
            scene.states.put(replace(state, source=replace(state.source, revision=f"{number:040}")))
        assert scene.counts == {("hook", "dropped"): 5}


async def test_a_timeout_is_a_try(tmp_path, monkeypatch):
    monkeypatch.setattr(sender, "_TIMEOUT", 0.1)
    async with SinkServer(*["hang"] * 3) as server, notified(tmp_path, webhook(server)) as scene:
        scene.states.put(begun())
        await scene.counted(("hook", "failed"))
        assert len(server.received) == 3
