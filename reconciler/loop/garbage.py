"""How often a program that runs for long looks for cycles of objects that nothing refers to."""

import gc
from typing import Final

_THRESHOLDS: Final = (10_000, 20, 20)


def collect_seldom() -> None:
    """Look for cycles seldom from now on, and never among what is there already.

    Decoded JSON goes with its last use, and is most of what a controller makes. To look through
    it as often as Python does took 8 % of a konnector's CPU time, and saved no memory.
    """
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
