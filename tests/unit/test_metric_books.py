"""The book of metrics names those that are registered, with their labels, and no others."""

import re

import pytest

from tests.support import books
from tests.support.registries import registries
from tests.unit.test_metric_names import families

TABLES = ("klutchctl/METRICS.md", "klutchctl/docs/reference/flags.md")
NAME = re.compile(r"`((?:klutchctl|klutch|workqueue)_[a-z0-9_]+)(?:\{([a-z_,]+)\})?`")


@pytest.fixture(scope="module")
async def registered() -> dict[str, set[str]]:
    found = {}
    for registry in registries().values():
        for family, labels in families(registry):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = set(labels)
    return found


async def test_the_tables_have_every_metric_with_its_labels(registered):
    lines = [line for book in TABLES for line in books.text(book).splitlines()]
    said = {
        name: set(filter(None, labels.split(",")))
        for row in lines
        if row.startswith("| `")
        for name, labels in NAME.findall(row.split(" | ")[0])
    }
    assert said == registered


@pytest.mark.parametrize("book", books.BOOKS)
async def test_no_book_speaks_of_a_metric_that_is_not_there(registered, book):
    histograms = {f"{name}{end}" for name in registered for end in ("_bucket", "_sum", "_count")}
    said = {name for name, _ in NAME.findall(books.text(book))}
    assert said - registered.keys() - histograms == set()
