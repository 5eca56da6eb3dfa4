"""What a konnector reads of a copy itself, when that is no more what its view shows."""

from collections.abc import Awaitable, Callable
from typing import Final

from konnector import CONTROL_PLANE
from reconciler.core import keys
from reconciler.core.manifest import Manifest, uid_of
from tests.support.bound_scenes import Scene, until
from tests.support.cues import BEFORE
from tests.support.faults import Faults, Meanwhile, on
from tests.support.konnector_faults import mortal
from tests.support.konnector_scenes import CLUSTER_WIDE, Side, equals, event, sides
from tests.support.settled import settled

FULL: Final = {"size": "1Gi", "note": "n"}
LESS: Final[Manifest] = {"spec": {"note": None}}  # all of the copy is read to take that away


async def settle(here: Side, there: Side) -> None:
    await here.make(spec=FULL)
    await until(lambda: equals(there.spec(), FULL))


def before_the_copy_is_read(
    faults: Faults, there: Side, story: Callable[[], Awaitable[object]]
) -> None:
    ref = there.ref("orders")
    read = on("get", cluster=CONTROL_PLANE, kind=ref.kind, name=ref.name)
    faults.add(read.nth(1), Meanwhile(story), at=BEFORE)


async def test_a_copy_that_is_lost_meanwhile_with_another_is_not_made_again_past_the_guard(
    scene: Scene,
) -> None:
    """The other goes first: whatever is known of this loss, it is known to be no lone one (T16)."""
    faults, (here, there) = Faults(), sides(scene)

    async def lose_both() -> None:
        await there.delete("other")
        await there.delete()

    async with scene.backend(), mortal(scene.app.connection, faults) as made:
        await scene.bound()
        await settle(here, there)
        await here.make("other", spec=FULL)
        await until(lambda: there.has_spec(FULL, "other"))
        await settled(made)
        before_the_copy_is_read(faults, there, lose_both)
        await here.patch(LESS)
        await until(lambda: event(scene, "orders", "RecreationHeld"))
        await settled(made)
        assert await there.gone()


async def test_a_copy_that_is_deleted_alone_meanwhile_is_made_again_as_the_claim_is_now(
    scene: Scene,
) -> None:
    faults, (here, there) = Faults(), sides(scene)
    async with scene.backend(), mortal(scene.app.connection, faults) as made:
        await scene.bound()
        await settle(here, there)
        before = uid_of(await there.read())
        before_the_copy_is_read(faults, there, there.delete)
        await here.patch(LESS)
        await until(lambda: there.has_spec({"size": "1Gi"}))
        await settled(made)
        assert uid_of(await there.read()) != before


async def test_an_object_of_another_space_that_takes_the_name_meanwhile_stays_as_it_is(
    wide: Scene,
) -> None:
    """A cluster-scoped one, whose name may begin with the other space's, too (H3)."""
    faults, (here, there) = Faults(), sides(wide)
    theirs = {"size": "9Gi", "note": "theirs"}

    async def take() -> None:
        await there.delete()
        marks = {keys.BOUND: keys.BOUND_VALUE, keys.CLUSTER_NAMESPACE: f"{wide.space}-2"}
        await there.make(metadata={"annotations": marks}, spec=theirs)

    async with wide.backend(settings=CLUSTER_WIDE), mortal(wide.app.connection, faults) as made:
        await wide.bound()
        await settle(here, there)
        before_the_copy_is_read(faults, there, take)
        await here.patch(LESS)
        await until(lambda: event(wide, "orders", "NameTaken"))
        await settled(made)
        assert await there.spec() == theirs
        assert (await there.annotations())[keys.CLUSTER_NAMESPACE] == f"{wide.space}-2"
