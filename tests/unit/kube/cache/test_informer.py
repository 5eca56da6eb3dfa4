"""How long an informer waits between attempts. The rest needs an API server."""

import pytest

from reconciler.kube.cache.informer import pause

PAUSES = {
    "after a watch that ended as it should": (0, None, 0.0, 0.1),
    "after the first failure": (1, None, 0.0, 0.2),
    "it doubles": (4, None, 0.0, 1.6),
    "jitter only doubles it": (4, None, 1.0, 3.2),
    "it is bounded": (10_000, None, 1.0, 30.0),
    "all do not come back at once": (10_000, None, 0.0, 15.0),
    "the server asks for more": (1, 20.0, 1.0, 20.0),
    "the server asks for less": (9, 1.0, 1.0, 30.0),
    "the server asks for too much": (1, 1e9, 0.0, 300.0),
}


@pytest.mark.parametrize(("failures", "asked", "jitter", "want"), PAUSES.values(), ids=PAUSES)
def test_pause(failures, asked, jitter, want):
    assert pause(failures, asked=asked, jitter=jitter) == pytest.approx(want)
