"""Lists of what tenants write: within a share of the memory, and complete."""

from typing import Any, Final

import pytest

from reconciler.api import API_SERVICE_EXPORT_REQUEST
from reconciler.core.documents import TOO_LARGE, takes
from reconciler.core.manifest import get_texts, name_of
from reconciler.core.refs import CONFIG_MAP
from reconciler.kube import cluster
from reconciler.kube.cluster import Listing, Reader

MANY: Final[Any] = [{"a": 1} for _ in range(2_000)]
SMALL: Final = {"spec": {"resources": ["databases"]}, "metadata": {"labels": {"a": "b"}}}
PARTS: Final[dict[str, Any]] = {
    "parameters": {"spec": {"resources": ["databases"], "parameters": {"p": MANY}}},
    "conditions": {"status": {"conditions": MANY, "phase": "Failed"}},
    "finalizers": {"metadata": {"finalizers": [f"a.example/{n}" for n in range(8_000)]}},
    "unknown": {"spec": SMALL["spec"], "unknown": MANY},
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
