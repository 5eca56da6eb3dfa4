"""The size of pages."""

import pytest

from reconciler.kube import limits

MIB = 2**20
# at most, objects and octets of the last page -> the next page
CASES = {
    "small objects": (500, 25, 25 * 2_000, 500),
    "large ones": (500, 25, 25 * MIB, 8),
    "one that is larger than a page should be": (500, 1, 20 * MIB, 1),
    "after large ones, small ones again": (500, 8, 8 * 100_000, 83),
    "no more than was asked for": (10, 10, 1_000, 10),
    "a page without objects": (500, 0, 100, 1),
    "no limit": (0, 25, 25_000, 0),
}


@pytest.mark.parametrize(("at_most", "items", "octets", "want"), CASES.values(), ids=CASES)
def test_the_next_page(at_most: int, items: int, octets: int, want: int) -> None:
    assert limits.next_page(at_most, items=items, octets=octets) == want


@pytest.mark.parametrize(("at_most", "want"), [(500, 25), (10, 10), (0, 0)])
def test_the_first_page_is_small(at_most: int, want: int) -> None:
    assert limits.first_page(at_most) == want
