"""API servers that die in turn, and come back, cost a konnector nothing.

What its own deaths and refused writes come to: `tests/model/test_konnector_crashes.py`.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from klutchctl.sandbox.servers import Program
from klutchctl.sandbox.state import Role
from tests.support import konnector_faults as story
from tests.support.bound_scenes import Scene, until
from tests.support.konnector import konnector

pytestmark = [pytest.mark.timeout(900), pytest.mark.soak]


async def test_api_servers_that_die_in_turn_and_come_back_cost_nothing(
    scene: Scene, without: Callable[[Role, Program], AbstractAsyncContextManager[None]]
) -> None:
    async with scene.backend(), konnector(scene.app.connection):
        await story.begins(scene)
        await until(lambda: story.bound_alike(scene))
        async with without(Role.CONTROL_PLANE, Program.API_SERVER):
            await story.goes_on(scene)
        await until(lambda: story.all_there(scene))
        async with without(Role.APP_CLUSTER, Program.API_SERVER):
            await story.is_served(scene)
        await until(lambda: story.served_alike(scene))
        await story.changes(scene)
        both = (
            without(Role.CONTROL_PLANE, Program.API_SERVER),
            without(Role.APP_CLUSTER, Program.API_SERVER),
        )
        async with both[0], both[1]:
            pass
        await until(lambda: story.changed_alike(scene))
