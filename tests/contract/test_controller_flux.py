"""`klutchctl controller --flux-source` on real clusters: it follows what Flux has, and no other."""

import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.manifest import get_map
from reconciler.core.refs import CRD as CRD_KIND
from reconciler.core.refs import Ref
from tests.support import removal
from tests.support.apply_runs import mode, scene
from tests.support.controllers import OFTEN, bound_with, controller, deeds, files
from tests.support.eventually import eventually
from tests.support.flux import CRD, SOURCE, Archives, archives, condition
from tests.support.observing import established

__all__ = ["files", "mode", "scene"]

COMMIT, NEXT, BROKEN = "a" * 40, "b" * 40, "c" * 40


@dataclass
class Flux:
    """A source in the cluster of the controller, and the server with its archives."""

    scene: Any
    served: Archives
    folder: Path
    options: tuple[str, ...] = ("--flux-source", "default/fleet", "--require-verified")
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def cluster(self):
        return self.scene.plane.cluster

    async def make(self):
        plane = self.scene.plane
        await plane.cluster.apply(CRD, CRD_KIND, manager="flux", force=True)
        await established(plane.cluster, SOURCE.kind)
        self.ref = Ref(plane.name, SOURCE.kind, "default", "fleet")
        await self.say({})

    async def say(self, spec):
        body = {
            "apiVersion": SOURCE.kind.api_version,
            "kind": SOURCE.kind.kind,
            "metadata": {"name": "fleet", "namespace": "default"},
            "spec": spec,
        }
        return await self.cluster.apply(body, SOURCE.kind, manager="people", force=True)

    async def find(self, *conditions, **status):
        body = {"status": {"conditions": list(conditions), **status}}
        await self.cluster.merge_patch(self.ref, body, manager="flux", subresource="status")

    def offer(self, commit, *, path="/fleet.tar.gz", text=None):
        self.scene.fleet.write()
        whole = io.BytesIO()
        with tarfile.open(fileobj=whole, mode="w:gz") as tar:
            content = text or (self.scene.fleet.folder / "fleet.yaml").read_bytes()
            entry = tarfile.TarInfo("fleet.yaml")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        return self.served.offers(whole.getvalue(), commit, path)


@pytest.fixture
async def flux(scene, files, tmp_path):
    with archives() as served:
        made = Flux(scene, served, tmp_path)
        await made.make()
        yield made
        await removal.remove(made.cluster, made.ref)


def ready(status="True", message="", generation=1):
    return condition("Ready", status, message, observedGeneration=generation)


def verified(status="True", message="", generation=1):
    return condition("SourceVerified", status, message, observedGeneration=generation)


async def shows(running, reason, *texts):
    async def probe():
        found = await running.condition("Ready")
        return found.get("reason") == reason and all(one in found["message"] for one in texts)

    await eventually(probe)


async def source_of(running):
    return get_map(await running.status(), "status", "source")


async def waits_until_it_is_verified(flux, scene, running):
    marks = scene.marks()
    await shows(running, "SourceUnreadable", "Flux has no artifact of it")
    await flux.find(ready("False", "authentication required"), observedGeneration=1)
    await shows(running, "SourceUnreadable", "authentication required")
    first = flux.offer(COMMIT)
    unsigned = verified("False", "no signature")
    await flux.find(ready("False"), unsigned, observedGeneration=1, artifact=first)
    await shows(running, "SourceUnverified", "no signature")
    assert deeds(scene, marks) == []
    await flux.find(ready(), verified(), observedGeneration=1, artifact=first)
    await bound_with(scene, 1)
    await shows(running, "Applied")


async def keeps_what_it_has(flux, scene, running):
    marks = scene.marks()
    scene.fleet.claims = ", claims: []"
    second = flux.offer(NEXT, path="/next")
    flux.offer(NEXT, path="/next", text=b"kind: [")  # changed under its digest
    await flux.find(ready(), verified(), observedGeneration=1, artifact=second)
    await shows(running, "SourceUnreadable", f"and not {second['digest']}")
    await flux.say({"ref": "next"})  # the artifact is of the ref before
    await shows(running, "SourceUnreadable", "its newest form")
    broken = flux.offer(BROKEN, path="/broken", text=b"kind: [")
    seen = (ready(generation=2), verified(generation=2))
    await flux.find(*seen, observedGeneration=2, artifact=broken)
    await shows(running, "SourceInvalid")
    source = await source_of(running)
    assert (source["revision"], source["looked"]["revision"]) == (COMMIT, BROKEN)
    assert deeds(scene, marks) == []


async def test_what_flux_has_verified_is_applied_and_nothing_else(flux, scene):
    name = ("--fleet", scene.fleet.name)
    async with scene.peers(), controller(scene, flux, *OFTEN, *name) as running:
        await waits_until_it_is_verified(flux, scene, running)
        source = await source_of(running)
        assert (source["url"], source["revision"]) == ("GitRepository/default/fleet", COMMIT)
        by = {"type": "flux", "principal": "GitRepository/default/fleet"}
        assert source["signature"] == {"status": "Verified", **by}
        await keeps_what_it_has(flux, scene, running)
        good = (ready(generation=2), verified(generation=2))
        await flux.find(*good, observedGeneration=2, artifact=flux.offer(NEXT, path="/again"))
        await bound_with(scene, 0)
        await shows(running, "Applied")
        assert (await source_of(running))["revision"] == NEXT
