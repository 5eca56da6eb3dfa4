"""Which proxy leads to an API server. Pure: the environment is passed in.

The rules are those of Go's golang.org/x/net/http/httpproxy, so that a machine set up for
kubectl works for us; except that a proxy that cannot be used is an error here, where Go goes
without one. A proxy URL may hold a password: it travels as a Secret and is never quoted.
"""

import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

from reconciler.core.errors import ConfigError
from reconciler.core.secret import Secret
from reconciler.kube.kubeconfig import urls
from reconciler.kube.kubeconfig.urls import Address

_VARIABLES: Final = {"https": ("HTTPS_PROXY", "https_proxy"), "http": ("HTTP_PROXY", "http_proxy")}
_PORTS: Final = {"https": 443, "http": 80}


def from_environment(server: str, environ: Mapping[str, str]) -> Secret | None:
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
    if fault := urls.proxy_fault(proxy):
        raise ConfigError(fault, where=f"${variable}")
    return Secret(proxy)


def _first_set(names: tuple[str, ...], environ: Mapping[str, str]) -> str:
    return next((name for name in names if environ.get(name, "").strip()), "")


def _is_proxied(url: SplitResult, environ: Mapping[str, str]) -> bool:
    if urls.is_loopback(url):
        return False
    host = (url.hostname or "").lower()
    address = urls.address(host)
    exceptions = environ.get(_first_set(("NO_PROXY", "no_proxy"), environ), "")
    entries = [entry.strip().lower() for entry in exceptions.split(",")]
    port = str(url.port or _PORTS[url.scheme])
    return not any(entry and _matches(entry, host, address, port) for entry in entries)


def _matches(entry: str, host: str, address: Address | None, port: str) -> bool:
    """Tell whether one entry of NO_PROXY covers a host; an entry that makes no sense does not."""
    if entry == "*":
        return True
    if (network := _network(entry)) is not None:
        return address is not None and address in network
    name, entry_port = _split_port(entry)
    if entry_port not in ("", port):
        return False
    if address is not None:
        return address == urls.address(name)
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


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    if not text.rpartition("/")[2].isdecimal() or "/" not in text:
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
