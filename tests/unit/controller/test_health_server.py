"""What is served to probes and to Prometheus."""

import json
import socket
import threading
import urllib.request
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry, Gauge

from reconciler.controller import health_server
from reconciler.core.errors import HostError
from tests.support.eventually import eventually
from tests.support.web import fetch

HERE = ("127.0.0.1", 0)


@pytest.fixture
def registry():
    made = CollectorRegistry()
    Gauge("answer", "What is asked for.", registry=made).set(42)
    return made


def test_what_is_served(registry):
    ailments = ["", "no round has ended for 9 s"]
    with health_server.served(HERE, metrics=lambda: registry, ailment=lambda: ailments.pop(0)) as (
        host,
        port,
    ):
        url = f"http://{host}:{port}"
        assert fetch(f"{url}/healthz") == (200, "ok\n")
        assert fetch(f"{url}/healthz") == (503, "no round has ended for 9 s\n")
        status, body = fetch(f"{url}/metrics")
        assert status == 200
        assert "\nanswer 42.0\n" in body
        assert fetch(f"{url}/metrics?name[]=other&name[]=more") == (200, "")
        signpost = (404, "there are /healthz and /metrics\n")
        assert fetch(f"{url}/elsewhere") == fetch(f"{url}/readyz") == signpost
    assert not [one for one in threading.enumerate() if one.name == "health_server"]


def test_being_ready_is_another_thing_than_being_healthy(registry):
    reasons = ["not read yet: Secrets", ""]
    with health_server.served(HERE, ailment=lambda: "", unready=lambda: reasons.pop(0)) as (
        host,
        port,
    ):
        url = f"http://{host}:{port}"
        assert fetch(f"{url}/readyz") == (503, "not read yet: Secrets\n")
        assert fetch(f"{url}/healthz") == (200, "ok\n")
        assert fetch(f"{url}/readyz") == (200, "ok\n")


def test_a_konnector_tells_its_health_as_the_original_does(registry):
    ailments = ["", "the lease was lost"]
    with health_server.served(
        HERE,
        ailment=lambda: ailments.pop(0),
        unready=lambda: "not read yet: Secrets",
        healthz=health_server.leader_election,
    ) as (host, port):
        url = f"http://{host}:{port}"
        with urllib.request.urlopen(f"{url}/healthz", timeout=60) as answer:
            assert answer.headers["Content-Type"] == "application/json"
            assert json.load(answer) == {"leaderElection": "ok"}
        status, body = fetch(f"{url}/healthz")
        assert (status, json.loads(body)) == (500, {"leaderElection": "degraded"})
        assert fetch(f"{url}/readyz") == (503, "not read yet: Secrets\n")


@pytest.mark.parametrize("everywhere", ["", "::"])
def test_on_every_address(registry, everywhere):
    if everywhere and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    with health_server.served((everywhere, 0), metrics=lambda: registry, ailment=lambda: "") as (
        _,
        port,
    ):
        assert fetch(f"http://127.0.0.1:{port}/healthz") == (200, "ok\n")
        if socket.has_dualstack_ipv6():
            assert fetch(f"http://[::1]:{port}/healthz") == (200, "ok\n")
        with (
            pytest.raises(HostError, match=rf"cannot listen on \S+( address,)? port {port}: "),
            health_server.served((everywhere, port), metrics=lambda: registry, ailment=lambda: ""),
        ):
            pass


def test_metrics_are_served_apart_from_probes(registry):
    with (
        health_server.served(HERE, ailment=lambda: "") as (host, probes),
        health_server.served(HERE, metrics=lambda: registry) as (_, metrics),
    ):
        assert fetch(f"http://{host}:{probes}/metrics") == (404, "there is /healthz\n")
        assert fetch(f"http://{host}:{metrics}/healthz") == (404, "there is /metrics\n")
        assert "\nanswer 42.0\n" in fetch(f"http://{host}:{metrics}/metrics")[1]


def test_only_reading(registry):
    with (
        health_server.served(HERE, metrics=lambda: registry, ailment=lambda: "") as address,
        socket.create_connection(address, timeout=60) as client,
    ):
        client.sendall(b"POST /metrics HTTP/1.0\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.0 405 ")


@contextmanager
def strangers(address, *, number):
    """Connections that have sent the beginning of a request."""
    made = [socket.create_connection(address, timeout=60) for _ in range(number)]
    try:
        for one in made:
            one.sendall(b"GET /healthz")
        yield made
    finally:
        for one in made:
            one.close()


def test_who_is_slow_keeps_nobody_else_out(registry, monkeypatch):
    # Only that there are so many of them counts here, and not for how long.
    monkeypatch.setattr(health_server, "_SLOWEST", 60.0)
    with (
        health_server.served(HERE, metrics=lambda: registry, ailment=lambda: "") as address,
        strangers(address, number=16) as slow,
    ):
        assert fetch("http://{}:{}/healthz".format(*address)) == (200, "ok\n")
        # The one that has been at it for the longest had to go.
        assert slow[0].recv(1) == b""
        slow[1].sendall(b" HTTP/1.0\r\n\r\n")
        assert slow[1].recv(100).startswith(b"HTTP/1.0 200 ")


async def test_who_keeps_talking_is_cut_all_the_same(registry):
    with (
        health_server.served(HERE, metrics=lambda: registry, ailment=lambda: "") as address,
        strangers(address, number=1) as (slow,),
    ):

        def is_cut():
            try:
                slow.sendall(b"x")
            except ConnectionError:
                return True
            return False

        await eventually(is_cut)


def test_no_more_than_a_request_head_is_read(monkeypatch):
    monkeypatch.setattr(health_server, "_SLOWEST", 60.0)
    with (
        health_server.served(HERE, ailment=lambda: "") as address,
        socket.create_connection(address, timeout=10) as client,
    ):
        client.sendall(b"GET /healthz HTTP/1.0\r\n" + 5 * (b"a: " + 4000 * b"b" + b"\r\n"))
        assert client.recv(len("HTTP/1.0 431 ")) == b"HTTP/1.0 431 "


def test_an_address_that_is_taken(registry):
    with (
        health_server.served(HERE, metrics=lambda: registry, ailment=lambda: "") as taken,
        pytest.raises(HostError, match=f"cannot listen on 127.0.0.1 port {taken[1]}: "),
        health_server.served(taken, ailment=lambda: ""),
    ):
        pass
