"""A real API server's word on what holds a namespace, in the conditions of an AppClusterBinding."""

from bind.app_cluster_binding.cleanup import DRAIN_TIMEOUT
from reconciler import api
from reconciler.core.refs import Ref
from tests.support.bound_scenes import until
from tests.support.deletion_drills import DEADLINE, STUCK, drill, lived

__all__ = ["drill", "lived"]


async def test_a_space_that_does_not_go_is_reported_with_what_holds_it(lived):
    managed = lived.managed
    export = Ref(managed.plane.name, api.API_SERVICE_EXPORT, managed.space, managed.offer.name)
    await lived.hold(export, STUCK)
    await lived.delete("Delete")
    await until(managed.drains)
    lived.clock.put_forward(DRAIN_TIMEOUT)
    await lived.waits_for(f"Namespace {managed.space} still exists", STUCK)
    lived.clock.put_forward(DEADLINE)
    await lived.waits_for(f"Namespace {managed.space}", STUCK, reason="DeadlineExceeded")
    await lived.hold(export)
    await lived.ended()
    await until(lived.has_let_the_data_go)
