"""Webhooks: options, secrets, remembered deliveries, and which requests are those of a Git host."""

import os

import pytest

from klutchctl.web.hooks.decide import UNPROVEN, Accepted, Provider, decide
from klutchctl.web.hooks.receiver import (
    REMEMBERED,
    Deliveries,
    Hook,
    parse_hook,
    parse_hooks,
    secret_reader,
    tls_of,
)
from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.tls import TlsFiles
from tests.support.fake_clock import FakeClock
from tests.support.webhooks import BODY, KEY, SECOND, SIGNING_TOKEN, generic, github, mac, signature


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "secret"
    path.write_text(f"{KEY}\n")
    return path


def put(path, content):
    """Replace a file as a mounted Secret is."""
    new = path.with_name("new")
    new.write_bytes(content)
    os.replace(new, path)


def test_a_hook(file):
    assert parse_hook(f"web=github:{file}") == Hook("web", Provider.GITHUB, file)
    assert secret_reader(parse_hook(f"web=github:{file}"))() == Secret(KEY)
    with pytest.raises(ConfigError, match="twice"):
        parse_hooks([f"a=github:{file}", f"b=gitea:{file}", f"a=gitlab:{file}"])
    assert [one.name for one in parse_hooks([f"a=github:{file}", f"b=gitea:{file}"])] == ["a", "b"]


NO_HOOKS = {
    "nothing": ("", "NAME=PROVIDER:SECRETFILE"),
    "no file": ("a=github:", "NAME=PROVIDER:SECRETFILE"),
    "no provider": ("a=FILE", "NAME=PROVIDER:SECRETFILE"),
    "another provider": ("a=subversion:FILE", "github, gitlab, gitea, generic"),
    "a name that is a path": ("a/b=github:FILE", "a-z, 0-9"),
    "a name that is too long": (f"{'a' * 41}=github:FILE", "40 of them"),
    "a file that is not there": ("a=github:FILE.not", "No such file"),
}


@pytest.mark.parametrize(("text", "sentence"), NO_HOOKS.values(), ids=NO_HOOKS.keys())
def test_no_hook(file, text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        parse_hook(text.replace("FILE", str(file)))


NO_SECRETS = {
    "fifteen bytes": ("github", b"x" * 15, "15 bytes"),
    "fifteen bytes and the end of a line": ("github", b"x" * 15 + b"\r\n", "15 bytes"),
    "empty": ("gitlab", b"", "is empty"),
    "more than a secret": ("gitea", b"x" * 65537, "larger than 64 KiB"),
    "a short key as base64": ("generic", b"whsec_" + b"QUFB" * 5, "15 bytes"),
    "broken base64": ("gitlab", b"whsec_" + b"A" * 33, "not base64"),
    "no text": ("github", b"\xff" * 16, "no text"),
}


@pytest.mark.parametrize(
    ("provider", "content", "sentence"), NO_SECRETS.values(), ids=NO_SECRETS.keys()
)
def test_no_secret(file, provider, content, sentence):
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=sentence) as caught:
        parse_hook(f"a={provider}:{file}")
    assert "xxx" not in str(caught.value)


def test_sixteen_bytes_are_a_secret(file):
    file.write_bytes(b"x" * 16)
    assert parse_hook(f"a=github:{file}").name == "a"


def test_a_secret_in_the_wrong_place_is_not_quoted():
    for text in (KEY, f"{KEY}=x", f"a={KEY}:/nowhere"):
        with pytest.raises(ConfigError) as caught:
            parse_hook(text)
        assert KEY not in str(caught.value)


def test_a_secret_is_read_again_and_an_old_one_is_worth_nothing(file, caplog):
    secret = secret_reader(Hook("a", Provider.GITHUB, file))
    assert secret() == Secret(KEY)
    put(file, SIGNING_TOKEN.encode())
    assert secret() == Secret(SIGNING_TOKEN)
    put(file, b"short")
    assert [secret(), secret()] == [None, None]
    file.unlink()
    assert secret() is None
    assert len(caplog.records) == 2
    assert "short" not in caplog.text
    put(file, KEY.encode())
    assert secret() == Secret(KEY)


def test_deliveries_are_remembered_within_a_bound():
    deliveries = Deliveries()
    assert deliveries.is_new("a", "first")
    assert deliveries.is_new("b", "first")
    assert not deliveries.is_new("a", "first")
    for number in range(REMEMBERED - 1):
        assert deliveries.is_new("a", str(number))
    assert not deliveries.is_new("b", "first")
    assert deliveries.is_new("a", "first")  # it is the oldest, and forgotten


def test_where_there_has_to_be_tls(tmp_path):
    files = TlsFiles(tmp_path / "crt", tmp_path / "key")
    assert tls_of("", files.cert, files.key) == files
    for host in ("127.0.0.1", "::1", "localhost"):
        assert tls_of(host, None, None) is None
    for host in ("", "0.0.0.0", "::", "10.0.0.1", "example.org"):
        assert tls_of(host, None, None, plain_http=True) is None
        with pytest.raises(ConfigError, match="no TLS"):
            tls_of(host, None, None)
    with pytest.raises(ConfigError, match="belong together"):
        tls_of("127.0.0.1", tmp_path / "crt", None)


GITHUB, GITLAB, GITEA, GENERIC = Provider
SHA1 = {"x-hub-signature": f"sha1={mac(algorithm='sha1')}"}


def verdict(provider, headers, body=BODY, secret=KEY):
    given = {name.lower(): value for name, value in headers.items()}
    return decide(provider, given, body, Secret(secret), FakeClock().now())


def hub(value):
    return {"x-hub-signature-256": value}


GENUINE = {
    "GitHub's": (GITHUB, github(), KEY),
    "GitHub's, with SHA-1 beside": (GITHUB, github() | SHA1, KEY),
    "Gitea's": (GITEA, {"x-gitea-signature": mac()}, KEY),
    "Forgejo's": (GITEA, {"x-forgejo-signature": mac(), "x-gitea-signature": "0" * 64}, KEY),
    "GitLab's by its token": (GITLAB, {"x-gitlab-token": KEY}, KEY),
    "GitLab's token that is not ASCII": (GITLAB, {"x-gitlab-token": "ü" * 16}, "ü" * 16),
    "GitLab's with a signing token": (GITLAB, generic(), SIGNING_TOKEN),
    "a standard one": (GENERIC, generic(), SIGNING_TOKEN),
    "a standard one with a key as it is": (GENERIC, generic(), KEY),
    "five minutes old": (GENERIC, generic(second=SECOND - 300), KEY),
    "of a clock that is five minutes ahead": (GENERIC, generic(second=SECOND + 300), KEY),
    "one of two signatures fits": (
        GENERIC,
        generic() | {"webhook-signature": f"v1,AAAA {signature()} v1a,xyz"},
        KEY,
    ),
}


@pytest.mark.parametrize(("provider", "headers", "secret"), GENUINE.values(), ids=GENUINE.keys())
def test_genuine(provider, headers, secret):
    assert isinstance(verdict(provider, headers, secret=secret), Accepted)
    assert verdict(provider, headers, secret=f"{secret}BBBB") == UNPROVEN


FORGED = {
    "nothing": (GITHUB, {}, KEY),
    "SHA-1 alone": (GITHUB, SHA1, KEY),
    "SHA-1 in the place of SHA-256": (GITHUB, hub(f"sha1={mac(algorithm='sha1')}"), KEY),
    "without its prefix": (GITHUB, hub(mac()), KEY),
    "another prefix": (GITHUB, hub(f"sha512={mac()}"), KEY),
    "hex that is too short": (GITHUB, hub(f"sha256={mac()[:-1]}"), KEY),
    "hex that is too long": (GITHUB, hub(f"sha256={mac()}0"), KEY),
    "no hex": (GITHUB, hub(f"sha256={'é' * 64}"), KEY),
    "digits of another script": (GITHUB, hub(f"sha256={mac()[:-1]}\u0664"), KEY),
    "a header that came twice": (GITHUB, hub(f"sha256={mac()}, sha256={mac()}"), KEY),
    "a line after it": (GITHUB, hub(f"sha256={mac()}\n"), KEY),
    "a body that was changed": (GITHUB, github(BODY + b" "), KEY),
    "another key": (GITHUB, github(key="another key that is long"), KEY),
    "another provider's": (GITEA, github(), KEY),
    "Forgejo's forged, Gitea's good": (
        GITEA,
        {"x-forgejo-signature": "0" * 64, "x-gitea-signature": mac()},
        KEY,
    ),
    "no token": (GITLAB, {}, KEY),
    "an empty token": (GITLAB, {"x-gitlab-token": ""}, KEY),
    "half a token": (GITLAB, {"x-gitlab-token": KEY[:-1]}, KEY),
    "a signing token sent in the clear": (GITLAB, {"x-gitlab-token": SIGNING_TOKEN}, SIGNING_TOKEN),
    "stale": (GENERIC, generic(second=SECOND - 301), KEY),
    "of the future": (GENERIC, generic(second=SECOND + 301), KEY),
    "a time that is no number": (GENERIC, generic(second="now"), KEY),
    "a time of another script": (GENERIC, generic(second="١٧٦٧٢٢٥٦٠٠"), KEY),
    "a negative time": (GENERIC, generic(second=-SECOND), KEY),
    "a time without end": (GENERIC, generic(second="9" * 400), KEY),
    "another time than was signed": (
        GENERIC,
        generic() | {"webhook-timestamp": str(SECOND + 1)},
        KEY,
    ),
    "another id than was signed": (GENERIC, generic() | {"webhook-id": "id2"}, KEY),
    "no id": (GENERIC, generic(""), KEY),
    "an id that takes a part of what is signed": (
        GENERIC,
        {
            "webhook-id": f"id1.{SECOND}",
            "webhook-timestamp": str(SECOND + 1),
            "webhook-signature": signature(f"id1.{SECOND}", SECOND + 1),
        },
        KEY,
    ),
    "no version": (GENERIC, generic() | {"webhook-signature": signature()[3:]}, KEY),
    "a version that we do not know": (
        GENERIC,
        generic() | {"webhook-signature": signature().replace("v1", "v2")},
        KEY,
    ),
    "no signature": (GENERIC, generic() | {"webhook-signature": ""}, KEY),
    "a signature that is not ASCII": (GENERIC, generic() | {"webhook-signature": "v1,é"}, KEY),
}


@pytest.mark.parametrize(("provider", "headers", "secret"), FORGED.values(), ids=FORGED.keys())
def test_forged(provider, headers, secret):
    assert verdict(provider, headers, secret=secret) == UNPROVEN


def test_a_replay_is_known_by_what_is_signed():
    """GitHub signs its body alone, so that its id of a delivery proves nothing."""
    first = verdict(GITHUB, github() | {"X-GitHub-Delivery": "1"})
    assert first == verdict(GITHUB, github() | {"X-GitHub-Delivery": "2"})
    assert first != verdict(GITHUB, github(b"{}"), b"{}")
    again = verdict(GENERIC, generic("id1", SECOND + 60))
    assert again == verdict(GENERIC, generic("id1"))  # a sender that tries again signs anew
    assert again != verdict(GENERIC, generic("id2"))
    token = {"x-gitlab-token": KEY}
    assert verdict(GITLAB, token | {"idempotency-key": "1"}) != verdict(GITLAB, token)
    assert verdict(GITLAB, token) == verdict(GITLAB, token)
