"""`helm upgrade` and `helm rollback` of klutch-bind and konnectors, while 500 claims are worked on.

Both run as pods, by the charts as shipped, on a control plane and an app cluster with a node each.
"""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import yaml

from klutchctl.sandbox import lifecycle
from klutchctl.sandbox.servers import Program
from klutchctl.sandbox.state import app_clusters, layout_of
from reconciler.blueprints.objects import build
from reconciler.core import conditions
from reconciler.core.manifest import Manifest, get_int, get_list, get_text, name_of
from reconciler.core.refs import CLUSTER_ROLE, DEPLOYMENT, EVENT, LEASE, NAMESPACE, SECRET, Ref
from tests.images import __main__ as make_images
from tests.nodes import machine, running
from tests.support import clusters, helm, steady_load
from tests.support.bound_scenes import ACCEPTED, BIND, Scene, at_home
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.offers import offered

CLAIMS: Final = 500
NEWER: Final = "0.1.1"
FORCED: Final = "--force-conflicts"
REGISTRY: Final = "registry.example.com/klutchctl"
ANSWERS: Final = 50  # between two rollouts
WITHIN: Final = 600.0
# Seconds. A leader that vanishes is replaced within this; one that ends in good order far earlier.
LEADERLESS: Final = 15.0
# Seconds from a developer's write to the provider's answer to it, across any rollout.
LONGEST_WAIT: Final = 30.0


pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(bool(machine.missing()), reason=machine.missing() or "they run"),
    pytest.mark.timeout(3600),
]


@dataclass
class Release:
    """A chart that is installed in a cluster, and what is seen of its pods and its leaders."""

    name: str
    chart: Path
    services: Sequence[Manifest]
    live: LiveCluster
    lease: str
    home: Path
    pods: steady_load.Pods = field(default_factory=steady_load.Pods)
    leaders: steady_load.Leaders = field(default_factory=steady_load.Leaders)
    generations: list[str] = field(default_factory=list)  # ReplicaSets, one after the other

    async def upgrade(self, *more: str) -> None:
        """Install it, or upgrade it, and wait until all pods are as it says."""
        file = self.home / f"{self.name}-services.yaml"
        file.write_text(yaml.safe_dump({"services": [*self.services]}))
        way = ("upgrade", "--install", "--create-namespace", "--take-ownership", FORCED)
        values = (helm.given(self.home, self.chart), f"--values={file}")
        await self._helm(*way, self.name, str(self.chart), *values, *more)

    async def roll_back(self) -> None:
        """Bring back its first revision, and wait for that."""
        await self._helm("rollback", FORCED, self.name, "1")

    async def _helm(self, *arguments: str) -> None:
        where = ("--kubeconfig", str(self.live.kubeconfig), "--kube-context", self.live.context)
        await asyncio.to_thread(helm.helm, self.home, *arguments, "--namespace", BIND, *where)
        self.generations.append(await eventually(self._rolled, within=WITHIN))

    @property
    def deployment_ref(self) -> Ref:
        return Ref(self.live.name, DEPLOYMENT, BIND, self.name)

    async def deployment(self) -> Manifest:
        found = await self.live.cluster.get(self.deployment_ref)
        assert found is not None
        return found

    async def _rolled(self) -> str:
        """Return the ReplicaSet of all pods, once they are as the Deployment says."""
        deployment = await self.deployment()
        found = (await self.live.cluster.list(steady_load.POD, namespace=BIND)).items
        seen = get_int(deployment, "status", "observedGeneration")
        assert seen == get_int(deployment, "metadata", "generation"), "not seen yet"
        wanted = get_int(deployment, "spec", "replicas")
        for count in ("replicas", "updatedReplicas", "availableReplicas"):
            assert get_int(deployment, "status", count) == wanted, deployment["status"]
        assert len(found) == wanted, [name_of(one) for one in found]
        (generation,) = {steady_load.generation_of(one) for one in found}
        return generation

    def see_lease(self, event: str, live: Manifest) -> None:
        """Note who leads, of all Leases there are."""
        if name_of(live) == self.lease:
            self.leaders.see(event, live)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The images of both programs, in two versions."""
    made = tmp_path_factory.mktemp("images")
    assert make_images.main(["--output", str(made), "klutch-bind", "konnector"]) == 0
    for name in ("klutch-bind", "konnector"):
        source = made / f"{name}.oci.tar"
        steady_load.write_newer(source, made / f"{name}-newer.oci.tar", name=name, tag=NEWER)
    return made


@pytest.fixture(scope="module")
def nodes(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, programs: Mapping[Program, Path]
) -> Iterator[running.Nodes]:
    """A control plane and an app cluster with nodes."""
    layout = layout_of("upgrades", state_home=tmp_path_factory.mktemp("state"))
    plan = lifecycle.Plan(programs, tuning=clusters.TUNING)
    images = {
        f"{REGISTRY}/{name}:{tag}": folder / f"{name}{file}.oci.tar"
        for name in ("klutch-bind", "konnector")
        for tag, file in (("0.1.0", ""), (NEWER, "-newer"))
    }
    with running.sandbox(layout, app_clusters(1), plan, images) as made:
        yield made


@pytest.fixture
async def both(nodes: running.Nodes) -> AsyncIterator[tuple[LiveCluster, LiveCluster]]:
    """Both clusters, with nobody who works there."""
    plane, app = [await clusters.connect(nodes.layout, one) for one in nodes.members]
    reached = replace(plane.connection, server=f"https://{nodes.network.server(1)}")
    plane = replace(plane, connection=reached)  # in kubeconfigs for pods
    async with plane.cluster, app.cluster:
        yield plane, app


@pytest.fixture
async def scene(both: tuple[LiveCluster, LiveCluster]) -> AsyncIterator[Scene]:
    """A service that is offered, and nobody yet who works for it."""
    plane, app = both
    name = "test-upgrades"
    await plane.cluster.create(build(NAMESPACE, name), NAMESPACE, manager="provider")
    async with offered(plane.cluster, app.cluster, namespace=name) as offer:
        # Admission policies know a space by its name.
        made = Scene(plane, app, offer, "klutch-bind-upgrades", "dev-upgrades")
        async with at_home(made):
            yield made


def of_backend(scene: Scene, home: Path) -> Release:
    verbs = ["create", "delete", "patch", "update", "get", "list", "watch"]
    rights = [
        {"apiGroups": [scene.offer.group], "resources": ["*"], "verbs": verbs},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": verbs},
    ]
    return Release("klutch-bind", helm.BACKEND, rights, scene.plane, "klutch-bind-backend", home)


def of_konnector(scene: Scene, home: Path) -> Release:
    group, plural = scene.offer.group, scene.offer.resource.plural
    verbs = ["get", "list", "watch", "create", "patch"]
    rights = [
        {"apiGroups": [group], "resources": [plural], "verbs": verbs},
        {"apiGroups": [group], "resources": [f"{plural}/status"], "verbs": ["patch"]},
        {
            "apiGroups": ["apiextensions.k8s.io"],
            "resources": ["customresourcedefinitions"],
            "resourceNames": [scene.offer.name],
            "verbs": ["patch", "delete"],
        },
        {"apiGroups": [""], "resources": ["secrets"], "verbs": [*verbs, "delete"]},
    ]
    return Release("konnector", helm.KONNECTOR, rights, scene.app, "klutch-bind", home)


@asynccontextmanager
async def watched(*releases: Release) -> AsyncIterator[None]:
    """Note what becomes of pods and leases for the length of the block."""

    ways = []
    for one in releases:
        cluster = one.live.cluster
        ways.append(steady_load.follow(cluster, steady_load.POD, one.pods.see, namespace=BIND))
        ways.append(steady_load.follow(cluster, LEASE, one.see_lease, namespace=BIND))
    async with steady_load.beside(*ways):
        yield


async def test_nothing_is_lost_by_upgrade_and_rollback_under_load(scene, tmp_path):
    releases = of_backend(scene, tmp_path), of_konnector(scene, tmp_path)
    for one in releases:
        await one.upgrade()
    await scene.bound(ACCEPTED, within=WITHIN)
    load = steady_load.Load(
        scene.app.cluster, scene.plane.cluster, scene.offer.kind, random.Random("upgrades")
    )
    mark = scene.plane.audit.mark()
    async with watched(*releases), load.served():
        began = time.monotonic()
        await load.begin(CLAIMS)
        await eventually(load.is_answered, within=WITHIN)
        report(f"{CLAIMS} claims answered", time.monotonic() - began)
        load.waited.clear()
        async with load.going_on():
            for one in releases:
                await under_load(load, one, one.upgrade(f"--set=image.tag={NEWER}"))
            for one in reversed(releases):
                await under_load(load, one, one.roll_back())
        await eventually(load.is_answered, within=WITHIN)
        await eventually(partial(alike, scene, load), within=WITHIN)
    for one in releases:
        only_rolled(one)
    only_what_was_deleted_is_gone(scene, load, mark)
    slowest, name = max(load.waited)
    report(f"{len(load.waited)} answers, slowest {name}", slowest)
    assert slowest <= LONGEST_WAIT


async def test_a_konnector_that_reads_nothing_replaces_none(both, tmp_path):
    """Else a rollout that goes wrong would say that all is well, and nobody would sync."""
    release = Release("konnector", helm.KONNECTOR, (), both[1], "klutch-bind", tmp_path)
    await release.upgrade()
    role = Ref(release.live.name, CLUSTER_ROLE, "", "klutch-bind-konnector")
    less = [
        {"op": "test", "path": "/rules/0/resources", "value": ["namespaces"]},
        {"op": "replace", "path": "/rules/0/verbs", "value": ["get"]},
    ]
    await release.live.cluster.json_patch(role, less, manager="operator")
    again = {"metadata": {"annotations": {"example.com/began": "again"}}}
    await release.live.cluster.merge_patch(
        release.deployment_ref, {"spec": {"template": again}}, manager="operator"
    )
    await eventually(partial(probed, release), within=WITHIN)
    deployment = await release.deployment()
    assert get_int(deployment, "status", "updatedReplicas") == 1
    assert get_int(deployment, "status", "availableReplicas") == 2
    pods = (await release.live.cluster.list(steady_load.POD, namespace=BIND)).items
    ready = [one for one in pods if is_ready(one)]
    assert {steady_load.generation_of(one) for one in ready} == {release.generations[-1]}
    await release.upgrade()  # which brings the rights
    assert release.generations[0] != release.generations[-1]


async def probed(release: Release) -> bool:
    """Return if a kubelet has asked a pod that is not of the last generation if it is ready."""
    cluster = release.live.cluster
    found = (await cluster.list(steady_load.POD, namespace=BIND)).items
    newer = [one for one in found if steady_load.generation_of(one) != release.generations[-1]]
    failed = {
        get_text(one, "regarding", "name")
        for one in (await cluster.list(EVENT, namespace=BIND)).items
        if "Readiness probe failed" in get_text(one, "note")
    }
    return any(is_ready(one) or name_of(one) in failed for one in newer)


def is_ready(pod: Manifest) -> bool:
    ready = conditions.find(conditions.parse(get_list(pod, "status", "conditions")), "Ready")
    return ready is not None and ready.status == conditions.TRUE


async def under_load(load: steady_load.Load, release: Release, rollout: Awaitable[None]) -> None:
    """Roll pods, go on for some answers more, and print the slowest of all these."""
    began, answers = time.monotonic(), len(load.waited)
    await rollout
    seconds = time.monotonic() - began
    wanted = len(load.waited) + ANSWERS
    await eventually(lambda: len(load.waited) >= wanted, within=WITHIN)
    slowest, name = max(load.waited[answers:])
    report(f"{release.name} rolled in {seconds:.1f} s, slowest answer {name}", slowest)


def only_rolled(release: Release) -> None:
    """Assert that no pod came but those of rollouts, none began anew, and one led soon."""
    gaps = release.leaders.gaps()
    report(f"{release.name}: {len(gaps)} other leaders, longest without one", max(gaps))
    assert max(gaps) <= LEADERLESS
    assert set(release.pods.restarts.values()) == {0}
    first, newer, again = release.generations
    assert first == again != newer
    # The rollback made two of the first ReplicaSet again.
    pods = [len(release.pods.of(one)) for one in (first, newer)]
    assert pods == [4, 2]
    assert len(release.pods.generations) == sum(pods)


def only_what_was_deleted_is_gone(scene: Scene, load: steady_load.Load, mark: int) -> None:
    """Assert it of copies, as seen, and as the API server was asked."""
    deleted = {name for name, one in load.claims.items() if one.deleted}
    asked = {
        write.name
        for write in scene.plane.audit.writes_since(mark)
        if write.verb.startswith("delete") and write.resource == scene.offer.resource.plural
    }
    print(f"{len(load.claims)} claims, {len(deleted)} of them deleted", flush=True)
    assert deleted
    assert asked == load.gone == deleted
    assert load.uids.keys() == load.claims.keys()
    assert all(len(uids) == 1 for uids in load.uids.values())


async def alike(scene: Scene, load: steady_load.Load) -> bool:
    """Return whether both sides have what developers wanted last, with the provider's answer."""
    wanted = {name: one.number for name, one in load.claims.items() if not one.deleted}
    for live in (scene.app, scene.plane):
        found = steady_load.numbers((await live.cluster.list(scene.offer.kind)).items)
        assert found == {name: (number, number) for name, number in wanted.items()}
        assert steady_load.credentials((await live.cluster.list(SECRET)).items) == wanted
    return True


def report(what: str, seconds: float) -> None:
    load = os.getloadavg()[0]
    print(f"{what} {seconds:.2f} s (load of the machine {load:.1f})", flush=True)
