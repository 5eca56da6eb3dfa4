"""The flags of konnector: the original's, ours, and what becomes of wrong ones."""

import sys
from dataclasses import replace

import pytest

from konnector import detach, settings
from konnector.__main__ import run
from konnector.settings import ControlPlaneMode, Settings
from reconciler.blueprints import konnector
from reconciler.blueprints.objects import UNMARKED
from reconciler.core.errors import ConfigError
from reconciler.core.manifest import get_map, get_maps, get_texts, name_of
from reconciler.kube.networks import of_flags
from tests.support.shells import ran

ENVIRON = {"POD_NAME": "konnector-7d9-x2b"}
PLAIN = Settings(lease_identity="konnector-7d9-x2b")
SPACE = ControlPlaneMode(
    space="klutch-bind-team-a-shop",
    secret_namespace="klutch-bind-team-a-shop",
    secret_name="shop-kubeconfig",
    secret_key="admin",
)
BESIDE = (
    "--control-plane-mode",
    "--app-cluster-kubeconfig-secret-name=shop-kubeconfig",
    "--app-cluster-kubeconfig-secret-namespace=klutch-bind-team-a-shop",
    "--app-cluster-kubeconfig-secret-key=admin",
    "--binding-root-namespace=klutch-bind-team-a-shop",
)

GIVEN = {
    "nothing": ((), PLAIN),
    "control-plane mode": (BESIDE, replace(PLAIN, control_plane_mode=SPACE)),
    "the usual key": (
        BESIDE[:3] + BESIDE[4:],
        replace(PLAIN, control_plane_mode=replace(SPACE, secret_key="kubeconfig")),
    ),
    "a switch with a value": (("--control-plane-mode=off",), PLAIN),
    "a switch that is on is turned off": (
        ("--leader-election=false",),
        replace(PLAIN, leader_election=False),
    ),
    "another lease": (
        ("--lease-name=mine", "--lease-namespace", "there"),
        replace(PLAIN, lease_name="mine", lease_namespace="there"),
    ),
    "an empty value is none": (("--kubeconfig=", "--lease-name=", "--lease-namespace="), PLAIN),
    "where probes are served": (
        ("--probe-address=[::1]:8081",),
        replace(PLAIN, probes=("::1", 8081)),
    ),
    "probes are served nowhere": (("--probe-address=",), replace(PLAIN, probes=None)),
    "the only namespace whose bindings are served": (
        ("--binding-namespace=klutch-bind",),
        replace(PLAIN, binding_namespace="klutch-bind"),
    ),
    "a context of the kubeconfig": (("--context=app-1",), replace(PLAIN, context="app-1")),
    "how much at once": (
        ("--workers=7", "--qps", "0.5", "--burst=1"),
        replace(PLAIN, workers=7, qps=0.5, burst=1),
    ),
    "verbosity as Go has it": (("-v=4",), replace(PLAIN, verbosity=4)),
    "verbosity in two words": (("-v", "4"), replace(PLAIN, verbosity=4)),
    "verbosity in full": (("--v=4",), replace(PLAIN, verbosity=4)),
    "a log for machines": (("--logging-format=json",), replace(PLAIN, log_format="json")),
    "flags of the original's logging library": (
        ("--vmodule=a=2", "--log-flush-frequency=5s", "--log-json-split-stream=true"),
        replace(PLAIN, unserved=("--vmodule", "--log-flush-frequency", "--log-json-split-stream")),
    ),
    "switches of logging need no value": (
        ("--log-json-split-stream", "--log-text-split-stream", "--lease-name=x"),
        replace(
            PLAIN, lease_name="x", unserved=("--log-json-split-stream", "--log-text-split-stream")
        ),
    ),
    "flags of a mode that is off": (
        BESIDE[1:2],
        replace(PLAIN, unserved=("--app-cluster-kubeconfig-secret-name",)),
    ),
}


@pytest.mark.parametrize(("arguments", "meant"), GIVEN.values(), ids=GIVEN.keys())
def test_what_is_given_is_what_is_meant(arguments, meant):
    assert settings.parse(arguments, ENVIRON) == meant


def test_the_originals_defaults():
    assert (PLAIN.lease_name, PLAIN.lease_namespace) == ("klutch-bind", "kube-system")
    assert (PLAIN.probes, PLAIN.verbosity) == (("", 8080), 2)
    assert PLAIN.leader_election


LEASE_NAMESPACES = {
    "of the pod": ((), {"POD_NAMESPACE": "klutch-bind"}, "klutch-bind"),
    "of the flag": (("--lease-namespace=a",), {"POD_NAMESPACE": "klutch-bind"}, "a"),
    "of nobody": ((), {"POD_NAMESPACE": ""}, "kube-system"),
}


@pytest.mark.parametrize(
    ("arguments", "environ", "wanted"), LEASE_NAMESPACES.values(), ids=LEASE_NAMESPACES
)
def test_where_the_lease_is(arguments, environ, wanted):
    assert settings.parse(arguments, environ).lease_namespace == wanted


BINDING_NAMESPACES = {
    "of the environment": ((), {"BINDING_NAMESPACE": "klutch-bind"}, "klutch-bind"),
    "of the flag": (("--binding-namespace=a",), {"BINDING_NAMESPACE": "klutch-bind"}, "a"),
    "all": ((), {"BINDING_NAMESPACE": ""}, ""),
}


@pytest.mark.parametrize(
    ("arguments", "environ", "wanted"), BINDING_NAMESPACES.values(), ids=BINDING_NAMESPACES
)
def test_where_bindings_are_served(arguments, environ, wanted):
    assert settings.parse(arguments, environ).binding_namespace == wanted


def test_a_konnector_of_a_space_serves_that_alone():
    given = settings.parse((*BESIDE, "--binding-namespace=klutch-bind"), ENVIRON)
    assert given.unserved == ("--binding-namespace",)


@pytest.mark.parametrize("environ", [{}, {"POD_NAME": ""}], ids=["unset", "empty"])
def test_without_a_pod_each_process_has_an_identity_of_its_own(environ):
    made = {settings.parse((), environ).lease_identity for _ in range(3)}
    assert len(made) == 3
    assert "" not in made


def test_what_the_operator_of_the_control_plane_denies_no_flag_allows():
    said = of_flags([], ["10.0.0.0/8"], in_cluster=False)
    parsed = settings.parse(["--allow-networks=0.0.0.0/0"], dict(said.environment))
    assert parsed.networks.fault("10.0.0.1")
    assert not parsed.networks.fault("192.168.0.1")


WRONG = {
    "an unknown flag": (("--nonsense",), "unrecognized arguments: --nonsense"),
    "a shortened flag": (("--control",), "unrecognized arguments: --control"),
    "a word too many": (("serve",), "unrecognized arguments: serve"),
    "neither true nor false": (("--control-plane-mode=maybe",), "'maybe' is neither true nor"),
    "nobody who works": (("--workers=0",), "--workers: 0 is less than 1"),
    "no calls at all": (("--qps=nan",), "--qps: nan is not more than 0"),
    "no burst": (("--burst=0",), "--burst: 0 is less than 1"),
    "no port": (("--probe-address=localhost",), "'localhost' is not ADDR:PORT"),
    "no such port": (("--probe-address=:65536",), "':65536' is not ADDR:PORT"),
    "a port of many digits": ((f"--probe-address=:{'9' * 5_000}",), "9' is not ADDR:PORT"),
    "an unknown form of log": (("--logging-format=xml",), "argument --logging-format: invalid"),
    **{
        f"without {flag}": (
            tuple(one for one in BESIDE if one.partition("=")[0] != flag),
            f"{flag}: required when --control-plane-mode is on",
        )
        for flag in (
            "--app-cluster-kubeconfig-secret-name",
            "--app-cluster-kubeconfig-secret-namespace",
            "--binding-root-namespace",
        )
    },
    "an empty key": (
        (*BESIDE, "--app-cluster-kubeconfig-secret-key="),
        "--app-cluster-kubeconfig-secret-key: cannot be empty when --control-plane-mode is on",
    ),
    "all that is missing is said": (
        ("--control-plane-mode",),
        "--app-cluster-kubeconfig-secret-name, --app-cluster-kubeconfig-secret-namespace, "
        "--binding-root-namespace: required",
    ),
}


@pytest.mark.parametrize(("arguments", "sentence"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_said_in_a_sentence(arguments, sentence, capsys):
    with pytest.raises(ConfigError) as raised:
        settings.parse(arguments, ENVIRON)
    assert sentence in str(raised.value)
    assert run(list(arguments)) == 1
    reported = capsys.readouterr()
    assert reported.err.startswith("Error: ")
    assert sentence in reported.err
    assert reported.out == ""


def test_help_tells_the_flags_that_have_an_effect(capsys):
    with pytest.raises(SystemExit) as ended:
        settings.parse(["--help"], {})
    assert ended.value.code == 0
    reported = capsys.readouterr().out
    for flag in (*BESIDE, "--lease-name", "--probe-address", "--workers", "--version"):
        assert flag.partition("=")[0] in reported
    assert "--vmodule" not in reported
    assert "`konnector detach`" in " ".join(reported.split())
    assert detach.parse([]) == detach.Asked()


def container_of(deployment):
    (container,) = get_maps(deployment, "spec", "template", "spec", "containers")
    return container


def test_what_a_backend_deploys_starts_beside_the_control_plane():
    home = konnector.SpaceKonnector("team-a", "shop", SPACE.space, SPACE.secret_name, "admin")
    container = container_of(konnector.space_deployment(home, image="x", overrides={}))
    reported = {**ENVIRON, "POD_NAMESPACE": home.space}
    assert {name_of({"metadata": one}) for one in get_maps(container, "env")} == reported.keys()
    # The kubelet puts the variable in its place.
    namespace = f"--lease-namespace={home.space}"
    arguments = [
        namespace if one == "--lease-namespace=$(POD_NAMESPACE)" else one
        for one in get_texts(container, "args")
    ]
    assert namespace in arguments
    meant = replace(
        PLAIN, control_plane_mode=SPACE, lease_namespace=home.space, namespace=home.space
    )
    assert settings.parse(arguments, reported) == meant
    assert probed_port(container) == 8080


def test_what_a_fleet_deploys_starts_in_the_app_cluster():
    container = container_of(konnector.deployment("x", {}, marks=UNMARKED))
    assert "args" not in container
    assert "command" not in container
    reported = {**ENVIRON, "POD_NAMESPACE": "klutch-bind"}
    assert {name_of({"metadata": one}) for one in get_maps(container, "env")} == reported.keys()
    assert settings.parse((), reported) == replace(
        PLAIN, lease_namespace="klutch-bind", namespace="klutch-bind"
    )
    assert probed_port(container) == 8080


def probed_port(container):
    probe = get_map(container, "readinessProbe", "httpGet")
    assert probe["path"] == "/healthz"
    return probe["port"]


# What the process needs before it begins its work. How it ends: `test_agents`.


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_and_version_need_nothing_that_is_heavy(flag):
    script = f"""
import sys
sys.argv = ["konnector", "{flag}"]
from konnector.__main__ import main
try:
    main()
finally:
    loaded = {{"httptools", "pydantic", "uvloop", "prometheus_client"}} & sys.modules.keys()
    print(sorted(loaded), file=sys.stderr)
"""
    run = ran([sys.executable, "-c", script], check=True, timeout=60)
    assert "konnector " in run.stdout
    assert run.stderr == "[]\n"


@pytest.mark.parametrize("module", ["konnector.program", "konnector.detach", "bind.program"])
def test_agents_load_no_pydantic(module):
    script = f"import sys, {module}; print('pydantic' in sys.modules)"
    assert ran([sys.executable, "-c", script], check=True, timeout=60).stdout == "False\n"
