"""The book of metrics names those that are registered, with their labels, and no others."""

import re

import pytest

from tests.support import books
from tests.support.registries import registries
from tests.unit.test_metric_names import families

BOOK = "klutchctl/METRICS.md"
NAME = re.compile(r"`((?:klutchctl|klutch|workqueue)_[a-z0-9_]+)(?:\{([a-z_,]+)\})?`")


@pytest.fixture(scope="module")
async def registered() -> dict[str, set[str]]:
    found = {}
    for registry in registries().values():
        for family, labels in families(registry):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = set(labels)
    return found


async def test_the_table_has_every_metric_with_its_labels(registered):
    rows = [line for line in books.text(BOOK).splitlines() if line.startswith("| `")]
    said = {
        name: set(filter(None, labels.split(",")))
        for row in rows
        for name, labels in NAME.findall(row.split(" | ")[0])
    }
    brokers = {name for name in registered if name.startswith("klutch_osb_")}
    assert said == {name: registered[name] for name in registered if name not in brokers}


async def test_metrics_of_brokers_stand_in_the_book_of_the_backend(registered):
    said = {name for name, _ in NAME.findall(books.text("bind/README.md"))}
    brokers = {name for name in registered if name.startswith("klutch_osb_")}
    assert brokers - said == set()


@pytest.mark.parametrize("book", books.BOOKS)
async def test_no_book_speaks_of_a_metric_that_is_not_there(registered, book):
    histograms = {f"{name}{end}" for name in registered for end in ("_bucket", "_sum", "_count")}
    said = {name for name, _ in NAME.findall(books.text(book))}
    assert said - registered.keys() - histograms == set()
