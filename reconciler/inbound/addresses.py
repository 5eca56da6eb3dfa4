"""Which address a client has, beyond the proxies that are trusted, and which proxy is not."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

# Some proxies add the port: `192.0.2.1:4711`, `[2001:db8::1]:4711`.
_WITH_PORT: Final = re.compile(r"(?:\[([^\]]*)\]|([0-9.]+))(?::[0-9]+)?")


def address_of(text: str) -> Address | None:
    """Return the address, an IPv4 one as itself and without a zone; None for anything else."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


@dataclass(slots=True)
class Proxies:
    """The networks of trusted proxies; `unnamed` is a proxy outside of them, "" for none."""

    trusted: tuple[Network, ...] = ()
    unnamed: str = ""
    _is_met: bool = False

    def client(self, peer: Address, forwarded: str) -> Address:
        """Return the address of a client, as `client_address`.

        Anybody can send `X-Forwarded-For`, so it reveals a proxy only if it comes from a private
        address, and before a trusted proxy was met.
        """
        if forwarded and any(peer in network for network in self.trusted):
            self._is_met, self.unnamed = True, ""
        elif forwarded and peer.is_private and not self._is_met:
            self.unnamed = str(peer)
        return client_address(peer, forwarded, self.trusted)


def client_address(peer: Address, forwarded: str, trusted: Iterable[Network]) -> Address:
    """Return the client's address, given the one that connected and `X-Forwarded-For`.

    Each proxy appends the address that it was called from, so they are read from the right, and
    only as long as trusted proxies wrote them: what is to the left of that can be forged.
    """
    networks = tuple(trusted)
    address, entries = peer, forwarded.split(",") if forwarded else []
    while entries and any(address in network for network in networks):
        entry = entries.pop().strip()
        named = _WITH_PORT.fullmatch(entry)
        before = address_of((named[1] or named[2] or "") if named else entry)
        if before is None:
            break
        address = before
    return address
