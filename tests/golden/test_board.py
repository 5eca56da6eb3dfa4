"""The pages of the board, to the byte: what a page shows of a state is tested here alone."""

import re
from collections.abc import Iterator

import pytest

from klutchctl.web.board import rendering
from klutchctl.web.board.index import LEFT, Index, index_of
from klutchctl.web.board.overview import cluster, file, history, overview, plan, refusal, unit
from klutchctl.web.board.parts import Page, Query
from tests.support import boards
from tests.support.boards import NOW

STATES = {"troubled": boards.troubled, "empty": boards.empty, "hostile": boards.hostile}
AS_ANOTHER = ("shop-eu-2", "shop-eu-4")


def pages(index: Index) -> Iterator[Page | None]:
    """Yield every page of a state: with each query that changes one, of each cluster and unit."""
    yield overview(index, Query(), NOW)
    yield overview(index, Query(group="control-plane"), NOW)
    yield overview(index, Query(state="Degraded", q="shop", label="!x"), NOW)
    yield overview(index, Query(binding="orders-db", group="none"), NOW)
    yield plan(index, Query(), NOW)
    yield plan(index, Query(cluster="shop-eu-3"), NOW)
    yield history(index, NOW)
    yield refusal(index, 404, "nothing of this name", NOW)
    for name, row in index.rows.items():
        if name in AS_ANOTHER:
            continue
        yield cluster(index, name, Query(), NOW)
        yield cluster(index, name, Query(binding=LEFT), NOW)
        for one in row.health.units:
            key = one.health.unit.name
            yield unit(index, name, key, NOW, explain=lambda _: None, docs="https://docs")


@pytest.mark.parametrize("name", STATES)
def test_the_pages_of_a_board(golden, name):
    index = index_of(7, STATES[name]())
    shown = [rendering.fragment(page) for page in pages(index) if page is not None]
    if index.state.board is not None:
        page = rendering.file(file(index))
        shown.append(re.sub("<style>.*</style>|sha256-[^']*", "", page, flags=re.DOTALL))
    golden("\n<!-- next page -->\n".join(shown), f"board.{name}.html")
