"""T6: what one app cluster answers costs the others nothing, and never the lock."""

import gc
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.core.live import ClusterState, Unavailable
from reconciler.fleet.values import Access, Fleet, Mode
from reconciler.kube import registry
from reconciler.observe import Pace, observe
from tests.support import fleet_texts, liar
from tests.support.apply_runs import staged
from tests.support.clusters import LiveCluster
from tests.support.observing import around, with_one_context

REASONS = {
    "48 MiB of brackets": "answered more than 16 MiB to one call",
    "200 MiB of items": "answered more than 16 MiB to one call",
    "15 MiB of items": "answered more values than are read at once",
    "2 million levels": "answered more values than are read at once",
    "a gzip bomb": "answered more than 16 MiB to one call",
    "gzip of nothing": "answered with more than one compressed text",
    "a deflate bomb": "answered in a compression that was not asked for",
    "a byte a second": "answered with less than 256 bytes a second",
}
LOOKS = 3


class Timed(registry.Registry):
    """Clusters that note, in the order in which each was read, what this process had worked.

    In seconds of the processor: what else runs here, the liar too, takes its share of all others.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.done: dict[str, float] = {}

    async def close(self, name: str) -> None:
        self.done[name] = time.process_time()
        await super().close(name)


async def look(fleet: Fleet, *kubeconfigs: Path) -> tuple[dict[str, object], float, str]:
    """Return the verdicts, what was worked for the honest clusters, and the one read last."""
    planes = {plane.name: plane.access for plane in fleet.control_planes.values()}
    began = time.process_time()
    async with Timed(planes, around(*kubeconfigs)) as clusters:
        live = await observe(fleet, clusters, pace=Pace(timeout=30))
        honest = [when for name, when in clusters.done.items() if name.startswith("honest")]
        last = [name for name in clusters.done if name in fleet.clusters][-1]
    return dict(live.clusters), max(honest) - began, last


def resident(which: str) -> int:
    """Return how many KiB of memory this process has, or had at most."""
    return int(Path("/proc/self/status").read_text().split(f"{which}:")[1].split()[0])


def forget_the_most() -> None:
    """Let what earlier tests had at most not count (proc(5))."""
    Path("/proc/self/clear_refs").write_text("5")


@pytest.mark.parametrize("lie", REASONS)
async def test_a_flood_of_one_cluster_holds_up_no_other(
    fleet: Fleet, control_plane: LiveCluster, lie: str, tmp_path: Path
) -> None:
    one, way = fleet.clusters["shop"], control_plane.kubeconfig
    honest = {f"honest-{n}": replace(one, name=f"honest-{n}") for n in range(9)}
    liar_there = replace(one, name="a-liar", access=Access(context="liar"))
    fleet = replace(fleet, clusters=honest)
    lied_to = replace(fleet, clusters={"a-liar": liar_there, **honest})
    await look(fleet, way)  # what is loaded once is loaded
    gc.collect()
    before = resident("VmRSS")
    forget_the_most()

    with liar.lying(lie, tmp_path) as url:
        file = tmp_path / "liar"
        file.write_text(json.dumps(led_to(url)))
        # One of some, each beside its own: a processor is not always as quick.
        for _ in range(LOOKS):
            _, alone, _ = await look(fleet, way)
            verdicts, beside, last = await look(lied_to, file, way)
            verdict = verdicts.pop("a-liar")
            assert isinstance(verdict, Unavailable)
            assert REASONS[lie] in verdict.reason
            assert all(isinstance(one, ClusterState) for one in verdicts.values())
            if lie == "a byte a second":
                assert last == "a-liar", "an honest cluster waited for the liar"
            if beside < 1.1 * alone + 0.15:
                break
        else:
            raise AssertionError((beside, alone))
    assert resident("VmHWM") - before < 200 * 1024


def led_to(url: str) -> dict[str, Any]:
    """Return the kubeconfig that leads to the liar."""
    return with_one_context(
        "liar", {"server": url, "insecure-skip-tls-verify": True}, {"token": "t"}
    )


@pytest.mark.parametrize("lie", ["48 MiB of brackets", "15 MiB of items", "a byte a second"])
async def test_a_flood_under_the_lock_costs_neither_the_lock_nor_the_others(
    control_plane: LiveCluster, app_cluster: LiveCluster, namespace: str, lie: str, tmp_path: Path
) -> None:
    staging = staged(
        control_plane, app_cluster, namespace=namespace, mode=Mode.DIRECT, folder=tmp_path
    )
    async with staging as scene, scene.peers():
        with liar.lying(lie, tmp_path) as url:
            document = yaml.safe_load(control_plane.kubeconfig.read_text())
            for entries in ("clusters", "users", "contexts"):
                document[entries] += led_to(url)[entries]
            scene.kubeconfig = tmp_path / "kubeconfig"
            scene.kubeconfig.write_text(yaml.safe_dump(document))
            scene.fleet.clusters = "names: [shop, liar]"
            scene.fleet.extra = "---\n" + fleet_texts.cluster("liar")
            run = await scene.apply(code=None)
    assert run.code not in (0, 1), run.stderr
    assert {status for status, _, _ in run.statuses} <= {"done", "noop"}, run.statuses
    assert run.statuses
    assert REASONS[lie] in run.stdout
