"""Names, labels and help texts of all metrics, of all programs, and the book that names them."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Metric

from tests.support import books
from tests.support.registries import registries

PREFIXES = {
    "klutchctl": ("klutchctl_", "klutch_leader_election_"),
    "klutch-bind": ("klutch_", "workqueue_"),
    "klutch-osb": ("klutch_", "workqueue_"),
    "konnector": ("klutch_", "workqueue_"),
}
# Words of ours, kinds, and names that people gave to clusters, brokers, hooks and sinks.
LABELS = {
    *("action", "broker", "cluster", "code", "control_plane", "controller", "direction", "guard"),
    *("hook", "metric", "name", "outcome", "resource", "result", "route", "sink", "state"),
    *("status", "trigger", "verb"),
}
OTHER_UNITS = re.compile(r"_(ms|millis|milliseconds|minutes?|hours?|days?|percent|kb|mb)(_|$)")
SENTENCE = re.compile(r"[A-Z0-9][^\n]* [^\n]*\.")


@pytest.fixture(scope="module")
async def programs() -> dict[str, CollectorRegistry]:
    return registries()


def families(registry: CollectorRegistry) -> Iterator[tuple[Metric, tuple[str, ...]]]:
    """Yield the metrics of ours with their labels, also those without a value so far."""
    collectors: dict[Any, list[str]] = registry._collector_to_names
    for collector in collectors:
        for family in collector.collect():
            labels = getattr(collector, "_labelnames", getattr(family, "_labelnames", ()))
            if not family.name.startswith("process_"):
                yield family, tuple(labels)


@pytest.mark.parametrize("program", PREFIXES)
async def test_names(programs, program):
    named = {family.name: family.type for family, _ in families(programs[program])}
    assert len(named) > 15  # or the program was not made as it runs
    assert [name for name in named if not name.startswith(PREFIXES[program])] == []
    assert [name for name in named if not re.fullmatch("[a-z][a-z0-9_]*[a-z0-9]", name)] == []
    assert [name for name in named if OTHER_UNITS.search(name)] == []
    timed = {name for name, type_ in named.items() if type_ == "histogram"}
    assert [name for name in timed if not name.endswith("_seconds")] == []
    reserved = ("_total", "_count", "_sum", "_bucket", "_info")
    assert [name for name in named if name.endswith(reserved)] == []


@pytest.mark.parametrize("program", PREFIXES)
async def test_help_is_a_sentence(programs, program):
    texts = {family.name: family.documentation for family, _ in families(programs[program])}
    assert {name: text for name, text in texts.items() if not SENTENCE.fullmatch(text)} == {}


@pytest.mark.parametrize("program", PREFIXES)
async def test_labels_name_nothing_that_grows_without_bounds(programs, program):
    used = {family.name: set(labels) - LABELS for family, labels in families(programs[program])}
    assert {name: labels for name, labels in used.items() if labels} == {}


async def test_a_name_means_the_same_in_all_programs(programs):
    meanings: dict[str, set[tuple[str, str, tuple[str, ...]]]] = {}
    for registry in programs.values():
        for family, labels in families(registry):
            meaning = (family.type, family.documentation, labels)
            meanings.setdefault(family.name, set()).add(meaning)
    assert {name: found for name, found in meanings.items() if len(found) > 1} == {}


async def test_every_label_that_is_allowed_is_used(programs):
    used = {
        label for registry in programs.values() for _, all_ in families(registry) for label in all_
    }
    assert LABELS - used == set()


TABLES = ("klutchctl/docs/reference/metrics.md", "klutchctl/docs/reference/flags.md")
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
