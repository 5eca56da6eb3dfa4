"""The arguments of the servers, as facts about all of them."""

from pathlib import Path

import pytest

from klutchctl.sandbox import control_planes
from klutchctl.sandbox.control_planes import NORMAL, Program, Tuning
from klutchctl.sandbox.layout import Layout, named
from klutchctl.sandbox.state import Member, Role, State
from reconciler.core.errors import ConfigError

LAYOUT = Layout(Path("/state/klutchctl/sandbox/default"))
STATE = State(
    20001,
    20002,
    (
        Member("control-plane", Role.CONTROL_PLANE, 20003),
        Member("arn:aws:eks/x", Role.APP_CLUSTER, 20004),
    ),
)
SERVERS = control_planes.servers(LAYOUT, STATE, NORMAL)


def of(program, tuning=NORMAL):
    found = control_planes.servers(LAYOUT, STATE, tuning)
    return [server for server in found if server.program is program]


def test_one_etcd_and_two_servers_for_each_cluster():
    assert [server.program for server in SERVERS] == [
        Program.ETCD,
        Program.API_SERVER,
        Program.API_SERVER,
        Program.CONTROLLER_MANAGER,
        Program.CONTROLLER_MANAGER,
    ]


def test_every_server_has_an_argument_of_its_own_in_the_folder_of_the_sandbox():
    identities = [server.identity for server in SERVERS]
    assert len(set(identities)) == len(SERVERS)
    for server in SERVERS:
        assert server.identity in server.arguments
        assert f"={LAYOUT.root}/" in server.identity
        assert sum(server.identity in other.arguments for other in SERVERS) == 1


def test_nothing_listens_beyond_loopback():
    (etcd,) = of(Program.ETCD)
    urls = [word.partition("=")[2] for word in etcd.arguments if "-urls=" in word]
    assert len(urls) == 4
    assert all(url.startswith("https://127.0.0.1:") for url in urls)
    for server in of(Program.API_SERVER):
        assert "--bind-address=127.0.0.1" in server.arguments
    for server in of(Program.CONTROLLER_MANAGER):
        assert "--secure-port=0" in server.arguments


def test_etcd_asks_for_a_certificate_on_both_ports():
    (etcd,) = of(Program.ETCD)
    assert {"--client-cert-auth", "--peer-client-cert-auth"} <= set(etcd.arguments)
    assert f"--trusted-ca-file={LAYOUT.etcd_pki}/ca.crt" in etcd.arguments
    assert f"--peer-trusted-ca-file={LAYOUT.etcd_pki}/ca.crt" in etcd.arguments


def test_clusters_share_neither_data_nor_authority_nor_token_key():
    for flag in ("--etcd-prefix=", "--client-ca-file=", "--service-account-key-file="):
        values = [w for s in of(Program.API_SERVER) for w in s.arguments if w.startswith(flag)]
        assert len(set(values)) == 2, flag


TUNED = {
    "fsync stays on for people": (NORMAL, Program.ETCD, "--unsafe-no-fsync", False),
    "fsync can be off for tests": (
        Tuning(fsync=False),
        Program.ETCD,
        "--unsafe-no-fsync",
        True,
    ),
    "no audit log for people": (NORMAL, Program.API_SERVER, "--audit-log-path", False),
    "an audit log for tests": (Tuning(audit=True), Program.API_SERVER, "--audit-log-path", True),
}


@pytest.mark.parametrize(("tuning", "program", "flag", "there"), TUNED.values(), ids=TUNED.keys())
def test_tuning(tuning, program, flag, there):
    for server in of(program, tuning):
        assert any(word.startswith(flag) for word in server.arguments) is there


NAMES = {
    "a word": ("default", True),
    "a dash inside": ("ci-7", True),
    "a path": ("../x", False),
    "nothing": ("", False),
    "capitals": ("A", False),
    "a leading dot, as locks have": (".default.lock", False),
    "too long": ("x" * 41, False),
    "a line break": ("a\n", False),
}


@pytest.mark.parametrize(("name", "usable"), NAMES.values(), ids=NAMES.keys())
def test_sandbox_names(name, usable):
    if usable:
        assert named(name, state_home=Path("/state")).root == LAYOUT.root.parent / name
    else:
        with pytest.raises(ConfigError, match="--name"):
            named(name, state_home=Path("/state"))
