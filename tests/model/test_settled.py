"""A konnector is at rest only after all that was written, however late it is told of it."""

from tests.support.bound_scenes import Scene, until
from tests.support.cues import Delay
from tests.support.faults import Events, Faults, on
from tests.support.konnector import konnector
from tests.support.settled import settled

_LATE = 0.7  # seconds


async def test_events_on_their_way_are_waited_for(scene: Scene) -> None:
    late = Faults()
    for told in range(40):
        late.add(on("watch", kind=scene.offer.kind), Delay(_LATE), at=Events(told))
    async with scene.backend(), konnector(scene.app.connection, faults=late) as made:
        await scene.bound()
        await scene.create_instance("first")
        await until(lambda: scene.copy("first"))
        for number in range(4):
            name = f"claim-{number}"
            created = await scene.create_instance(name)
            await settled(made)
            assert await scene.copy(name), created
            assert await made.manager.unsettled() == ""
