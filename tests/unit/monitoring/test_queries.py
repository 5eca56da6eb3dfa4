"""Rules and dashboards ask for what programs show; the runbook describes each alert, no more."""

import json
import re
from itertools import combinations

import pytest

from tests.support import prometheus
from tests.support.registries import registries
from tests.support.registries import shown as registry_names

BOARDS = {path.name: json.loads(path.read_text("utf-8")) for path in prometheus.DASHBOARDS}
RECORDED = {rule["record"] for rule in prometheus.rules() if "record" in rule}
UNITS = {"none", "short", "s", "bytes", "ops", "reqps", "percentunit"}
NAME = re.compile(r"\b\w+:[\w:]+|\b(?:klutch|workqueue_|process_)\w*")
RUNBOOK = (prometheus.FOLDER.parents[1] / "docs/oncall/alerts.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", RUNBOOK, re.DOTALL | re.MULTILINE))
ALERTS = {rule["alert"]: rule for rule in prometheus.alerts()}
PARTS = ("**Means**: ", "**Look first**: ", "```sh\n", "**Do**:", "**Is not**: ")


async def test_each_query_asks_for_what_is_registered_or_recorded():
    shown = {name for one in registries().values() for name in registry_names(one)}
    for query in prometheus.queries():
        asked = {*NAME.findall(re.sub('"[^"]*"', '""', query))}
        assert asked, query
        assert asked <= shown | RECORDED, query


def test_all_that_is_recorded_is_asked_for():
    text = " ".join(prometheus.queries())
    unused = {name for name in RECORDED if name not in text}
    # For those who look at a window of their own.
    assert unused == {"klutch:sync_slow:ratio_5m", "klutch:sync_slow:ratio_30m"}


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_can_be_imported_anywhere(name):
    board, text = BOARDS[name], (prometheus.FOLDER / "dashboards" / name).read_text("utf-8")
    assert board["schemaVersion"] == 39
    assert board["uid"] == f"klutchctl-{name.removesuffix('.json')}"
    first, *others = board["templating"]["list"]
    assert (first["name"], first["type"], first["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    sources = [one["datasource"]["uid"] for one in others]
    assert {*sources} == {"${datasource}"}
    assert "://" not in text
    assert text == json.dumps(board, indent=2) + "\n"


@pytest.mark.parametrize("name", BOARDS)
def test_panels_have_places_of_their_own(name):
    panels = BOARDS[name]["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert not [(one, two) for one, two in combinations(places, 2) if overlap(one, two)]


def overlap(one, two):
    return all(
        one[start] < two[start] + two[size] and two[start] < one[start] + one[size]
        for start, size in (("x", "w"), ("y", "h"))
    )


@pytest.mark.parametrize("name", BOARDS)
def test_each_panel_has_a_unit_and_asks_the_chosen_source(name):
    for panel in BOARDS[name]["panels"]:
        if panel["type"] == "row":
            continue
        title, targets = panel["title"], panel["targets"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, title
        assert {one["datasource"]["uid"] for one in (panel, *targets)} == {"${datasource}"}, title
        assert all(target["legendFormat"] for target in targets), title
        letters = [target["refId"] for target in targets]
        assert letters == ["A", "B", "C"][: len(letters)], title


def test_the_runbook_has_a_section_for_each_alert_and_no_other():
    assert [*SECTIONS] == [*ALERTS]


@pytest.mark.parametrize("name", ALERTS)
def test_a_section_says_what_it_means_where_to_look_and_what_to_do(name):
    places = [SECTIONS[name].find(part) for part in PARTS]
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.parametrize("rule", prometheus.alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_has_a_severity_a_sentence_and_the_address_of_its_section(rule):
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert re.fullmatch(r"[A-Z{].*\.", rule["annotations"]["summary"])
    assert rule["annotations"]["runbook_url"] == f"oncall/alerts.md#{rule['alert'].lower()}"
    assert rule["for"]
