"""How a program that runs for long uses memory: what it looks for, and what it gives back."""

import ctypes
import gc
from typing import Final

_THRESHOLDS: Final = (10_000, 20, 20)
# Of mallopt(3), where the C library is glibc, which raises sizes by itself, without end, as soon
# as a large block is freed. A lower M_TRIM_THRESHOLD costs system calls all the time.
_MALLOC: Final = {
    -1: 4 * 1024 * 1024,  # M_TRIM_THRESHOLD
    -3: 256 * 1024,  # M_MMAP_THRESHOLD
    -8: 1,  # M_ARENA_MAX; threads have heaps of their own otherwise
}


def collect_seldom() -> None:
    """Look for cycles seldom from now on, and never among what is there already.

    Decoded JSON goes with its last use, and is most of what a controller makes. To look through
    it as often as Python does took 8 % of a konnector's CPU time, and saved no memory.
    """
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


def give_back() -> None:
    """Give back what large objects took of which little is kept; to be called before threads start.

    They leave holes: 400 requests of 1.3 MB cost a backend 156 MiB, and 12 MiB with this. Where
    objects are small it costs CPU time, and saves nothing.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in _MALLOC.items():
            mallopt(parameter, value)
