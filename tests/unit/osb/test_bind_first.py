"""A binding that is claimed and deleted, on a broker that does what it should."""

import pytest

from reconciler.core.refs import SECRET
from tests.support.osb_bindings import BINDING_KIND, World


@pytest.mark.parametrize("is_async", [False, True])
def test_a_claim_is_bound_and_its_deletion_leaves_nothing(is_async: bool) -> None:
    world = World()
    if is_async:
        world.broker.modes.asynchronous = frozenset({"bind", "unbind"})
    world.claim()
    world.run(minutes=2)
    assert world.logs_in()
    assert world.condition("Ready") == ("True", "")
    assert world.status("phase") == "Ready"
    assert world.status("binding") == {"name": "web-creds"}
    world.delete(BINDING_KIND, "web")
    world.run(minutes=2)
    assert world.broker.inventory.bindings == {}
    assert world.records() == []
    assert world.live(SECRET, "web-creds") is None
    assert world.live(BINDING_KIND, "web") is None
    assert world.broker.violations == []
