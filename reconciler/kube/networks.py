"""Decides which URLs of API servers are allowed, also in Secrets. Pure.

`server_fault` says what is wrong without quoting the URL, which may hold a password; "" for none.

The author of a Secret chooses the address, but our program connects from its own network. There
it reaches the cloud's metadata service, which hands out credentials, and its own pod. The check is
made on the resolved address, at the time of the connection, so a name server cannot change it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from reconciler.core.addresses import Address, is_host, is_visible, no_server, unwrapped
from reconciler.core.errors import ConfigError

Network: TypeAlias = IPv4Network | IPv6Network

LOOPBACK: Final = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


@dataclass(frozen=True, slots=True)
class Networks:
    """The networks that are refused beside the usual ones; `allow` outranks `deny`.

    What `beside` refuses is refused as well, whatever is in `allow`.
    """

    allow: tuple[Network, ...] = ()
    deny: tuple[Network, ...] = ()
    beside: "Networks | None" = None

    def fault(self, host: str) -> str:
        """Return the reason to refuse an address, or ""; "" also for a host name."""
        try:
            address = unwrapped(ip_address(host.partition("%")[0]))
        except ValueError:
            return ""
        if kind := no_server(address):
            return f"{address} is {kind}, where no kubeconfig in a Secret may lead"
        if _within(address, self.deny) and not _within(address, self.allow):
            return f"{address} is in a network where kubeconfigs in Secrets may not lead: see " + (
                "--allow-networks and --deny-networks"
            )
        return "" if self.beside is None else self.beside.fault(host)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables by which a konnector refuses the same, whatever its own flags are."""
        ranges = {_DENIED: self.deny, _ALLOWED: self.allow}
        return (
            {name: ",".join(map(str, cidrs)) for name, cidrs in ranges.items()} if self.deny else {}
        )


ANYWHERE: Final = Networks()
IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"  # the kubelet sets it in every pod
# Set by klutch-bind for the konnectors that it deploys. An argument would not do: overrides name
# others, and one that comes from a variable of theirs is not seen before the Pod starts.
_DENIED: Final = "KLUTCH_DENY_NETWORKS"
_ALLOWED: Final = "KLUTCH_ALLOW_NETWORKS"


def of_flags(allow: Iterable[str], deny: Iterable[str], *, in_cluster: bool) -> Networks:
    """Return the networks of these lists of CIDRs. Raises ConfigError.

    Within a cluster, loopback is the pod's own, and no API server is there.
    """
    own = LOOPBACK if in_cluster else ()
    return Networks(_parsed(allow, "--allow-networks"), (*own, *_parsed(deny, "--deny-networks")))


def of_environment(environ: Mapping[str, str]) -> Networks | None:
    """Return the networks that the control plane's operator sets, or None. Raises ConfigError."""
    if not environ.get(_DENIED):
        return None
    allow, deny = ([environ.get(name, "")] for name in (_ALLOWED, _DENIED))
    return Networks(_parsed(allow, _ALLOWED), _parsed(deny, _DENIED))


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


def server_fault(server: str) -> str:
    """Judge the URL of an API server; the fault is the end of a sentence."""
    try:
        url = urlsplit(server)
        host, _ = url.hostname or "", url.port
    except ValueError:
        return "is not a valid URL"
    if url.username is not None or url.password is not None:
        return "contains credentials: move them to the user"
    if url.scheme not in ("https", "http"):
        return "must start with https://"
    if not is_visible(server):
        return "is not a valid URL"
    if not is_host(host):
        return "names no valid host"
    return "must not have a query or a fragment" if url.query or url.fragment else ""
