"""The loop, with a clock that stands still unless the loop rests; when it is not well."""

import asyncio

import pytest

from reconciler.apply import Status
from reconciler.controller import log_context, tracing
from reconciler.controller.fence import Stopped
from reconciler.core.errors import ConfigError, InvalidRepository, KlutchError
from reconciler.fleet.files import Snapshot
from reconciler.fleet.values import Fleet
from reconciler.planning.changes import Tripped, UnseenCluster
from reconciler.source.following import SourceState
from reconciler.watch.agenda import Task, Terms, Trigger
from reconciler.watch.fleet_state import RoundResult
from reconciler.watch.loop import Clock, Observer, Signs, Watch, ailment, result_of
from tests.support.fleet_texts import document, one_file
from tests.support.reports import report
from tests.support.spans import Collector

PLANE = document("ControlPlane", "eu", "{access: {inCluster: true}}")


def member(name, labels=""):
    spec = f"{{access: {{kubeconfigContext: {name}}}, controlPlane: eu}}"
    return document("Cluster", name, spec, labels=f"{{{labels}}}")


def tree(*clusters):
    text = one_file(document("Fleet", "acme", "{}"), PLANE, *map(member, clusters))
    return Snapshot({"fleet.yaml": text.encode()}, "", "fleet.yaml")


def several(labels):
    """Return a repository of two clusters, each in its file."""
    first = one_file(document("Fleet", "acme", "{include: ['*/*.yaml']}"), PLANE)
    files = {
        "fleet.yaml": first.encode(),
        "clusters/cafe.yaml": member("cafe", "a: z").encode(),
        "clusters/shop.yaml": member("shop", labels).encode(),
    }
    return Snapshot(files, "", "fleet.yaml")


class Story(Observer):
    """What a source gives look by look, what each round comes to, and what was heard.

    The clock moves by a second for each rest. The end of the looks is the end of the watch.
    """

    def __init__(self, looks, rounds=()):
        self.looks, self.rounds = list(looks), list(rounds)
        self.time = 0.0
        self.made: list[tuple[float, list[str] | None]] = []
        self.fleets: list[Fleet] = []
        self.heard: list[str] = []
        self.stop = asyncio.Event()
        self.last = ""

    async def look(self, known):
        assert known == self.last
        if not self.looks:
            self.stop.set()
            return None
        seen = self.looks.pop(0)
        if isinstance(seen, Exception):
            raise seen
        if seen is None:
            return None
        self.last = f"mark {len(self.looks)}"
        return SourceState(self.last, seen)

    async def changed(self):
        self.time += 1

    async def make(self, fleet, scope):
        self.made.append((self.time, None if scope is None else sorted(scope)))
        self.fleets.append(fleet)
        outcome = self.rounds.pop(0) if self.rounds else report()
        if isinstance(outcome, Stopped):
            self.stop.set()
        if isinstance(outcome, Exception):
            raise outcome
        return RoundResult(outcome)

    def unreadable(self, error):
        at = f" at {error.revision}" if isinstance(error, InvalidRepository) else ""
        self.heard.append(f"unreadable{at}: {error}")

    def read(self, fleet, found, warnings):
        if warnings is not None:
            self.heard.append("read")

    def ended(self, task, result, seconds):
        self.heard.append(f"ended: {task.trigger.value}")

    def failed(self, task, error, seconds):
        self.heard.append(f"failed: {task.trigger.value}: {error}")

    async def run(self, interval=100.0):
        clock = Clock(now=lambda: self.time, jitter=lambda: 0.5)
        terms = Terms(interval=interval, first_retry=4.0)
        async with asyncio.timeout(60):
            await Watch(self, self.make, terms=terms, clock=clock, observers=[self]).run(self.stop)
        return self.made


ALL = (0.0, None)
FAILED = report(("cafe", Status.FAILED))
BROKEN = Snapshot({"fleet.yaml": b"kind: ["}, "77aa", "fleet.yaml")
GONE = ConfigError("cannot be read", where="x")
BEFORE = tree("cafe", "shop")
AFTER = Snapshot(
    {
        "fleet.yaml": BEFORE.files["fleet.yaml"].replace(
            b"shop, labels: {}", b"shop, labels: {a: b}"
        )
    },
    "",
    "fleet.yaml",
)
MADE = {
    "the first round is about everything, and nothing follows from silence": (
        [BEFORE, *[None] * 20],
        [],
        [ALL],
    ),
    "a change is a narrow round": ([BEFORE, None, AFTER, None], [], [ALL, (1.0, ["shop"])]),
    "what was left undone is part of the next narrow round": (
        [BEFORE, None, AFTER, None],
        [FAILED],
        [ALL, (1.0, ["cafe", "shop"])],
    ),
    "a failure is tried again, and then later": (
        [BEFORE, *[None] * 13],
        [FAILED, FAILED],
        [ALL, (3.0, ["cafe"]), (9.0, ["cafe"])],
    ),
    "a defect, too": ([BEFORE, *[None] * 6], [ValueError("x")], [ALL, (3.0, None)]),
    "without files there is no round": ([GONE, GONE, BROKEN, None, None], [], []),
    "a defect in reading them is no end": ([KeyError("x"), BEFORE, None], [], [(1.0, None)]),
    "files that come later": ([GONE, BROKEN, None, BEFORE], [], [(3.0, None)]),
    "while the files are of no use, nothing is done again": (
        [BEFORE, *[GONE] * 20, None],
        [FAILED],
        [ALL, (20.0, ["cafe"])],
    ),
    "files that are of no use are not those before": (
        [BEFORE, BROKEN, *[None] * 9, AFTER, None],
        [],
        [ALL, (10.0, ["shop"])],
    ),
    "files that were of no use for a while, and are the same again": (
        [BEFORE, BROKEN, BEFORE, None],
        [],
        [ALL],
    ),
}


@pytest.mark.parametrize(("looks", "rounds", "want"), MADE.values(), ids=MADE.keys())
async def test_which_rounds_are_made(looks, rounds, want):
    assert await Story(looks, rounds).run() == want


async def test_what_did_not_change_is_not_read_again():
    story = Story([several("a: b"), several("a: c"), None])
    await story.run()
    (old, new) = (fleet.clusters for fleet in story.fleets)
    assert new["cafe"].labels is old["cafe"].labels
    assert new["shop"].labels != old["shop"].labels


async def test_everything_is_looked_at_at_the_interval():
    made = await Story([BEFORE, *[None] * 12]).run(interval=5.0)
    assert made == [(0.0, None), (5.0, None), (10.0, None)]


async def test_what_is_heard():
    story = Story([GONE, BROKEN, BEFORE, None, None], [KlutchError("locked")])
    await story.run()
    assert story.heard == [
        "unreadable: x: cannot be read",
        "unreadable at 77aa: fleet.yaml:2:1: not YAML: did not find expected node content. "
        "Line 1 opens [ in column 7, and does not close it: add ] [not-yaml]",
        "read",
        "failed: source: locked",
    ]


async def test_each_round_is_a_span_and_a_number_in_the_log():
    collector, logged = Collector(), []

    class Logged(Story):
        async def make(self, fleet, scope):
            logged.append(log_context.current())
            return await super().make(fleet, scope)

        def ended(self, task, result, seconds):
            logged.append(log_context.current())

    with tracing.collected(collector):
        await Logged([BEFORE, None, AFTER, None]).run()
    assert collector.opened == ["klutchctl.round"] * 2
    assert collector.attributes == [{"fleet": "acme", "trigger": "source"}] * 2
    assert logged == [{"fleet": "acme", "round": number} for number in (1, 1, 2, 2)]


async def test_a_round_that_was_stopped_is_the_last():
    story = Story([BEFORE, None, None], [Stopped("ended by SIGTERM")])
    await story.run()
    assert story.heard == ["read"]


@pytest.mark.parametrize("where", ["look", "changed"])
async def test_a_stop_is_heard_while_the_source_is_slow(where):
    story = Story([BEFORE])

    async def forever(*_):
        asyncio.get_running_loop().call_later(0.01, story.stop.set)
        await asyncio.Event().wait()

    setattr(story, where, forever)
    await story.run()
    assert story.stop.is_set()


AILMENTS = {
    "well": (Signs(round_at=900), ""),
    "a round ended three intervals ago": (Signs(round_at=700), ""),
    "no round for longer": (Signs(round_at=699), "no round has ended for 301 s"),
    "because there is no source": (
        Signs(round_at=600, readable=False),
        "no round has ended for 400 s: the source cannot be read",
    ),
    "a source that is gone for a moment": (Signs(round_at=900, readable=False), ""),
}


@pytest.mark.parametrize(("signs", "want"), AILMENTS.values(), ids=AILMENTS.keys())
def test_ailment(signs, want):
    assert ailment(signs, 1000.0, interval=100.0) == want


EVERYTHING = Task(Trigger.DRIFT, None)
IN_USE = Tripped("in-use", "why")


RESULTS = {
    "nothing": report(),
    "done": report(Status.DONE, Status.UNCHANGED),
    "held": report(Status.DONE, Status.HELD, held=[IN_USE]),
    "partial": report(Status.DONE, Status.FAILED, Status.HELD, held=[IN_USE]),
    "locked": report(Status.INTERRUPTED, lock_lost=True),
}


@pytest.mark.parametrize(("want", "report"), RESULTS.items(), ids=RESULTS.keys())
def test_the_result_of_a_round_in_a_word(want, report):
    assert result_of(report) == want


def test_a_cluster_that_was_not_read_is_partial():
    assert result_of(report(Status.DONE, unseen=[UnseenCluster("shop", "why")])) == "partial"
