"""Parses addresses of Git repositories, and refuses those that must not be fetched from. Pure.

A URL has been a way to run commands (CVE-2026-55797), to smuggle lines into a credential helper
(CVE-2020-5260) and to reach what only this machine may (SSRF). So little is let through.
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from reconciler.core.errors import ConfigError

_PORTS: Final = {"https": 443, "ssh": 22}
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,253}[A-Za-z0-9])?")
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_PATH: Final = re.compile(r"(/[A-Za-z0-9._~+@%-]+)+/?")
_METADATA: Final = frozenset(
    {ipaddress.ip_address("fd00:ec2::254"), ipaddress.ip_address("100.100.100.200")}
)


@dataclass(frozen=True, slots=True)
class GitUrl:
    """A repository on a server. It holds no password; `user` is "" where none is named."""

    scheme: str
    user: str
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{user}{host}{port}{self.path}"


def parse(text: str, *, where: str) -> GitUrl:
    """Read a URL. Raises ConfigError, which repeats nothing of it: it may hold a password."""
    if not text.isascii() or not text.isprintable() or " " in text:
        raise _refused(where, "it holds spaces, or characters that URLs have not")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _refused(where, "it is no URL") from None
    if parts.scheme not in _PORTS:
        raise _refused(where, "it does not begin with https:// or ssh://")
    if parts.password is not None:
        raise _refused(where, "it holds a password, which others on this machine could read")
    if parts.query or parts.fragment or "?" in text or "#" in text:
        raise _refused(where, "it holds a query or fragment")
    if parts.username is not None and not _USER.fullmatch(parts.username):
        raise _refused(where, "its user name is not made of letters, digits, '.', '_' and '-'")
    if not _PATH.fullmatch(parts.path) or ".." in parts.path.split("/"):
        raise _refused(where, "its path is not that of a repository")
    problem = host_problem(host)
    if problem:
        raise _refused(where, problem)
    return GitUrl(
        parts.scheme, parts.username or "", host, port or _PORTS[parts.scheme], parts.path
    )


def host_problem(host: str) -> str:
    """Return why nothing may be fetched from a host, by its name or address; "" where it may."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "" if _HOST.fullmatch(host) else "its host is no host name"
    if address.version == 6 and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_link_local or address.is_multicast or address in _METADATA:
        return "its host is an address at which clouds tell secrets, or no server can be"
    return "its host is no address of a server" if address.is_unspecified else ""


def _refused(where: str, problem: str) -> ConfigError:
    hint = "Write https://host/path or ssh://git@host/path"
    return ConfigError(f"this repository cannot be followed: {problem}", where=where, hint=hint)
