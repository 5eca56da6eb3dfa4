"""Lists of what tenants write: within a share of the memory, in pages of its size, and complete."""

from typing import Any, Final

import pytest

from reconciler.api import API_SERVICE_EXPORT_REQUEST
from reconciler.core.documents import TOO_LARGE, takes, weight
from reconciler.core.manifest import get_texts, name_of
from reconciler.core.refs import CONFIG_MAP
from reconciler.kube import cluster, limits
from reconciler.kube.cluster import Listing, Reader
from reconciler.kube.host import memory_limit
from reconciler.kube.limits import MEMORY, OF_CLAIMS, Limits, of_app_cluster

MANY: Final[Any] = [{"a": 1} for _ in range(2_000)]
SMALL: Final = {"spec": {"resources": ["databases"]}, "metadata": {"labels": {"a": "b"}}}
PARTS: Final[dict[str, Any]] = {
    "parameters": {"spec": {"resources": ["databases"], "parameters": {"p": MANY}}},
    "conditions": {"status": {"conditions": MANY, "phase": "Failed"}},
    "finalizers": {"metadata": {"finalizers": [f"a.example/{n}" for n in range(8_000)]}},
    "unknown": {"spec": SMALL["spec"], "unknown": MANY},
}
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


class Pages(Reader):
    name = "c"
    send = watch = close = None  # type: ignore[assignment]

    def __init__(self, items: Any) -> None:
        self.items = items

    async def pages(self, ref: Any, query: Any) -> Any:
        for start in range(0, len(self.items), 4):
            page = self.items[start : start + 4]
            yield Listing(page, "1", sum(map(takes, page)))


def made(n: int, part: Any) -> Any:
    return {**SMALL, **part, "metadata": {"name": f"n{n}", **part.get("metadata", {})}}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize(("largest", "whole"), [(400_000, 0), (2**30, 4)], ids=["each", "all"])
async def test_what_is_too_large_is_cut_and_the_rest_is_as_it_was(
    monkeypatch: pytest.MonkeyPatch, part: Any, largest: int, whole: int
) -> None:
    monkeypatch.setattr(cluster, "_LARGEST", largest)
    monkeypatch.setattr(cluster, "MEMORY", 2 * 4 * takes(made(0, part)))
    items = [*(made(n, part) for n in range(8)), made(8, {})]
    found = (await Pages(items).list(API_SERVICE_EXPORT_REQUEST)).items
    assert [name_of(one) for one in found] == [f"n{n}" for n in range(9)]
    assert [TOO_LARGE in str(one) for one in found] == [n >= whole for n in range(8)] + [False]
    assert found[8] == items[8]
    assert all(takes(one) < 20_000 for one in found[whole:])
    assert all(get_texts(one, "spec", "resources") == ["databases"] for one in found)
    assert (await Pages(items).list(CONFIG_MAP)).items == items, "nobody else's are cut"


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
