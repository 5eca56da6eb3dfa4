"""T6: what one app cluster answers costs the others nothing, and never the lock."""

import gc
import resource
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from reconciler.core.live import ClusterState, Unavailable
from reconciler.fleet.values import Access, Fleet, Mode
from reconciler.kube import registry
from reconciler.observe import Pace, observe
from tests.support import liar
from tests.support.apply_runs import staged
from tests.support.clusters import LiveCluster
from tests.support.observing import around

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


class Timed(registry.Registry):
    """Clusters that note when each was read, and how long the event loop stood still."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)  # type: ignore[arg-type]
        self.done: dict[str, float] = {}

    async def close(self, name: str) -> None:
        self.done[name] = time.monotonic()
        await super().close(name)


async def look(fleet: Fleet, *kubeconfigs: Path) -> tuple[dict[str, object], float]:
    """Return the verdicts, and after how many seconds the last honest cluster was done."""
    planes = {plane.name: plane.access for plane in fleet.control_planes.values()}
    began = time.monotonic()
    async with Timed(planes, around(*kubeconfigs)) as clusters:
        live = await observe(fleet, clusters, pace=Pace(timeout=30))
        honest = [when for name, when in clusters.done.items() if name.startswith("honest")]
    return dict(live.clusters), max(honest) - began


@pytest.mark.parametrize("lie", REASONS)
async def test_a_flood_of_one_cluster_holds_up_no_other(
    fleet: Fleet, control_plane: LiveCluster, lie: str, tmp_path: Path
) -> None:
    one = fleet.clusters["shop"]
    honest = {f"honest-{n}": replace(one, name=f"honest-{n}") for n in range(9)}
    liar_there = replace(one, name="a-liar", access=Access(context="liar"))
    fleet = replace(fleet, clusters=honest)
    await look(fleet, control_plane.kubeconfig)  # what is loaded once is loaded
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with liar.lying(lie, tmp_path) as url:
        file = tmp_path / "liar"
        file.write_text(liar.kubeconfig(url, "liar"))
        lied_to = replace(fleet, clusters={"a-liar": liar_there, **honest})
        looks = []
        for _ in range(3):
            _, alone = await look(fleet, control_plane.kubeconfig)
            looks.append((*await look(lied_to, file, control_plane.kubeconfig), alone))

    for verdicts, _, _ in looks:
        verdict = verdicts.pop("a-liar")
        assert isinstance(verdict, Unavailable)
        assert REASONS[lie] in verdict.reason
        assert all(isinstance(one, ClusterState) for one in verdicts.values())
    # One of three, each beside its own: other programs take the processor now and then.
    assert any(beside < 1.1 * alone + 0.5 for _, beside, alone in looks), looks
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200 * 1024  # KiB


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
                document[entries] += yaml.safe_load(liar.kubeconfig(url, "liar"))[entries]
            scene.kubeconfig = tmp_path / "kubeconfig"
            scene.kubeconfig.write_text(yaml.safe_dump(document))
            scene.fleet.clusters = "names: [shop, liar]"
            scene.fleet.extra = """---
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Cluster
metadata: {name: liar}
spec:
  access: {kubeconfigContext: liar}
  controlPlane: eu
"""
            run = await scene.apply(code=None)
    assert run.code not in (0, 1), run.stderr
    assert {status for status, _, _ in run.statuses} <= {"done", "noop"}, run.statuses
    assert run.statuses
    assert REASONS[lie] in run.stdout
