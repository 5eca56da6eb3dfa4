"""How often a key may do something."""

from ipaddress import ip_address

import pytest

from reconciler.inbound.addresses import Buckets, address_key

NOW = 1_795_000_000.0


def taken(buckets, times, *, at=NOW, key="a"):
    return [buckets.take(key, at) for _ in range(times)]


def test_a_burst_and_then_a_rate():
    buckets = Buckets(rate=10, burst=40)
    assert taken(buckets, 40) == [0.0] * 40
    assert buckets.take("a", NOW) == pytest.approx(0.1, abs=1e-3)
    assert buckets.take("a", NOW + 0.05) == pytest.approx(0.05, abs=1e-3)
    assert buckets.take("a", NOW + 0.1) == 0.0
    assert buckets.take("a", NOW + 0.1) > 0.0


def test_what_was_refused_costs_nothing():
    buckets = Buckets(rate=1, burst=1)
    assert taken(buckets, 1000)[0] == 0.0
    assert buckets.take("a", NOW + 1.0) == 0.0


def test_a_bucket_holds_no_more_than_a_burst():
    buckets = Buckets(rate=10, burst=3)
    taken(buckets, 1)
    assert [one == 0.0 for one in taken(buckets, 4, at=NOW + 3600)] == [True] * 3 + [False]


def test_each_key_has_its_own():
    buckets = Buckets(rate=1, burst=1)
    assert taken(buckets, 1) == taken(buckets, 1, key="b") == [0.0]


def test_a_look_uses_nothing():
    buckets = Buckets(rate=5 / 60, burst=5)
    assert [buckets.wait("a", NOW) for _ in range(9)] == [0.0] * 9
    taken(buckets, 5)
    assert buckets.wait("a", NOW) == pytest.approx(12.0, abs=0.1)


def test_a_clock_that_is_set_back_locks_nobody_out():
    buckets = Buckets(rate=10, burst=40)
    taken(buckets, 40)
    assert buckets.take("a", NOW - 86400) <= 0.1 + 1e-3
    assert buckets.take("a", NOW - 86400 + 0.2) > 0.0  # nor does it give a new burst
    buckets = Buckets(rate=10, burst=2)
    taken(buckets, 2)
    assert buckets.take("a", NOW - 3600) > 0.0


def test_full_buckets_are_forgotten():
    buckets = Buckets(rate=10, burst=40)
    for number in range(1000):
        buckets.take(f"key {number}", NOW)
    for number in range(1000):
        buckets.take("one", NOW + 60 + number)
    assert len(buckets) == 1


def test_memory_is_bounded():
    buckets = Buckets(rate=10, burst=40, most=100)
    for number in range(1000):
        buckets.take(f"key {number}", NOW)
    assert len(buckets) == 100
    assert buckets.wait("key 999", NOW) == 0.0


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::", "2001:db8:1:3::/64"),
        ("::1", "::/64"),
    ],
)
def test_a_client_chooses_among_the_addresses_of_its_network(address, key):
    assert address_key(ip_address(address)) == key
