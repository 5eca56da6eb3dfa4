"""When a probe is told that a watch is not well."""

import pytest

from reconciler.watch import Signs, ailment

AILMENTS = {
    "well": (Signs(round_at=900), ""),
    "a round ended three intervals ago": (Signs(round_at=700), ""),
    "no round for longer": (Signs(round_at=699), "no round has ended for 301 s"),
    "because there is no source": (
        Signs(round_at=600, readable=False),
        "no round has ended for 400 s: the source cannot be read",
    ),
    "a source that is gone for a moment": (Signs(round_at=900, readable=False), ""),
}


@pytest.mark.parametrize(("signs", "want"), AILMENTS.values(), ids=AILMENTS.keys())
def test_ailment(signs, want):
    assert ailment(signs, 1000.0, interval=100.0) == want
