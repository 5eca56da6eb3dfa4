"""An admission policy of the control plane that changes what a konnector writes."""

from functools import partial

from tests.support.bound_scenes import Scene, until
from tests.support.konnector_scenes import equals, mutated, story


async def test_what_a_provider_puts_back_is_no_war(scene: Scene) -> None:
    """H26: an admission policy of the control plane knows better, whatever is applied."""
    async with story(scene) as told, mutated(scene, "/spec/size", "5Gi"):
        await told.settle()
        await until(lambda: equals(told.there.spec(), {"size": "5Gi"}))
        await told.writes()
        for phase in ("Pending", "Ready"):
            await told.begin()
            await told.there.patch({"status": {"phase": phase}}, subresource="status")
            await until(partial(told.here.has_status, {"phase": phase}))
            assert await told.writes() == ["patch/status here orders"]
        await told.begin()
        await told.here.patch({"spec": {"size": "2Gi", "note": "n"}})
        await until(lambda: equals(told.there.spec(), {"size": "5Gi", "note": "n"}))
        assert await told.writes() == ["patch there orders"]
