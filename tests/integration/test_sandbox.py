"""`klutchctl sandbox` on real servers: idempotent, repaired after any crash, gone after down."""

import asyncio
import json
import os
import signal
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from klutchctl.sandbox import processes
from klutchctl.sandbox.servers import Program
from klutchctl.sandbox.state import Layout
from reconciler.controller.program import connection
from reconciler.core.refs import CRD, NAMESPACE, Ref
from reconciler.kube.client import KubeCluster
from tests.support import deployed
from tests.support.deployed import Right
from tests.support.eventually import eventually
from tests.support.programs import furnished


# The tests share one machine, since a sandbox takes seconds to start; each asks for the state that
# it needs, so that it runs alone too, in the second chance of CI.
@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, programs: Mapping[Program, Path]):
    found = furnished(tmp_path_factory.mktemp("machine"), programs)
    yield found
    for sandbox in (found.home / "state/klutchctl/sandbox").glob("[a-z]*"):
        processes.stop(processes.observe(Layout(sandbox)), grace=10)


@pytest.fixture
async def running(machine):
    if len(machine.pids()) != 5:
        await machine.up("--app-clusters", "1")
    return machine


@pytest.fixture
async def another(machine):
    """The machine with a second sandbox that runs, beside the first or alone."""
    if len(machine.pids("other")) != 3:
        await machine.up("--name", "other", "--app-clusters", "0")
    return machine


def runs(pid: int) -> bool:
    """A zombie does not run: it only waits for the machine's first process to notice."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_listening(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


async def test_two_first_ups_at_once_start_one_sandbox_and_say_how_to_reach_it(machine):
    answer, other = await asyncio.gather(*[machine.up("--app-clusters", "1") for _ in range(2)])
    assert answer.out == other.out
    assert (answer.err + other.err).count(
        "waiting for another run that works on this sandbox\n"
    ) == 1
    kubeconfig = machine.layout().kubeconfig
    assert answer.out.splitlines() == [
        "Sandbox default is ready: control-plane, app-1",
        f"Kubeconfig: {kubeconfig}",
        f"Try: kubectl --kubeconfig {kubeconfig} --context app-1 get crd",
    ]
    assert (
        "Using etcd, kube-apiserver, kube-controller-manager from KUBEBUILDER_ASSETS" in answer.err
    )
    assert kubeconfig.stat().st_mode & 0o777 == 0o600
    assert machine.layout().root.stat().st_mode & 0o777 == 0o700
    assert len(machine.pids()) == 5


async def test_every_cluster_has_its_crds(running):
    names = {}
    for context in ("control-plane", "app-1"):
        async with running.connect(context) as cluster:
            crds = await cluster.list(CRD)
            names[context] = {str(crd["metadata"]["name"]).partition(".")[0] for crd in crds.items}
    assert names == {
        "app-1": {"apiservicebindings"},
        "control-plane": {
            "apiservicebindings",
            "apiserviceexportrequests",
            "apiserviceexports",
            "apiserviceexporttemplates",
            "apiservicenamespaces",
            "appclusterbindings",
            "clusterbindings",
            "fleetstatuses",
        },
    }


async def test_strangers_get_nothing_from_etcd(running):
    """Other users of the machine can reach its ports, but have no certificate."""
    anonymous = ssl.create_default_context()
    anonymous.check_hostname, anonymous.verify_mode = False, ssl.CERT_NONE
    for port in running.ports()[:2]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=anonymous)
        writer.write(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await reader.read()
        writer.transport.abort()


async def test_status_tells_the_health_of_every_server(running):
    answer = await running.sandbox("status", "-o", "json")
    assert answer.code == 0
    document = json.loads(answer.out)
    assert document["healthy"] is True
    assert [cluster["context"] for cluster in document["clusters"]] == ["control-plane", "app-1"]
    text = await running.sandbox("status")
    assert text.code == 0
    assert text.out.count(" ready ") == 5


async def test_a_killed_api_server_is_repaired_and_nothing_else_is_touched(running):
    before = running.pids()
    await running.remember("app-1", "precious")
    os.kill(before["kube-apiserver of app-1"], signal.SIGKILL)
    await eventually(lambda: "kube-apiserver of app-1" not in running.pids())
    sick = await running.sandbox("status")
    assert sick.code == 1
    assert "stopped" in sick.out
    await running.up()
    after = running.pids()
    assert after.pop("kube-apiserver of app-1") != before.pop("kube-apiserver of app-1")
    assert after == before
    assert await running.recall("app-1") == {"text": "precious"}


async def test_after_a_crash_of_everything_the_data_and_the_addresses_are_back(running):
    kubeconfig = running.layout().kubeconfig.read_bytes()
    await running.remember("app-1", "precious")
    pids = running.pids()
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not running.pids())
    await running.up()
    assert running.layout().kubeconfig.read_bytes() == kubeconfig
    assert await running.recall("app-1") == {"text": "precious"}


OURS = ("klutch-bind of control-plane", "konnector of app-1")


async def rights_of(machine, program):
    """Return what the account of a program of ours may do in a namespace of others."""
    name, _, context = program.partition(" of ")
    kubeconfig = machine.layout().cluster(context) / f"{name}.kubeconfig"
    way = connection(str(kubeconfig), environ={}, home=machine.home, name=context)
    async with KubeCluster(way) as cluster:
        return await deployed.rights_in(cluster, "default")


async def test_programs_of_ours_run_with_little_rights_and_are_repaired_until_not_wanted(running):
    before = running.pids()
    await running.up("--programs")
    programs = {name: pid for name, pid in running.pids().items() if name not in before}
    assert {*programs} == {*OURS}
    for program in OURS:
        rights = await rights_of(running, program)
        assert Right("", "namespaces", "list") in rights
        assert {one.verb for one in rights if one.resource in ("*", "pods")} == set()
    for pid in programs.values():
        os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not set(OURS) & set(running.pids()))
    sick = await running.sandbox("status")
    assert (sick.code, sick.out.count("stopped")) == (1, 2)
    await running.up()  # they are remembered
    after = running.pids()
    assert {name for name in after if after[name] != before.get(name)} == {*OURS}
    await running.up("--no-programs")
    assert running.pids() == before
    assert len(processes.observe(running.layout())) == len(before)


async def test_fewer_clusters_than_there_are_is_refused(running):
    answer = await running.sandbox("up", "--app-clusters", "0")
    assert answer.code == 3
    assert "would be left out: app-1" in answer.err
    assert len(running.pids()) == 5


@pytest.mark.soak
async def test_a_taken_port_is_named_with_its_holder_and_can_be_replaced(another):
    etcd, peer, api_server = another.ports("other")
    await another.sandbox("down", "--name", "other")
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", etcd))
        thief.listen()
        refused = await another.sandbox("up", "--name", "other")
        assert refused.code == 1
        holder = f"{psutil.Process().name()} (pid {os.getpid()})"
        assert f"port {etcd} of this sandbox is in use by {holder}" in refused.err
        assert "--reassign-ports" in refused.err
        assert another.pids("other") == {}
        await another.up("--name", "other", "--reassign-ports")
        assert another.ports("other")[1:] == (peer, api_server)
        assert another.ports("other")[0] != etcd
        async with another.connect("control-plane", "other") as cluster:
            assert await cluster.get(Ref("", NAMESPACE, "", "default"))


async def test_down_leaves_no_process_and_no_port_and_spares_the_other_sandbox(running, another):
    ports = running.ports()
    assert all(map(is_listening, ports))
    pids = running.pids()
    answer = await running.sandbox("down")
    assert (answer.code, answer.out) == (0, "Sandbox default: 5 processes stopped\n")
    assert not any(map(runs, pids.values()))
    assert not any(map(is_listening, ports))
    assert len(running.pids("other")) == 3
    assert running.layout().etcd_data.is_dir()
