"""Where a kubeconfig from a Secret may lead. Pure.

Who writes the Secret chooses the address, and who connects stands where they do not: beside the
metadata service of a cloud, whose answers are credentials, and within the network of its own pod.
Judged is what a name came to when the connection is made, so that no name server changes it after.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, TypeAlias

from reconciler.core.errors import ConfigError

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

LOOPBACK: Final = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
# Metadata services that are at no link-local address: of AWS, Google, Oracle, Alibaba and Azure.
_METADATA: Final = frozenset(
    map(
        ip_address,
        ("fd00:ec2::254", "fd20:ce::254", "192.0.0.192", "100.100.100.200", "168.63.129.16"),
    )
)
_NAT64: Final = ip_network("64:ff9b::/96")
_COMPATIBLE: Final = ip_network("::/96")
_THIS: Final = ip_network("0.0.0.0/8")


@dataclass(frozen=True, slots=True)
class Networks:
    """What is refused beside what always is; what is in `allow` is not refused by `deny`."""

    allow: tuple[Network, ...] = ()
    deny: tuple[Network, ...] = ()

    def fault(self, host: str) -> str:
        """Say why an address is refused; "" where it is not, and where the host is a name."""
        try:
            address = _unwrapped(ip_address(host.partition("%")[0]))
        except ValueError:
            return ""
        if kind := _never(address):
            return f"{address} is {kind}, where no kubeconfig in a Secret may lead"
        if _within(address, self.deny) and not _within(address, self.allow):
            return f"{address} is in a network where kubeconfigs in Secrets may not lead: see " + (
                "--allow-networks and --deny-networks"
            )
        return ""


ANYWHERE: Final = Networks()
IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"  # the kubelet sets it in every pod


def of_flags(allow: Iterable[str], deny: Iterable[str], *, in_cluster: bool) -> Networks:
    """Return what these lists of CIDRs say. Raises ConfigError.

    Within a cluster, loopback is the pod's own, and no API server is there.
    """
    own = LOOPBACK if in_cluster else ()
    return Networks(_parsed(allow, "--allow-networks"), (*own, *_parsed(deny, "--deny-networks")))


def _parsed(lists: Iterable[str], flag: str) -> tuple[Network, ...]:
    networks = []
    for text in (part.strip() for listed in lists for part in listed.split(",")):
        try:
            networks += [ip_network(text)] if text else []
        except ValueError:
            raise ConfigError(f"{text!r} is not a network such as 10.0.0.0/8", where=flag) from None
    return tuple(networks)


def _within(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)


def _never(address: Address) -> str:
    if address in _METADATA:
        return "a metadata service"
    if address.is_link_local:
        return "a link-local address"
    if address.is_multicast:
        return "a multicast address"
    if address.is_unspecified or address in _THIS or address == ip_address("255.255.255.255"):
        return "no address of a host"
    return ""


def _unwrapped(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for, if it does."""
    if isinstance(address, IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address.teredo is not None:
        inner = address.teredo[1]
    wrapped = address in _NAT64 or (address in _COMPATIBLE and int(address) > 1)
    return inner or (IPv4Address(int(address) & 0xFFFF_FFFF) if wrapped else address)
