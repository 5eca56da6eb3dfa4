"""Tokens for a front door: of people by a device code, and of machines."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from klutchctl.binding import tokens
from klutchctl.binding.progress import BadAnswer, BindEnded, Denied, NoConsent, Progress
from klutchctl.binding.provider import Device
from klutchctl.binding.tokens import Identity, Sources, TokenSource, require_for, subject_type
from reconciler.core.errors import ConfigError, KlutchError
from reconciler.core.secret import Secret
from reconciler.oidc.grants import Client
from reconciler.web.outbound import Answer, OutboundError
from tests.support.binding_objects import front_door
from tests.support.issuer_tokens import b64

ISSUER = "https://id.example"
PLACES = {"token_endpoint": "token", "device_authorization_endpoint": "device", "jwks_uri": "jwks"}
DISCOVERED = {"issuer": ISSUER} | {name: f"{ISSUER}/{path}" for name, path in PLACES.items()}
CODE = {"device_code": "GmRh", "user_code": "WDJB-MJHT", "verification_uri": f"{ISSUER}/device"}
GIVEN = {"access_token": "access", "id_token": "proof", "token_type": "Bearer"}
AWAY = OutboundError(f"{ISSUER}/token", "no answer")


def answer(status: int, **members: Any) -> Answer:
    return Answer(status, json.dumps(members).encode())


def refusal(error: str) -> Answer:
    return answer(400, error=error)


@dataclass
class Polled:
    """An identity provider that gives these answers to polls."""

    polls: list[Any]
    life: float = 1800

    async def get(self, url: str, **_: Any) -> Answer:
        return answer(200, **DISCOVERED)

    async def send(self, form: Any) -> Any:
        if form.url.endswith("/device"):
            return answer(200, **CODE, expires_in=self.life)
        found = self.polls.pop(0) if len(self.polls) > 1 else self.polls[0]
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let all times pass at once; return what was waited."""
    waited: list[float] = []
    sleep = asyncio.sleep

    async def passed(seconds: float) -> None:
        waited.append(round(seconds))
        await sleep(0)

    monkeypatch.setattr("klutchctl.binding.tokens.asyncio.sleep", passed)
    return waited


async def signed_in(http: Any, write: Any = lambda _: None) -> Secret:
    device = Device(ISSUER, "cli", ("openid",), "id_token")
    return await TokenSource(http, Progress(write=write)).by_device(front_door(device))


async def test_a_person_reads_whom_the_token_is_given_to(pauses: list[float]) -> None:
    said: list[str] = []
    await signed_in(Polled([answer(200, **GIVEN)]), said.append)
    assert "given to https://bind.example.org/api/v1/bind:" in said[0]
    assert said[0].index("given to") < said[0].index("WDJB-MJHT")


async def test_a_device_asks_as_often_as_it_may(pauses: list[float]) -> None:
    pending, given = refusal("authorization_pending"), answer(200, **GIVEN)
    polls = [pending, refusal("slow_down"), pending, AWAY, AWAY, AWAY, pending, given]
    assert await signed_in(Polled(polls)) == Secret("proof")
    assert pauses == [5, 5, 10, 10, 20, 40, 60, 60]


@pytest.mark.parametrize(
    ("poll", "error"),
    [
        (refusal("access_denied"), Denied), (refusal("expired_token"), NoConsent),
        (refusal("invalid_request"), ConfigError), (answer(503), BindEnded),
    ],
)  # fmt: skip
async def test_a_final_answer_ends_it(pauses: list[float], poll: Answer, error: Any) -> None:
    with pytest.raises(KlutchError) as caught:
        await signed_in(Polled([refusal("authorization_pending"), poll]))
    assert type(caught.value) is error
    assert len(pauses) == 2


async def test_a_code_that_is_too_old_is_not_asked_for_again(pauses: list[float]) -> None:
    with pytest.raises(NoConsent):
        await signed_in(Polled([refusal("authorization_pending")], life=0.01))


REALM = "https://id.example.org/realms/a"
TYPE = "urn:ietf:params:oauth:token-type:"


def holding(**claims):
    parts = ({"alg": "RS256"}, claims)
    return ".".join([*(b64(json.dumps(one).encode()) for one in parts), b64(b"signature")])


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (holding(iss=REALM), "access_token"),
        (holding(iss="https://token.actions.githubusercontent.com"), "jwt"),
        (holding(iss=f"{REALM}/"), "jwt"),
        (holding(sub="without issuer"), "access_token"),
        ("opaque", "access_token"),
    ],
)
def test_an_issuers_own_token_is_an_access_token_and_anothers_a_jwt(text, kind):
    assert subject_type(Secret(text), REALM) == TYPE + kind


DOOR, THERE = "https://bind.example.org", "https://other.example"
BY_ID = Device("https://id.example", "cli", ("openid",), "id_token")


@pytest.mark.parametrize("by_device", [False, True])
@pytest.mark.parametrize("named", [DOOR, [DOOR], [DOOR, "cli"], [THERE, DOOR]])
def test_a_token_that_names_the_door_is_given_to_it(named, by_device):
    require_for(Secret(holding(aud=named)), front_door(BY_ID), by_device=by_device)


def test_an_id_token_of_a_device_may_name_its_client_alone():
    require_for(Secret(holding(aud="cli")), front_door(BY_ID), by_device=True)


ACCESS = Device("https://id.example", "cli", ("openid",), "access_token")


@pytest.mark.parametrize(
    ("text", "door", "by_device"),
    [
        (holding(aud=THERE), front_door(BY_ID), True),
        (holding(aud=["cli", THERE]), front_door(BY_ID), True),
        (holding(aud="cli"), front_door(ACCESS), True),
        (holding(aud="cli"), front_door(BY_ID), False),
        (holding(aud=[THERE, f"{DOOR}/"]), front_door(), False),
        (holding(sub="for nobody"), front_door(), False),
        (holding(aud=[]), front_door(), True),
        ("canary-opaque", front_door(BY_ID), True),
    ],
)
def test_a_token_that_may_be_good_at_another_door_is_not_sent(text, door, by_device):
    with pytest.raises(Denied) as caught:
        require_for(Secret(text), door, by_device=by_device)
    assert "canary" not in str(caught.value)


@dataclass
class Granting:
    """An identity provider that answers with a token, and keeps what it was asked for."""

    asked: list[dict[str, Any]] = field(default_factory=list)

    async def get(self, url: str, **_: Any) -> Answer:
        places = dict.fromkeys(("token_endpoint", "jwks_uri"), "https://id.example/token")
        return Answer(200, json.dumps({"issuer": "https://id.example", **places}).encode())

    async def send(self, form: Any) -> Answer:
        self.asked.append(dict(form.fields))
        return Answer(200, b'{"access_token": "access", "token_type": "Bearer"}')


async def test_a_machine_asks_for_a_token_for_the_door():
    http: Any = Granting()
    source = TokenSource(http, Progress(write=lambda _: None))
    client, door = Client("robot", secret=Secret("s")), front_door()
    await source.by_client(door, client, scopes=())
    await source.by_client(door, client, scopes=(), subject=Secret("another's"))
    assert [form["audience"] for form in http.asked] == [DOOR, DOOR]


AUDIENCE = "https://bind.example.org"
RUNNER = {
    "ACTIONS_ID_TOKEN_REQUEST_URL": "https://runner.example/token?api-version=2",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "canary-of-the-runner",
}


@dataclass
class Runner:
    """Gives one answer, and notes what was asked."""

    answer: Any
    asked: list[Any] = field(default_factory=list)

    async def get(self, url, *, headers=()):
        self.asked.append((url, headers["Authorization"].reveal()))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@dataclass
class FakeCluster:
    """Makes one token, and notes for whom."""

    made: Any
    asked: list[Any] = field(default_factory=list)

    async def create(self, manifest, kind, *, manager, subresource):
        self.asked.append((manifest["metadata"], manifest["spec"], kind.plural, subresource))
        return self.made


async def token(identity, *, environ=(), http=None, cluster=None):
    sources: Any = Sources(dict(environ), http, lambda: cluster)
    return await sources.token(identity, AUDIENCE)


async def test_a_file_and_a_variable_hold_the_token_itself(tmp_path):
    (tmp_path / "token").write_text("from-file\n")
    found = await token(Identity("file", str(tmp_path / "token")))
    assert found == Secret("from-file")
    assert await token(Identity("env", "T"), environ={"T": " from-env "}) == Secret("from-env")
    for identity in (Identity("file", str(tmp_path / "absent")), Identity("env", "T")):
        with pytest.raises(ConfigError):
            await token(identity)


async def test_a_runner_of_github_makes_one_for_the_door():
    http = Runner(Answer(200, b'{"value": "signed"}'))
    assert await token(Identity("github"), environ=RUNNER, http=http) == Secret("signed")
    assert http.asked == [
        (
            "https://runner.example/token?api-version=2&audience=https%3A%2F%2Fbind.example.org",
            "Bearer canary-of-the-runner",
        )
    ]


@pytest.mark.parametrize(
    ("environ", "answer", "error"),
    [
        ({}, None, ConfigError),
        (RUNNER | {"ACTIONS_ID_TOKEN_REQUEST_URL": "https://[canary/"}, None, ConfigError),
        (RUNNER, Answer(403, b""), Denied),
        (RUNNER, Answer(500, b""), BindEnded),
        (RUNNER, Answer(200, b"no"), BadAnswer),
        (RUNNER, Answer(200, b'{"value": ""}'), BadAnswer),
        (RUNNER, OutboundError("https://runner.example", "no answer"), BindEnded),
    ],
)
async def test_a_runner_without_a_token_says_why(environ, answer, error):
    with pytest.raises(KlutchError) as caught:
        await token(Identity("github"), environ=environ, http=Runner(answer))
    assert type(caught.value) is error
    assert "canary" not in str(caught.value)


async def test_an_app_cluster_makes_one_for_the_door_for_ten_minutes():
    cluster = FakeCluster({"status": {"token": "signed"}})
    found = await token(tokens.parse("kubernetes:ci/deployer"), cluster=cluster)
    assert found == Secret("signed")
    assert cluster.asked == [
        (
            {"name": "deployer", "namespace": "ci"},
            {"audiences": [AUDIENCE], "expirationSeconds": 600},
            "serviceaccounts",
            "token",
        )
    ]
    with pytest.raises(BadAnswer):
        await token(Identity("kubernetes", "ci/deployer"), cluster=FakeCluster({}))
