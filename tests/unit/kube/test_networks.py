"""Where a kubeconfig from a Secret may lead, address by address."""

from dataclasses import replace

import pytest

from reconciler.core.errors import ConfigError
from reconciler.kube.networks import ANYWHERE, of_environment, of_flags

NEVER = [
    "169.254.169.254",
    "169.254.170.2",
    "fe80::1",
    "fe80::1%eth0",
    "::ffff:169.254.169.254",
    "::169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "192.0.0.192",
    "100.100.100.200",
    "168.63.129.16",
    "224.0.0.1",
    "ff02::1",
    "0.0.0.0",
    "0.0.0.1",
    "::",
    "::ffff:0.0.0.0",
    "255.255.255.255",
]


@pytest.mark.parametrize("address", NEVER)
def test_no_flag_leads_there(address):
    assert "where no kubeconfig in a Secret may lead" in ANYWHERE.fault(address)
    assert of_flags(["0.0.0.0/0,::/0"], [], in_cluster=False).fault(address)


@pytest.mark.parametrize("host", ["10.0.0.1", "203.0.113.7", "fd00::1", "a.example", "127.0.0.1"])
def test_others_may_be_reached(host):
    assert ANYWHERE.fault(host) == ""


HELD = {
    "loopback, in a pod": ([], [], True, "127.0.0.1", False),
    "the whole of loopback": ([], [], True, "127.8.8.8", False),
    "IPv6 loopback, in a pod": ([], [], True, "::1", False),
    "loopback in IPv6": ([], [], True, "::ffff:127.0.0.1", False),
    "loopback, elsewhere": ([], [], False, "127.0.0.1", True),
    "loopback that is allowed": (["127.0.0.0/8"], [], True, "127.0.0.1", True),
    "a network that is denied": ([], ["10.0.0.0/8"], False, "10.1.2.3", False),
    "beside it": ([], ["10.0.0.0/8"], False, "11.1.2.3", True),
    "two in one flag": ([], ["10.0.0.0/8, fd00::/8"], False, "fd00::1", False),
    "an exception": (["10.1.0.0/16"], ["10.0.0.0/8"], False, "10.1.2.3", True),
    "one network alone": (["10.0.0.0/8"], ["0.0.0.0/0,::/0"], False, "192.168.1.1", False),
}


@pytest.mark.parametrize(("allow", "deny", "pod", "host", "may"), HELD.values(), ids=HELD)
def test_flags_say_the_rest(allow, deny, pod, host, may):
    fault = of_flags(allow, deny, in_cluster=pod).fault(host)
    assert (fault == "") is may
    assert may or "--allow-networks" in fault


def test_no_flag_of_a_konnector_leads_where_the_operator_of_the_control_plane_does_not():
    operator = of_flags(["10.1.0.0/16"], ["10.0.0.0/8, fd00::/8"], in_cluster=False)
    environ = operator.environment
    assert environ == {
        "KLUTCH_DENY_NETWORKS": "10.0.0.0/8,fd00::/8",
        "KLUTCH_ALLOW_NETWORKS": "10.1.0.0/16",
    }
    assert of_environment(environ) == operator
    flags = of_flags(["0.0.0.0/0,::/0"], ["10.1.2.0/24,192.168.0.0/16"], in_cluster=True)
    both = replace(flags, beside=of_environment(environ))
    denied = {host: bool(both.fault(host)) for host in ("10.2.0.1", "fd00::1", "10.1.0.1")}
    assert denied == {"10.2.0.1": True, "fd00::1": True, "10.1.0.1": False}


def test_an_operator_who_denies_nothing_says_nothing():
    assert of_flags(["10.0.0.0/8"], [], in_cluster=False).environment == {}
    assert of_environment({"KLUTCH_ALLOW_NETWORKS": "10.0.0.0/8"}) is None


@pytest.mark.parametrize("text", ["10.0.0.0/33", "10.0.0.1/8", "a.example", "10.0.0.0/8;"])
def test_what_is_no_network_is_reported(text):
    with pytest.raises(ConfigError, match="is not a network such as"):
        of_flags([text], [], in_cluster=False)
