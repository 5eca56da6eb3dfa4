"""The rules for conftest of the example, by rego-cpp, on plans as `show -o json` prints them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import regopy
import yaml

from klutchctl.render import plan_formats
from reconciler.core.refs import CONFIG_MAP, Ref
from reconciler.fleet.values import UnitKey
from reconciler.planning.changes import Action, Change, Plan, WidenedClaim

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "fleet-example" / "policies" / "conftest"
DATA = json.loads((FOLDER / "tickets.json").read_text())
UNIT = UnitKey("shop-eu-1", "anynines.com", "backups")


def line(action, **more):
    ref = Ref(UNIT.cluster, CONFIG_MAP, "klutch-bind", UNIT.name)
    return Change(UNIT.cluster, "shop-backups", ref, action, "because", unit=UNIT, **more)


def plan(*changes, widened=()):
    made = Plan("acme", "", "", changes, {UNIT.cluster: "eu", "test-1": "trial"}, widened)
    return json.loads(plan_formats.as_json(made))


def reaches(claim="secrets", cluster=UNIT.cluster):
    return WidenedClaim(replace(UNIT, cluster=cluster), "shop", claim, "names [a]", "all")


def denied(document: Any, **data: Any) -> list[str]:
    """Return what conftest would print: the members of `deny` in the package `main`."""
    interpreter = regopy.Interpreter()
    for file in sorted(FOLDER.glob("*.rego")):
        interpreter.add_module(file.name, file.read_text())
    interpreter.add_data({**DATA, **data})
    interpreter.set_input(document)
    (result,) = interpreter.query("data.main.deny").results
    return sorted(result.expressions[0])


DELETED = "shop-eu-1: delete backups.anynines.com without a ticket"
REPLACED = DELETED.replace("delete", "replace")
WIDENED = "shop-eu-1: shop would reach Secrets: all, before: names [a]"
CASES: dict[str, tuple[Any, dict[str, Any], list[str]]] = {
    "nothing to do": (plan(), {}, []),
    "what harms nothing": (plan(line(Action.CREATE), line(Action.RELEASE)), {}, []),
    "a delete": (plan(line(Action.DELETE)), {}, [DELETED]),
    "a replace": (plan(line(Action.REPLACE)), {}, [REPLACED]),
    "a replace of the request alone": (plan(line(Action.REPLACE, keeps_data=True)), {}, []),
    "a ticket for the cluster": (
        plan(line(Action.DELETE)),
        {"tickets": {"shop-eu-1": "CHG-1234"}},
        [],
    ),
    "a ticket for the service": (
        plan(line(Action.DELETE)),
        {"tickets": {"shop-eu-1/backups.anynines.com": "CHG-1234"}},
        [],
    ),
    "a ticket for another": (
        plan(line(Action.DELETE)),
        {"tickets": {"shop-eu-1/restores.anynines.com": "CHG-1"}},
        [DELETED],
    ),
    "a ticket that is none": (
        plan(line(Action.DELETE)),
        {"tickets": {"shop-eu-1": "later"}},
        [DELETED],
    ),
    "Secrets in production": (plan(widened=(reaches(),)), {}, [WIDENED]),
    "Secrets elsewhere": (plan(widened=(reaches(cluster="test-1"),)), {}, []),
    "ConfigMaps in production": (plan(widened=(reaches("configmaps"),)), {}, []),
    "no plan": ({}, {}, ["this is not a plan of klutchctl, version 1.x"]),
    "a later plan": (
        {**plan(), "version": "2.0"},
        {},
        ["this is not a plan of klutchctl, version 1.x"],
    ),
}


@pytest.mark.parametrize(("document", "data", "expected"), CASES.values(), ids=CASES.keys())
def test_what_is_denied(document, data, expected):
    assert denied(document, **data) == expected


def test_production_is_a_control_plane_of_the_example():
    texts = (ROOT / "fleet-example" / "controlplanes").glob("*.yaml")
    names = {yaml.safe_load(text.read_text())["metadata"]["name"] for text in texts}
    assert set(DATA["production"]) <= names
