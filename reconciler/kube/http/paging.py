"""How large the pages of a list are.

A page is held whole, and whether it has Secrets of 1 MiB or small claims shows only once it is
there. A continue token is a key and a version (k8s.io/apiserver, pkg/storage), so the pages of one
list may differ in size.
"""

from typing import Final

FEWEST: Final = 5  # objects whose page is small enough, however large they are
_FIRST: Final = 25
_AIM: Final = 8 * 2**20  # octets


def first(at_most: int) -> int:
    """Return for how many objects to ask at first; 0 for no limit stays so."""
    return min(at_most, _FIRST)


def following(at_most: int, *, items: int, octets: int) -> int:
    """Return for how many objects to ask after a page of so many objects and octets."""
    if not at_most:
        return 0
    return max(1, min(at_most, items * _AIM // max(octets, 1)))
