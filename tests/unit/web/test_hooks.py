"""Hooks as options, their secrets, and the deliveries that are remembered."""

import os

import pytest

from klutchctl.web.hooks.decide import Provider
from klutchctl.web.hooks.hook import Hook, parse_hook, parse_hooks, secret_reader
from klutchctl.web.hooks.receiver import REMEMBERED, Deliveries, tls_of
from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.tls import TlsFiles
from tests.support.webhooks import KEY, SIGNING_TOKEN


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
