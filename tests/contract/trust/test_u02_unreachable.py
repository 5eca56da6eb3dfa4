"""U2: a binding says within 20 s that its control plane does not answer, and that it does again."""

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from reconciler.core.times import moment
from tests.support.bound_scenes import Scene, conditions, says, until
from tests.support.konnector import konnector
from tests.support.tcp_proxy import CLEAR, STALLED, TcpProxy

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
