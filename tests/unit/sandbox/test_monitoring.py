"""The Prometheus of a sandbox: whom it asks, where it listens, and where it is found."""

import json
from pathlib import Path

import pytest

from klutchctl.sandbox import report, state, state_file
from klutchctl.sandbox.monitoring import server, starting
from klutchctl.sandbox.monitoring.server import MonitoringKit
from klutchctl.sandbox.report import Status
from klutchctl.sandbox.state import Layout, Member, MonitoringPorts, Role, State
from reconciler.core.errors import HostError

MEMBERS = (
    Member("cp", Role.CONTROL_PLANE, 20001),
    Member("app-1", Role.APP_CLUSTER, 20002),
    Member("App:2", Role.APP_CLUSTER, 20003),
)
NAMES = [*server.programs(MEMBERS)]
PORTS = MonitoringPorts(20010, dict(zip(NAMES, range(20011, 20016), strict=True)))
KIT = MonitoringKit(Path("/usr/bin/prometheus"), [{"name": "x", "rules": []}])
KNOWN = State(1, 2, MEMBERS, monitoring=PORTS)


def from_port(first):
    """Return a source of ports, one after the other."""
    return lambda count: range(first, first + count)


def settings(ports=PORTS, kit=KIT):
    found = server.contents(Layout(Path("/box")), ports, kit)
    return [*found], [json.loads(content) for content in found.values()]


def test_our_three_programs_and_the_konnector_of_each_app_cluster_are_asked():
    konnectors = [f"konnector-{one.id}" for one in MEMBERS[1:]]
    assert ["klutchctl", "klutch-bind", "klutch-osb", *konnectors] == NAMES
    _, (configuration, rules) = settings()
    jobs = {
        one["job_name"]: one["static_configs"][0]["targets"]
        for one in configuration["scrape_configs"]
    }
    assert jobs == {name: [f"127.0.0.1:{port}"] for name, port in PORTS.programs.items()}
    assert rules == {"groups": KIT.groups}


def test_a_program_is_given_the_flag_that_it_has():
    assert server.flag(PORTS, "klutchctl") == "--listen=127.0.0.1:20011"
    assert server.flag(PORTS, "konnector-app-1") == "--metrics-address=127.0.0.1:20014"


def test_it_listens_on_loopback_and_keeps_little():
    made = server.server(Layout(Path("/box")), PORTS, KIT)
    assert "--web.listen-address=127.0.0.1:20010" in made.arguments
    assert [one for one in made.arguments if "retention.size" in one]
    # Neither its API for administrators nor that for its lifecycle.
    assert not [one for one in made.arguments if "enable" in one]
    assert made.ports == (20010,)


@pytest.mark.parametrize(
    ("ports", "kit"),
    [
        (MonitoringPorts(20010, {**PORTS.programs, "konnector-app-3": 20020}), KIT),
        (PORTS, MonitoringKit(KIT.executable, [{"name": "y", "rules": []}])),
    ],
)
def test_another_configuration_is_another_command(ports, kit):
    layout = Layout(Path("/box"))
    before = server.server(layout, PORTS, KIT)
    assert server.server(layout, PORTS, KIT).digest == before.digest
    assert server.server(layout, ports, kit).digest != before.digest


def test_files_are_private_and_older_configurations_go(tmp_path):
    layout = Layout(tmp_path)
    starting.ensure_files(layout, PORTS, KIT)
    more = MonitoringPorts(20010, {**PORTS.programs, "konnector-app-3": 20020})
    starting.ensure_files(layout, more, KIT)
    assert len([*layout.monitoring.glob("config-*")]) == 1
    assert (layout.monitoring / "konnector-app-3.flags").read_text().split() == [
        "--metrics-address=127.0.0.1:20020"
    ]
    modes = {one.stat().st_mode & 0o077 for one in layout.monitoring.rglob("*")}
    assert modes == {0}


def test_a_state_keeps_the_ports_of_its_prometheus_and_reads_itself():
    assert state.with_monitoring(KNOWN, NAMES, new_ports=from_port(9)) == KNOWN
    assert state_file.parse(state_file.dump(KNOWN), source="x", removal="") == KNOWN
    assert json.loads(state_file.dump(KNOWN))["version"] == 4
    first = state.with_monitoring(State(1, 2, ()), ["a", "b"], new_ports=from_port(20010))
    assert first.monitoring is not None
    assert {20010} < {*first.ports}
    more = state.with_monitoring(KNOWN, [*NAMES, "konnector-app-3"], new_ports=from_port(9))
    assert more.monitoring == MonitoringPorts(20010, {**PORTS.programs, "konnector-app-3": 9})
    moved = state.with_new_ports(KNOWN, [20010, 20012], new_ports=from_port(8))
    assert moved.monitoring == MonitoringPorts(8, {**PORTS.programs, "klutch-bind": 9})
    assert {20010, *PORTS.programs.values()} <= {*KNOWN.ports}


def test_status_says_where_to_look_and_what_to_give_to_programs():
    layout = Layout(Path("/box"))
    text = report.as_text(layout, Status(KNOWN, ()), now=0.0)
    assert "Prometheus: http://127.0.0.1:20010" in text
    assert "konnector-app-1 --metrics-address=127.0.0.1:20014" in text
    facts = json.loads(report.as_json(layout, Status(KNOWN, ())))["monitoring"]
    assert facts["url"] == "http://127.0.0.1:20010"
    assert facts["flags"].keys() == PORTS.programs.keys()


def program(folder, name):
    folder.mkdir()
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_prometheus_that_is_named_comes_before_that_of_path(tmp_path):
    named = program(tmp_path / "named", "prom-3")
    on_path = program(tmp_path / "path", "prometheus")
    environ = {"PATH": str(on_path.parent)}
    assert starting.find(environ).executable == on_path
    assert starting.find({**environ, "PROMETHEUS": str(named)}).executable == named
    assert {group["name"] for group in starting.find(environ).groups} > {"klutchctl-units"}


@pytest.mark.parametrize(
    ("environ", "said"),
    [({"PATH": "/nowhere"}, "on PATH"), ({"PROMETHEUS": "/nowhere/x"}, "/nowhere/x")],
)
def test_without_one_the_command_that_installs_it_is_named(environ, said):
    with pytest.raises(HostError, match=said) as caught:
        starting.find(environ)
    assert "apt-get install --no-install-recommends prometheus" in (caught.value.hint or "")
