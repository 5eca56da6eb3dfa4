"""What becomes of a broker's credentials: keys, values, and whose Secret it is (design, 6)."""

import base64
import json
from datetime import timedelta
from typing import Any

import pytest

from bind.osb.decisions import credentials, turn
from bind.osb.decisions import record as records_of
from bind.osb.decisions.view import BindingView, ReadSecret
from reconciler.api.osb import GeneratedKind
from reconciler.core import keys, manifest
from reconciler.core.refs import SECRET
from reconciler.core.secret import Secret
from tests.support.osb_bindings import World, claimed
from tests.support.osb_turns import BINDING_KIND, CLUSTER

UID = "6f1c2f7c-8d5e-4c55-9a0a-0b7a4b7d2f10"
KIND = GeneratedKind(BINDING_KIND, "acme", "s1", {}, instances="postgresqlinstances")
CLAIM = {"metadata": {"namespace": "home", "name": "web", "uid": UID}, "spec": {}}
RECORD = records_of.Record(
    UID,
    "acme",
    records_of.BINDING,
    "i1",
    "s1",
    "p1",
    records_of.Claim(BINDING_KIND.group, BINDING_KIND.kind, "home", "web", UID),
    records_of.INTENDED,
)


def view(live: Any = None, **spec: Any) -> BindingView:
    return BindingView(CLUSTER, KIND, {**CLAIM, "spec": spec}, (), ReadSecret(live))


def made(given: dict[str, Any], **spec: Any) -> manifest.Manifest:
    secret = credentials.secret_of(view(**spec), RECORD, Secret(json.dumps(given)))
    assert secret is not None
    return secret


def data(given: dict[str, Any]) -> dict[str, str]:
    held = manifest.get_text_map(made(given), "data")
    values = {key: base64.b64decode(value) for key, value in held.items()}
    return {key: value.decode("utf-8", "surrogatepass") for key, value in values.items()}


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ({"username": "a", "password": "b c\n"}, {"username": "a", "password": "b c\n"}),
        ({"uri": "ä"}, {"uri": "ä"}),
        ({"odd": "\ud800"}, {"odd": "\ud800"}),
        (
            {"port": 5432, "ratio": 1.5, "tls": True},
            {"port": "5432", "ratio": "1.5", "tls": "true"},
        ),
        ({"none": None}, {"none": "null"}),
        ({"hosts": ["a", "b"]}, {"hosts": '["a","b"]'}),
        ({"tls": {"ca": "x", "a": 1}}, {"tls": '{"a":1,"ca":"x"}'}),
        ({"empty": ""}, {"empty": ""}),
        ({"pass word": "a"}, {"pass_word": "a"}),
        ({"pass/word": "a", "pass word": "b"}, {"pass_word": "b", "pass_word_2": "a"}),
        ({"a b": "1", "a_b": "2"}, {"a_b": "2", "a_b_2": "1"}),
        ({"a b": "1", "a_b": "2", "a_b_2": "3"}, {"a_b": "2", "a_b_2": "3", "a_b_3": "1"}),
        ({"": "a"}, {"_": "a"}),
        ({".": "a", "..": "b", "..c": "d"}, {"_": "a", "_.": "b", "_.c": "d"}),
        ({"k" * 300: "a"}, {"k" * 253: "a"}),
        ({"k" * 300: "a", "k" * 301: "b"}, {"k" * 253: "a", "k" * 251 + "_2": "b"}),
    ],
)
def test_credentials_become_keys_and_texts(given: dict[str, Any], held: dict[str, str]) -> None:
    assert data(given) == {"type": "postgresql", "provider": "acme", **held}


def test_a_secret_is_a_provisioned_service_of_its_claim() -> None:
    secret = made({"a": "b"})
    assert secret["type"] == "servicebinding.io/postgresql"
    assert manifest.identity_of(secret) == ("home", "web-creds")
    assert manifest.labels_of(secret) == {
        keys.OSB_BROKER: "acme",
        keys.OSB_SERVICE: "acme.postgresql",
    }
    assert manifest.annotations_of(secret) == {keys.OSB_BINDING: UID}
    (owner,) = manifest.get_maps(secret, "metadata", "ownerReferences")
    assert (owner["kind"], owner["name"], owner["uid"]) == ("PostgresqlBinding", "web", UID)
    assert manifest.name_of(made({}, secretName="mine")) == "mine"


# Whose Secret it is.

FOREIGN: dict[str, Any] = {
    "metadata": {"name": "web-creds"},
    "type": "Opaque",
    "data": {"password": base64.b64encode(b"theirs").decode()},
}


@pytest.mark.parametrize("type_", ["Opaque", "servicebinding.io/postgresql"])
def test_a_foreign_secret_is_left_alone_and_nothing_is_bound(type_: str) -> None:
    world = World()
    world.put(SECRET, {**FOREIGN, "type": type_})
    world.claim()
    world.run(minutes=10)
    assert world.condition("Bound") == ("False", "SecretTaken")
    assert world.secret() == {"password": "theirs"}
    assert world.broker.journal == []
    world.delete(SECRET, "web-creds")
    world.run(minutes=2)
    assert world.logs_in()


@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_marks_that_were_taken_off_are_put_on_again(part: str) -> None:
    world = claimed(minutes=1)
    before = world.secret()
    world.edit(SECRET, "web-creds", lambda live: live["metadata"].update({part: {"mine": "1"}}))
    world.run(minutes=6)
    live = world.live(SECRET, "web-creds")
    assert live is not None
    assert live["metadata"]["labels"][keys.OSB_SERVICE] == "acme.postgresql"
    assert live["metadata"]["annotations"][keys.OSB_BINDING] == world.records()[0].id
    assert live["metadata"][part]["mine"] == "1"
    assert world.secret() == before


# What is shown.


def test_no_text_has_a_secret() -> None:
    world = World()
    shown = list[str]()
    write = world._execute

    def execute(part: turn.Part) -> None:
        shown.append(repr(part.next))
        write(part)

    world._execute = execute  # type: ignore[method-assign]
    world.claim()
    world.run(minutes=1)
    world.edit(BINDING_KIND, "web", lambda live: live["spec"].update(rotation={"request": "1"}))
    world.run(minutes=10)
    world.delete(SECRET, "web-creds")
    world.run(minutes=10)
    texts = "\n".join([*shown, *world.steps, json.dumps(world.live(BINDING_KIND, "web"))])
    texts += "\n".join(map(repr, world.records()))
    given = [one["credentials"] for one in world.broker.inventory.bindings.values()]
    assert len(given) == 2
    for each in given:
        for secret in (each["password"], base64.b64encode(each["password"].encode()).decode()):
            assert secret not in texts


def test_what_is_in_no_secret_is_shown_and_leaves_ready_alone() -> None:
    world = World()
    world.broker.modes.binding_extras = {"volume_mounts": [{"a": 1}], "syslog_drain_url": "x://y"}
    world.broker.modes.endpoints = ({"host": "db.example", "ports": ["5432"]},)
    world.claim()
    world.run(minutes=1)
    assert world.condition("Projected") == ("Unknown", "NotProjected")
    assert world.condition("Ready") == ("True", "")
    assert world.status("endpoints") == [{"host": "db.example", "ports": ["5432"]}]


# What a claim says of rotation.


@pytest.mark.parametrize(
    ("stated", "terms"),
    [
        ({}, credentials.Terms(None, timedelta(hours=1), "")),
        ({"every": "720h"}, credentials.Terms(timedelta(days=30), timedelta(hours=1), "")),
        ({"every": "1s"}, credentials.Terms(timedelta(minutes=1), timedelta(hours=1), "")),
        ({"every": "often"}, credentials.Terms(None, timedelta(hours=1), "")),
        ({"every": "-5h"}, credentials.Terms(None, timedelta(hours=1), "")),
        ({"overlap": "24h"}, credentials.Terms(None, timedelta(days=1), "")),
        ({"overlap": "0s"}, credentials.Terms(None, timedelta(), "")),
        ({"overlap": "?"}, credentials.Terms(None, timedelta(hours=1), "")),
        ({"request": "1"}, credentials.Terms(None, timedelta(hours=1), "1")),
    ],
)
def test_terms_of_rotation(stated: dict[str, str], terms: credentials.Terms) -> None:
    assert credentials.terms({"spec": {"rotation": stated}}) == terms
