"""Whom tokens of machines are for, and what an exchange says of its own (RFC 8693 3)."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from klutchctl.binding.errors import Denied
from klutchctl.binding.progress import Progress
from klutchctl.binding.provider import Device
from klutchctl.binding.sign_in.tokens import TokenSource, require_for, subject_type
from reconciler.core.secret import Secret
from reconciler.oidc.grants import Client
from reconciler.outbound.http import Answer
from tests.support.binding_objects import front_door
from tests.support.issuer_tokens import b64

ISSUER = "https://id.example.org/realms/a"
TYPE = "urn:ietf:params:oauth:token-type:"


def token(**claims):
    parts = ({"alg": "RS256"}, claims)
    return ".".join([*(b64(json.dumps(one).encode()) for one in parts), b64(b"signature")])


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (token(iss=ISSUER), "access_token"),
        (token(iss="https://token.actions.githubusercontent.com"), "jwt"),
        (token(iss=f"{ISSUER}/"), "jwt"),
        (token(sub="without issuer"), "access_token"),
        ("opaque", "access_token"),
    ],
)
def test_an_issuers_own_token_is_an_access_token_and_anothers_a_jwt(text, kind):
    assert subject_type(Secret(text), ISSUER) == TYPE + kind


HERE, THERE = "https://bind.example.org", "https://other.example"
DEVICE = Device("https://id.example", "cli", ("openid",), "id_token")


@pytest.mark.parametrize("by_device", [False, True])
@pytest.mark.parametrize("named", [HERE, [HERE], [HERE, "cli"], [THERE, HERE]])
def test_a_token_that_names_the_door_is_given_to_it(named, by_device):
    require_for(Secret(token(aud=named)), front_door(DEVICE), by_device=by_device)


def test_an_id_token_of_a_device_may_name_its_client_alone():
    require_for(Secret(token(aud="cli")), front_door(DEVICE), by_device=True)


ACCESS = Device("https://id.example", "cli", ("openid",), "access_token")


@pytest.mark.parametrize(
    ("text", "door", "by_device"),
    [
        (token(aud=THERE), front_door(DEVICE), True),
        (token(aud=["cli", THERE]), front_door(DEVICE), True),
        (token(aud="cli"), front_door(ACCESS), True),
        (token(aud="cli"), front_door(DEVICE), False),
        (token(aud=[THERE, f"{HERE}/"]), front_door(), False),
        (token(sub="for nobody"), front_door(), False),
        (token(aud=[]), front_door(), True),
        ("canary-opaque", front_door(DEVICE), True),
    ],
)
def test_a_token_that_may_be_good_at_another_door_is_not_sent(text, door, by_device):
    with pytest.raises(Denied) as caught:
        require_for(Secret(text), door, by_device=by_device)
    assert "canary" not in str(caught.value)


@dataclass
class FakeHttp:
    """An identity provider that answers with a token, and keeps what it was asked for."""

    asked: list[dict[str, Any]] = field(default_factory=list)

    async def get(self, url: str, **_: Any) -> Answer:
        places = dict.fromkeys(("token_endpoint", "jwks_uri"), "https://id.example/token")
        return Answer(200, json.dumps({"issuer": "https://id.example", **places}).encode())

    async def send(self, form: Any) -> Answer:
        self.asked.append(dict(form.fields))
        return Answer(200, b'{"access_token": "access", "token_type": "Bearer"}')


async def test_a_machine_asks_for_a_token_for_the_door():
    http: Any = FakeHttp()
    source = TokenSource(http, Progress(write=lambda _: None))
    client, door = Client("robot", secret=Secret("s")), front_door()
    await source.by_client(door, client, scopes=())
    await source.by_client(door, client, scopes=(), subject=Secret("another's"))
    assert [form["audience"] for form in http.asked] == [HERE, HERE]
