"""The process of `klutchctl apply` on real clusters: questions, signals, pipes, and its lock."""

import asyncio
import contextlib
import json
import os
import signal
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pygit2
import pytest
from pygit2.enums import ResetMode

from reconciler.apply import Options
from reconciler.apply.lock import Lock
from reconciler.controller.fence import WriteFence
from reconciler.core import names
from reconciler.core.manifest import get_text
from reconciler.core.refs import CONFIG_MAP, LEASE, Ref
from reconciler.fleet.values import Mode
from reconciler.kube.client import KubeCluster
from reconciler.kube.limits import Limits
from reconciler.observe import Pace
from tests.support import controllers, modes, programs
from tests.support.apply_runs import mode, scene
from tests.support.applying import KLUTCHCTL
from tests.support.checkouts import commit_work_tree
from tests.support.eventually import eventually
from tests.support.fleet_states import fleet

__all__ = ["mode", "scene"]


@asynccontextmanager
async def applying(scene, *arguments, **streams):
    """Run `klutchctl apply`; it does not outlive the block."""
    scene.fleet.write()
    program = await asyncio.create_subprocess_exec(
        *(KLUTCHCTL, "--kubeconfig", str(scene.kubeconfig), "apply", str(scene.fleet.folder)),
        *arguments,
        **{"stdin": asyncio.subprocess.DEVNULL, "stdout": asyncio.subprocess.PIPE, **streams},
    )
    try:
        yield program
    finally:
        if program.returncode is None:
            program.kill()
            await program.wait()


def nothing_is_written(scene, marks):
    return [
        write
        for audit, mark in marks
        for write in audit.writes_since(mark)
        if write.agent == "klutchctl"
    ] == []


async def test_nothing_is_applied_that_nobody_approved(scene):
    marks = scene.marks()
    async with applying(scene) as program:
        await program.communicate()
    assert program.returncode == 6
    assert nothing_is_written(scene, marks)


async def test_one_interrupt_ends_the_question_and_nothing_is_written(scene):
    marks = scene.marks()
    terminal, end = os.openpty()
    try:
        async with applying(scene, stdin=end, stderr=asyncio.subprocess.PIPE) as program:
            os.close(end)
            await program.stdout.readuntil(b"Only `yes` does. ")
            program.send_signal(signal.SIGINT)
            _, reported = await asyncio.wait_for(program.communicate(), 60)
    finally:
        os.close(terminal)
    assert program.returncode == 130, reported.decode()
    assert b"Traceback" not in reported
    assert nothing_is_written(scene, marks)


async def test_an_apply_goes_on_though_nobody_reads_its_progress(scene):
    reading, writing = os.pipe()
    os.close(reading)
    arguments = "--auto-approve", *scene.options
    async with scene.peers(), applying(scene, *arguments, stderr=writing) as program:
        os.close(writing)
        reported, _ = await program.communicate()
    assert program.returncode == 0, reported.decode()
    assert await scene.lines() == []


async def ended(scene, number):
    """Apply without peers, and end the process where it waits for them; return what it came to.

    Without a backend it waits after it has asked for an export, and with --wait for Ready.
    """
    mark = scene.plane.audit.mark()
    last = "apiserviceexportrequests" if scene.fleet.mode is Mode.DIRECT else "appclusterbindings"
    arguments = "--auto-approve", "--wait", "-o", "json"
    async with applying(scene, *arguments, stderr=asyncio.subprocess.PIPE) as program:
        # What is in the log may not have been answered yet; so it is, once it can be read.
        asked = scene.request if scene.fleet.mode is Mode.DIRECT else scene.whole
        await eventually(
            lambda: any(
                write.resource == last and write.verb == "create"
                for write in scene.plane.audit.writes_since(mark)
            )
        )
        await eventually(lambda: scene.at(asked))
        program.send_signal(number)
        out, err = await program.communicate()
    return program.returncode, out.decode(), err.decode()


async def holder(scene):
    name = names.lock_lease(scene.fleet.name)
    lease = await scene.at(Ref(scene.plane.name, LEASE, names.KLUTCH_NAMESPACE, name))
    assert lease is not None
    return get_text(lease, "spec", "holderIdentity")


@pytest.mark.parametrize("mode", modes.both(Mode.DIRECT))
async def test_a_killed_apply_is_finished_by_the_next(scene):
    code, out, _ = await ended(scene, signal.SIGKILL)
    assert (code, out) == (-signal.SIGKILL, "")
    # In the other mode, all may be written by then, and nobody needs the lock any more.
    writes_are_left = scene.fleet.mode is Mode.DIRECT
    assert not writes_are_left or await holder(scene) != ""
    async with scene.peers():
        await scene.apply("--wait", "--break-lock")
    assert await scene.lines() == []
    assert not writes_are_left or await holder(scene) == ""


@pytest.mark.parametrize("mode", modes.both(Mode.DIRECT))
@pytest.mark.parametrize(
    ("number", "expected"),
    # Ctrl-C ends a question here, and `status`, which `make soak` ends by SIGTERM too.
    [pytest.param(signal.SIGINT, 130, marks=pytest.mark.soak), (signal.SIGTERM, 143)],
)
async def test_an_interrupted_apply_tells_what_it_did_and_gives_the_lock_back(
    number, expected, scene
):
    code, out, err = await ended(scene, number)
    assert code == expected, err
    report = json.loads(out)
    assert report["ended"] == f"ended by {number.name}"
    reported = {one["kind"]: one["status"] for one in report["outcomes"]}
    if scene.fleet.mode is Mode.DIRECT:
        assert reported["APIServiceExportRequest"] == "done"
        assert reported["APIServiceBinding"] == "interrupted"
        assert await scene.at(scene.binding) is None
    assert "Traceback" not in err
    assert await holder(scene) == ""
    async with scene.peers():
        await scene.apply("--wait")
    assert await scene.lines() == []


def lock_of(cluster, holder):
    options = Options(holder=holder, now=lambda: datetime.now(UTC), pace=Pace())
    return Lock(cluster, replace(fleet(""), name="busy-fleet"), options)


async def test_a_lock_does_not_wait_behind_the_work_that_it_guards(control_plane, namespace):
    async with lock_of(control_plane.cluster, "before").held(WriteFence(), break_it=False):
        pass  # the lease exists from now on
    slow = Limits(qps=0.001, burst=1, concurrency=1)
    async with KubeCluster(control_plane.connection, limits=slow) as busy, asyncio.timeout(60):
        anything = Ref(busy.name, CONFIG_MAP, namespace, "anything")
        await busy.get(anything)
        waiting = asyncio.ensure_future(busy.get(anything))
        async with lock_of(busy, "busy").held(WriteFence(), break_it=False):
            assert not waiting.done()
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting


async def test_an_older_commit_is_refused_until_it_is_reverted_to(scene):
    clone, commits = pygit2.init_repository(scene.fleet.folder, initial_head="main"), []
    async with scene.peers():
        for scene.fleet.bound in (True, False):
            scene.fleet.write()
            commits.append(commit_work_tree(clone))
            await scene.apply()
        marks, scene.fleet.bound = scene.marks(), True
        clone.reset(commits[0], ResetMode.HARD)
        assert "to go back, commit that: `git revert`" in (await scene.apply(code=7)).stderr
        assert nothing_is_written(scene, marks)
        clone.reset(commits[1], ResetMode.SOFT)
        commit_work_tree(clone)
        await scene.apply()
        assert await scene.at(scene.binding) is not None


async def test_a_commit_on_a_server_is_applied_once(scene, tmp_path):
    """The second run writes nothing, whatever the branch says by then."""
    with controllers.repository(scene, tmp_path) as files:
        commit = files.push()
        environ = {**os.environ, **files.environ, "HOME": str(tmp_path)}
        where = (*files.options[:2], "--ref", commit)

        async def run(command, *arguments):
            return await programs.klutchctl_beside(
                *("--kubeconfig", str(scene.kubeconfig), command, *where, *arguments),
                environ=environ,
            )

        async with scene.peers():
            marks = scene.marks()
            dry = await run("apply", "--dry-run", "--auto-approve")
            assert (dry.returncode, "APIService" in dry.stdout) == (0, True), dry.stderr
            assert nothing_is_written(scene, marks)
            first = await run("apply", "--auto-approve", "--wait", *scene.options)
            assert first.returncode == 0, first.stdout + first.stderr
            assert await scene.at(scene.binding) is not None
            scene.fleet.bound = False
            files.push()
            marks = scene.marks()
            again = await run("apply", "--auto-approve", "--wait", "-o", "json", *scene.options)
            assert (again.returncode, json.loads(again.stdout)["revision"]) == (0, commit)
            assert json.loads((await run("status", "-o", "json")).stdout)["revision"] == commit
            files.server.broken = True
            down = await run("apply", "--auto-approve")
            assert (down.returncode, "500" in down.stderr) == (1, True)
            files.server.broken = False
            where = (*where[:3], "f" * 40)
            gone = await run("apply", "--auto-approve")
            assert (gone.returncode, "is not in it" in gone.stderr) == (3, True)
            assert nothing_is_written(scene, marks)
