"""A PostgreSQL of a sandbox that is killed leaves nothing in the kernel, on a real server."""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen
from types import SimpleNamespace

import pytest

from klutchctl.sandbox import postgresql
from tests.support.postgresql import served

SEGMENTS = Path("/proc/sysvipc/shm")

pytestmark = pytest.mark.skipif(not SEGMENTS.exists(), reason="only Linux tells the segments")


def segments():
    """Return the keys of what there is."""
    return {int(line.split()[0]) for line in SEGMENTS.read_text().splitlines()[1:]}


def lock_of(server):
    """Return the lines of what names the server's process and segment."""
    ((data,),) = server.ask("SHOW data_directory")
    return Path(data, "postmaster.pid").read_text().splitlines()


def test_the_shared_memory_of_a_killed_server_goes_with_its_data():
    with served() as server:
        lock = lock_of(server)
        key = int(lock[6].split()[0])
        assert key in segments()
        assert server.ask("SHOW dynamic_shared_memory_type") == [("mmap",)]
        os.kill(int(lock[0]), signal.SIGKILL)
    assert key not in segments()


HOLDS = """
import ctypes, sys
ctypes.CDLL(None).shmat(int(sys.argv[1]), None, 0)
print(flush=True)
sys.stdin.read()
"""


def test_a_process_on_its_way_out_is_waited_for(monkeypatch):
    """Its environment, by which it is found, is gone before its memory."""
    with served() as server:
        lock = lock_of(server)
        key, segment = lock[6].split()
        last = Popen([sys.executable, "-c", HOLDS, segment], stdin=PIPE, stdout=PIPE, env={})
        assert last.stdout is not None
        last.stdout.readline()
        os.kill(int(lock[0]), signal.SIGKILL)
        slept = []

        def ends(seconds):
            slept.append(seconds)
            last.communicate()

        clock = SimpleNamespace(monotonic=time.monotonic, sleep=ends)
        monkeypatch.setattr(postgresql, "time", clock)
    assert len(slept) == 1
    assert int(key) not in segments()


def test_that_of_a_server_that_runs_stays():
    with served() as server:
        ((data,),) = server.ask("SHOW data_directory")
        postgresql.release_memory(Path(data))
        assert int(lock_of(server)[6].split()[0]) in segments()


@pytest.mark.parametrize("lock", [None, "", "1\n" * 6, "1\n" * 6 + "no numbers\n", "1\n" * 7])
def test_a_lock_that_names_nothing_takes_nothing_away(tmp_path, monkeypatch, lock):
    monkeypatch.setattr(ctypes, "CDLL", None)
    if lock is not None:
        (tmp_path / "postmaster.pid").write_text(lock)
    postgresql.release_memory(tmp_path)
