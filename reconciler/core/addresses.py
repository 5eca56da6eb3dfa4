"""What an IP address stands for, and which hosts can be asked."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import SplitResult

Address: TypeAlias = IPv4Address | IPv6Address

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

_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9.])?")


def no_server(address: Address) -> str:
    """Say why no URL of others may lead to an address; "" where it may."""
    if address in _METADATA:
        return "a metadata service"
    if address.is_link_local:
        return "a link-local address"
    if address.is_multicast:
        return "a multicast address"
    if address.is_unspecified or address in _THIS or address == ip_address("255.255.255.255"):
        return "no address of a host"
    return ""


def unwrapped(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address stands for, if it does."""
    if isinstance(address, IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address.teredo is not None:
        inner = address.teredo[1]
    wrapped = address in _NAT64 or (address in _COMPATIBLE and int(address) > 1)
    return inner or (IPv4Address(int(address) & 0xFFFF_FFFF) if wrapped else address)


def is_host(host: str) -> bool:
    """Tell whether this is a name that can be looked up, or an address without a zone."""
    if _HOST.fullmatch(host):
        return can_be_asked(host)
    return address_of(host) is not None and "%" not in host


def is_loopback(url: SplitResult) -> bool:
    """Tell whether a URL leads to this machine, whatever resolves names."""
    host = (url.hostname or "").lower()
    ip = address_of(host)
    return host == "localhost" or (ip is not None and ip.is_loopback)


def is_loopback_name(host: str) -> bool:
    """Tell whether only this machine reaches a host that it listens on, or is asked by."""
    ip = address_of(host)
    return host == "localhost" or host.endswith(".localhost") or (ip is not None and ip.is_loopback)


def address_of(host: str) -> Address | None:
    """Return the IP address that a host is, an IPv4 one as itself; None for a name."""
    try:
        ip = ip_address(host)
    except ValueError:
        return None
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return mapped or ip


def is_visible(url: str) -> bool:
    """Tell whether a URL is ASCII without blanks and control characters."""
    return url.isascii() and url.isprintable() and " " not in url


def can_be_asked(host: str) -> bool:
    """Tell whether a host's address can be looked up, and its certificate be checked.

    Both encode the name first, which fails for an empty label or one of more than 63 characters.
    """
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True
