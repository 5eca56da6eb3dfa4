"""Which way a decision carries something, as `klutch_sync_seconds` counts it."""

import pytest

from konnector import APP_CLUSTER, CONTROL_PLANE
from konnector.metrics import directions
from reconciler.core.decision import Apply, Create, Delete, Patch, writes
from reconciler.core.manifest import Manifest
from reconciler.core.refs import SECRET, Ref

HERE, THERE = (Ref(cluster, SECRET, "x", "x") for cluster in (APP_CLUSTER, CONTROL_PLANE))
MARK = {"metadata": {"annotations": {"a": "b"}}}
FREE: Manifest = {"metadata": {"finalizers": []}}
STATUS = {"status": {"phase": "Ready"}}
ROWS = {
    "a claim gets its copy, and is held and marked": (
        [Patch(HERE, MARK), Create(SECRET, {}, CONTROL_PLANE), Patch(HERE, MARK)],
        ["up"],
    ),
    "its spec goes up": ([Apply(SECRET, {}, CONTROL_PLANE)], ["up"]),
    "its copy goes": ([Delete(THERE, "u", "1")], ["up"]),
    "its status comes down": ([Patch(HERE, STATUS)], ["down"]),
    "both at once": ([Patch(HERE, STATUS), Apply(SECRET, {}, CONTROL_PLANE)], ["up", "down"]),
    "it is let go, as its copy is gone": ([Patch(HERE, FREE)], ["down"]),
    "it is marked, once its copy is made": ([Patch(HERE, MARK)], []),
    "a Secret comes down, and its origin is marked": (
        [Patch(THERE, MARK), Create(SECRET, {}, APP_CLUSTER)],
        ["down"],
    ),
    "a Secret that is there changes": ([Patch(HERE, {"data": {}})], ["down"]),
    "a Secret goes up, and its origin is marked": (
        [Patch(HERE, MARK), Create(SECRET, {}, CONTROL_PLANE)],
        ["up"],
    ),
    "nothing is written": ([], []),
}


@pytest.mark.parametrize(("steps", "want"), ROWS.values(), ids=ROWS)
def test_the_direction_of_a_decision(steps, want):
    assert list(directions(writes(*steps))) == want
