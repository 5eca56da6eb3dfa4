"""Where machines have their tokens from, and for whom these are made."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from klutchctl.binding.errors import BadAnswer, BindEnded, Denied
from klutchctl.binding.sign_in import tokens
from klutchctl.binding.sign_in.tokens import Identity, Sources
from reconciler.core.errors import ConfigError, KlutchError
from reconciler.core.secret import Secret
from reconciler.outbound.http import Answer, OutboundError

AUDIENCE = "https://bind.example.org"
RUNNER = {
    "ACTIONS_ID_TOKEN_REQUEST_URL": "https://runner.example/token?api-version=2",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "canary-of-the-runner",
}


@dataclass
class FakeHttp:
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
    http = FakeHttp(Answer(200, b'{"value": "signed"}'))
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
        await token(Identity("github"), environ=environ, http=FakeHttp(answer))
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
