"""How a broker is spoken to, as its ServiceBroker and its Secret say; no value is in a message."""

import base64
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from klutchctl.sandbox import credentials
from reconciler.api.osb import BrokerSpec
from reconciler.broker.client import BrokerAddress, address_of
from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.web.outbound import Tls

CANARY = "c4n4ry"
URL = "https://broker.example"
SPEC = BrokerSpec("acme", "klutch-osb", url=URL, secret="acme-broker")
LOGIN = {"username": "me", "password": CANARY}
PAIR = base64.b64encode(f"me:{CANARY}".encode()).decode()


@pytest.fixture(scope="module")
def pair():
    now = datetime.now(UTC)
    authority = credentials.authority("test", now=now)
    made = credentials.issue(authority, "client", use=credentials.Use.CLIENT, now=now)
    return made.certificate_pem.decode(), made.key_pem.decode()


def secret(**held):
    data = {key: base64.b64encode(text.encode()).decode() for key, text in held.items()}
    return {"kind": "Secret", "data": data}


def fault_of(spec, held):
    with pytest.raises(ConfigError) as fault:
        address_of(spec, held)
    assert CANARY not in str(fault.value)
    return str(fault.value)


def test_a_name_and_a_password():
    found = address_of(SPEC, secret(**LOGIN))
    assert found.authorization == Secret(f"Basic {PAIR}")
    assert found.secrets == (Secret(CANARY), Secret(PAIR))
    assert (found.url, found.tls, found.api_version) == (URL, Tls(), "2.17")
    assert CANARY not in repr(found)
    assert found.digest not in repr(found)


def test_a_token_and_a_line_break_of_an_editor():
    found = address_of(SPEC, secret(token=f"{CANARY}\n"))
    assert (found.authorization, found.secrets) == (Secret(f"Bearer {CANARY}"), (Secret(CANARY),))


def test_a_client_certificate_and_an_authority(pair):
    certificate, key = pair
    found = address_of(
        SPEC, secret(**{"tls.crt": certificate, "tls.key": key, "ca.crt": certificate})
    )
    certificate, shown = certificate.rstrip(), Secret(key.rstrip())
    assert found.tls == Tls(certificate, certificate, shown)
    assert (found.authorization, found.secrets) == (None, (shown,))


def test_no_secret_is_no_credentials():
    found = address_of(replace(SPEC, secret="", insecure=True), None)
    assert found == BrokerAddress(URL, tls=Tls(insecure=True), digest=found.digest)


def test_the_url_may_be_in_the_secret():
    assert address_of(replace(SPEC, url=""), secret(url=f"{URL}/base/")).url == f"{URL}/base"
    assert address_of(SPEC, secret(url=f"{URL}/")).url == URL


CHANGED = [{"password": "other"}, {"username": "other"}, {"token": "x"}]


@pytest.mark.parametrize("change", CHANGED)
def test_another_secret_has_another_digest(change):
    held = {} if "token" in change else LOGIN
    assert (
        address_of(SPEC, secret(**held)).digest != address_of(SPEC, secret(**held | change)).digest
    )


# Sentence: the ServiceBroker, the Secret, the fault.
FAULTS = {
    "the Secret is not there": (SPEC, None, "Secret klutch-osb/acme-broker: it is not there"),
    "no URL at all": (replace(SPEC, url=""), secret(**LOGIN), "acme-broker: url: neither it nor"),
    "two URLs": (SPEC, secret(url=f"https://{CANARY}.example"), "url: it is not the url in the"),
    "a URL with a password": (
        replace(SPEC, url=""),
        secret(url=f"https://me:{CANARY}@b.example"),
        "acme-broker: url: the URL contains credentials",
    ),
    "no URL": (replace(SPEC, url="broker"), secret(), "ServiceBroker acme: url: the URL is not"),
    "a URL with a query": (replace(SPEC, url=f"{URL}?x=1"), secret(), "has a query or a fragment"),
    "a URL with a fragment": (replace(SPEC, url=f"{URL}#x"), secret(), "has a query or a fragment"),
    "another scheme": (replace(SPEC, url="ftp://b.example"), secret(), "only https is asked"),
    "a name alone": (SPEC, secret(username=CANARY), "acme-broker: password: it is missing"),
    "a password alone": (SPEC, secret(password=CANARY), "acme-broker: username: it is missing"),
    "a certificate alone": (SPEC, secret(**{"tls.crt": "x"}), "tls.key: it is missing"),
    "two ways": (SPEC, secret(**LOGIN, token="x"), "username and token exclude each other"),
    "a name with a colon": (
        SPEC,
        secret(username="a:b", password="x"),
        "username: no name in HTTP",
    ),
    "a token of two lines": (SPEC, secret(token=f"{CANARY}\nx"), "token: it cannot be part of"),
    "a token beyond ASCII": (SPEC, secret(token=f"{CANARY}ä"), "token: it cannot be part of"),
    "a certificate that is none": (
        SPEC,
        secret(**{"tls.crt": CANARY, "tls.key": CANARY}),
        "tls.crt: the client certificate and its key are not usable",
    ),
    "an authority that is none": (SPEC, secret(**{"ca.crt": CANARY}), "ca.crt: the author"),
    "an authority that is empty": (SPEC, secret(**{"ca.crt": ""}), "ca.crt: the author"),
    "an authority beyond ASCII": (SPEC, secret(**{"ca.crt": "ä"}), "ca.crt: the author"),
    "what is no base64": (SPEC, {"data": {"token": "%%"}}, "acme-broker: token: it is no text"),
    "what is no text": (SPEC, {"data": {"token": "/w=="}}, "acme-broker: token: it is no text"),
    "another version": (replace(SPEC, api_version="3.0"), secret(), "acme: apiVersion: no version"),
}


@pytest.mark.parametrize(("spec", "held", "fault"), FAULTS.values(), ids=FAULTS)
def test_it_cannot_be_used_where(spec, held, fault):
    assert fault in fault_of(spec, held)
