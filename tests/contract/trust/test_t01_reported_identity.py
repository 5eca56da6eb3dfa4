"""T1, T14: a cluster that reports another's uid is given nothing, and stops nobody but itself.

A former tenant's cluster, wiped of all that we left there, is to the API what a liar is: it has
the uid that the space notes, and not the space's token.
"""

import json
from dataclasses import dataclass

import pytest
import yaml

from reconciler.core import keys, names
from reconciler.core.manifest import annotations_of, labels_of, resource_version_of, uid_of
from reconciler.core.refs import NAMESPACE, SECRET, Ref
from reconciler.fleet.values import Mode
from tests.support import modes, removal
from tests.support.apply_runs import staged
from tests.support.applying import Fleet
from tests.support.removal import remove_for_good

_LIAR = """---
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Cluster
metadata: {{name: store}}
spec:
  access: {{kubeconfigContext: {context}}}
  controlPlane: eu
{more}"""
_BINDING = """---
apiVersion: fleet.klutchctl.dev/v1alpha1
kind: Binding
metadata: {{name: store-db}}
spec:
  resources: [{{group: {group}, resource: databases}}]
  clusters: {{names: [store]}}
"""


@dataclass
class Renamed(Fleet):
    """The files after the former tenant's document went, and that of the liar came."""

    more: str | None = None
    beside: bool = False  # the tenant's document stays
    context: str = "app-1"

    def write(self) -> None:
        if self.more is not None:
            self.listed = self.beside
            self.extra = _LIAR.format(more=self.more, context=self.context) + _BINDING.format(
                group=self.group
            )
        super().write()


@pytest.fixture(params=modes.both(Mode.DIRECT))
async def scene(request, control_plane, app_cluster, namespace, tmp_path):
    made = staged(
        control_plane, app_cluster, namespace=namespace, mode=request.param, folder=tmp_path
    )
    async with made as scene:
        old = scene.fleet
        scene.fleet = Renamed(old.folder, old.name, old.mode, old.group)
        async with scene.peers():
            await scene.apply("--wait")
        yield scene


async def wiped(scene):
    """Take away all that proves that the cluster is the tenant's."""
    if scene.fleet.mode is Mode.DIRECT:
        await remove_for_good(scene.app, scene.binding)
    labels = f"{keys.FLEET}={scene.fleet.name}"
    found = await scene.app.cluster.list(SECRET, namespace=names.KLUTCH_NAMESPACE, labels=labels)
    for one in found.items:
        ref = Ref(scene.app.name, SECRET, names.KLUTCH_NAMESPACE, one["metadata"]["name"])
        await removal.remove(scene.app.cluster, ref)


async def released(scene):
    mark = {"metadata": {"annotations": {keys.RELEASED: "2026-11-21T00:00:00Z"}}}
    await scene.plane.cluster.merge_patch(scene.home_of_units, mark, manager=keys.MANAGER_CLI)


async def held(scene):
    """Return what the former tenant has: its space, and its carrier, as they are stored."""
    refs = {scene.home, scene.home_of_units, scene.export, scene.request}
    return {
        ref: (uid_of(live), resource_version_of(live))
        for ref in refs
        if (live := await scene.at(ref)) is not None
    }


def with_context(kubeconfig, of, folder, *, name):
    """Return a kubeconfig with one more context, which leads where another does."""
    document = yaml.safe_load(kubeconfig.read_text())
    leads = next(one["context"] for one in document["contexts"] if one["name"] == of)
    document["contexts"].append({"name": name, "context": leads})
    file = folder / "kubeconfig"
    file.write_text(json.dumps(document))
    return file


@pytest.mark.parametrize("with_release", [False, True], ids=["left", "released"])
async def test_the_uid_of_a_former_tenant_gives_nothing(scene, with_release):
    await wiped(scene)
    if with_release:
        await released(scene)
    scene.fleet.prune += ", mode: off"
    scene.fleet.more = ""
    before, marks = await held(scene), scene.marks()
    # Of apply, which reads credentials: where others bind in the same app cluster, as other tests
    # do, plan leaves the question to it.
    run = await scene.apply(code=6)
    written = [one for audit, mark in marks for one in audit.writes_since(mark)]
    assert all(one.agent != "klutchctl" for one in written)
    assert await held(scene) == before
    reasons = {one["reason"] for one in run.report["blocked"]}
    assert any(f"adopt: {{space: {scene.space}}}" in one for one in reasons), reasons


@pytest.mark.parametrize("word", ["adopt", "identity"])
async def test_a_line_in_the_files_gives_it(scene, word):
    uid = uid_of(await scene.at(Ref(scene.app.name, NAMESPACE, "", names.KUBE_SYSTEM)))
    lines = {"adopt": f"  adopt: {{space: {scene.space}}}\n", "identity": f"  identity: {uid}\n"}
    scene.fleet.more = lines[word]
    before = uid_of(await scene.at(scene.home))
    async with scene.peers():
        await scene.apply()
    live = await scene.at(scene.home_of_units)
    assert labels_of(live)[keys.CLUSTER] == "store"
    assert keys.RELEASED not in annotations_of(live)
    assert uid_of(await scene.at(scene.home)) == before


async def test_a_cluster_with_the_uid_of_another_holds_up_nobody_else(scene):
    """T14: the tenant's cluster, which has a space, goes on beside the liar."""
    scene.kubeconfig = with_context(scene.kubeconfig, "app-1", scene.fleet.folder, name="liar")
    scene.fleet.beside, scene.fleet.context, scene.fleet.more = True, "liar", ""
    scene.fleet.policy = "Delete"
    run = await scene.apply(code=6)
    assert {"done"} == {status for status, _, _ in run.statuses}, run.statuses
    plan = await scene.klutchctl("plan", str(scene.fleet.folder), "-o", "json")
    blocked = {one["cluster"] for one in plan.report["changes"] if one["action"] == "blocked"}
    assert blocked == {"store"}
