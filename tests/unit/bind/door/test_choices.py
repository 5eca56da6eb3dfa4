"""What people do with an offer once they chose: a command, and files that a fleet takes."""

import dataclasses

import pytest
import yaml

from bind.door import choices
from reconciler.fleet.load import load
from tests.support.door_pages import DATABASES
from tests.support.fleet_texts import tree

URL = "https://bind.example.org"
BEGIN = f"klutchctl bind {URL} --resource databases.shop.example"
SECRETS = {"resource": "secrets", "version": "v1", "selector": {"owner": "Provider"}}
NAMED = {
    "group": "shop.example",
    "resource": "queues",
    "version": "v1",
    "selector": {
        "owner": "Consumer",
        "names": ["b", "a"],
        "namespaces": [],
        "labelSelectors": [{"app": "shop"}],
    },
}
BY_FIELDS = {
    "resource": "configmaps",
    "version": "v1",
    "selector": {"owner": "Provider", "fieldSelectors": ["metadata.name=a"]},
}
UNOWNED = {"resource": "configmaps", "version": "v1", "selector": {"names": ["*"]}}


def offer(*claims):
    return dataclasses.replace(DATABASES, claims=claims)


@pytest.mark.parametrize(
    ("claims", "chosen", "more"),
    [
        ((), (), ""),
        ((SECRETS,), (), " --claims none"),
        ((SECRETS,), (0,), " --claims none --accept secrets"),
        ((SECRETS, NAMED), (1,), " --claims none --accept queues.shop.example"),
        ((NAMED, SECRETS), (0, 1), " --claims none --accept queues.shop.example --accept secrets"),
        ((SECRETS, SECRETS), (0, 1), " --claims none --accept secrets"),
        ((SECRETS, SECRETS), (0,), " --claims ask"),
    ],
)
def test_the_command_accepts_what_was_chosen_and_nothing_else(claims, chosen, more):
    assert choices.command(offer(*claims), chosen, url=URL) == BEGIN + more


def test_no_word_of_a_provider_ends_up_as_more_than_an_argument():
    hostile = dataclasses.replace(
        offer({"resource": "x; rm -rf /", "version": "v1"}), title="$(reboot)"
    )
    assert choices.command(hostile, (0,), url=URL) == (
        f"{BEGIN} --claims none --accept 'x; rm -rf /'"
    )


@pytest.mark.parametrize(
    ("claims", "chosen"),
    [((), ()), ((SECRETS,), ()), ((SECRETS,), (0,)), ((SECRETS, NAMED, UNOWNED), (1, 2))],
)
def test_a_fleet_takes_the_files(claims, chosen):
    text = choices.fleet(offer(*claims), chosen).replace("your-cluster", "shop")
    _, problems = load(tree({"bindings/databases.yaml": text}))
    assert not problems


def test_the_ceiling_is_what_was_accepted():
    template, binding = yaml.safe_load_all(choices.fleet(offer(SECRETS, NAMED), (1,)))
    queues = {
        "group": "shop.example",
        "resource": "queues",
        "version": "v1",
        "owner": "Consumer",
        "names": ["b", "a"],
        "namespaces": [],
        "labels": [{"app": "shop"}],
    }
    secrets = {"group": "", "resource": "secrets", "version": "v1", "owner": "Provider"}
    assert template["spec"] == {
        "resources": [{"group": "shop.example", "resource": "databases"}],
        "claims": [queues],
    }
    assert binding["spec"] == {
        "template": "databases",
        "clusters": {"names": ["your-cluster"]},
        "claims": [
            {**secrets, "names": ["*"], "state": "Rejected"},
            {**queues, "state": "Accepted"},
        ],
    }


@pytest.mark.parametrize("claim", [UNOWNED, BY_FIELDS])
def test_what_files_cannot_say_is_said_beside_them(claim):
    remarks = choices.result(offer(claim), (0,), url=URL).remarks
    assert [one for one in remarks if "configmaps" in one]
    assert "claims" not in choices.fleet(offer(claim), (0,))
