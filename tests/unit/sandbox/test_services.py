"""The services beside the control plane: their commands, and when they are others."""

import sys
from dataclasses import replace
from pathlib import Path

from klutchctl.sandbox.addons import services
from klutchctl.sandbox.addons.postgresql import PostgresqlPlace
from klutchctl.sandbox.addons.services import ServicesKit
from klutchctl.sandbox.servers import Owner
from klutchctl.sandbox.state import Component, Layout, Member, Role, State
from klutchctl.sandbox.suite import Program, Suite

LAYOUT = Layout(Path("/state/box"))
PROGRAMS = (
    Program(name="scribe", command=["${python}", "scribe.py", "--to=${data}", "${kubeconfig}"]),
    Program(name="sized", command=["bin/sized", "${postgresql}", "${binaries}/pg_dump"]),
    Program(name="sleeper", command=["sleep", "1"]),
)
ALL = tuple(reversed(Component))
SUITE = Suite(Path("/fleet/services"), ALL, PROGRAMS, ())
PLACE = PostgresqlPlace(Path("/var/tmp/x/data"), Path("/pg/bin"), Owner(101, 104))
BUILT = {one: Path("/cache", one) for one in (Component.CROSSPLANE, Component.PROVIDER_KUBERNETES)}
KIT = ServicesKit(SUITE, BUILT, PLACE)
PLANE = State(1, 2, (Member("eu", Role.CONTROL_PLANE, 3),))
STATE = services.extend(PLANE, KIT, lambda count: range(20000, 20000 + count))
SERVERS = {server.program: server for server in services.servers(LAYOUT, STATE, KIT)}


def launch_of(name):
    launch = SERVERS[name].launch
    assert launch is not None
    return launch


def command_of(name):
    return (str(launch_of(name).executable), *SERVERS[name].arguments)


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


def test_programs_find_others_as_the_user_does_and_write_nothing_into_the_fleet():
    kit = replace(KIT, path="/usr/local/bin:/bin")
    launches = {one.program: one.launch for one in services.servers(LAYOUT, STATE, kit)}
    for program in PROGRAMS:
        launch = launches[program.name]
        assert launch is not None
        assert launch.environment == {
            "HOME": f"/state/box/services/data/{program.name}",
            "PATH": "/usr/local/bin:/bin",
        }


def test_no_argument_and_no_environment_holds_the_password_of_the_database():
    for name in SERVERS:
        words = " ".join((*command_of(name), *launch_of(name).environment.values()))
        assert "postgresql://" not in words
