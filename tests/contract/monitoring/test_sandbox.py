"""`klutchctl sandbox up --monitoring`: Prometheus comes, is kept, and goes, as other servers do."""

import os

import pytest

from klutchctl.sandbox import lifecycle, processes
from klutchctl.sandbox.addons import monitoring
from klutchctl.sandbox.addons.addon import Request
from klutchctl.sandbox.lifecycle import Plan
from klutchctl.sandbox.state import app_clusters, layout_of
from klutchctl.settings import Settings
from tests.support import prometheus
from tests.support.quiet import Quiet


@pytest.fixture
def layout(tmp_path):
    layout = layout_of("metered", state_home=tmp_path)
    yield layout
    lifecycle.down(layout, delete=True, progress=Quiet())


@pytest.fixture
def up(layout, programs):
    """Bring the sandbox up as the command does, and return the pid of Prometheus, if it runs."""
    prometheus.found("prometheus")
    kit = monitoring.find(Request(layout, Settings(os.environ), None))
    ports = processes.port_range(os.environ[processes.PORTS_VARIABLE])

    def bring(**kits):
        plan = Plan(programs, app_clusters(0), ports=ports, addons=kits)
        lifecycle.up(layout, plan, progress=Quiet())
        return pid(layout)

    return bring, kit


def pid(layout):
    identity = processes.identity(layout, monitoring.NAME)
    found = [one.pid for one in processes.observe(layout) if one.identity == identity]
    assert len(found) <= 1
    return found[0] if found else None


def test_prometheus_runs_until_it_is_sent_away(layout, up):
    bring, kit = up
    first = bring(monitoring=kit)
    assert first is not None
    assert bring(monitoring=kit) == first
    assert bring() == first  # by who knows nothing of it
    status = lifecycle.status(layout)
    assert status is not None
    assert [one.server.name for one in status.servers if one.ready][-1] == "Prometheus"
    assert bring(monitoring=None) is None
    known = lifecycle.load(layout)
    assert known is not None
    assert known.monitoring is None
    assert bring(monitoring=kit) is not None
    lifecycle.down(layout, delete=False, progress=Quiet())
    assert pid(layout) is None
