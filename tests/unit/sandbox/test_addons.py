"""What holds for each add-on of a sandbox, and what a plan does to those that run."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from klutchctl.sandbox import addons, lifecycle, processes, state
from klutchctl.sandbox.addons import agents, monitoring
from klutchctl.sandbox.addons.addon import Request
from klutchctl.sandbox.addons.keycloak import KeycloakKit
from klutchctl.sandbox.addons.monitoring import MonitoringKit
from klutchctl.sandbox.addons.postgresql import PostgresqlPlace
from klutchctl.sandbox.addons.services import ServicesKit
from klutchctl.sandbox.lifecycle import Plan
from klutchctl.sandbox.manifests import Program, Suite
from klutchctl.sandbox.processes import Observed
from klutchctl.sandbox.servers import Owner
from klutchctl.sandbox.state import Component, Layout, Member, MonitoringPorts, Role, State
from klutchctl.settings import Settings
from reconciler.core.errors import HostError
from reconciler.core.manifest import get_text, name_of
from reconciler.core.refs import GroupResource
from tests.support.worlds import template

LAYOUT = Layout(Path("/state/box"))
MEMBERS = (Member("eu", Role.CONTROL_PLANE, 20003), Member("shop", Role.APP_CLUSTER, 20004))
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


def test_an_add_on_that_fails_keeps_no_later_one_from_starting():
    def start(run, kit):
        run.state.append(kit)
        raise HostError(kit)

    run: Any = SimpleNamespace(layout=LAYOUT, state=[])
    addon = SimpleNamespace(start=start, servers=lambda *_: ())
    plan: Any = SimpleNamespace(running=[(addon, one) for one in "ab"])
    with pytest.raises(ExceptionGroup, match="did not start"):
        lifecycle.start_addons(plan, run)
    assert run.state == ["a", "b"]


def test_a_program_with_new_flags_runs_until_what_they_name_has_started(monkeypatch):
    """The klutch-bind of a sandbox that gets a Keycloak; a konnector's flags stay."""
    before, target, done = having("agents"), having("agents", "keycloak"), list[str]()
    alive = [
        Observed(pid, (), 0.0, one.identity, one.digest)
        for pid, one in enumerate(agents.servers(LAYOUT, before))
    ]
    kits = {name: KITS[name] for name in ("keycloak", "agents")}
    started = [
        replace(one, start=lambda *_, name=one.name: done.append(name)) for one in addons.ADDONS
    ]
    monkeypatch.setattr(addons, "ADDONS", started)
    monkeypatch.setattr(processes, "observe", lambda _: alive)
    monkeypatch.setattr(processes, "taken_ports", lambda ports, grace: {})
    monkeypatch.setattr(lifecycle, "_write_files", lambda *_: None)
    monkeypatch.setattr(
        processes, "stop", lambda found, **_: done.extend(one.identity for one in found)
    )
    plan = Plan({}, addons=kits)
    lifecycle._settle(LAYOUT, target, plan, counting_from(9))
    assert done == []
    run: Any = SimpleNamespace(layout=LAYOUT, state=target)
    lifecycle.start_addons(plan, run)
    assert done == ["keycloak", alive[0].identity, "agents"]


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


ASKED = (
    Member("cp", Role.CONTROL_PLANE, 20001),
    Member("app-1", Role.APP_CLUSTER, 20002),
    Member("App:2", Role.APP_CLUSTER, 20003),
)
NAMES = [*monitoring.programs(ASKED)]
ASKED_AT = MonitoringPorts(20010, dict(zip(NAMES, range(20011, 20016), strict=True)))
KIT = MonitoringKit(Path("/usr/bin/prometheus"), [{"name": "x", "rules": []}])


def test_files_are_private_and_older_configurations_go(tmp_path):
    layout = Layout(tmp_path)
    monitoring.ensure_files(layout, ASKED_AT, KIT)
    more = MonitoringPorts(20010, {**ASKED_AT.programs, "konnector-app-3": 20020})
    monitoring.ensure_files(layout, more, KIT)
    assert len([*layout.monitoring.glob("config-*")]) == 1
    assert (layout.monitoring / "konnector-app-3.flags").read_text().split() == [
        "--metrics-address=127.0.0.1:20020"
    ]
    modes = {one.stat().st_mode & 0o077 for one in layout.monitoring.rglob("*")}
    assert modes == {0}


BOX = Layout(Path("/box"))
EU, US = Member("eu", Role.CONTROL_PLANE, 20001), Member("us", Role.CONTROL_PLANE, 20002)
MILL = Member("mill-1", Role.APP_CLUSTER, 20003)
KNOWN = State(1, 2, (EU, US, MILL), agents={"eu": 20011, "us": 20012, "mill-1": 20013})
SECRETS = {"group": "", "resource": "secrets", "version": "v1"}


OFFERS = agents.offered(
    [
        template("forges.shop.example"),
        template("keys.shop.example", [{**SECRETS, "selector": {"owner": "Provider"}}]),
        template("notes.example", [{**SECRETS, "resource": "configmaps"}]),
    ]
)


def given(member):
    """Return what the program of a cluster is given, by kind and name, and its rights."""
    agent = agents.of(member)
    shipped = [one for path in agent.manifests() for one in yaml.safe_load_all(path.read_text())]
    made = list(agents.rights(agent, shipped, OFFERS))
    return {(get_text(one, "kind"), name_of(one)): one for one in made}


def test_klutch_bind_has_rights_on_what_is_offered_and_on_nothing_else():
    made = given(EU)
    services = made["ClusterRole", "klutch-bind-services"]
    assert agents.granted(services["rules"]) == {
        (group, plural, verb)
        for group, plural in [
            ("shop.example", "forges"),
            ("shop.example", "keys"),
            ("example", "notes"),
            ("", "secrets"),
            ("", "configmaps"),
        ]
        for verb in ("get", "list", "watch", "update", "patch", "delete", "create")
    }
    assert {
        ("ClusterRole", "klutch-bind-own"),
        ("ClusterRole", "klutch-bind-control-plane-mode"),
        ("ClusterRole", "klutch-bind-front-door"),
        ("ValidatingAdmissionPolicy", "klutch-bind"),
        ("Namespace", "klutch-bind"),
    } < made.keys()


def test_a_konnector_has_what_is_shipped_under_names_that_no_fleet_uses():
    made = given(MILL)
    rights = agents.granted(made["ClusterRole", "sandbox-klutch-bind-konnector-services"]["rules"])
    assert ("shop.example", "forges", "patch") in rights
    assert ("shop.example", "forges", "delete") not in rights, "only their owners delete instances"
    assert ("", "secrets", "delete") in rights
    assert ("anynines.com", "backups", "get") not in rights
    assert ("ClusterRole", "klutch-bind-konnector") not in made
    for (kind, _), one in made.items():
        if kind in ("RoleBinding", "ClusterRoleBinding"):
            assert (one["roleRef"]["kind"], one["roleRef"]["name"]) in made
            (subject,) = one["subjects"]
            account = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
            assert account == agents.of(MILL).user


def test_claims_of_both_sides_come_down_and_those_of_consumers_do_not():
    claims = [{**SECRETS, "selector": {"owner": "Consumer"}}]
    found = agents.offered([template("keys.shop.example", claims)])
    assert found.services == {GroupResource("shop.example", "keys")}
    assert [one.down for one in found.claimed] == [False]
    assert {one.down for one in OFFERS.claimed} == {True}
