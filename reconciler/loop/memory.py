"""How a program that runs for long uses memory: what it looks for, and what it gives back."""

import ctypes
import gc
from typing import Final

_THRESHOLDS: Final = (10_000, 20, 20)
# Of mallopt(3), where the C library is glibc: parameters, and the values of a new process, which
# glibc raises by itself as soon as a large block is freed.
_MALLOC: Final = {
    -1: 128 * 1024,  # M_TRIM_THRESHOLD
    -3: 128 * 1024,  # M_MMAP_THRESHOLD
    -8: 1,  # M_ARENA_MAX; threads have heaps of their own otherwise
}


def use_sparingly() -> None:
    """Keep memory small from now on; to be called before there are threads.

    Cycles are looked for seldom, and never among what is there already: decoded JSON goes with its
    last use, and to look through it as often as Python does took 8 % of a konnector's CPU time.
    Objects of 1.3 MB of which little is kept leave holes that are never given back: 400 of them
    cost a backend 156 MiB, and 10 MiB with this.
    """
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in _MALLOC.items():
            mallopt(parameter, value)
