"""A server that ends, stays silent, or hangs while it should become ready."""

import os
import signal

import pytest

from klutchctl import files
from klutchctl.sandbox import processes, startup
from klutchctl.sandbox.control_planes import Program
from klutchctl.sandbox.layout import Layout
from reconciler.core.errors import HostError
from tests.support.eventually import eventually
from tests.support.quiet import Quiet
from tests.support.stand_ins import SLEEPS, stand_in


@pytest.fixture
def layout(tmp_path):
    layout = Layout(tmp_path / "box")
    layout.root.mkdir()
    yield layout
    processes.stop(processes.observe(layout), grace=0.1)


def ensure(layout, stage, etcd):
    startup.ensure_running(layout, stage, {Program.ETCD: etcd}, progress=Quiet())


ENDS = {
    "its last error is shown": (
        "print('I0101 fine'); print('E0101 bad certificate'); raise SystemExit(1)",
        r"etcd ended while it started\. Its log .*/etcd\.log ends with:\n  E0101 bad certificate$",
    ),
    "a full disk is told as one": (
        'print(\'{"level":"fatal","error":"no space left on device"}\')',
        r"(?s)while it started\. Make room on the disk .*no space left",
    ),
}


@pytest.mark.parametrize(("code", "says"), ENDS.values(), ids=ENDS.keys())
def test_a_server_that_ends(layout, etcd, code, says):
    with pytest.raises(HostError, match=says):
        ensure(layout, [stand_in(layout, "etcd", code)], etcd)


def test_a_server_that_never_becomes_ready(layout, etcd, monkeypatch):
    monkeypatch.setattr(startup, "_START_DEADLINE", 0.3)
    with pytest.raises(HostError, match="was not ready after"):
        ensure(layout, [stand_in(layout, "etcd", SLEEPS)], etcd)


LOOKS = {
    "a moment without a command line, looked at twice": "seen missed missed seen",
    "moments that do not follow each other": "seen missed missed " * 3,
}


@pytest.mark.parametrize("script", LOOKS.values(), ids=LOOKS.keys())
def test_a_process_that_is_becoming_a_server_has_not_ended(layout, etcd, monkeypatch, script):
    looks, observe = script.split(), processes.observe
    monkeypatch.setattr(startup, "is_ready", lambda server, process: not looks)
    monkeypatch.setattr(startup, "_POLL", 0.0)
    monkeypatch.setattr(
        processes, "observe", lambda layout: observe(layout) if looks.pop(0) == "seen" else ()
    )
    ensure(layout, [stand_in(layout, "etcd", SLEEPS)], etcd)
    assert looks == []
    assert len(observe(layout)) == 1


async def test_a_server_that_hangs_is_restarted(layout, etcd, monkeypatch):
    monkeypatch.setattr(startup, "_RECOVERY_GRACE", 0.1)
    monkeypatch.setattr(startup, "_START_DEADLINE", 0.3)
    monkeypatch.setattr(startup, "STOP_GRACE", 0.1)
    hanging = stand_in(layout, "etcd", SLEEPS)
    processes.start(hanging, etcd)
    await eventually(lambda: "up" in hanging.log.read_text())
    (before,) = processes.observe(layout)
    os.kill(before.pid, signal.SIGSTOP)
    with pytest.raises(HostError, match="was not ready after"):
        ensure(layout, [hanging], etcd)
    # The new process may be between its fork and its program: without a command line of its own.
    await eventually(lambda: processes.observe(layout))
    (after,) = processes.observe(layout)
    assert after.pid != before.pid


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    target = tmp_path / "state.json"
    files.write(target, b"old")

    def fails(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="No space"):
        files.write(target, b"new")
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_folder_is_complete_or_absent(tmp_path, monkeypatch):
    def fails(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(OSError, match="No space"):
            files.write_folder(tmp_path / "deep" / "pki", {"ca.crt": b"x"})
    assert list((tmp_path / "deep").iterdir()) == []
    files.write_folder(tmp_path / "deep" / "pki", {"ca.crt": b"x"})
    assert (tmp_path / "deep" / "pki" / "ca.crt").read_bytes() == b"x"
