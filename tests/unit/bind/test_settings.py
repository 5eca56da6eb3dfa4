"""The flags of klutch-bind: the original's, and what becomes of wrong ones."""

from datetime import timedelta

import pytest

from bind import settings
from bind.__main__ import run
from bind.settings import DEFAULT_IMAGE, Settings
from reconciler.core.errors import ConfigError
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
    "where probes are served": (
        ("--probe-address=[::1]:8081",),
        Settings(probes=("::1", 8081)),
    ),
    "where kubeconfigs may not lead, but for": (
        ("--deny-networks=10.0.0.0/8", "--allow-networks=10.1.0.0/16,10.2.0.0/16"),
        Settings(networks=of_flags(["10.1.0.0/16,10.2.0.0/16"], ["10.0.0.0/8"], in_cluster=False)),
    ),
    "verbosity as the original has it": (("-v=4",), Settings(verbosity=4)),
    "the manifests of the original": (
        ("--oidc-issuer-url=https://dex", "--oidc-issuer-client-secret=s3cr3t", "--vmodule=a=2"),
        Settings(unserved=("--oidc-issuer-client-secret", "--oidc-issuer-url", "--vmodule")),
    ),
}


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
    told = capsys.readouterr()
    assert told.err.startswith("Error: ")
    assert sentence in told.err
    assert told.out == ""


def test_a_secret_in_a_flag_is_not_repeated():
    given = settings.parse(["--oidc-issuer-client-secret=s3cr3t", "--cookie-signing-key=k3y"])
    assert "s3cr3t" not in repr(given)
    assert "k3y" not in repr(given)


def test_the_version_is_that_of_the_package(capsys):
    with pytest.raises(SystemExit) as ended:
        settings.parse(["--version"])
    assert (ended.value.code, capsys.readouterr().out.split()[0]) == (0, "klutch-bind")


def test_help_tells_the_flags_that_have_an_effect(capsys):
    with pytest.raises(SystemExit) as ended:
        settings.parse(["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert "--control-plane-mode" in told
    assert "--oidc" not in told


def test_without_a_kubeconfig_it_says_where_it_looked(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nowhere"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert run([]) == 1
    assert f"no kubeconfig found; looked for {tmp_path}/nowhere" in capsys.readouterr().err


def test_the_image_is_the_originals_unless_told():
    assert DEFAULT_IMAGE == "public.ecr.aws/w5n9a2g2/klutch/konnector:v1.4.0"
