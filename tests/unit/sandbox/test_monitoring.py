"""The Prometheus of a sandbox: whom it asks, where it listens, and where it is found."""

from pathlib import Path

from klutchctl.sandbox.addons import monitoring
from klutchctl.sandbox.addons.monitoring import MonitoringKit
from klutchctl.sandbox.state import Layout, Member, MonitoringPorts, Role, State

MEMBERS = (
    Member("cp", Role.CONTROL_PLANE, 20001),
    Member("app-1", Role.APP_CLUSTER, 20002),
    Member("App:2", Role.APP_CLUSTER, 20003),
)
NAMES = [*monitoring.programs(MEMBERS)]
PORTS = MonitoringPorts(20010, dict(zip(NAMES, range(20011, 20016), strict=True)))
KIT = MonitoringKit(Path("/usr/bin/prometheus"), [{"name": "x", "rules": []}])
KNOWN = State(1, 2, MEMBERS, monitoring=PORTS)


def test_files_are_private_and_older_configurations_go(tmp_path):
    layout = Layout(tmp_path)
    monitoring.ensure_files(layout, PORTS, KIT)
    more = MonitoringPorts(20010, {**PORTS.programs, "konnector-app-3": 20020})
    monitoring.ensure_files(layout, more, KIT)
    assert len([*layout.monitoring.glob("config-*")]) == 1
    assert (layout.monitoring / "konnector-app-3.flags").read_text().split() == [
        "--metrics-address=127.0.0.1:20020"
    ]
    modes = {one.stat().st_mode & 0o077 for one in layout.monitoring.rglob("*")}
    assert modes == {0}
