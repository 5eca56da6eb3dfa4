"""TLS settings: which connections share them, and that sharing mixes nothing up."""

import json
import ssl
import time
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import orjson
import pytest

from reconciler.core.errors import ConfigError
from reconciler.core.refs import CONFIG_MAP
from reconciler.core.secret import Secret
from reconciler.kube import requests
from reconciler.kube.cluster import Connectivity
from reconciler.kube.connection import ClientCertificate, Connection, NoCredential
from reconciler.kube.requests import as_yaml
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


ODD = "\x7f\x80\x85\x9f\u2028\u2029\ufeff\ufffe\uffff"  # no text of YAML, or an end of a line
PLAIN = "ä€\U0001f600\U0001fffe\xa0\ud7ff\ufffd"
LONG = "k" * 1200


@pytest.mark.parametrize("odd", ODD)
def test_what_yaml_reads_otherwise_is_escaped(odd):
    value = {f"a{odd}b": [odd, f" {odd} \\{odd}"]}
    text = as_yaml(orjson.dumps(value))
    assert odd.encode() not in text
    assert json.loads(text) == value


def test_all_else_stays_as_it_is():
    text = orjson.dumps({PLAIN: [PLAIN, 1, 0.5, None, "a: ? b, {", '"', "\\"], "x": LONG})
    assert as_yaml(text) == text


KEYS: dict[str, tuple[Any, bytes]] = {
    "long": ({LONG: 1}, b'{? "%s":1}'),
    "not the first": ({"a,": "b", LONG: {"c": LONG}}, b'{"a,":"b",? "%s":{"c":"%s"}}'),
    "a value is none": ([LONG, LONG], b'["%s","%s"]'),
}


@pytest.mark.parametrize(("value", "form"), KEYS.values(), ids=KEYS.keys())
def test_a_key_that_is_too_long_to_be_one_by_itself_is_announced(value, form):
    assert as_yaml(orjson.dumps(value)) == form.replace(b"%s", LONG.encode())


def test_a_key_is_as_long_as_its_text():
    key = '"' * 600
    assert as_yaml(orjson.dumps({key: ":"})).startswith(b'{? "')


def test_a_text_that_looks_like_a_key_is_none():
    text = orjson.dumps({"a,": [1] * 1200, ":x": '":' + LONG + '":'})
    assert as_yaml(text) == text


def test_an_apply_is_written_so():
    made = {"metadata": {"name": "x", "namespace": "ns"}, "data": {"a": "\x85"}}
    request = requests.apply(
        "c", made, CONFIG_MAP, manager="m", force=True, subresource="", dry_run=False
    )
    assert b'"a":"\\u0085"' in (request.body or b"")


class Reported:
    def __init__(self):
        self.now = 100.0
        self.times = 0
        self.connectivity = Connectivity(clock=lambda: self.now)
        self.unfollow = self.connectivity.follow(self._report)

    def _report(self):
        self.times += 1

    def after(self, calls):
        """Let calls be made: (seconds since the one before, whether it is answered)."""
        for seconds, answered in calls:
            self.now += seconds
            if answered:
                self.connectivity.answered()
            else:
                self.connectivity.failed()
        return self.times


@pytest.mark.parametrize(
    ("calls", "times"),
    [
        pytest.param([(100, True)], 0, id="silence is no outage"),
        pytest.param([(1, False), (4, True)], 1, id="the first answer after an outage"),
        pytest.param([(1, True), (1, False), (3.9, True)], 0, id="a short one needs nobody"),
        pytest.param([(5, False), (0, True), (1, True), (9, True)], 1, id="once for each"),
        pytest.param([(5, False), (5, True), (5, False), (5, True)], 2, id="each of them"),
        pytest.param(
            [(1, answered) for _ in range(50) for answered in (True, False)],
            0,
            id="some calls fail and others do not",
        ),
    ],
)
def test_it_tells_that_the_cluster_is_back(calls, times):
    assert Reported().after(calls) == times


def test_who_does_not_follow_any_more_hears_nothing():
    reported = Reported()
    reported.unfollow()
    assert reported.after([(9, False), (9, True)]) == 0


def test_a_follower_may_leave_when_reported():
    reported = Reported()
    leave = reported.connectivity.follow(lambda: leave())
    assert reported.after([(9, False), (9, True), (9, False), (9, True)]) == 2


def test_how_far_our_clock_is_from_a_clusters():
    there = Connectivity()
    assert there.ahead is None
    there.note_date(formatdate(time.time() - 7200, usegmt=True))
    assert there.ahead == pytest.approx(7200, abs=5)
    there.note_date("yesterday")
    assert there.ahead is None
