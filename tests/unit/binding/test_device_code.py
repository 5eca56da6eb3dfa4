"""How often the CLI asks for the token of a device code, and what ends that (RFC 8628 3.5)."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest

from klutchctl.binding.errors import BindEnded, Denied, NoConsent
from klutchctl.binding.progress import Progress
from klutchctl.binding.provider import Device
from klutchctl.binding.sign_in.tokens import TokenSource
from reconciler.core.errors import ConfigError, KlutchError
from reconciler.core.secret import Secret
from reconciler.outbound.http import Answer, OutboundError
from tests.support.binding_objects import front_door

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
class FakeHttp:
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

    monkeypatch.setattr("klutchctl.binding.sign_in.tokens.asyncio.sleep", passed)
    return waited


async def signed_in(http: Any, write: Any = lambda _: None) -> Secret:
    device = Device(ISSUER, "cli", ("openid",), "id_token")
    return await TokenSource(http, Progress(write=write)).by_device(front_door(device))


async def test_a_person_reads_whom_the_token_is_given_to(pauses: list[float]) -> None:
    said: list[str] = []
    await signed_in(FakeHttp([answer(200, **GIVEN)]), said.append)
    assert "given to https://bind.example.org/api/v1/bind:" in said[0]
    assert said[0].index("given to") < said[0].index("WDJB-MJHT")


async def test_a_device_asks_as_often_as_it_may(pauses: list[float]) -> None:
    pending, given = refusal("authorization_pending"), answer(200, **GIVEN)
    polls = [pending, refusal("slow_down"), pending, AWAY, AWAY, AWAY, pending, given]
    assert await signed_in(FakeHttp(polls)) == Secret("proof")
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
        await signed_in(FakeHttp([refusal("authorization_pending"), poll]))
    assert type(caught.value) is error
    assert len(pauses) == 2


async def test_a_code_that_is_too_old_is_not_asked_for_again(pauses: list[float]) -> None:
    with pytest.raises(NoConsent):
        await signed_in(FakeHttp([refusal("authorization_pending")], life=0.01))
