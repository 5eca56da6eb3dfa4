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
from klutchctl.sandbox.servers import Launch, LifeProbe, Owner, Program, Server
from klutchctl.sandbox.state import Layout
from reconciler.core.errors import HostError
from tests.support.eventually import eventually
from tests.support.stand_ins import NOWHERE, SLEEPS, stand_in


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


STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPS}"


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


async def test_a_pipe_of_who_starts_them_is_not_held_open(layouts, etcd):
    """Event loops hand copies of their streams on, and whoever reads ours waits for the end."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    server = stand_in(layouts[0], "a", SLEEPS)
    processes.start(server, etcd)
    os.close(writing)
    await says_up(server)
    os.set_blocking(reading, False)
    assert os.read(reading, 1) == b""
    os.close(reading)


async def test_what_ignores_the_request_is_killed(layouts, etcd):
    ours, _ = layouts
    server = stand_in(ours, "a", STUBBORN)
    processes.start(server, etcd)
    await says_up(server)
    processes.stop(processes.observe(ours), grace=0.2)
    assert processes.observe(ours) == ()


def test_a_pid_that_is_somebody_elses_by_now_is_left_alone():
    ourselves = Observed(os.getpid(), (), started=1.0)
    processes.stop([ourselves], grace=0)  # else this test would end here


def test_how_a_child_ended_is_left_to_those_who_started_it():
    """`down` in the process that waits for initdb, as tests have it, must not take its status."""
    child = subprocess.Popen([sys.executable, "-c", SLEEPS], stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout as output:
        assert output.readline() == b"up\n"
    started = psutil.Process(child.pid).create_time()
    processes.stop([Observed(child.pid, (), started)], grace=60)
    assert child.wait() == -signal.SIGTERM


def test_a_damaged_executable_is_named_with_a_way_out(layouts, tmp_path):
    ours, _ = layouts
    broken = tmp_path / "etcd"
    broken.write_bytes(b"\x7fELF and no more")
    broken.chmod(0o755)
    with pytest.raises(HostError, match=f"{broken} does not start.*delete {tmp_path}"):
        processes.start(stand_in(ours, "a", SLEEPS), broken)


def marked(layout, name, code, **launch):
    """A process of the user's own, which names nothing of the sandbox."""
    return Server(
        name=name,
        program=name,
        cluster_id="",
        arguments=("-c", code),
        identity=processes.identity(layout, name),
        log=layout.root / f"{name}.log",
        ports=(),
        probe=LifeProbe(0),
        launch=Launch(Path(sys.executable), layout.root, **launch),
    )


PARENT = f"""
import subprocess
import sys
print(subprocess.Popen([sys.executable, '-c', {SLEEPS!r}]).pid, 'up', flush=True)
import signal
signal.pause()
"""


async def started(server):
    processes.start(server, server.launch.executable)
    await says_up(server)


async def test_a_marked_process_is_found_by_its_sandbox_and_knows_its_folder(layouts):
    ours, other = layouts
    server = marked(ours, "a", f"import os; print(os.getcwd()); {SLEEPS}", environment={"A": "b"})
    await started(server)
    (found,) = processes.observe(ours)
    assert processes.running(server, [found]) == found
    assert processes.decide([server], [found]) == Decision((), ())
    assert server.log.read_text().splitlines()[0] == str(ours.root)
    assert psutil.Process(found.pid).environ()["A"] == "b"
    assert processes.observe(other) == ()


async def test_what_a_process_started_is_its_own_until_it_is_left_alone(layouts):
    ours, _ = layouts
    server = marked(ours, "a", PARENT)
    await started(server)
    child = int(server.log.read_text().split()[0])
    (parent,) = processes.observe(ours)
    os.kill(parent.pid, signal.SIGKILL)
    await eventually(lambda: [one.pid for one in processes.observe(ours)] == [child])
    assert processes.running(server, processes.observe(ours)) is None
    decision = processes.decide([server], processes.observe(ours))
    assert ([one.pid for one in decision.stop], decision.start) == ([child], (server,))
    processes.stop(processes.observe(ours), grace=60)
    assert processes.observe(ours) == ()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may run as somebody else")
def test_another_user_has_no_group_and_no_right_of_ours():
    command = processes.launcher(Path("/"), Owner(65534, 65534))
    asked = subprocess.run([*command, "/usr/bin/id"], capture_output=True, text=True, check=True)
    assert "uid=65534" in asked.stdout
    assert "gid=65534" in asked.stdout
    assert "=0(" not in asked.stdout
