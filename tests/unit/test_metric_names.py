"""Names, labels and help texts of all metrics, of all programs: what dashboards are written for."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Metric

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
