"""What a process wrote into a Secret before it ended counts for the next one."""

import pytest

from tests.support import osb_faults
from tests.support.osb_bindings import BINDING_KIND, World, catalogue
from tests.support.osb_faults import Fault


class Ended(Exception):
    """A process ended where a test wanted it to."""


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(
    "fault",
    [
        osb_faults.refuses(400, "BadRequest", "it is there"),
        osb_faults.says(500),
        osb_faults.broken_json(201, processed=False),
        osb_faults.says(200),
        osb_faults.refuses(409),
    ],
)
def test_what_the_secret_has_already_is_never_undone(fault: Fault, is_first: bool) -> None:
    world = World(catalogue(bindings_retrievable=False))
    world.claim()
    if not is_first:
        world.run(minutes=1)
        world.edit(BINDING_KIND, "web", lambda live: live["spec"].update(rotation={"request": "1"}))
    before = world.secret()

    def ends() -> None:
        if world.secret() != before:
            raise Ended

    world.check = ends
    with pytest.raises(Ended):
        world.run(minutes=5)
    world.check = lambda: None
    world.restart()
    world.broker.faults.add("bind", fault)
    written = world.secret()
    world.run(hours=2)
    assert world.secret() == written
    assert world.logs_in()
    assert [one.state for one in world.records()] == ["Present"]
