"""Classifies IP addresses and hosts, and finds the proxy for a URL.

The rules of proxies are those of Go's golang.org/x/net/http/httpproxy, so that a machine set up for
kubectl works for us; except that a proxy that cannot be used is an error here, where Go goes
without one. A proxy URL travels as a Secret and is never quoted.
"""

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret

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
_VARIABLES: Final = {"https": ("HTTPS_PROXY", "https_proxy"), "http": ("HTTP_PROXY", "http_proxy")}
_PORTS: Final = {"https": 443, "http": 80}


def no_server(address: Address) -> str:
    """Return the reason to refuse an address in URLs of others, or ""."""
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
    """Return whether this is a name that can be looked up, or an address without a zone."""
    if _HOST.fullmatch(host):
        return can_be_asked(host)
    return address_of(host) is not None and "%" not in host


def is_loopback(url: SplitResult) -> bool:
    """Return whether a URL leads to this machine, whatever resolves names."""
    host = (url.hostname or "").lower()
    ip = address_of(host)
    return host == "localhost" or (ip is not None and ip.is_loopback)


def is_loopback_name(host: str) -> bool:
    """Return whether only this machine reaches a host that it listens on, or is asked by."""
    ip = address_of(host)
    return host == "localhost" or host.endswith(".localhost") or (ip is not None and ip.is_loopback)


def address_of(host: str) -> Address | None:
    """Return the IP address that a host is, an IPv4 one as itself; None for a name."""
    try:
        ip = ip_address(host)
    except ValueError:
        return None
    return (isinstance(ip, IPv6Address) and ip.ipv4_mapped) or ip


def is_visible(url: str) -> bool:
    """Return whether a URL is ASCII without blanks and control characters."""
    return url.isascii() and url.isprintable() and " " not in url


def can_be_asked(host: str) -> bool:
    """Return whether a host's address can be looked up, and its certificate be checked.

    Both encode the name first, which fails for an empty label or one of more than 63 characters.
    """
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


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
    if not host or not is_visible(proxy):
        return "the proxy is not a valid URL"
    return "" if can_be_asked(host) else "the proxy names no valid host"


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
    """Return whether one entry of NO_PROXY covers a host; an entry that makes no sense does not."""
    if entry == "*":
        return True
    if (network := _network(entry)) is not None:
        return ip is not None and ip in network
    name, entry_port = _split_port(entry)
    if entry_port not in ("", port):
        return False
    return bool(name) and _covers(name, host) if ip is None else ip == address_of(name)


def _covers(name: str, host: str) -> bool:
    """`foo.com` covers itself and names below it, `.foo.com` and `*.foo.com` only the latter."""
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


def _network(text: str) -> IPv4Network | IPv6Network | None:
    if not text.rpartition("/")[2].isdecimal() or "/" not in text:
        return None
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None
