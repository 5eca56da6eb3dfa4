"""Which address a client has, beyond trusted proxies, and how often each may do something. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
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


_HOST_BITS: Final = 64  # of an IPv6 address, which its holder chooses at will
_SWEPT: Final = 2  # full buckets that are forgotten with each use: more than one use can add

_ROUNDING: Final = 1e-3  # uses: sums of times of this century are exact to some 1e-7 s


class Buckets:
    """Limits each key to `burst` uses at once, and to `rate` a second in the long run.

    A bucket is the time at which it is full again; one that is full is forgotten. Of more than
    `most`, the one that was used longest ago is forgotten, so that memory is bounded.
    """

    def __init__(self, rate: float, burst: int, most: int = 100_000) -> None:
        self._rate, self._burst, self._most = rate, burst, most
        self._full_at: dict[str, float] = {}  # used longest ago first

    def __len__(self) -> int:
        return len(self._full_at)

    def wait(self, key: str, now: float) -> float:
        """Return in how many seconds the key may be used; 0.0 for now. Nothing is used."""
        lacking = self._time_to_full(key, now) * self._rate - (self._burst - 1)
        return lacking / self._rate if lacking > _ROUNDING else 0.0

    def take(self, key: str, now: float) -> float:
        """Use the key, and return 0.0; or return in how many seconds it may be used."""
        if (seconds := self.wait(key, now)) > 0.0:
            return seconds
        full_at = now + self._time_to_full(key, now) + 1 / self._rate
        self._full_at.pop(key, None)
        self._full_at[key] = full_at
        self._forget(now)
        return 0.0

    def _time_to_full(self, key: str, now: float) -> float:
        """Return it; not more than an empty bucket needs, should the clock have been set back."""
        return min(max(self._full_at.get(key, now) - now, 0.0), self._burst / self._rate)

    def _forget(self, now: float) -> None:
        for _ in range(_SWEPT):
            oldest = next(iter(self._full_at))
            if self._full_at[oldest] > now and len(self._full_at) <= self._most:
                return
            del self._full_at[oldest]


def address_key(address: IPv4Address | IPv6Address) -> str:
    """Return what the addresses have in common that one client may choose among."""
    if isinstance(address, IPv6Address):
        return str(ip_network((int(address), _HOST_BITS), strict=False))
    return str(address)
