"""A real process that is ended in the middle of an apply, by a signal that it may hear or not."""

import asyncio
import json
import signal

import pytest

from reconciler.core import names
from reconciler.core.manifest import get_text
from reconciler.core.refs import LEASE, Ref
from reconciler.fleet.values import Mode
from tests.support.apply_runs import staged
from tests.support.applying import KLUTCHCTL
from tests.support.eventually import eventually


@pytest.fixture(params=[Mode.DIRECT, Mode.APP_CLUSTER_BINDING], ids=["direct", "acb"])
async def scene(request, control_plane, app_cluster, namespace, tmp_path):
    where = {"namespace": namespace, "mode": request.param, "folder": tmp_path}
    async with staged(control_plane, app_cluster, **where) as scene:
        yield scene


async def ended(scene, number):
    """Apply without peers, and end the process where it waits for them; return what it came to.

    Without a backend it waits after it has asked for an export, and with --wait for Ready.
    """
    scene.fleet.write()
    mark = scene.plane.audit.mark()
    last = "apiserviceexportrequests" if scene.fleet.mode is Mode.DIRECT else "appclusterbindings"
    process = await asyncio.create_subprocess_exec(
        KLUTCHCTL,
        "--kubeconfig",
        str(scene.kubeconfig),
        "apply",
        str(scene.fleet.folder),
        "--auto-approve",
        "--wait",
        "-o",
        "json",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        # What is in the log may not have been answered yet; so it is, once it can be read.
        asked = scene.request if scene.fleet.mode is Mode.DIRECT else scene.whole
        await eventually(
            lambda: any(
                write.resource == last and write.verb == "create"
                for write in scene.plane.audit.writes_since(mark)
            ),
        )
        await eventually(lambda: scene.at(asked))
        process.send_signal(number)
        out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, out.decode(), err.decode()


async def holder(scene):
    name = names.lock_lease(scene.fleet.name)
    lease = await scene.at(Ref(scene.plane.name, LEASE, names.KLUTCH_NAMESPACE, name))
    assert lease is not None
    return get_text(lease, "spec", "holderIdentity")


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


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(Mode.DIRECT, id="direct"),
        pytest.param(Mode.APP_CLUSTER_BINDING, id="acb", marks=pytest.mark.soak),
    ],
    indirect=True,
)
@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
async def test_an_interrupted_apply_tells_what_it_did_and_gives_the_lock_back(
    number, expected, scene
):
    code, out, err = await ended(scene, number)
    assert code == expected, err
    report = json.loads(out)
    assert report["ended"] == f"ended by {number.name}"
    told = {one["kind"]: one["status"] for one in report["outcomes"]}
    if scene.fleet.mode is Mode.DIRECT:
        assert told["APIServiceExportRequest"] == "done"
        assert told["APIServiceBinding"] == "interrupted"
        assert await scene.at(scene.binding) is None
    assert "Traceback" not in err
    assert await holder(scene) == ""
    async with scene.peers():
        await scene.apply("--wait")
    assert await scene.lines() == []
