"""Connections from kubeconfigs that lie in Secrets, and what those must not say.

Whoever can write the Secret is not always trusted with the machine that reads it: such a file
could run commands (CVE-2022-24817, CVE-2021-41254), send local files away or lead the traffic
elsewhere. Only the entries of the current context are judged: no other is ever used.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal
from urllib.parse import urlsplit

from reconciler.core.errors import ConfigError
from reconciler.core.problems import Origin
from reconciler.core.yaml_text import Fields
from reconciler.kube.connection import Connection
from reconciler.kube.kubeconfig import entries, profile
from reconciler.kube.kubeconfig.entries import Profile
from reconciler.kube.kubeconfig.files import read_file
from reconciler.kube.kubeconfig.user import IMPERSONATION
from reconciler.kube.networks import ANYWHERE, Networks

Allowable = Literal[
    "exec",
    "tokenFile",
    "client-certificate",
    "client-key",
    "certificate-authority",
    "proxy-url",
    "insecure-skip-tls-verify",
]
"""What an operator may allow all the same, outside of the Secret."""

_OF_USER: Final = {
    "exec": "would run a command on this machine",
    "auth-provider": "is not supported, and would run code on this machine",
    "tokenFile": "would send a file of this machine to the server: use token",
    "client-certificate": "would read a file of this machine: use client-certificate-data",
    "client-key": "would read a file of this machine: use client-key-data",
} | dict.fromkeys(IMPERSONATION, "is not supported: use a user that has the rights itself")
_OF_CLUSTER: Final = {
    "certificate-authority": "would read a file of this machine: use certificate-authority-data",
    "proxy-url": "would lead the traffic through a host of the author's choice",
}
_INSECURE: Final = "insecure-skip-tls-verify"
# Whoever writes the Secret chooses how long its readers do nothing else: a megabyte takes seconds.
_LARGEST: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Refusal:
    """One field that is not acceptable. `str()` is a sentence that names it."""

    field: str
    reason: str
    origin: Origin

    def __str__(self) -> str:
        return f"{self.field} {self.reason}"


class ForbiddenFields(ConfigError):
    """A kubeconfig from a Secret says what it must not; `refusals` has all of it."""

    def __init__(self, refusals: tuple[Refusal, ...], *, where: str) -> None:
        self.refusals = refusals
        sentences = "; ".join(map(str, refusals))
        super().__init__(f"this kubeconfig is not accepted from a Secret: {sentences}", where=where)


def from_secret(
    content: bytes,
    *,
    name: str,
    environ: Mapping[str, str],
    allow: frozenset[Allowable] = frozenset(),
    networks: Networks = ANYWHERE,
) -> Connection:
    """Return the connection that the current context of a Secret's kubeconfig means.

    `name` is what people call the cluster. What a host name comes to is held against `networks`
    when it is connected to. Raises ForbiddenFields for what an untrusted kubeconfig must not say,
    but for what is in `allow`, and ConfigError for one that is broken.
    """
    path = f"kubeconfig of {name}"
    if len(content) > _LARGEST:
        message = f"larger than {_LARGEST >> 10} KiB"
        hint = "Leave only the context that is used, and the certificate authority that it needs"
        raise ConfigError(message, where=path, hint=hint)
    kubeconfig = entries.parse(content, path=path, folder=None)
    chosen = entries.profile(kubeconfig, None)
    _refuse_forbidden(chosen, allow)
    connection = profile.connection(chosen, name=name, environ=environ, read=read_file)
    _refuse_address(chosen, connection.server, networks)
    return replace(connection, networks=networks)


def from_content(content: bytes, *, name: str) -> Connection | str:
    """Return the connection as `from_secret` does without exceptions, or why there is none.

    The reason goes on a sentence that begins with the Secret's name.
    """
    try:
        return from_secret(content, name=name, environ={})
    except ConfigError as error:
        return f"has an invalid kubeconfig: {error}"


def _refuse_forbidden(profile: Profile, allow: frozenset[Allowable]) -> None:
    """Raise ForbiddenFields with every field in use that is forbidden and not allowed."""
    user = () if profile.user is None else _present(profile.user.fields, _OF_USER)
    cluster = profile.cluster.fields
    forbidden = [*user, *_present(cluster, _OF_CLUSTER)]
    if cluster.flag(_INSECURE):
        reason = "would talk to whoever answers at the address"
        forbidden.append(Refusal(_INSECURE, reason, cluster.at(_INSECURE)))
    if refusals := tuple(refusal for refusal in forbidden if refusal.field not in allow):
        raise ForbiddenFields(refusals, where=refusals[0].origin.path)


def _refuse_address(profile: Profile, server: str, networks: Networks) -> None:
    """Raise ForbiddenFields where the server is not asked over TLS, or is a forbidden address."""
    url, origin = urlsplit(server), profile.cluster.fields.at("server")
    reason = "" if url.scheme == "https" else "must start with https://"
    if fault := reason or networks.fault(url.hostname or ""):
        refused = Refusal("server", fault if reason else f"is refused: {fault}", origin)
        raise ForbiddenFields((refused,), where=origin.path)


def _present(fields: Fields, reasons: dict[str, str]) -> Iterator[Refusal]:
    for field, reason in reasons.items():
        if fields.has(field):
            yield Refusal(field, reason, fields.at(field))
