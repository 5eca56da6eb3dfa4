"""U3: an APIServiceBinding that is deleted plainly is released: nothing is lost or stuck."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from reconciler.core import keys
from reconciler.core.manifest import annotations_of, finalizers_of
from reconciler.core.refs import SECRET
from reconciler.core.times import moment
from tests.support.bound_scenes import ACCEPTED, Scene, conditions, gone, says, until
from tests.support.eventually import eventually
from tests.support.konnector import konnector
from tests.support.konnector_claims import bound, data, is_idle
from tests.support.konnector_scenes import sides, warns
from tests.support.tcp_proxy import CLEAR, STALLED, TcpProxy


async def freed(scene: Scene, name: str = "orders") -> bool:
    return keys.SYNCER not in finalizers_of(await scene.instance(name))


async def test_a_plain_deletion_is_a_release(scene: Scene) -> None:
    async with scene.backend(), konnector(scene.app.connection) as made:
        there, here = await bound(scene, ACCEPTED)
        await there.make(SECRET, "creds", **data("one"))
        await until(lambda: here.holds(SECRET, "creds", "one"))
        await scene.create_instance("second", size="1Gi")
        await until(lambda: scene.copy("second"))
        before = await scene.copy()
        await scene.unbind()
        await until(lambda: gone(scene.binding()))
        for name in ("orders", "second"):
            await until(partial(freed, scene, name))
            notes = annotations_of(await scene.copy(name))
            assert keys.RELEASED in notes
            assert keys.BOUND not in notes
            said = conditions(await scene.instance(name))["Synced"]
            assert (said["status"], said["reason"]) == ("False", "BindingReleased")
        await until(lambda: warns(scene))
        await until(lambda: says(scene.export(), "Connected", "False", "APIServiceBindingNotFound"))
        # A developer can delete what is left; neither data nor credentials go along.
        mine, theirs = sides(scene)
        await mine.delete("second")
        await until(lambda: mine.gone("second"))
        await eventually(lambda: is_idle(made))
        assert not await theirs.goes("second")
        assert await here.holds(SECRET, "creds", "one")

        # Bound again, it goes on with the same service.
        await scene.bind(ACCEPTED)
        await until(lambda: says(scene.binding(), "Connected"))
        await mine.patch({"spec": {"size": "2Gi"}})
        await until(lambda: theirs.has_spec({"size": "2Gi"}))
        copy = await scene.copy()
        assert copy["metadata"]["uid"] == before["metadata"]["uid"]
        assert keys.RELEASED not in annotations_of(copy)
        assert "Synced" not in conditions(await scene.instance())
        assert not await warns(scene)


REPORTED, BACK = 20.0, 5.0  # seconds
SILENT = ("Connected", "False", "ControlPlaneUnreachable")


async def bound_by(line: TcpProxy, scene: Scene) -> None:
    led = replace(scene.plane, connection=replace(scene.plane.connection, server=line.url))
    await replace(scene, plane=led).make_space()
    await scene.request()
    await scene.bind()
    await until(lambda: says(scene.binding(), "Ready"))


@pytest.mark.parametrize("how", ["silence", pytest.param("refusal", marks=pytest.mark.soak)])
async def test_a_way_that_is_cut_is_reported_and_that_it_is_back(scene: Scene, how: str) -> None:
    async with (
        TcpProxy(scene.plane.connection.server) as line,
        scene.backend(),
        konnector(scene.app.connection),
    ):
        await bound_by(line, scene)
        cut_at = datetime.now(UTC)
        if how == "silence":
            line.let(up=STALLED, down=STALLED)
        else:
            line.refuse()
            line.cut()
        await until(lambda: says(scene.binding(), *SILENT), within=REPORTED)
        reported = conditions(await scene.binding())
        assert reported["Connected"]["severity"] == "Warning"
        assert (reported["Ready"]["status"], reported["Ready"]["reason"]) == ("False", SILENT[2])
        since = moment(
            reported["Ready"]["message"].partition("since ")[2].partition(".")[0].split()[0]
        )
        assert since is not None
        assert abs(since - cut_at) < timedelta(seconds=10)

        if how == "silence":
            line.let(up=CLEAR, down=CLEAR)
        else:
            await line.accept()
        began = time.monotonic()
        await until(lambda: says(scene.binding(), "Connected"))
        await until(lambda: says(scene.binding(), "Ready"))
        assert time.monotonic() - began < BACK


async def test_a_konnector_that_starts_while_the_way_is_cut_tells_it_too(scene: Scene) -> None:
    async with TcpProxy(scene.plane.connection.server) as line, scene.backend():
        async with konnector(scene.app.connection):
            await bound_by(line, scene)
        line.refuse()
        line.cut()
        async with konnector(scene.app.connection):
            await until(lambda: says(scene.binding(), *SILENT), within=REPORTED)
            assert not await says(scene.binding(), "Ready")
            await line.accept()
            await until(lambda: says(scene.binding(), "Connected"))
            await until(lambda: says(scene.binding(), "Ready"))
