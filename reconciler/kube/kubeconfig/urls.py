"""Which URLs of API servers and proxies can be used. Pure.

Each `..._fault` says what is wrong without quoting the URL, which may hold a password; "" where it
can be used.
"""

import ipaddress
import re
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9.])?")


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
    return address(host) is not None and "%" not in host


def is_loopback(url: SplitResult) -> bool:
    """Tell whether a URL leads to this machine, whatever resolves names."""
    host = (url.hostname or "").lower()
    ip = address(host)
    return host == "localhost" or (ip is not None and ip.is_loopback)


def address(host: str) -> Address | None:
    """Return the IP address that a host is, an IPv4 one as itself; None for a name."""
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
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
