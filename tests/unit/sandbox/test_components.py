"""The servers beside the clusters: arguments, order, and how they are recognised."""

import signal
import sys
from dataclasses import replace
from pathlib import Path

from klutchctl.sandbox import components, processes
from klutchctl.sandbox.components import Kit, PostgresqlPlace
from klutchctl.sandbox.processes import Observed
from klutchctl.sandbox.servers import Owner
from klutchctl.sandbox.state import Component, Layout, Services
from klutchctl.sandbox.suite import Program, Suite

LAYOUT = Layout(Path("/state/box"))
PROGRAMS = (
    Program(name="scribe", command=["${python}", "scribe.py", "--to=${data}", "${kubeconfig}"]),
    Program(name="sized", command=["bin/sized", "${postgresql}", "${binaries}/pg_dump"]),
    Program(name="sleeper", command=["sleep", "1"]),
)
ALL = (Component.PROVIDER_KUBERNETES, Component.CROSSPLANE, Component.POSTGRESQL)
PURPOSES = components.purposes(ALL)
SERVICES = Services(
    "/fleet/services",
    ALL,
    tuple(program.name for program in PROGRAMS),
    {purpose: 20000 + number for number, purpose in enumerate(PURPOSES)},
)
SUITE = Suite(Path("/fleet/services"), ALL, PROGRAMS, ())
PLACE = PostgresqlPlace(Path("/var/tmp/x/data"), Path("/pg/bin"), Owner(101, 104))
KIT = Kit(SUITE, Path("/cache/v1"), PLACE)
SERVERS = {server.program: server for server in components.servers(LAYOUT, SERVICES, KIT)}


def launch_of(name):
    launch = SERVERS[name].launch
    assert launch is not None
    return launch


def command_of(name):
    return (str(launch_of(name).executable), *SERVERS[name].arguments)


def test_all_ends_in_the_other_order():
    identities = [server.identity for server in SERVERS.values()]
    order = components.stopping_order([*identities, *identities], LAYOUT)
    assert set(order[:3]) == set(identities[3:])
    assert order[3:] == identities[2::-1]


def test_only_postgresql_is_interrupted():
    farewells = {
        name: components.goodbye(server.identity, LAYOUT) for name, server in SERVERS.items()
    }
    assert farewells.pop("postgresql") == signal.SIGINT
    assert set(farewells.values()) == {signal.SIGTERM}


def test_references_are_replaced_in_the_commands_of_programs():
    assert command_of("scribe") == (
        sys.executable,
        "scribe.py",
        "--to=/state/box/services/data/scribe",
        "/state/box/services/kubeconfig",
    )
    assert command_of("sized") == (
        "/fleet/services/bin/sized",
        "/state/box/services/postgresql.address",
        "/pg/bin/pg_dump",
    )
    assert command_of("sleeper") == ("sleep", "1")
    folders = {launch_of(program.name).folder for program in PROGRAMS}
    assert folders == {Path("/fleet/services")}


def test_no_argument_and_no_environment_holds_the_password_of_the_database():
    for name in SERVERS:
        words = " ".join((*command_of(name), *launch_of(name).environment.values()))
        assert "postgresql://" not in words


def as_observed(server, pid):
    return Observed(pid, ("whatever",), 0.0, server.identity, server.digest)


def test_another_build_needs_a_restart():
    kit = replace(KIT, crossplane=Path("/cache/v2"))
    updated = components.servers(LAYOUT, SERVICES, kit)
    observed = [as_observed(server, pid) for pid, server in enumerate(SERVERS.values())]
    decision = processes.decide(updated, observed)
    assert [server.program for server in decision.start] == ["crossplane", "provider-kubernetes"]
    assert [one.pid for one in decision.stop] == [1, 2]


def test_outlines_know_the_servers_without_their_commands():
    for outline in components.outlines(LAYOUT, SERVICES):
        server = SERVERS[outline.program]
        assert replace(server, arguments=(), launch=None) == outline
        found = as_observed(server, 7)
        assert processes.running(outline, [found]) == found
