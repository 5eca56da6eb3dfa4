"""Which addresses clusters with nodes have. Pure.

A sandbox has a network such as 10.96.0.0/16. Its cluster number n from 1 on has there

- 10.96.(100+n).0/24 for Services; the first is the address of its API server,
- 10.96.0.(10+n) for its node,
- 10.96.n.0/24 for its pods,

and 10.96.0.1 is this machine's own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Final

LOOPBACK: Final = "127.0.0.1"
# Of the Service `kubernetes`: no other will do, for nothing translates addresses.
PORT: Final = 443
MOST: Final = 99
_SERVICES: Final = 100
_NODES: Final = 10
_OWN_PREFIX: Final = 8  # a VPN that takes all traffic has routes to halves of the internet
# What clusters and home networks seldom have; the last ones are for tests of networks (RFC 2544),
# where a company has all of 10.0.0.0/8.
_CANDIDATES: Final = (
    *(IPv4Network(f"10.{second}.0.0/16") for second in range(96, 127)),
    *IPv4Network("198.18.0.0/15").subnets(new_prefix=16),
)


@dataclass(frozen=True, slots=True)
class Nodes:
    """That each cluster has a node, and the network of all of them: 10.96.0.0/16."""

    network: str

    @property
    def gateway(self) -> str:
        """The address that this machine itself has there."""
        return _address(self.network, 0, 1)

    def new_servers(self, taken: Iterable[str]) -> Iterator[str]:
        """Yield addresses for API servers that are not `taken`."""
        numbers = {number(one) for one in taken}
        free = (one for one in range(1, MOST + 1) if one not in numbers)
        return (_address(self.network, _SERVICES + one, 1) for one in free)

    def node(self, server: str) -> str:
        """Return the address of the node of the cluster whose API server is at `server`."""
        return _address(self.network, 0, _NODES + number(server))

    def pods(self, server: str) -> str:
        """Return the network of its pods."""
        return f"{_address(self.network, number(server), 0)}/24"

    def services(self, server: str) -> str:
        """Return the network of its Services."""
        return f"{_address(self.network, _SERVICES + number(server), 0)}/24"


def number(server: str) -> int:
    """Return the number of the cluster whose API server is at this address."""
    return int(server.split(".")[2]) - _SERVICES


def choose(taken: Iterable[str]) -> str | None:
    """Return a network that overlaps none of those taken, None where all do."""
    used = [*taken]
    candidates = map(str, _CANDIDATES)
    return next(
        (one for one in candidates if not any(overlaps(other, one) for other in used)), None
    )


def overlaps(route: str, network: str) -> bool:
    """Tell whether a route is to a part of this network, and not just to the whole internet."""
    reached = IPv4Network(route, strict=False)
    return reached.prefixlen >= _OWN_PREFIX and reached.overlaps(IPv4Network(network))


def _address(network: str, third: int, fourth: int) -> str:
    first = IPv4Network(network).network_address
    return str(IPv4Address(int(first) + third * 256 + fourth))
