"""TLS settings: which connections share them, and that sharing mixes nothing up."""

import ssl
from dataclasses import replace

import pytest

from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.kube.connection import ClientCertificate, Connection, NoCredential
from reconciler.kube.transport import ssl_context
from tests.support.kubeconfigs import CERTIFICATE, KEY

ONE = Connection(
    name="one",
    server="https://one.example",
    credential=NoCredential(),
    ca=CERTIFICATE,
    insecure=False,
    tls_server_name="",
    proxy=None,
    namespace="",
)
OTHER = replace(ONE, name="other", server="https://other.example")
CLIENT = ClientCertificate(CERTIFICATE, Secret(KEY))


def test_clusters_with_one_ca_share_what_openssl_makes_of_it() -> None:
    assert ssl_context(ONE, None) is ssl_context(OTHER, None)


APART = {
    "another CA": replace(OTHER, ca=CERTIFICATE + CERTIFICATE),
    "without verification": replace(OTHER, ca=CERTIFICATE, insecure=True),
    "by the system's trust store": replace(OTHER, ca=None),
}


@pytest.mark.parametrize("other", APART.values(), ids=APART.keys())
def test_what_differs_is_not_shared(other: Connection) -> None:
    assert ssl_context(ONE, None) is not ssl_context(other, None)
    assert ssl_context(ONE, None).verify_mode is ssl.CERT_REQUIRED
    assert ssl_context(ONE, None).check_hostname


def test_nobody_else_gets_a_context_with_the_key_of_a_client() -> None:
    own = ssl_context(ONE, CLIENT)
    assert own is not ssl_context(ONE, CLIENT)
    assert own is not ssl_context(OTHER, None)


@pytest.mark.parametrize("insecure", [False, True])
def test_verification_is_as_the_connection_says(insecure: bool) -> None:
    context = ssl_context(replace(ONE, insecure=insecure), None)
    assert context.verify_mode is (ssl.CERT_NONE if insecure else ssl.CERT_REQUIRED)
    assert context.check_hostname is not insecure
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_each_connection_gets_its_own_error() -> None:
    for name in ("one", "other"):
        with pytest.raises(ConfigError, match=f"^{name}: "):
            ssl_context(replace(ONE, name=name, ca="no certificate"), None)
