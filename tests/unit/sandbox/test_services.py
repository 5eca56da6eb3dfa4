"""The services beside the control plane: their commands, and when they are others."""

import ipaddress
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509 import verification

from klutchctl.sandbox import credentials
from klutchctl.sandbox.addons import services
from klutchctl.sandbox.addons.postgresql import PostgresqlPlace
from klutchctl.sandbox.addons.services import ServicesKit
from klutchctl.sandbox.manifests import Program, Suite
from klutchctl.sandbox.servers import Owner
from klutchctl.sandbox.state import Component, Layout, Member, Role, State

LAYOUT = Layout(Path("/state/box"))
PROGRAMS = (
    Program(name="scribe", command=["${python}", "scribe.py", "--to=${data}", "${kubeconfig}"]),
    Program(name="sized", command=["bin/sized", "${postgresql}", "${binaries}/pg_dump"]),
    Program(name="sleeper", command=["sleep", "1"]),
)
ALL = tuple(reversed(Component))
SUITE = Suite(Path("/fleet/services"), ALL, PROGRAMS, ())
PLACE = PostgresqlPlace(Path("/var/tmp/x/data"), Path("/pg/bin"), Owner(101, 104))
BUILT = {one: Path("/cache", one) for one in (Component.CROSSPLANE, Component.PROVIDER_KUBERNETES)}
KIT = ServicesKit(SUITE, BUILT, PLACE)
PLANE = State(1, 2, (Member("eu", Role.CONTROL_PLANE, 3),))
STATE = services.extend(PLANE, KIT, lambda count: range(20000, 20000 + count))
SERVERS = {server.program: server for server in services.servers(LAYOUT, STATE, KIT)}


def launch_of(name):
    launch = SERVERS[name].launch
    assert launch is not None
    return launch


def command_of(name):
    return (str(launch_of(name).executable), *SERVERS[name].arguments)


def test_references_are_replaced_in_the_commands_of_programs():
    assert command_of("scribe") == (
        sys.executable,
        "scribe.py",
        "--to=/state/box/services/data/scribe",
        "/state/box/services/kubeconfig",
    )
    assert command_of("sized") == (
        "/fleet/services/bin/sized",
        "/state/box/services/postgresql.address",
        "/pg/bin/pg_dump",
    )
    assert command_of("sleeper") == ("sleep", "1")
    folders = {launch_of(program.name).folder for program in PROGRAMS}
    assert folders == {Path("/fleet/services")}


def test_programs_find_others_as_the_user_does_and_write_nothing_into_the_fleet():
    kit = replace(KIT, path="/usr/local/bin:/bin")
    launches = {one.program: one.launch for one in services.servers(LAYOUT, STATE, kit)}
    for program in PROGRAMS:
        launch = launches[program.name]
        assert launch is not None
        assert launch.environment == {
            "HOME": f"/state/box/services/data/{program.name}",
            "PATH": "/usr/local/bin:/bin",
        }


def test_no_argument_and_no_environment_holds_the_password_of_the_database():
    for name in SERVERS:
        words = " ".join((*command_of(name), *launch_of(name).environment.values()))
        assert "postgresql://" not in words


@pytest.fixture
def cluster(tmp_path):
    credentials.ensure_cluster(tmp_path / "app-1" / "pki", context="app-1")
    return tmp_path / "app-1" / "pki"


@pytest.fixture
def etcd(tmp_path):
    credentials.ensure_etcd(tmp_path / "etcd" / "pki")
    return tmp_path / "etcd" / "pki"


def certificate(folder, name):
    return x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes())


def verifier(folder, moment=None):
    policy = verification.PolicyBuilder().store(verification.Store([certificate(folder, "ca")]))
    return policy.time(moment) if moment else policy


HOSTS = {
    "address": x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    "address of version 6": x509.IPAddress(ipaddress.ip_address("::1")),
    "name": x509.DNSName("localhost"),
}


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS.keys())
def test_servers_are_trusted_on_loopback_for_ten_years(cluster, etcd, host):
    late = datetime.now(UTC) + timedelta(days=3650)
    for folder in (cluster, etcd):
        verifier(folder, late).build_server_verifier(host).verify(certificate(folder, "server"), [])


def test_an_administrator_of_a_cluster_is_nobody_to_etcd(cluster, etcd):
    client = certificate(cluster, "admin")
    certificate(cluster, "admin").verify_directly_issued_by(certificate(cluster, "ca"))
    with pytest.raises(ValueError, match="Issuer"):
        client.verify_directly_issued_by(certificate(etcd, "ca"))


def test_clusters_do_not_trust_each_other(cluster, tmp_path):
    credentials.ensure_cluster(tmp_path / "app-2", context="app-2")
    host = HOSTS["address"]
    with pytest.raises(verification.VerificationError):
        verifier(cluster).build_server_verifier(host).verify(
            certificate(tmp_path / "app-2", "server"), []
        )
    keys = {
        (folder / "service-account.pub").read_bytes() for folder in (cluster, tmp_path / "app-2")
    }
    assert len(keys) == 2


def test_only_the_owner_reads_folder_and_files(cluster, etcd):
    for folder in (cluster, etcd):
        assert folder.stat().st_mode & 0o777 == 0o700
        assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
