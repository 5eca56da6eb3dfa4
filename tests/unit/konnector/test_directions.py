"""Which way a decision carries something, as `klutch_sync_seconds` counts it."""

import pytest

from konnector import APP_CLUSTER, CONTROL_PLANE
from konnector.metrics import directions
from reconciler.core.decision import Apply, Create, Patch, writes
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
    "both at once": ([Patch(HERE, STATUS), Apply(SECRET, {}, CONTROL_PLANE)], ["up", "down"]),
    "it is let go, as its copy is gone": ([Patch(HERE, FREE)], ["down"]),
    "it is marked, once its copy is made": ([Patch(HERE, MARK)], []),
}


@pytest.mark.parametrize(("steps", "want"), ROWS.values(), ids=ROWS)
def test_the_direction_of_a_decision(steps, want):
    assert list(directions(writes(*steps))) == want
