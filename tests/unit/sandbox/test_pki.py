"""Certificates: who trusts whom, and what a stranger on the machine can read."""

import ipaddress
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509 import verification

from klutchctl.sandbox import credentials


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
    store = verification.Store([certificate(folder, "ca")])
    policy = verification.PolicyBuilder().store(store)
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
