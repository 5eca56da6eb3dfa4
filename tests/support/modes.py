"""The two modes of a fleet as cases of a story on real servers."""

import pytest

from reconciler.fleet.values import Mode

_IDS = {Mode.DIRECT: "direct", Mode.APP_CLUSTER_BINDING: "acb"}


def both(usual: Mode) -> list[object]:
    """Return both modes as parameters; the one that is not the usual is left to `make soak`.

    Stories take their turns: some show one mode in each run, some the other. What differs between
    them is decided in pure code, whose tests have both.
    """
    return [
        pytest.param(mode, id=name, marks=() if mode is usual else pytest.mark.soak)
        for mode, name in _IDS.items()
    ]
