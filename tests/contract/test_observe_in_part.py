"""A look at the part of a real control plane that concerns one app cluster."""

from dataclasses import dataclass, replace

import pytest

from reconciler.api.bindings import API_SERVICE_BINDING, APP_CLUSTER_BINDING, CLUSTER_BINDING
from reconciler.api.exports import API_SERVICE_EXPORT, API_SERVICE_EXPORT_REQUEST
from reconciler.core import keys, names
from reconciler.core.live import ClusterState, Live, Unavailable
from reconciler.core.manifest import name_of, namespace_of
from reconciler.core.refs import NAMESPACE, SECRET, SERVICE_ACCOUNT, Kind
from reconciler.fleet.values import Fleet, Mode
from reconciler.kube import registry
from reconciler.observe import observe
from reconciler.planning import planner
from tests.support import fleets
from tests.support.apply_runs import FaultyClusters
from tests.support.clusters import LiveCluster
from tests.support.eventually import eventually
from tests.support.faults import Faults, forbidden, on
from tests.support.observing import BIND, Hand, around, b64, kubeconfig
from tests.support.wire_objects import WireObjects

OF_SPACES = (
    API_SERVICE_EXPORT,
    API_SERVICE_EXPORT_REQUEST,
    CLUSTER_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
)
EXTRA = "another-secret"


@dataclass
class Scene:
    """A fleet of one cluster whose space has a neighbour on the control plane."""

    fleet: Fleet
    plane: LiveCluster
    own: str
    next: str

    async def look(self, faults: Faults | None = None, *, in_part: bool = True) -> Live:
        found = self.fleet
        async with registry.of(found, around(self.plane.kubeconfig)) as real:
            clusters = FaultyClusters(real, faults or Faults())
            return await observe(found, clusters, only={"shop"}, in_part=in_part, credentials=True)


@pytest.fixture
async def scene(fleet: Fleet, on_plane: Hand, in_app: Hand, namespace: str) -> Scene:
    own, beside = f"{namespace}-own", f"{namespace}-next"
    for space, cluster in ((own, "shop"), (beside, "cafe")):
        labels = {keys.FLEET: fleet.name, keys.CLUSTER: cluster}
        await on_plane.create(NAMESPACE, space, metadata={"labels": labels})
        wire = WireObjects(on_plane.live.name, on_plane.live.cluster, space)
        reference = {"name": EXTRA, "key": "kubeconfig"}
        # Taken away at once, not with its namespace: whoever plans everything reads what it names.
        spec = {"kubeconfigSecretRef": reference, "providerPrettyName": "somebody"}
        await on_plane.create(CLUSTER_BINDING, "cluster", namespace=space, spec=spec)
        for kind in (API_SERVICE_EXPORT, API_SERVICE_EXPORT_REQUEST):
            await wire.create(kind)
        data = {"kubeconfig": b64(kubeconfig(space))}
        for secret in (EXTRA, names.BINDER, "unrelated"):
            await on_plane.create(SECRET, secret, namespace=space, data=data)
        await on_plane.create(SERVICE_ACCOUNT, names.BINDER, namespace=space)
    cafe = replace(fleet.clusters["shop"], name="cafe")
    both = replace(fleet, clusters={**fleet.clusters, "cafe": cafe}, units={})
    return Scene(both, on_plane.live, own, beside)


def spaces_of(seen: ClusterState, kind: Kind) -> set[str]:
    return {namespace_of(one) for one in seen.objects[kind]}


def plane_of(live: Live) -> ClusterState:
    verdict = live.control_planes["eu"]
    assert isinstance(verdict, ClusterState), verdict
    return verdict


async def test_only_the_space_is_read_and_the_plan_is_the_same(scene: Scene) -> None:
    async def same() -> bool:
        """What other tests left may still be going, between the two."""
        whole, part = await scene.look(in_part=False), await scene.look()
        only_the_space_is_read(scene, whole, part)
        assert part.clusters == whole.clusters
        found = planner.decide(scene.fleet, part, only={"shop"})
        assert found == planner.decide(scene.fleet, whole, only={"shop"})
        assert found.plan.changes
        return True

    await eventually(same)


def only_the_space_is_read(scene: Scene, whole: Live, part: Live) -> None:
    for kind in OF_SPACES:
        assert {scene.own, scene.next} <= spaces_of(plane_of(whole), kind), kind
        assert spaces_of(plane_of(part), kind) == {scene.own}, kind
    assert plane_of(part).silent == {scene.own}
    assert plane_of(part).uid == plane_of(whole).uid
    secrets = set(map(name_of, plane_of(part).objects[SECRET]))
    assert secrets == {EXTRA, names.BINDER}


async def test_what_concerns_others_is_not_asked_for(scene: Scene) -> None:
    faults = Faults()
    for kind in OF_SPACES:
        for elsewhere in ("", scene.next):
            faults.add(
                on("list", cluster="control-plane/eu", kind=kind, namespace=elsewhere), forbidden()
            )
    assert isinstance((await scene.look(faults)).control_planes["eu"], ClusterState)
    whole = await scene.look(faults, in_part=False)
    assert isinstance(whole.control_planes["eu"], Unavailable)


FIRST = (NAMESPACE, APP_CLUSTER_BINDING, API_SERVICE_BINDING)


@pytest.mark.parametrize("kind", [*FIRST, *OF_SPACES], ids=lambda kind: kind.kind)
async def test_a_read_that_fails_makes_all_of_it_unseen(scene: Scene, kind: Kind) -> None:
    faults = Faults()
    faults.add(on("list", cluster="control-plane/eu", kind=kind), forbidden())
    live = await scene.look(faults)
    verdict, behind = live.control_planes["eu"], live.clusters["shop"]
    assert isinstance(verdict, Unavailable)
    assert f"list {kind.resource}" in verdict.remedy
    assert isinstance(behind, Unavailable)
    assert "control plane eu is unseen" in behind.reason


async def test_a_cluster_that_was_not_read_costs_its_control_plane_nothing(scene: Scene) -> None:
    faults = Faults()
    faults.add(on("list", cluster="shop", kind=SECRET, namespace=BIND), forbidden())
    live = await scene.look(faults)
    assert spaces_of(plane_of(live), API_SERVICE_EXPORT) == {scene.own}
    assert isinstance(live.clusters["shop"], Unavailable)


async def test_in_mode_app_cluster_binding_all_is_read(scene: Scene) -> None:
    plane = replace(scene.fleet.control_planes["eu"], mode=Mode.APP_CLUSTER_BINDING)
    scene.fleet = replace(
        scene.fleet, control_planes={"eu": plane}, units={one.key: one for one in [fleets.unit()]}
    )
    assert scene.next in spaces_of(plane_of(await scene.look()), API_SERVICE_EXPORT)
