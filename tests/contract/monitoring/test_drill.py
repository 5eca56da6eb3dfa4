"""A drill: a real Prometheus asks real registries, and each alert fires when its trouble comes.

The registries are those that the programs serve, by the server that they have. Time is not waited
for: minutes, hours and days of the rules are seconds here.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest

from bind import program
from bind.door.audit import Audit
from bind.osb.metrics import BrokerMetrics
from klutchctl.controller.metrics import FleetMetrics
from klutchctl.sandbox import processes
from klutchctl.sandbox.state import MonitoringPorts
from konnector.metrics import SyncMetrics
from reconciler.apply import Outcome, Status
from reconciler.controller import health_server
from reconciler.controller.metrics import Metrics
from reconciler.controller.tasks import SystemClock
from reconciler.core.errors import ConfigError
from reconciler.core.refs import SECRET
from reconciler.fleet.values import UnitKey
from reconciler.health.verdict import State
from reconciler.kube import cluster, informer
from reconciler.planning.changes import Action, Tripped, UnseenCluster
from reconciler.watch.agenda import Task, Trigger
from reconciler.watch.fleet_state import FleetState, RoundResult, SourceProblem, Storm
from reconciler.watch.loop import States
from tests.support import fleet_states as made
from tests.support import prometheus
from tests.support.eventually import eventually
from tests.support.reports import change, report

EVERYTHING = Task(Trigger.DRIFT, None)
ALERTS = {(rule["alert"], rule["labels"]["severity"]) for rule in prometheus.alerts()}


class Controller:
    """A controller of a shard, as far as it is seen from outside: what it counts."""

    def __init__(self):
        self.meters = FleetMetrics(time.time)
        self.states = States(FleetState(name=""))
        self.states.listen(self.meters.listener)
        self.rests()

    def rests(self):
        """Have read the files, and have it all in place."""
        state = made.at_rest()
        self.meters.read(made.fleet(), None, ())
        self.put(state)

    def put(self, state, **source):
        self.states.put(replace(state, source=replace(state.source, **source)))

    def round(self, came_to=None):
        self.meters.ended(EVERYTHING, RoundResult(came_to or report()), 0.2)


class Agent:
    """A konnector, and beside it a klutch-bind and a klutch-osb: what they count."""

    def __init__(self):
        self.konnector, self.bind, self.osb = Metrics(), Metrics(), Metrics()
        self.syncs = SyncMetrics(self.konnector.registry)
        self.spaces = program.spaces(self.bind.registry)
        self.audit, self.brokers = Audit(SystemClock()), BrokerMetrics(self.osb.registry)
        for counter in self.audit.counters:
            self.bind.registry.register(counter)
        self.queues = [one.controller("work") for one in (self.konnector, self.bind, self.osb)]
        self.claims = self.syncs.claims("databases")
        self.beat_at = None

    def works(self):
        """Do a bit of everything that is counted."""
        for queue in self.queues:
            queue.added()
            queue.taken(0.01)
            queue.ended("success", 0.02)
        for way in ("up", "down"):
            self.syncs.direction("databases", way).observe(0.1)
        self.syncs.beat("space", self.beat_at or time.time())
        self.konnector.event("sent")
        self.brokers.observer("broker")("provision", "201", 0.1)


@dataclass
class Place:
    """What is asked, and who asks. `trouble` is what each tick does besides."""

    url: str
    http: aiohttp.ClientSession
    controllers: dict[str, Controller]
    agent: Agent
    trouble: list[Callable[[], None]] = field(default_factory=list)
    stopped: set[str] = field(default_factory=set)

    async def ask(self, query):
        async with self.http.post(f"{self.url}/api/v1/query", data={"query": query}) as answer:
            found = await answer.json()
        assert found["status"] == "success", f"{query}: {found}"
        return [one["metric"] for one in found["data"]["result"]]

    async def firing(self):
        found = await self.ask('ALERTS{alertstate="firing"}')
        return {(one["alertname"], one["severity"]) for one in found}

    async def lives(self):
        """Let time pass: rounds end, claims change."""
        while True:
            for name, one in self.controllers.items():
                if name not in self.stopped:
                    one.round()
            self.agent.works()
            for tick in self.trouble:
                tick()
            await asyncio.sleep(0.15)


@pytest.fixture(scope="module")
async def place(tmp_path_factory):
    prometheus.found("prometheus")
    agent, controllers = Agent(), {name: Controller() for name in ("eu", "us", "ap")}
    stub = SimpleNamespace(name="app-cluster", connectivity=cluster.Connectivity())
    for metrics in (agent.konnector, agent.bind, agent.osb):
        metrics.watch(informer.Informer(cast("Any", stub), SECRET))
        metrics.leading("lease", leads=True)
    registries = {name: one.meters.registry for name, one in controllers.items()}
    registries |= {"konnector": agent.konnector.registry, "klutch-bind": agent.bind.registry}
    registries |= {"klutch-osb": agent.osb.registry}
    within = processes.port_range(os.environ.get(processes.PORTS_VARIABLE, ""))
    (http,) = processes.free_ports(1, within=within)
    async with contextlib.AsyncExitStack() as stack:
        ports = {}
        for name, registry in registries.items():
            serving = health_server.served(
                ("127.0.0.1", 0), metrics=partial(lambda same: same, registry)
            )
            _, ports[name] = stack.enter_context(serving)
        folder = tmp_path_factory.mktemp("prometheus")
        url = stack.enter_context(prometheus.served(folder, MonitoringPorts(http, ports)))
        client = await stack.enter_async_context(aiohttp.ClientSession())
        place = Place(url, client, controllers, agent)
        living = asyncio.create_task(place.lives())
        yield place
        living.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await living


async def test_no_alert_fires_at_rest(place):
    place.agent.spaces.note("space", "connected")
    place.agent.claims.note("orders", "synced")
    place.agent.konnector.orphans("databases", 0)
    windows = "count_over_time(control_plane:klutchctl_units_not_ready:ratio_6h[1m]) > 18"

    async def silent():
        assert await place.ask(windows)  # are full, and `for` is over
        assert await place.ask("ALERTS") == []
        return True

    await eventually(silent)


def troubles(place):
    """Let each thing happen that an alert is for, unless it has."""
    if place.trouble:
        return
    eu, us, _ = place.controllers.values()
    broken = made.board(
        made.cluster("shop", State.READY, State.DEGRADED), made.cluster("cafe", State.UNKNOWN)
    )
    storm = Storm(cluster="shop", object="x", manager="y", repairs=3, until=made.at(3600))
    state = replace(made.ended(made.begun(), "held", board=broken), storms=(storm,))
    eu.put(state, problem=SourceProblem.UNVERIFIED)
    unseen = [UnseenCluster("cafe", "why")]
    held = report(held=[Tripped("max-deletes", "why")], unseen=unseen)
    us.meters.unreadable(ConfigError("why", where="x"))
    place.stopped |= {"eu", "ap"}
    place.agent.beat_at = time.time() - 700
    place.agent.konnector.orphans("databases", 2)
    place.trouble += [lambda: eu.round(held), lambda: place.agent.konnector.blocked_write("delete")]


async def test_each_alert_fires_when_its_trouble_comes(place):
    troubles(place)

    async def all_of_them():
        firing = await place.firing()
        assert firing == ALERTS, ALERTS - firing
        return True

    await eventually(all_of_them)
    (cluster,) = await place.ask('ALERTS{alertname="ClusterUnseen", alertstate="firing"}')
    assert cluster["cluster"] == "cafe"


def happens_once(place):
    """Count what is seldom: commits, units that become Ready, webhooks, notifications, repairs."""
    us = place.controllers["us"]
    line = replace(change("shop", Action.CREATE), unit=UnitKey("shop", "shop.example", "databases"))
    plan = replace(report().plan, changes=(line,))
    done = replace(report(), plan=plan, outcomes=(Outcome(line, Status.DONE),))
    start = us.states.now
    us.meters.read(made.fleet(), None, ())
    us.round(done)
    changed = replace(start, source=replace(start.source, changed_at=made.at(100)), applied_at=None)
    us.states.put(changed)
    good = made.board(made.cluster("shop", State.READY), time=1e9)
    us.states.put(replace(changed, board=good, applied_at=made.at(160)))
    us.states.put(start)
    us.meters.webhook("github", "accepted")
    us.meters.notification("chat", "sent")
    for counter in place.agent.audit.counters:
        counter.labels(*(["x"] * len(counter._labelnames))).inc()
    place.agent.brokers.broker("broker", up=True, records=[])
    place.agent.brokers.blocked("broker", "claim", is_blocked=True)


async def test_each_query_of_rules_and_dashboards_finds_something(place):
    troubles(place)
    place.trouble.append(lambda: happens_once(place))
    recorded = [rule["record"] for rule in prometheus.rules() if "record" in rule]
    left = {*recorded, *map(prometheus.hastened_query, prometheus.shown_queries())}
    assert len(left) > 80

    async def found():
        answers = {query: await place.ask(query) for query in left}
        left.intersection_update(query for query, series in answers.items() if not series)
        assert not left
        return True

    await eventually(found)
