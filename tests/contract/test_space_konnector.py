"""What becomes of a konnector's Deployment in a real cluster: made, taken over, changed.

As the original has it, with any overrides; contract/trust/test_t05_overrides.py has the usual way.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from bind.app_cluster_binding import konnector
from bind.app_cluster_binding.facts import Seen, Space, Terms
from reconciler.blueprints import konnector as blueprint
from reconciler.core import keys
from reconciler.core.decision import Apply, Patch, Step
from reconciler.core.manifest import Manifest, get_map, get_maps, get_text
from reconciler.core.refs import DEPLOYMENT, Ref
from tests.support.clusters import LiveCluster

RICH = {
    "env": [{"name": "A", "value": "1"}, {"name": "B", "value": ""}],
    "resources": {"limits": {"memory": "0.5Gi"}},
    "stdin": False,
    "ports": [{"containerPort": 1}],
    "workingDir": "/x",
    "securityContext": {"allowPrivilegeEscalation": False},
    "livenessProbe": {"grpc": {"port": 3}},
    "lifecycle": {"preStop": {"httpGet": {"port": 1}}},
}
POOR = {"readinessProbe": {"tcpSocket": {"port": 1}}}


@dataclass
class Deployed:
    """The Deployment of AppClusterBinding a/shop, where the test's namespace is its space."""

    plane: LiveCluster
    space: str

    def __post_init__(self) -> None:
        self.terms = Terms(control_plane=self.plane.name, konnector_image="x:1", all_overrides=True)
        self.ref = Ref(self.plane.name, DEPLOYMENT, self.space, "konnector-shop")

    async def live(self) -> Manifest | None:
        return await self.plane.cluster.get(self.ref)

    async def original(self, overrides: Manifest) -> None:
        home = blueprint.SpaceKonnector("a", "shop", self.space, "s")
        made = blueprint.space_deployment(home, image="x:1", overrides=overrides, confined=False)
        await self.plane.cluster.create(made, DEPLOYMENT, manager="example-backend")

    async def look(self, overrides: Manifest) -> list[Step]:
        ref = {"namespace": "a", "name": "s", "key": "kubeconfig"}
        binding: dict[str, Any] = {
            "metadata": {"namespace": "a", "name": "shop"},
            "spec": {
                "kubeconfigSecretRef": ref,
                "konnector": {"deploy": True, "overrides": overrides},
            },
        }
        space = Space(namespace={"metadata": {"name": self.space}}, deployment=await self.live())
        seen = Placed(app_cluster_binding=binding, space=space, place_of_space=self.space)
        part = konnector.deployed(seen, space, self.terms)
        return [step for task in part.tasks for step in task.steps]

    async def do(self, overrides: Manifest) -> list[type]:
        steps = await self.look(overrides)
        for step in steps:
            if isinstance(step, Patch):
                body = step.body
                await self.plane.cluster.merge_patch(step.ref, body, manager=keys.MANAGER_BACKEND)
            else:
                assert isinstance(step, Apply)
                await self.plane.cluster.apply(
                    step.manifest, step.kind, manager=keys.MANAGER_BACKEND, force=True
                )
        return [type(step) for step in steps]

    async def container(self) -> Manifest:
        return get_map(await self.live(), "spec", "template", "spec", "containers", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed(Seen):
    """A look at an AppClusterBinding whose space has another name."""

    place_of_space: str

    @property
    def space_name(self) -> str:
        return self.place_of_space


@pytest.fixture
def deployed(control_plane: LiveCluster, namespace: str) -> Deployed:
    return Deployed(control_plane, namespace)


@pytest.mark.parametrize("overrides", [{}, RICH, POOR], ids=["none", "rich", "poor"])
async def test_what_was_made_is_left_alone(deployed, overrides):
    assert await deployed.do(overrides) == [Apply]
    assert await deployed.look(overrides) == []


@pytest.mark.parametrize("overrides", [{}, RICH, POOR], ids=["none", "rich", "poor"])
async def test_what_the_original_made_is_left_alone(deployed, overrides):
    await deployed.original(overrides)
    assert await deployed.look(overrides) == []


async def test_overrides_of_the_original_can_be_dropped(deployed):
    await deployed.original(RICH)
    assert await deployed.do(POOR) == [Patch, Apply]
    container = await deployed.container()
    assert {get_text(one, "name") for one in get_maps(container, "env")} == {
        "POD_NAME",
        "POD_NAMESPACE",
    }
    assert "httpGet" not in get_map(container, "readinessProbe"), "two handlers are refused"
    assert "workingDir" not in container
    assert await deployed.look(POOR) == []


async def test_overrides_come_and_go(deployed):
    for overrides in ({}, RICH, POOR, RICH, {}):
        assert await deployed.do(overrides) == [Apply]
        assert await deployed.look(overrides) == []
