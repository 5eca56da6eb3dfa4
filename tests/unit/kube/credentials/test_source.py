"""Credentials request by request: cheap while fresh, fetched once, renewed after a 401."""

import asyncio
import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.kube.connection import (
    BasicAuth,
    CertificateAndHeader,
    ClientCertificate,
    Connection,
    ExecPlugin,
    NoCredential,
    Token,
    TokenFile,
)
from reconciler.kube.credentials import Auth, Clock, credential_source
from tests.support.eventually import eventually
from tests.support.kubeconfigs import CERTIFICATE, KEY, leaks

V1 = "client.authentication.k8s.io/v1"
CLIENT = ClientCertificate(CERTIFICATE, Secret(KEY))
START = datetime(2026, 11, 21, 12, tzinfo=UTC)


@dataclass
class SetClock:
    """A clock that moves only when a test sets it."""

    seconds: float = 1000.0

    @property
    def clock(self):
        return Clock(monotonic=lambda: self.seconds, now=self.now)

    def now(self):
        return START + timedelta(seconds=self.seconds - 1000)


@pytest.fixture
def time():
    return SetClock()


def source(credential, time, **options):
    return credential_source(Connection("c", "https://a", credential), clock=time.clock, **options)


def bearer(token):
    return Auth(Secret(f"Bearer {token}"))


def at_once(coroutine):
    """Run a coroutine that must not suspend, and return what it returns."""
    with pytest.raises(StopIteration) as stopped:
        coroutine.send(None)
    return stopped.value.value


STATIC = {
    "nobody": (NoCredential(), Auth()),
    "a token": (Token(Secret("t")), bearer("t")),
    "a certificate": (CLIENT, Auth(None, CLIENT)),
    "a password (RFC 7617)": (
        BasicAuth("Aladdin", Secret("open sesame")),
        Auth(Secret("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")),
    ),
    "a password beyond ASCII": (
        BasicAuth("test", Secret("123\u00a3")),
        Auth(Secret("Basic dGVzdDoxMjPCow==")),
    ),
    "a certificate and a token": (
        CertificateAndHeader(CLIENT, Token(Secret("t"))),
        Auth(Secret("Bearer t"), CLIENT),
    ),
    "a certificate and a password": (
        CertificateAndHeader(CLIENT, BasicAuth("u", Secret(""))),
        Auth(Secret("Basic dTo="), CLIENT),
    ),
}


@pytest.mark.parametrize(("credential", "want"), STATIC.values(), ids=STATIC.keys())
def test_what_cannot_be_renewed_stays(time, credential, want):
    credentials = source(credential, time)
    assert at_once(credentials.current()) == want
    assert at_once(credentials.renew(want)) == want


def test_no_repr_shows_a_secret(time):
    auth = at_once(source(CertificateAndHeader(CLIENT, Token(Secret("canary"))), time).current())
    assert leaks(auth, ("canary", KEY.splitlines()[1])) == []


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"
    path.write_text(" one\n")
    return path


async def test_a_token_file_is_read_again_after_a_minute(time, token_file):
    credentials = source(TokenFile(token_file), time)
    assert await credentials.current() == bearer("one")
    token_file.write_text("two")
    time.seconds += 59
    assert at_once(credentials.current()) == bearer("one")
    time.seconds += 1
    assert await credentials.current() == bearer("two")


async def test_a_token_file_may_be_swapped_by_symlink(time, tmp_path):
    """As the kubelet does it: `token` leads through a link that is renamed over."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "token").write_text(name)
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "token").symlink_to("..data/token")
    credentials = source(TokenFile(tmp_path / "token"), time)
    assert await credentials.current() == bearer("one")
    (tmp_path / "..new").symlink_to("two")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert await credentials.renew(bearer("one")) == bearer("two")


async def test_a_refused_token_is_read_again_at_once(time, token_file):
    credentials = source(TokenFile(token_file), time)
    stale = await credentials.current()
    assert await credentials.renew(stale) == stale
    token_file.write_text("two")
    assert await credentials.renew(stale) == bearer("two")


async def test_a_token_that_is_renewed_already_is_not_read_again(time, token_file):
    credentials = source(TokenFile(token_file), time)
    stale = await credentials.current()
    token_file.write_text("two")
    await credentials.renew(stale)
    token_file.write_text("three")
    assert at_once(credentials.renew(stale)) == bearer("two")


async def test_a_certificate_goes_with_a_token_file(time, token_file):
    credentials = source(CertificateAndHeader(CLIENT, TokenFile(token_file)), time)
    assert await credentials.current() == Auth(Secret("Bearer one"), CLIENT)


BROKEN = {
    "gone": (None, "the token file cannot be read: No such file or directory"),
    "empty": ("\n", "the token file is empty"),
    "half written": (
        "canary\ncanary",
        "the token file contains spaces, line breaks or other characters that no token has",
    ),
    "binary": (
        "\xff\x00",
        "the token file contains spaces, line breaks or other characters that no token has",
    ),
}


@pytest.mark.parametrize(("content", "want"), BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_token_file(time, token_file, caplog, content, want):
    credentials = source(TokenFile(token_file), time)
    good = await credentials.current()
    token_file.unlink()
    if content is not None:
        token_file.write_text(content, encoding="latin-1")
    message = f"{token_file}: {want}"

    time.seconds += 60  # the last good token is kept
    assert await credentials.current() == good
    assert [record.reason for record in caplog.records] == [message]
    assert at_once(credentials.current()) == good

    with pytest.raises(ConfigError) as caught:  # until it is refused
        await credentials.renew(good)
    assert str(caught.value) == message
    assert leaks(caught.value, ("canary",)) == []
    with pytest.raises(ConfigError):
        await credentials.current()

    token_file.write_text("two")
    assert await credentials.current() == bearer("two")


async def test_a_token_file_that_is_broken_from_the_start(time, token_file):
    token_file.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        await source(TokenFile(token_file), time).current()


async def test_a_token_file_that_comes_back_is_noticed_soon(time, token_file):
    credentials = source(TokenFile(token_file), time)
    await credentials.current()
    token_file.write_text("")
    time.seconds += 60
    await credentials.current()
    token_file.write_text("two")
    time.seconds += 5
    assert await credentials.current() == bearer("two")


@pytest.fixture
def issuer(tmp_path):
    """A plug-in that counts its runs and prints what the files beside it say."""
    return Issuer(tmp_path)


class Issuer:
    def __init__(self, folder):
        self.folder = folder
        self.path = folder / "plugin"
        self.path.write_text(
            "#!/bin/sh\n"
            f'cd "{folder}"\n'
            "echo run >> runs\n"
            "while [ -e hold ]; do sleep 0.01; done\n"
            "[ -e fail ] && exit 1\n"
            "exec cat answer\n"
        )
        self.path.chmod(0o755)
        self.plugin = ExecPlugin(str(self.path), (), (), V1, False, "Never")

    def issues(self, token, *, expires=None, **status):
        end = {} if expires is None else {"expirationTimestamp": expires.isoformat()}
        answer = {
            "kind": "ExecCredential",
            "apiVersion": V1,
            "status": {"token": token} | end | status,
        }
        (self.folder / "answer").write_text(json.dumps(answer))

    def set(self, name):
        (self.folder / name).touch()

    def unset(self, name):
        (self.folder / name).unlink()

    @property
    def runs(self):
        runs = self.folder / "runs"
        return len(runs.read_text().splitlines()) if runs.exists() else 0


async def test_a_plug_in_runs_once_for_everybody(time, issuer):
    issuer.issues("one")
    credentials = source(issuer.plugin, time)
    issuer.set("hold")
    calls = [asyncio.create_task(credentials.current()) for _ in range(100)]
    await eventually(lambda: issuer.runs)
    issuer.unset("hold")
    assert await asyncio.gather(*calls) == [bearer("one")] * 100
    assert at_once(credentials.current()) == bearer("one")
    assert issuer.runs == 1


async def test_a_plug_in_runs_once_for_everybody_who_met_a_401(time, issuer):
    issuer.issues("one")
    credentials = source(issuer.plugin, time)
    stale = await credentials.current()
    issuer.issues("two")
    issuer.set("hold")
    calls = [asyncio.create_task(credentials.renew(stale)) for _ in range(100)]
    await eventually(lambda: issuer.runs == 2)
    issuer.unset("hold")
    assert await asyncio.gather(*calls) == [bearer("two")] * 100
    assert await credentials.renew(stale) == bearer("two")
    assert issuer.runs == 2


async def test_a_failure_reaches_everybody(time, issuer):
    issuer.issues("one")
    issuer.set("fail")
    issuer.set("hold")
    credentials = source(issuer.plugin, time)
    calls = [asyncio.create_task(credentials.current()) for _ in range(10)]
    await eventually(lambda: issuer.runs)
    issuer.unset("hold")
    errors = await asyncio.gather(*calls, return_exceptions=True)
    (said,) = {str(error) for error in errors}
    assert said.startswith(f"exec plug-in {issuer.path}: failed with exit status 1. ")
    issuer.unset("fail")
    assert await credentials.current() == bearer("one")


async def test_one_who_gives_up_does_not_stop_the_others(time, issuer):
    issuer.issues("one")
    issuer.set("hold")
    credentials = source(issuer.plugin, time)
    first, second = (asyncio.create_task(credentials.current()) for _ in range(2))
    await eventually(lambda: issuer.runs)
    first.cancel()
    issuer.unset("hold")
    assert await second == bearer("one")
    assert first.cancelled()


async def test_when_all_give_up_the_next_starts_anew(time, issuer):
    issuer.issues("one")
    issuer.set("hold")
    credentials = source(issuer.plugin, time)
    calls = [asyncio.create_task(credentials.current()) for _ in range(3)]
    await eventually(lambda: issuer.runs)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    issuer.unset("hold")
    assert await credentials.current() == bearer("one")
    assert issuer.runs == 2


LIVES = {"an hour": (3600, 3539, 3540), "ten minutes": (600, 539, 540), "two seconds": (2, 1, 1.8)}


@pytest.mark.parametrize(("life", "fresh", "stale"), LIVES.values(), ids=LIVES.keys())
async def test_a_plug_in_runs_again_a_little_early(time, issuer, life, fresh, stale):
    issuer.issues("one", expires=START + timedelta(seconds=life))
    credentials = source(issuer.plugin, time)
    await credentials.current()
    time.seconds += fresh
    assert at_once(credentials.current()) == bearer("one")
    issuer.issues("two")
    time.seconds += stale - fresh
    assert await credentials.current() == bearer("two")


async def test_a_credential_that_does_not_end_is_kept(time, issuer):
    issuer.issues("one")
    credentials = source(issuer.plugin, time)
    await credentials.current()
    time.seconds += 10**8
    assert at_once(credentials.current()) == bearer("one")


async def test_a_credential_that_has_ended_is_tried_once(time, issuer):
    """This machine's clock may be wrong: the server knows."""
    issuer.issues("one", expires=START - timedelta(hours=1))
    credentials = source(issuer.plugin, time)
    assert await credentials.current() == bearer("one")
    assert await credentials.current() == bearer("one")
    assert issuer.runs == 2


async def test_a_plug_in_that_fails_early_is_forgiven_until_the_end(time, issuer, caplog):
    issuer.issues("one", expires=START + timedelta(seconds=600))
    credentials = source(issuer.plugin, time)
    await credentials.current()
    issuer.set("fail")
    time.seconds += 597
    assert await credentials.current() == bearer("one")
    assert len(caplog.records) == 1
    time.seconds += 3
    with pytest.raises(ConfigError, match="failed with exit status 1"):
        await credentials.current()


async def test_a_plug_in_that_fails_after_a_401_is_an_error(time, issuer):
    issuer.issues("one")
    credentials = source(issuer.plugin, time)
    stale = await credentials.current()
    issuer.set("fail")
    for ask in (credentials.renew(stale), credentials.current()):
        with pytest.raises(ConfigError, match="failed with exit status 1"):
            await ask


async def test_a_plug_in_may_issue_a_certificate(time, issuer):
    issuer.issues(None, clientCertificateData=CERTIFICATE, clientKeyData=KEY)
    assert await source(issuer.plugin, time).current() == Auth(None, CLIENT)


async def test_a_plug_in_gets_the_environment_that_is_passed_in(time, issuer):
    issuer.issues("one")
    credentials = source(issuer.plugin, time, environ={"PATH": "/nowhere"})
    with pytest.raises(ConfigError, match="failed with exit status 127"):  # no `cat` there
        await credentials.current()


async def test_a_plug_in_that_needs_a_person_may_have_one(time, issuer):
    issuer.issues("one")
    always = ExecPlugin(str(issuer.path), (), (), V1, False, "Always")
    assert await source(always, time, terminal=True).current() == bearer("one")
    with pytest.raises(ConfigError, match="needs a person"):
        await source(always, time).current()


async def test_a_pipe_is_no_token_file_and_nobody_waits_for_its_writer(tmp_path):
    pipe = tmp_path / "token"
    os.mkfifo(pipe)
    connection = Connection("shop", "https://shop.example", credential=TokenFile(pipe))
    with pytest.raises(ConfigError, match="not a regular file"):
        await credential_source(connection).current()
