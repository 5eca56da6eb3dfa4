"""The command line and the texts of `kubectl bind` (D.1, D.2), and how people sign in by flags."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from klutchctl.binding import Claims, job, kubectl
from klutchctl.binding.job import Flags
from klutchctl.binding.provider import Device, FrontDoor
from klutchctl.binding.run import Asked, Way, require_issuer
from klutchctl.binding.tokens import Identity
from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.kube.kubeconfig.entries import is_shown
from reconciler.oidc.grants import Client
from tests.support import binding_objects as objects

URL = "https://bind.example.org/export"
SAID, OTHER = "https://id.example.org/realms/a", "https://id.example.net/realms/a"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], {"skip_konnector": False, "output": "yaml", "claims": Claims.ASK, "url": []}),
        ([URL, "-d", "-o", "json"], {"dry_run": True, "output": "json", "url": [URL]}),
        (["--skip-konnector", URL], {"skip_konnector": True, "url": [URL]}),
        (["--skip-konnector=false", URL], {"skip_konnector": False}),
        (["-v=4", "-n", "x", "--as-uid=1"], {"v": "4", "namespace": "x", "as_uid": "1"}),
        (["--log-flush-frequency=5s", "--show-managed-fields"], {"show_managed_fields": True}),
        (["--claims", "all", "--accept", "a", "--accept", "b"], {"accept": ["a", "b"]}),
    ],
)
def test_flags_of_the_original_and_our_own(arguments, said):
    found = vars(kubectl.parse(arguments, apiservice=False))
    assert {name: found[name] for name in said} == said


@pytest.mark.parametrize(
    ("arguments", "apiservice"),
    [
        (["--as=admin"], False),
        (["--client-certificate=x"], False),
        (["-o", "wide"], False),
        (["--dry-run"], True),
        (["-f", "x"], False),
        (["--skip-konnector=maybe"], False),
    ],
)
def test_other_flags_are_errors(arguments, apiservice):
    with pytest.raises(ConfigError):
        kubectl.parse(arguments, apiservice=apiservice)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["bind.example.org"], "unknown argument: bind.example.org"),
        (["apiservice"], "either a URL or --file"),
        (["apiservice", "-f", "x"], "a remote kubeconfig is needed"),
        (["apiservice", "-f", "x", "--remote-kubeconfig-name", "y"], "need each other"),
        (["apiservice", "-f", "x", "https://a"], "either a URL or --file"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_code_1(arguments, error, capsys):
    assert kubectl.run(arguments) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("Error: ")
    assert error in last


@pytest.mark.parametrize("arguments", [[], ["--help"], ["apiservice", "-h"]])
def test_without_a_url_there_is_help(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        kubectl.run(arguments)
    assert ended.value.code == 0
    assert "--skip-konnector" in capsys.readouterr().out


def bound(ready, *, provider="", message="", age=0, now=None):
    condition = {"type": "Ready", "status": ready, "message": message}
    made: dict[str, Any] = objects.binding()
    made["metadata"]["creationTimestamp"] = (now - timedelta(seconds=age)).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )
    return {**made, "status": {"providerPrettyName": provider, "conditions": [condition]}}


def test_a_provider_gets_no_name_of_another_cluster_and_no_token(monkeypatch):
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    arguments = ["https://door.example", "--server=https://10.0.3.7:6443", "--token=t"]
    name = kubectl.connection(kubectl.parse(arguments, apiservice=False)).name
    assert [is_shown(one) for one in (name, "dev", "Ab1" * 20)] == [False, True, False]


@pytest.mark.parametrize(
    ("said", "text"),
    [
        # 13-bind.cli.txt and 41-bind-again.cli.txt of 03-default-mode-oidc
        (
            {"ready": "False", "message": "Pending"},
            "NAME                                                           PROVIDER   READY "
            "  MESSAGE   AGE\n"
            "apiservicebinding.klutch.anynines.com/databases.shop.example              False "
            "  Pending   0s\n",
        ),
        (
            {"ready": "True", "provider": "Shop Inc", "age": 260},
            "NAME                                                           PROVIDER   READY "
            "  MESSAGE   AGE\n"
            "apiservicebinding.klutch.anynines.com/databases.shop.example   Shop Inc   True  "
            "            4m20s\n",
        ),
    ],
)
def test_the_table_is_kubectls(said, text):
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert job.table([bound(**said, now=now)], now) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-3, "0s"), (119, "119s"), (120, "2m"), (121, "2m1s"), (3_600, "60m"), (10_800, "3h"),
     (11_000, "3h3m"), (40_000, "11h"), (200_000, "2d")],
)  # fmt: skip
def test_ages(seconds, text):
    assert job.age(seconds) == text


@pytest.fixture
def secret(tmp_path):
    file = tmp_path / "secret"
    file.write_text("canary\n")
    return file


def test_each_way_to_sign_in_has_its_flags(secret):
    assert Flags().way(print) == Way(show=print)
    assert Flags(no_browser=True, callback_port=8000).way(print) == Way(port=8000)
    assert Flags(device_code=True).way(None) == Way(device=True)
    machine = Flags(client_id="ci", client_secret_file=secret, scope=["bind"]).way(None)
    assert machine == Way(client=Client("ci", secret=Secret("canary")), scopes=("bind",))
    assert "canary" not in repr(machine)
    assert Flags(identity="github").way(None) == Way(identity=Identity("github"))
    exchanged = Flags(identity="env:T", exchange=True, client_id="ci").way(None)
    assert exchanged == Way(identity=Identity("env", "T"), client=Client("ci"))


@pytest.mark.parametrize(
    "flags",
    [
        {"exchange": True},
        {"exchange": True, "identity": "github"},
        {"client_id": "ci"},
        {"scope": ["a"]},
        {"device_code": True, "identity": "github"},
        {"device_code": True, "no_browser": True},
        {"identity": "gitlab"},
        {"identity": "github:x"},
        {"identity": "file:"},
        {"identity": "kubernetes:a"},
        {"identity": "kubernetes:A/b"},
        {"issuer": URL},  # a browser and a token as it is go to the front door alone
        {"issuer": URL, "identity": "github"},
    ],
)
def test_flags_that_do_not_fit_are_refused(flags):
    with pytest.raises(ConfigError):
        Flags(**flags).way(None)


def its_door(*, device=None, machines=""):
    known = None if device is None else Device(device, "cli", (), "id_token")
    return FrontDoor("", "", "", "", "", known, machines, ())


MACHINE = Way(client=Client("ci"))
WAYS = [Way(device=True), MACHINE, Way(identity=Identity("github"))]


@pytest.mark.parametrize("way", WAYS)
def test_another_identity_provider_than_was_said_is_refused_with_both_names(way):
    said = Asked(url=URL, way=way, issuer=SAID)
    require_issuer(its_door(device=SAID, machines=SAID), said)
    require_issuer(its_door(), said)  # which is refused later: it offers no such way
    require_issuer(its_door(device=OTHER, machines=OTHER), Asked(url=URL, way=way))
    mixed = {"device": OTHER, "machines": SAID}
    if not way.device:
        mixed = {"device": SAID, "machines": OTHER}
    with pytest.raises(ConfigError) as caught:
        require_issuer(its_door(**mixed), said)
    assert SAID in str(caught.value)
    assert OTHER in str(caught.value)


@pytest.mark.parametrize("near", [SAID + "/", SAID.upper(), SAID + "#x", "http" + SAID[5:]])
def test_an_issuer_is_the_same_to_the_letter(near):
    with pytest.raises(ConfigError):
        require_issuer(its_door(machines=near), Asked(url=URL, way=MACHINE, issuer=SAID))


def test_a_credential_is_one_file_with_text(secret, tmp_path):
    two = Flags(client_id="ci", client_secret_file=secret, client_key_file=secret)
    for flags in (two, Flags(client_id="ci", client_key_file=tmp_path / "absent")):
        with pytest.raises(ConfigError):
            flags.way(None)
    for content in (b"", b"\xff\xfe", b"x" * 70_000):
        secret.write_bytes(content)
        with pytest.raises(ConfigError) as caught:
            Flags(client_id="ci", client_secret_file=secret).way(None)
        assert "--client-secret-file" in str(caught.value)


def test_a_browser_is_opened_only_on_a_screen():
    assert job.browser({}) is None
    assert job.browser({"DISPLAY": ":0"}) is not None
