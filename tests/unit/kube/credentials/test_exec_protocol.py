"""What is said to a credential plug-in, and what its answers mean."""

import json
from datetime import UTC, datetime
from functools import partial

import pytest

from reconciler.core.secret import Secret
from reconciler.kube.connection import ClientCertificate, Connection, ExecPlugin
from reconciler.kube.kubeconfig import exec_plugin
from reconciler.kube.kubeconfig.exec_plugin import Issued
from tests.support.kubeconfigs import CERTIFICATE, KEY, b64

V1 = "client.authentication.k8s.io/v1"
PLUGIN = ExecPlugin(
    command="login",
    args=tuple(map(Secret, ("get-token", "--client-secret=p4ss", "--password", "hunter", "s3cr"))),
    env=(("A", Secret("tiny-canary")), ("B", Secret("two words")), ("C", Secret("prod"))),
    api_version=V1,
    provide_cluster_info=False,
    interactive_mode="Never",
)
WITH_CLUSTER = ExecPlugin(
    command="login",
    args=(),
    env=(),
    api_version=V1,
    provide_cluster_info=True,
    interactive_mode="Never",
    cluster_config=Secret('{"audience": [7]}'),
)
MINIMAL = Connection("c", "https://a")
FULL = Connection(
    "c", "https://a", ca=CERTIFICATE, tls_server_name="kubernetes", proxy=Secret("http://me:pw@p")
)
UNVERIFIED = Connection("c", "https://a", insecure=True)

REQUESTS = {
    "nothing of the cluster unless asked": (PLUGIN, FULL, False, {"interactive": False}),
    "that a person is there": (PLUGIN, FULL, True, {"interactive": True}),
    "the cluster": (
        WITH_CLUSTER,
        FULL,
        False,
        {
            "interactive": False,
            "cluster": {
                "server": "https://a",
                "tls-server-name": "kubernetes",
                "certificate-authority-data": b64(CERTIFICATE),
                "proxy-url": "http://me:pw@p",
                "config": {"audience": [7]},
            },
        },
    ),
    "a cluster that is not verified": (
        WITH_CLUSTER,
        UNVERIFIED,
        False,
        {
            "interactive": False,
            "cluster": {
                "server": "https://a",
                "insecure-skip-tls-verify": True,
                "config": {"audience": [7]},
            },
        },
    ),
}


@pytest.mark.parametrize(
    ("plugin", "connection", "interactive", "spec"), REQUESTS.values(), ids=REQUESTS.keys()
)
def test_request(plugin, connection, interactive, spec):
    said = json.loads(exec_plugin.request(plugin, connection, interactive=interactive))
    assert said == {"kind": "ExecCredential", "apiVersion": V1, "spec": spec}


def printed(status, *, kind="ExecCredential", version=V1):
    return json.dumps({"kind": kind, "apiVersion": version, "status": status}).encode()


PAIR = {"clientCertificateData": CERTIFICATE, "clientKeyData": KEY}
CLIENT = ClientCertificate(CERTIFICATE, Secret(KEY))
TOKEN = Secret("t")

ANSWERS = {
    "a token": ({"token": "t"}, Issued(TOKEN, None, None)),
    "a certificate": (PAIR, Issued(None, CLIENT, None)),
    "both": (PAIR | {"token": "t"}, Issued(TOKEN, CLIENT, None)),
    "nulls are nothing": (
        {"token": "t", "clientKeyData": None, "expirationTimestamp": None},
        Issued(TOKEN, None, None),
    ),
    "an end in UTC": (
        {"token": "t", "expirationTimestamp": "2026-11-21T10:00:00Z"},
        Issued(TOKEN, None, datetime(2026, 11, 21, 10, tzinfo=UTC)),
    ),
    "an end elsewhere, with nanoseconds": (
        {"token": "t", "expirationTimestamp": "2026-11-21T12:00:00.123456789+02:00"},
        Issued(TOKEN, None, datetime(2026, 11, 21, 10, microsecond=123456, tzinfo=UTC)),
    ),
    "Go's zero time is no end": (
        {"token": "t", "expirationTimestamp": "0001-01-01T00:00:00Z"},
        Issued(TOKEN, None, None),
    ),
}


@pytest.mark.parametrize(("status", "want"), ANSWERS.values(), ids=ANSWERS.keys())
def test_answers(status, want):
    assert exec_plugin.answer(printed(status), PLUGIN) == want


REFUSED = {
    "nothing": b"",
    "text": b"canary",
    "broken JSON": b'{"token": "canary',
    "not UTF-8": b'{"token": "canary\xff"}',
    "brackets without end": b"[" * 100_000,
    "a list": b'["canary"]',
    "no status": printed(None),
    "another kind": printed({"token": "canary"}, kind="TokenReview"),
    "another version": printed({"token": "canary"}, version="client.authentication.k8s.io/v1beta1"),
    "an empty status": printed({}),
    "a token that is no text": printed({"token": ["canary"]}),
    "a token with a line break": printed({"token": "canary\r\nX-Evil: 1"}),
    "a certificate without its key": printed({"clientCertificateData": CERTIFICATE}),
    "a key without a certificate": printed({"clientKeyData": "canary", "token": "t"}),
    "a certificate that is none": printed(PAIR | {"clientCertificateData": "canary"}),
    "a key that is none": printed(PAIR | {"clientKeyData": "canary"}),
    "an end that is no time": printed({"token": "t", "expirationTimestamp": "canary"}),
    "an end without a zone": printed({"token": "t", "expirationTimestamp": "2026-11-21T10:00:00"}),
    "an end beyond all time": printed(
        {"token": "t", "expirationTimestamp": "9999-12-31T23:59:59-10:00"}
    ),
}


def test_refused(refusals):
    attempts = {
        name: partial(exec_plugin.answer, output, PLUGIN) for name, output in REFUSED.items()
    }
    refusals("answers", attempts, secrets=["canary"])
