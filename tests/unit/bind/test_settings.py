"""The flags of klutch-bind: the original's, and what becomes of wrong ones."""

import base64
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path

import pytest

from bind import settings
from bind.__main__ import run
from bind.door.settings import DoorSettings
from bind.settings import Settings
from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.kube.networks import of_flags

GIVEN = {
    "nothing": ((), Settings()),
    "a switch alone": (("--control-plane-mode",), Settings(control_plane_mode=True)),
    "a switch with a value": (("--control-plane-mode=false",), Settings()),
    "a switch that is on is turned off": (
        ("--leader-election=false",),
        Settings(leader_election=False),
    ),
    "words in any case": (
        ("--consumer-scope=cluster", "--cluster-scoped-isolation", "NONE"),
        Settings(consumer_scope="Cluster", isolation="None"),
    ),
    "an empty kubeconfig is none": (("--kubeconfig=",), Settings()),
    "seconds": (("--export-grace", "90"), Settings(export_grace=timedelta(seconds=90))),
    "where probes are served": (("--probe-address=[::1]:8081",), Settings(probes=("::1", 8081))),
    "where kubeconfigs may not lead, but for": (
        ("--deny-networks=10.0.0.0/8", "--allow-networks=10.1.0.0/16,10.2.0.0/16"),
        Settings(networks=of_flags(["10.1.0.0/16,10.2.0.0/16"], ["10.0.0.0/8"], in_cluster=False)),
    ),
    "verbosity as the original has it": (("-v=4",), Settings(verbosity=4)),
    "the manifests of the original": (
        ("--listen-address=0.0.0.0:8080", "--testing-auto-select=a.b", "--vmodule=a=2"),
        Settings(unserved=("--testing-auto-select", "--vmodule")),
    ),
}


# With these flags alone the front door of the original opens, and so does ours.
OPEN = (
    "--oidc-issuer-url=https://idp.example",
    "--oidc-issuer-client-id=klutch",
    "--oidc-issuer-client-secret=s3cr3t",
    "--oidc-callback-url=https://bind.example/callback",
)
KEY = base64.b64encode(b"k" * 32).decode()
DOOR = DoorSettings(
    issuer="https://idp.example",
    client_id="klutch",
    client_secret=Secret("s3cr3t"),
    callback="https://bind.example/callback",
    public="https://bind.example",
    authorize="https://bind.example/authorize",
)
OPENED = {
    "the flags of the original": ((), {}),
    "a prefix gets its dash": (("--namespace-prefix=shop",), {"namespace_prefix": "shop-"}),
    "a prefix keeps its dash": (("--namespace-prefix=shop-",), {"namespace_prefix": "shop-"}),
    "a client of CLIs": (("--cli-client-id=cli",), {"cli_client_id": "cli"}),
    "its tokens": (
        ("--cli-client-id=cli", "--accept-cli-audience"),
        {"cli_client_id": "cli", "accept_cli_audience": True},
    ),
    "one key is enough": ((f"--cookie-signing-key={KEY}",), {"cookie_key": b"k" * 32}),
    "an old listen address": (
        ("--listen-ip=0.0.0.0", "--listen-port=9000"),
        {"listen": ("0.0.0.0", 9000)},
    ),
    "TLS": (("--tls-cert-file=a", "--tls-key-file=b"), {"tls": (Path("a"), Path("b"))}),
    "another public URL": (
        ("--public-url=https://door.example/", "--oidc-authorize-url=https://c.example/a"),
        {"public": "https://door.example", "authorize": "https://c.example/a"},
    ),
    "proxies": (
        ("--trusted-proxies=10.0.0.0/8, ::1/128", "--trusted-proxies=192.168.0.0/16"),
        {
            "trusted_proxies": (
                ip_network("10.0.0.0/8"),
                ip_network("::1/128"),
                ip_network("192.168.0.0/16"),
            )
        },
    ),
    "authorisation": (
        ("--authorization=subjectaccessreview",),
        {"authorization": "SubjectAccessReview"},
    ),
    "an image for konnectors": (
        ("--konnector-image=registry.example/konnector:1",),
        {"konnector_image": "registry.example/konnector:1"},
    ),
}


@pytest.mark.parametrize(("arguments", "changes"), OPENED.values(), ids=OPENED.keys())
def test_a_flag_of_a_provider_opens_the_front_door(arguments, changes):
    assert settings.parse([*OPEN, *arguments]).door == replace(DOOR, **changes)


def test_both_cookie_keys_make_one():
    short = base64.b64encode(b"e" * 16).decode()
    given = settings.parse(
        [*OPEN, f"--cookie-signing-key={KEY}", f"--cookie-encryption-key={short}"]
    )
    assert given.door == replace(DOOR, cookie_key=b"k" * 32 + b"e" * 16)


def test_the_secret_of_the_client_comes_from_a_file(tmp_path):
    file = tmp_path / "secret"
    file.write_text("from a file\n")
    arguments = [one for one in OPEN if "secret" not in one]
    given = settings.parse([*arguments, f"--oidc-client-secret-file={file}"])
    assert given.door == replace(DOOR, client_secret=Secret("from a file"))


NOT_OPENED = {
    "a provider alone": (("--oidc-issuer-url=https://a",), "--oidc-issuer-client-id: is needed"),
    "no secret": (OPEN[:2] + OPEN[3:], "--oidc-client-secret-file: name the file"),
    "a callback elsewhere": (
        (*OPEN[:3], "--oidc-callback-url=https://bind.example/other"),
        "--oidc-callback-url: its path is not /callback",
    ),
    "no URL": (
        (*OPEN[1:], "--oidc-issuer-url=idp.example"),
        "--oidc-issuer-url: 'idp.example' is not a URL",
    ),
    "a short signing key": (
        (*OPEN, "--cookie-signing-key=YQ=="),
        "--cookie-signing-key: has 1 bytes, not 32 or 64",
    ),
    # F14: the original looks at the length of the other key.
    "a long encryption key": (
        (*OPEN, "--cookie-encryption-key=" + base64.b64encode(b"k" * 64).decode()),
        "--cookie-encryption-key: has 64 bytes, not 16 or 24 or 32",
    ),
    "a key that is not base64": ((*OPEN, "--cookie-signing-key=§"), "is not base64"),
    # F15: the original serves plain HTTP.
    "a certificate without key": ((*OPEN, "--tls-cert-file=a"), "--tls-key-file: is missing"),
    "a port alone": ((*OPEN, "--listen-port=80"), "--listen-port: has no effect alone"),
    "an address over HTTP": (
        (*OPEN, "--external-address=http://a"),
        "--external-address: does not begin with https://",
    ),
    "no prefix": ((*OPEN, "--namespace-prefix="), "--namespace-prefix: is empty"),
    "no name": ((*OPEN, "--pretty-name="), "--pretty-name: is empty"),
    "rules without a file": ((*OPEN, "--authorization=Rules"), "--access-file: is needed"),
    "an unknown authorisation": ((*OPEN, "--authorization=None"), "'None' is not one of"),
    "a proxy with host bits": (
        (*OPEN, "--trusted-proxies=10.0.0.1/8"),
        "--trusted-proxies: '10.0.0.1/8' is not a network",
    ),
    "no identity asked for": ((*OPEN, "--oidc-scopes=email"), "--oidc-scopes: lacks openid"),
    "a CA alone": (("--oidc-ca-file=a",), "--oidc-issuer-client-id: is needed"),
    "a secret alone": (("--oidc-client-secret-file=a",), "--oidc-issuer-client-id: is needed"),
    "an original's secret alone": (
        ("--oidc-issuer-client-secret=s3cr3t",),
        "--oidc-issuer-client-id: is needed",
    ),
    "the client of browsers as that of CLIs": (
        (*OPEN, "--cli-client-id=klutch"),
        "--cli-client-id: is that of --oidc-issuer-client-id",
    ),
    "a path before the door": (
        (*OPEN, "--public-url=https://a.example/bind"),
        "--public-url: 'https://a.example/bind' has a path",
    ),
    "a start that is no URL": (
        (*OPEN, "--oidc-authorize-url=javascript:alert(1)"),
        "--oidc-authorize-url: 'javascript:alert(1)' is not a URL",
    ),
    "credentials over HTTP": (
        (*OPEN, "--allowed-redirect=http://console.example/"),
        "--allowed-redirect: 'http://console.example/': credentials go there",
    ),
    "a redirect that is no URL": (
        (*OPEN, "--allowed-redirect=//evil.example"),
        "--allowed-redirect: '//evil.example' is not a URL",
    ),
    "a user in a URL": (
        (*OPEN[:3], "--oidc-callback-url=https://a@bind.example/callback"),
        "--oidc-callback-url: 'https://a@bind.example/callback' is not a URL",
    ),
    "a backslash in a URL": (
        (*OPEN, "--allowed-redirect=https://a.example\\@evil.example/"),
        "is not a URL",
    ),
    "no spaces": ((*OPEN, "--max-spaces-per-subject=0"), "0 is less than 1"),
    "a CA that is not there": (
        (*OPEN, "--external-ca-file=/nowhere"),
        "--external-ca-file: /nowhere cannot be read",
    ),
}


@pytest.mark.parametrize(("arguments", "sentence"), NOT_OPENED.values(), ids=NOT_OPENED.keys())
def test_a_front_door_that_would_not_work_does_not_open(arguments, sentence):
    with pytest.raises(ConfigError) as raised:
        settings.parse(arguments)
    assert sentence in str(raised.value)
    assert "s3cr3t" not in str(raised.value)


@pytest.mark.parametrize(("arguments", "meant"), GIVEN.values(), ids=GIVEN.keys())
def test_what_is_given_is_what_is_meant(arguments, meant):
    assert settings.parse(arguments) == meant


WRONG = {
    "an unknown flag": (("--nonsense",), "unrecognized arguments: --nonsense"),
    "a shortened flag": (("--control",), "unrecognized arguments: --control"),
    "a word too many": (("serve",), "unrecognized arguments: serve"),
    "an unknown scope": (("--consumer-scope=World",), "'World' is not Namespaced or Cluster"),
    "an unknown isolation": (
        ("--cluster-scoped-isolation=all",),
        "'all' is not Prefixed or Namespaced or None",
    ),
    "neither true nor false": (("--control-plane-mode=maybe",), "'maybe' is neither true nor"),
    "time that goes back": (("--export-grace=-1",), "--export-grace: -1.0 is not a number"),
    "no time at all": (("--drain-deadline=nan",), "--drain-deadline: nan is not a number"),
    "nobody who works": (("--workers=0",), "--workers: 0 is less than 1"),
    "no calls at all": (("--qps=0",), "--qps: 0.0 is not more than 0"),
    "no network": (("--deny-networks=10.0.0.1/8",), "'10.0.0.1/8' is not a network such as"),
    "no port": (("--probe-address=localhost",), "'localhost' is not ADDR:PORT"),
}


@pytest.mark.parametrize(("arguments", "sentence"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_said_in_a_sentence(arguments, sentence, capsys):
    with pytest.raises(ConfigError) as raised:
        settings.parse(arguments)
    assert sentence in str(raised.value)
    assert run(list(arguments)) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("Error: ")
    assert sentence in shown.err
    assert shown.out == ""


def test_a_secret_in_a_flag_is_not_repeated():
    given = settings.parse([*OPEN, f"--cookie-signing-key={KEY}"])
    assert given.door is not None
    assert given.door.client_secret.reveal() == "s3cr3t"
    assert "s3cr3t" not in repr(given)
    assert "kkkk" not in repr(given)


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as ended:
        settings.parse(["--version"])
    assert (ended.value.code, capsys.readouterr().out.split()[0]) == (0, "klutch-bind")


def test_help_tells_the_flags_that_have_an_effect(capsys):
    with pytest.raises(SystemExit) as ended:
        settings.parse(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "--control-plane-mode" in shown
    assert "--oidc-client-secret-file" in shown
    for secret in ("--oidc-issuer-client-secret", "--cookie-signing-key", "--vmodule"):
        assert secret not in shown


def test_without_a_kubeconfig_it_says_where_it_looked(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert run([]) == 1
    assert f"no kubeconfig found; looked for {tmp_path}/nowhere" in capsys.readouterr().err
