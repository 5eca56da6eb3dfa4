"""Which URLs of API servers and proxies can be used, and where a Secret's may lead. Pure.

Each `..._fault` says what is wrong without quoting the URL, which may hold a password; "" where it
can be used. A proxy URL travels as a Secret and is never quoted.

The author of a Secret chooses the address, and who connects stands where they do not: beside the
metadata service of a cloud, whose answers are credentials, and within the network of its own pod.
Judged is what a name came to when the connection is made, so that no name server changes it after.

The rules for proxies are those of Go's golang.org/x/net/http/httpproxy, so that a machine set up
for kubectl works for us; except that a proxy that cannot be used is an error here, where Go goes
without one.
"""

import re
from collections.abc import Iterable, Mapping
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
from urllib.parse import SplitResult, urlsplit

from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret

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

_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9.])?")
_VARIABLES: Final = {"https": ("HTTPS_PROXY", "https_proxy"), "http": ("HTTP_PROXY", "http_proxy")}
_PORTS: Final = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class Networks:
    """What is refused beside what always is; what is in `allow` is not refused by `deny`.

    What `beside` refuses is refused as well, whatever is in `allow`.
    """

    allow: tuple[Network, ...] = ()
    deny: tuple[Network, ...] = ()
    beside: "Networks | None" = None

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
        return "" if self.beside is None else self.beside.fault(host)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables by which a konnector refuses the same, whatever its own flags say."""
        said = {_DENIED: self.deny, _ALLOWED: self.allow}
        return (
            {name: ",".join(map(str, cidrs)) for name, cidrs in said.items()} if self.deny else {}
        )


ANYWHERE: Final = Networks()
IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"  # the kubelet sets it in every pod
# Set by klutch-bind for the konnectors that it deploys. An argument would not do: overrides name
# others, and one that comes from a variable of theirs is not seen before the Pod starts.
_DENIED: Final = "KLUTCH_DENY_NETWORKS"
_ALLOWED: Final = "KLUTCH_ALLOW_NETWORKS"


def of_flags(allow: Iterable[str], deny: Iterable[str], *, in_cluster: bool) -> Networks:
    """Return what these lists of CIDRs say. Raises ConfigError.

    Within a cluster, loopback is the pod's own, and no API server is there.
    """
    own = LOOPBACK if in_cluster else ()
    return Networks(_parsed(allow, "--allow-networks"), (*own, *_parsed(deny, "--deny-networks")))


def of_environment(environ: Mapping[str, str]) -> Networks | None:
    """Return what the operator of the control plane says, or None. Raises ConfigError."""
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


def server_fault(server: str) -> str:
    """Judge the URL of an API server; the fault is the end of a sentence."""
    try:
        url = urlsplit(server)
        host, _ = url.hostname or "", url.port
    except ValueError:
        return "is not a valid URL"
    if url.username is not None or url.password is not None:
        return "holds credentials: move them to the user"
    if url.scheme not in ("https", "http"):
        return "must start with https://"
    if not _is_visible(server):
        return "is not a valid URL"
    if not is_host(host):
        return "names no valid host"
    return "must not have a query or a fragment" if url.query or url.fragment else ""


def proxy_fault(proxy: str) -> str:
    """Judge the URL of a proxy; the fault is a sentence."""
    try:
        url = urlsplit(proxy)
        host, _ = url.hostname, url.port
    except ValueError:
        return "the proxy is not a valid URL"
    if url.scheme.startswith("socks"):
        return "SOCKS proxies are not supported: name an HTTP proxy (http:// or https://)"
    if url.scheme not in ("http", "https"):
        return "the proxy must be a URL that starts with http:// or https://"
    if not host or not _is_visible(proxy):
        return "the proxy is not a valid URL"
    return "" if _can_be_asked(host) else "the proxy names no valid host"


def is_host(host: str) -> bool:
    """Tell whether this is a name that can be looked up, or an address without a zone."""
    if _HOST.fullmatch(host):
        return _can_be_asked(host)
    return address_of(host) is not None and "%" not in host


def is_loopback(url: SplitResult) -> bool:
    """Tell whether a URL leads to this machine, whatever resolves names."""
    host = (url.hostname or "").lower()
    ip = address_of(host)
    return host == "localhost" or (ip is not None and ip.is_loopback)


def address_of(host: str) -> Address | None:
    """Return the IP address that a host is, an IPv4 one as itself; None for a name."""
    try:
        ip = ip_address(host)
    except ValueError:
        return None
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return mapped or ip


def _is_visible(url: str) -> bool:
    return url.isascii() and url.isprintable() and " " not in url


def _can_be_asked(host: str) -> bool:
    """Tell whether a host's address can be looked up, and its certificate be checked.

    Both encode the name first, which fails for an empty label or one of more than 63 characters.
    """
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def proxy_from_environment(server: str, environ: Mapping[str, str]) -> Secret | None:
    """Return the proxy for a server URL, or None: none is set, or NO_PROXY names the server.

    localhost and loopback addresses are always reached directly. Raises ConfigError for a
    proxy that cannot be used, naming the variable.
    """
    url = urlsplit(server)
    variable = _first_set(_VARIABLES[url.scheme], environ)
    if not variable or not _is_proxied(url, environ):
        return None
    value = environ[variable].strip()
    proxy = value if "://" in value else f"http://{value}"
    if fault := proxy_fault(proxy):
        raise ConfigError(fault, where=f"${variable}")
    return Secret(proxy)


def _first_set(names: tuple[str, ...], environ: Mapping[str, str]) -> str:
    return next((name for name in names if environ.get(name, "").strip()), "")


def _is_proxied(url: SplitResult, environ: Mapping[str, str]) -> bool:
    if is_loopback(url):
        return False
    host = (url.hostname or "").lower()
    ip = address_of(host)
    exceptions = environ.get(_first_set(("NO_PROXY", "no_proxy"), environ), "")
    entries = [entry.strip().lower() for entry in exceptions.split(",")]
    port = str(url.port or _PORTS[url.scheme])
    return not any(entry and _matches(entry, host, ip, port) for entry in entries)


def _matches(entry: str, host: str, ip: Address | None, port: str) -> bool:
    """Tell whether one entry of NO_PROXY covers a host; an entry that makes no sense does not."""
    if entry == "*":
        return True
    if (network := _network(entry)) is not None:
        return ip is not None and ip in network
    name, entry_port = _split_port(entry)
    if entry_port not in ("", port):
        return False
    if ip is not None:
        return ip == address_of(name)
    return bool(name) and _covers(name, host)


def _covers(name: str, host: str) -> bool:
    """`foo.com` covers itself and what is below it, `.foo.com` and `*.foo.com` only the latter."""
    suffix = name[1:] if name.startswith("*.") else name
    if suffix.startswith("."):
        return host.endswith(suffix)
    return host == suffix or host.endswith(f".{suffix}")


def _split_port(entry: str) -> tuple[str, str]:
    """Split `name:port` and `[IPv6]:port`; a bare IPv6 address has no port."""
    name, colon, port = entry.rpartition(":")
    if not colon or entry.endswith("]"):
        return entry, ""
    if name.startswith("[") and name.endswith("]"):
        return name[1:-1], port
    return (entry, "") if ":" in name else (name, port)


def _network(text: str) -> Network | None:
    if not text.rpartition("/")[2].isdecimal() or "/" not in text:
        return None
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None
