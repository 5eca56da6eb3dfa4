"""T18: probes are for the kubelet, which anybody may be; metrics are for who may reach loopback."""

import asyncio
import sys
from pathlib import Path

import pytest

from reconciler.controller import flags
from tests.support.bound_scenes import Scene
from tests.support.replicas import BACKEND, replicas
from tests.support.watching import fetch

PROGRAMS = {"klutch-bind": BACKEND, "konnector": (sys.executable, "-m", "konnector")}


@pytest.mark.parametrize("program", PROGRAMS)
async def test_metrics_are_not_served_beside_the_probes(
    scene: Scene, namespace: str, program: str, tmp_path: Path
) -> None:
    of_backend = program == "klutch-bind"
    live = scene.plane if of_backend else scene.app
    where = namespace if of_backend else scene.app_namespace
    async with replicas(live, where, tmp_path, command=PROGRAMS[program]) as made:
        only = await made.start()
        await made.leader(only)
        assert (await only.ask("/metrics"))[0] == 200
        told = {one["message"]: one for one in only.lines()}
        probes = f"http://127.0.0.1:{told['probes are served']['port']}"
        metrics = f"http://127.0.0.1:{told['metrics are served']['port']}"
        status, _ = await asyncio.to_thread(fetch, f"{probes}/metrics")
        assert status == 404
        status, _ = await asyncio.to_thread(fetch, f"{metrics}/healthz")
        assert status == 404


def test_metrics_are_for_loopback_unless_an_address_is_given() -> None:
    assert flags.address(flags.METRICS_ADDRESS, "--metrics-address") == flags.METRICS
    assert flags.METRICS[0] == "127.0.0.1"
