"""CA files: public certificates and nothing else."""

from pathlib import Path

import pytest

from reconciler.fleet import clusters
from tests.support import bad_fleets

PEM = Path(__file__).parents[2].joinpath("kit", "ca.pem").read_bytes()
KEY = bad_fleets.KEY.encode()


def test_certificates_are_read_without_what_stands_between():
    assert (
        clusters.read_certificates(b"subject=ca canary\n" + PEM + b"\n" + PEM)
        == (PEM + PEM).decode()
    )
    assert clusters.read_certificates(PEM.replace(b"\n", b"\r\n")) == PEM.decode()


REFUSED = {
    "nothing": (b"", "not-certificates"),
    "text": (b"canary", "not-certificates"),
    "not text": (b"\xff\xfe" + PEM, "not-certificates"),
    "a private key": (KEY, "private-key"),
    "a certificate and its key": (PEM + KEY, "private-key"),
    "an old kind of key": (KEY.replace(b" PRIVATE", b" EC PRIVATE"), "private-key"),
    "a public key": (PEM.replace(b"CERTIFICATE", b"PUBLIC KEY"), "not-certificates"),
    "a block that is cut": (PEM[:-30], "not-certificates"),
    "a second block that is cut": (PEM + PEM[:-30], "not-certificates"),
    "half a certificate": (PEM[:100] + PEM[-30:], "not-certificates"),
    "a secret in a block": (
        b"-----BEGIN CERTIFICATE-----\nY2FuYXJ5\n-----END CERTIFICATE-----\n",
        "not-certificates",
    ),
}


@pytest.mark.parametrize(("content", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_anything_else_is_refused_and_not_quoted(content, code):
    with pytest.raises(clusters.NotCertificates) as caught:
        clusters.read_certificates(content)
    assert caught.value.code == code
    assert "canary" not in str(caught.value)
