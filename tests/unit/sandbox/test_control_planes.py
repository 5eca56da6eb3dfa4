"""The arguments of the servers, as facts about all of them."""

from pathlib import Path

import pytest

from klutchctl.sandbox import servers
from klutchctl.sandbox.servers import NORMAL, Program, Tuning
from klutchctl.sandbox.state import Layout, Member, Role, State, layout_of
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
SERVERS = servers.of_clusters(LAYOUT, STATE, NORMAL)


def of(program, tuning=NORMAL):
    found = servers.of_clusters(LAYOUT, STATE, tuning)
    return [server for server in found if server.program is program]


def test_every_server_has_an_argument_of_its_own_in_the_folder_of_the_sandbox():
    identities = [server.identity for server in SERVERS]
    assert len(set(identities)) == len(SERVERS)
    for server in SERVERS:
        assert server.identity in server.arguments
        assert f"={LAYOUT.root}/" in server.identity
        assert sum(server.identity in other.arguments for other in SERVERS) == 1


def test_fsync_is_off_for_tests_alone():
    for tuning in (NORMAL, Tuning(fsync=False)):
        (etcd,) = of(Program.ETCD, tuning)
        assert ("--unsafe-no-fsync" in etcd.arguments) is not tuning.fsync


def test_clusters_share_neither_data_nor_authority_nor_token_key():
    for flag in ("--etcd-prefix=", "--client-ca-file=", "--service-account-key-file="):
        values = [w for s in of(Program.API_SERVER) for w in s.arguments if w.startswith(flag)]
        assert len(set(values)) == 2, flag


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
        assert layout_of(name, state_home=Path("/state")).root == LAYOUT.root.parent / name
    else:
        with pytest.raises(ConfigError, match="--name"):
            layout_of(name, state_home=Path("/state"))
