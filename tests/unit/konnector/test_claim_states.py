"""The state of a claim, as `klutch_claims` counts it."""

import pytest

from konnector.claim.decide import state_of
from tests.support.instance_objects import claim, copy, leaving, seen

ROWS = {
    "claim and copy are there": (seen(claim(), copy()), False, "synced"),
    "no copy yet": (seen(claim({}), None), False, "pending"),
    "a cluster refuses what it says": (seen(claim(), copy()), True, "refused"),
    "a cluster refuses its copy": (seen(claim({}), None), True, "refused"),
    "its copy was lost with others": (seen(claim(), None, create_guard="why"), False, "held"),
    "its name is taken": (seen(claim({}), None, taken="x"), True, "held"),
    "it goes": (seen(leaving(claim()), copy()), False, "deleting"),
    "it may not go": (seen(leaving(claim()), copy(), delete_guard="why"), False, "held"),
    "it is not there, an orphan may be": (seen(None, copy()), False, None),
}


@pytest.mark.parametrize(("view", "refused", "want"), ROWS.values(), ids=ROWS)
def test_the_state_of_a_claim(view, refused, want):
    assert state_of(view, refused=refused) == want
