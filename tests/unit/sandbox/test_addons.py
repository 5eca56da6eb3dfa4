"""What holds for each add-on of a sandbox, and what a plan does to those that run."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

from klutchctl.sandbox import addons, lifecycle, processes, state
from klutchctl.sandbox.addons.addon import Request
from klutchctl.sandbox.addons.keycloak import KeycloakKit
from klutchctl.sandbox.addons.monitoring import MonitoringKit
from klutchctl.sandbox.addons.postgresql import PostgresqlPlace
from klutchctl.sandbox.addons.services import ServicesKit
from klutchctl.sandbox.lifecycle import Plan
from klutchctl.sandbox.processes import Observed
from klutchctl.sandbox.servers import Owner
from klutchctl.sandbox.state import Component, Layout, Member, Role, State
from klutchctl.sandbox.suite import Program, Suite
from klutchctl.settings import Settings

LAYOUT = Layout(Path("/state/box"))
MEMBERS = (
    Member("eu", Role.CONTROL_PLANE, 20003),
    Member("shop", Role.APP_CLUSTER, 20004),
)
MORE = Member("late", Role.APP_CLUSTER, 20005)
BARE = State(20001, 20002, MEMBERS)
SUITE = Suite(
    Path("/fleet/services"), (*Component,), (Program(name="scribe", command=["cat"]),), ()
)
DATA = Path("/var/tmp/x/data")
KITS = {
    "services": ServicesKit(
        SUITE,
        dict.fromkeys(Component, Path("/cache")),
        PostgresqlPlace(DATA, Path("/pg"), Owner(101, 104)),
    ),
    "keycloak": KeycloakKit(Path("/java"), Path("/cache")),
    "monitoring": MonitoringKit(Path("/prometheus"), [{"name": "x", "rules": []}]),
    "agents": "/python",
}
VERSIONS = {"services": 2, "keycloak": 3, "monitoring": 4, "agents": 5}
TABLE = {addon.name: addon for addon in addons.ADDONS}


def counting_from(first):
    numbers = itertools.count(first)
    return lambda count: list(itertools.islice(numbers, count))


def having(*names, known=BARE, first=21000):
    """Return the state with these add-ons."""
    for name in names:
        known = TABLE[name].extend(known, KITS[name], counting_from(first))
        first += 1000
    return known


WHOLE = having(*TABLE)


def test_the_table_has_a_kit_and_a_format_for_each():
    assert [*TABLE] == [*KITS] == [*VERSIONS]


@pytest.mark.parametrize("name", TABLE)
def test_an_add_on_keeps_its_ports_and_comes_back_from_a_file_that_older_programs_refuse(name):
    found = having(name)
    assert having(name, known=found, first=9) == found
    content = lifecycle.dump(found)
    assert json.loads(content)["version"] == VERSIONS[name]
    assert lifecycle.parse(content, source="state.json", removal="") == found
    assert lifecycle.dump(replace(found, **{name: None})) == lifecycle.dump(BARE)
    own = [*found.ports][len(BARE.ports) :]
    assert own
    for port in own:
        moved = state.with_new_ports(found, [port], new_ports=counting_from(9))
        assert [*moved.ports] == [9 if one == port else one for one in found.ports]


@pytest.mark.parametrize("name", ["monitoring", "agents"])
def test_a_cluster_that_comes_later_gets_a_port_and_the_others_keep_theirs(name):
    before = having(name)
    wider = having(name, known=replace(before, members=(*MEMBERS, MORE)), first=30000)
    assert {*wider.ports} == {*before.ports, MORE.port, 30000}


@pytest.mark.parametrize("name", TABLE)
def test_servers_are_known_without_their_commands(name):
    outlines = TABLE[name].servers(LAYOUT, WHOLE, None)
    whole = TABLE[name].servers(LAYOUT, WHOLE, KITS[name])
    assert len({one.identity for one in whole}) == len(whole) > 0
    for outline, server in zip(outlines, whole, strict=True):
        bare = replace(server, arguments=outline.arguments, launch=outline.launch)
        assert bare == outline
        assert {*server.ports} <= {*WHOLE.ports}
        found = Observed(7, (), 0.0, server.identity, server.digest)
        assert processes.running(outline, [found]) == found
        assert processes.decide([server], [found]).start == ()


def found_of(known, chosen):
    request = Request(LAYOUT, Settings({}), known, {"agents": chosen})
    return addons.find(request).get("agents", "left")


def test_an_add_on_runs_when_it_is_chosen_or_remembered_and_ends_when_it_is_refused():
    assert found_of(None, None) == found_of(BARE, None) == "left"
    assert found_of(None, True) == found_of(having("agents"), None) != "left"
    assert found_of(having("agents"), False) is None


def test_a_plan_decides_on_the_add_ons_that_it_names_alone(monkeypatch):
    """Keycloak ends, Prometheus runs; all others are left as they are."""
    plan = Plan({}, addons={"keycloak": None, "monitoring": KITS["monitoring"]})
    target = replace(WHOLE, keycloak=None)
    running = [
        Observed(pid, (), 0.0, one.identity)
        for pid, one in enumerate(addons.servers(LAYOUT, WHOLE))
    ]
    stray = Observed(99, (), 0.0, f"{processes.LEFT}scribe")
    monkeypatch.setattr(processes, "observe", lambda layout: (*running, stray))
    decided = {one.identity.partition(" /")[0] for one in lifecycle._ours(LAYOUT, target, plan)}
    assert decided == {"keycloak", "prometheus", stray.identity}
    beside = [one for one in lifecycle._expected(LAYOUT, target, plan) if one.launch]
    assert [one.name for one in beside] == ["Prometheus"]
