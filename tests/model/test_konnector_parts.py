"""Instances that another object controls: parts of a service, and no claims."""

from functools import partial

from reconciler.core import conditions, keys
from reconciler.core.manifest import annotations_of
from tests.model.test_konnector_adoption import owner
from tests.support.bound_scenes import Scene, until
from tests.support.composed import note_template
from tests.support.konnector_scenes import Story, story
from tests.support.losses import cause, confirm, says
from tests.support.settled import settled

MASS = (conditions.DELETES_ALLOWED, conditions.MASS_DELETION.reason)


async def adopts_controlled(scene: Scene, value: str | None) -> None:
    """Write the annotation of the template, and wait until the export says the same."""
    await note_template(scene, {keys.ADOPT_CONTROLLED: value})
    await until(partial(export_says, scene, value))


async def export_says(scene: Scene, value: str | None) -> bool:
    return annotations_of(await scene.export()).get(keys.ADOPT_CONTROLLED) == value


async def compose(account: Story) -> None:
    """Make an instance that another object of the control plane controls."""
    controller = {**await owner(account.there), "controller": True}
    await account.there.make("nested", metadata={"ownerReferences": [controller]})


async def is_adopted(account: Story, name: str) -> bool:
    live = await account.here.read(name)
    return live is not None and keys.BOUND in annotations_of(live)


async def says_part(scene: Scene) -> bool:
    return await cause(scene, conditions.DELETES_ALLOWED) == conditions.PART_OF_SERVICE.reason


async def test_a_part_of_a_service_is_no_claim_and_goes_with_its_service(scene: Scene) -> None:
    async with story(scene) as account:
        await account.settle("first")
        await compose(account)
        await account.there.make("single")
        await until(partial(is_adopted, account, "single"))
        await settled(account.made)
        assert await account.here.gone("nested")
        assert keys.BOUND not in await account.there.annotations("nested")
        # A claim of that name gets nothing of it, and takes nothing with it.
        await account.here.make("nested")
        await settled(account.made)
        await account.here.delete("nested")
        await until(partial(account.here.gone, "nested"))
        assert not await account.there.goes("nested")
        await account.there.delete("nested")
        await settled(account.made)
        assert await account.there.gone("nested")


async def test_the_template_lets_parts_be_adopted_and_what_was_is_kept(scene: Scene) -> None:
    async with story(scene) as account:
        await account.settle("first")
        await adopts_controlled(scene, "true")
        await compose(account)
        await until(partial(is_adopted, account, "nested"))
        assert await cause(scene, conditions.DELETES_ALLOWED) == ""

        await adopts_controlled(scene, None)
        await until(partial(says_part, scene))
        await account.here.delete("nested")
        await until(lambda: says(scene, *MASS))
        await settled(account.made)
        assert not await account.there.goes("nested")
        await account.here.delete("first")
        await until(partial(account.here.gone, "first"))
        await confirm(scene, keys.CONFIRM_MASS_DELETE)
        await until(partial(account.there.gone, "nested"))
        await until(partial(account.here.gone, "nested"))
