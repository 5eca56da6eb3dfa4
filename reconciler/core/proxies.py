"""Which proxy leads to a server.

The rules are those of Go's golang.org/x/net/http/httpproxy, so that a machine set up for kubectl
works for us; except that a proxy that cannot be used is an error here, where Go goes without one.
A proxy URL travels as a Secret and is never quoted.
"""

from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final
from urllib.parse import SplitResult, urlsplit

from reconciler.core.addresses import Address, address_of, can_be_asked, is_loopback, is_visible
from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret

_VARIABLES: Final = {"https": ("HTTPS_PROXY", "https_proxy"), "http": ("HTTP_PROXY", "http_proxy")}
_PORTS: Final = {"https": 443, "http": 80}


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


def _network(text: str) -> IPv4Network | IPv6Network | None:
    if not text.rpartition("/")[2].isdecimal() or "/" not in text:
        return None
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None
