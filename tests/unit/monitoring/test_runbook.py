"""Each alert is described in the runbook, and the runbook describes nothing else."""

import re

import pytest

from tests.support import prometheus

RUNBOOK = (prometheus.FOLDER.parents[1] / "docs/oncall/alerts.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", RUNBOOK, re.DOTALL | re.MULTILINE))
ALERTS = {rule["alert"]: rule for rule in prometheus.alerts()}
PARTS = ("**Means**: ", "**Look first**: ", "```sh\n", "**Do**: ", "**Is not**: ")


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
