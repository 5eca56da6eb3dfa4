"""What to stop and start, and how real processes are recognised."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from klutchctl.sandbox import processes
from klutchctl.sandbox.processes import Decision, Observed
from klutchctl.sandbox.servers import HttpsProbe, Owner, Program, Server
from klutchctl.sandbox.state import Layout
from tests.support.eventually import eventually

NOWHERE = HttpsProbe(1, "/readyz", Path("ca"), Path("crt"), Path("key"))
SLEEPS = "import signal; print('up', flush=True); signal.pause()"


def stand_in(layout: Layout, name: str, code: str) -> Server:
    """Return a server that runs `code`, for an executable called etcd that is Python."""
    identity = f"--data-dir={layout.root}/{name}"
    return Server(
        name=name,
        program=Program.ETCD,
        cluster_id="",
        arguments=("-c", code, identity),
        identity=identity,
        log=layout.root / f"{name}.log",
        ports=(),
        probe=NOWHERE,
    )


def server(name, *arguments, log=Path("/log")):
    return Server(
        name=name,
        program=Program.ETCD,
        cluster_id="",
        arguments=(f"--data-dir=/s/{name}", *arguments),
        identity=f"--data-dir=/s/{name}",
        log=log,
        ports=(),
        probe=NOWHERE,
    )


def process(pid, *arguments):
    return Observed(pid, arguments, started=0.0)


A, B = server("a"), server("b")
RUNS_A, RUNS_B = process(1, "--data-dir=/s/a"), process(2, "--data-dir=/s/b")
A_ELSEWHERE = process(3, "--data-dir=/s/a", "--port=7")
BOX = Layout(Path("/s"))
FORMER = Observed(5, (), started=0.0, identity=processes.identity(BOX, "operator"))
DECISIONS = {
    "a program that left the files stops": ([], [FORMER], Decision((FORMER,), ())),
    "what runs is left alone": ([A, B], [RUNS_A, RUNS_B], Decision((), ())),
    "what is absent starts": ([A, B], [RUNS_A], Decision((), (B,))),
    "all is absent after a crash": ([A, B], [], Decision((), (A, B))),
    "other arguments need a restart": ([A], [A_ELSEWHERE], Decision((A_ELSEWHERE,), (A,))),
    "a cluster nobody knows stops": ([A], [RUNS_A, RUNS_B], Decision((RUNS_B,), ())),
    "twins both stop, and one starts": (
        [A],
        [RUNS_A, process(9, "--data-dir=/s/a")],
        Decision((RUNS_A, process(9, "--data-dir=/s/a")), (A,)),
    ),
}


@pytest.mark.parametrize(
    ("wanted", "observed", "decision"), DECISIONS.values(), ids=DECISIONS.keys()
)
def test_decide(wanted, observed, decision):
    assert processes.decide(wanted, observed) == decision


def test_a_server_is_recognised_by_its_identity_alone():
    assert processes.running(A, [RUNS_B, A_ELSEWHERE]) == A_ELSEWHERE
    assert processes.running(A, [RUNS_B]) is None


@pytest.fixture
def layouts(tmp_path):
    """Two sandboxes, the name of one beginning with that of the other."""
    pair = Layout(tmp_path / "box"), Layout(tmp_path / "box-2")
    for layout in pair:
        layout.root.mkdir()
    yield pair
    for layout in pair:
        processes.stop(processes.observe(layout), grace=0.1)


async def says_up(server):
    await eventually(lambda: server.log.exists() and "up" in server.log.read_text())


async def test_processes_are_detached_and_found_by_their_sandbox_only(layouts, etcd, monkeypatch):
    monkeypatch.setenv("GOGC", "200")
    ours, other = layouts
    mine, theirs = stand_in(ours, "a", SLEEPS), stand_in(other, "a", SLEEPS)
    for each in (mine, theirs):
        processes.start(each, etcd)
        await says_up(each)
    (found,) = processes.observe(ours)
    assert found.arguments == mine.arguments
    assert os.getsid(found.pid) == found.pid
    assert mine.log.stat().st_mode & 0o777 == 0o600
    environment = psutil.Process(found.pid).environ()
    assert "HOME" not in environment
    assert environment["GOGC"] == "200"  # servers of tests collect garbage less often
    processes.stop([found], grace=60)
    assert processes.observe(ours) == ()
    assert len(processes.observe(other)) == 1


def test_the_exit_status_of_a_child_is_left_to_its_parent():
    with subprocess.Popen([sys.executable, "-c", SLEEPS], stdout=subprocess.PIPE) as child:
        assert next(iter(child.stdout or ())) == b"up\n"
        processes.stop([Observed(child.pid, (), psutil.Process(child.pid).create_time())], grace=60)
    assert child.returncode == -signal.SIGTERM


def test_a_pid_that_is_somebody_elses_by_now_is_left_alone():
    ourselves = Observed(os.getpid(), (), started=1.0)
    processes.stop([ourselves], grace=0)  # else this test would end here


@pytest.mark.skipif(os.getuid() != 0, reason="only root may run as somebody else")
def test_another_user_has_no_group_and_no_right_of_ours():
    command = processes.launcher(Path("/"), Owner(65534, 65534))
    asked = subprocess.run([*command, "/usr/bin/id"], capture_output=True, text=True, check=True)
    assert "uid=65534" in asked.stdout
    assert "gid=65534" in asked.stdout
    assert "=0(" not in asked.stdout
