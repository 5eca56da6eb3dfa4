"""Which address a client has, whatever it says."""

from ipaddress import ip_address, ip_network

import pytest

from reconciler.inbound.addresses import Proxies, address_of, client_address

PROXY = "10.0.0.7"
TRUSTED = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        # Nobody is believed but trusted proxies.
        ("192.0.2.9", "", "192.0.2.9"),
        ("192.0.2.9", "198.51.100.1", "192.0.2.9"),
        ("192.0.2.9", "10.0.0.1", "192.0.2.9"),
        # A proxy appends the address that called it; what is to the left of that is forged.
        (PROXY, "198.51.100.1", "198.51.100.1"),
        (PROXY, "203.0.113.5, 198.51.100.1", "198.51.100.1"),
        (PROXY, "10.1.1.1, 198.51.100.1", "198.51.100.1"),
        (PROXY, "203.0.113.5, 198.51.100.1, 10.0.0.8", "198.51.100.1"),
        (PROXY, " 198.51.100.1 ,10.0.0.8 ", "198.51.100.1"),
        ("fd00::7", "2001:db8::1", "2001:db8::1"),
        # Within the network of the proxies.
        (PROXY, "", PROXY),
        (PROXY, "10.0.0.9, 10.0.0.8", "10.0.0.9"),
        # What is no address ends the reading.
        (PROXY, "198.51.100.1, unknown", PROXY),
        (PROXY, "198.51.100.1, , 10.0.0.8", "10.0.0.8"),
        (PROXY, "198.51.100.1,", PROXY),
        (PROXY, "<script>", PROXY),
        # Ports, zones and IPv4 as IPv6.
        (PROXY, "198.51.100.1:4711", "198.51.100.1"),
        (PROXY, "[2001:db8::1]:4711", "2001:db8::1"),
        (PROXY, "[2001:db8::1]", "2001:db8::1"),
        (PROXY, "::ffff:198.51.100.1", "198.51.100.1"),
        (PROXY, "203.0.113.5, ::ffff:10.0.0.8", "203.0.113.5"),
    ],
)
def test_a_clients_address(peer, forwarded, client):
    assert str(client_address(ip_address(peer), forwarded, TRUSTED)) == client


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::1"),
        ("", "None"),
        ("localhost", "None"),
        ("192.0.2.01", "None"),
        ("1", "None"),
    ],
)
def test_what_is_an_address(text, address):
    assert str(address_of(text)) == address


@pytest.mark.parametrize(
    ("calls", "unnamed"),
    [
        ([(PROXY, "198.51.100.1")], ""),
        ([("192.168.0.9", "")], ""),
        ([("192.168.0.9", "198.51.100.1")], "192.168.0.9"),
        ([("fe80::9", "198.51.100.1"), (PROXY, "")], "fe80::9"),
        # A client that forges the header, from elsewhere or after the proxy was met.
        ([("8.8.8.8", "198.51.100.1")], ""),
        ([(PROXY, "198.51.100.1"), ("192.168.0.9", "198.51.100.1")], ""),
        ([("192.168.0.9", "198.51.100.1"), (PROXY, "198.51.100.1")], ""),
    ],
)
def test_a_proxy_that_nobody_named_is_noticed(calls, unnamed):
    """S17."""
    proxies = Proxies(TRUSTED)
    for peer, forwarded in calls:
        proxies.client(ip_address(peer), forwarded)
    assert proxies.unnamed == unnamed
