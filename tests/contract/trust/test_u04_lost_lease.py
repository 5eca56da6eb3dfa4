"""U4: who loses the lease stops working, says so, and stands for election again."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.bound_scenes import Scene
from tests.support.eventually import eventually
from tests.support.replicas import BACKEND, replicas
from tests.support.tcp_proxy import TcpProxy

PROGRAMS = {"klutch-bind": BACKEND, "konnector": (sys.executable, "-m", "konnector")}


@pytest.mark.parametrize(
    "program", [pytest.param("klutch-bind", marks=pytest.mark.soak), "konnector"]
)
async def test_a_cut_line_ends_the_work_and_not_the_process(
    scene: Scene, namespace: str, program: str, tmp_path: Path
) -> None:
    of_backend = program == "klutch-bind"
    live = scene.plane if of_backend else scene.app
    where = namespace if of_backend else scene.app_namespace
    async with TcpProxy(live.connection.server) as line:
        through = replace(live, connection=replace(live.connection, server=line.url))
        command = PROGRAMS[program]
        async with replicas(through, where, tmp_path, command=command) as made:
            only = await made.start()
            await made.leader(only)
            mark = live.audit.mark()
            line.cut()
            line.refuse()

            async def is_unready() -> bool:
                status, reported = await only.ask("/readyz")
                return status == 503 and "the lease was lost" in reported

            await eventually(is_unready, within=40)
            assert not await only.leads()
            assert (await only.ask("/healthz"))[0] == 200  # a restart would mend nothing
            await line.accept()
            await made.leader(only)
            assert only.process.returncode is None
            assert (await only.ask("/readyz"))[0] == 200
            assert [one for one in only.writes_since(mark) if one.verb == "delete"] == []
