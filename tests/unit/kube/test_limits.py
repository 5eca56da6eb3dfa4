"""The size of pages."""

import pytest

from reconciler.core.documents import weight
from reconciler.kube import limits
from reconciler.kube.budgets import MEMORY, OF_CLAIMS
from reconciler.kube.host import memory_limit
from reconciler.kube.limits import Limits, of_app_cluster

MIB = 2**20
# at most, objects and memory of the last page, growth -> the next page
CASES = {
    "small objects": (500, 25, 25 * 2_000, 25, 500),
    "one small object": (500, 1, 2_000, 25, 25),
    "large ones": (500, 25, 25 * MIB, 25, 8),
    "one that is larger than a page should be": (500, 1, 20 * MIB, 25, 1),
    "after large ones, small ones again": (500, 8, 8 * 100_000, 25, 83),
    "after one that was too large": (500, 1, 2_000, 2, 2),
    "no more than was asked for": (10, 10, 1_000, 25, 10),
    "a page without objects": (500, 0, 100, 25, 1),
    "no limit": (0, 25, 25_000, 25, 0),
}


@pytest.mark.parametrize(
    ("at_most", "items", "memory", "growth", "want"), CASES.values(), ids=CASES
)
def test_the_next_page(at_most: int, items: int, memory: int, growth: int, want: int) -> None:
    found = limits.next_page(at_most, items=items, memory=memory, page=8 * MIB, growth=growth)
    assert found == want


@pytest.mark.parametrize(("at_most", "want"), [(500, 1), (1, 1), (0, 0)])
def test_the_first_page_is_one_object(at_most: int, want: int) -> None:
    assert limits.first_page(at_most) == want


def test_no_limit_is_above_a_share_of_the_memory() -> None:
    for found in (Limits(), of_app_cluster(Limits())):
        assert max(found.max_memory, found.max_body) <= MEMORY <= memory_limit() / 6
    # The worst that etcd takes has to be read by what is shipped, to be trimmed.
    assert weight(b"[],", most=2**40) * (1.5 * MIB / 3) < 512 * MIB / 6
    assert OF_CLAIMS.object * 8 <= MEMORY
