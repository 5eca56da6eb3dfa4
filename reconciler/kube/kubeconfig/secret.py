"""Connections from kubeconfigs that lie in Secrets, and what those must not say. Reads no file.

The author of the Secret is not always trusted with the machine that reads it: such a file could
run commands (CVE-2022-24817, CVE-2021-41254), send local files away or lead the traffic elsewhere.
Only the entries of the current context are judged: no other is ever used.
"""

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from reconciler.core.errors import ConfigError
from reconciler.core.yaml_text import Fields
from reconciler.kube.connection import Connection
from reconciler.kube.kubeconfig import entries, profile
from reconciler.kube.kubeconfig.entries import Profile
from reconciler.kube.kubeconfig.user import IMPERSONATION
from reconciler.kube.networks import ANYWHERE, Networks

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
# The author chooses how long its readers do nothing else: a megabyte takes seconds.
_LARGEST: Final = 64 << 10


def from_secret(
    content: bytes, *, name: str, environ: Mapping[str, str], networks: Networks = ANYWHERE
) -> Connection:
    """Return the connection that the current context of a Secret's kubeconfig means.

    `name` is what people call the cluster. What a host name comes to is held against `networks`
    when it is connected to. Raises ConfigError for what an untrusted kubeconfig must not say, all
    of it at once, and for one that is broken.
    """
    path = f"kubeconfig of {name}"
    if len(content) > _LARGEST:
        message = f"larger than {_LARGEST >> 10} KiB"
        hint = "Leave only the context that is used, and the certificate authority that it needs"
        raise ConfigError(message, where=path, hint=hint)
    kubeconfig = entries.parse(content, path=path, folder=None)
    chosen = entries.profile(kubeconfig, None)
    _require(_forbidden_fields(chosen), path)
    connection = profile.connection(chosen, name=name, environ=environ, read=_read_nothing)
    _require(_forbidden_address(connection.server, networks), path)
    return replace(connection, networks=networks)


def from_content(content: bytes, *, name: str) -> Connection | str:
    """Return the connection as `from_secret` does without exceptions, or why there is none.

    The reason goes on a sentence that begins with the Secret's name.
    """
    try:
        return from_secret(content, name=name, environ={})
    except ConfigError as error:
        return f"has an invalid kubeconfig: {error}"


def _require(faults: Sequence[str], path: str) -> None:
    if faults:
        message = f"this kubeconfig is not accepted from a Secret: {'; '.join(faults)}"
        raise ConfigError(message, where=path)


def _forbidden_fields(profile: Profile) -> list[str]:
    cluster = profile.cluster.fields
    user = [] if profile.user is None else _present(profile.user.fields, _OF_USER)
    faults = [*user, *_present(cluster, _OF_CLUSTER)]
    if cluster.flag(_INSECURE):
        faults.append(f"{_INSECURE} would talk to whoever answers at the address")
    return faults


def _present(fields: Fields, reasons: Mapping[str, str]) -> list[str]:
    return [f"{field} {reason}" for field, reason in reasons.items() if fields.has(field)]


def _forbidden_address(server: str, networks: Networks) -> list[str]:
    url = urlsplit(server)
    if url.scheme != "https":
        return ["server must start with https://"]
    fault = networks.fault(url.hostname or "")
    return [f"server is refused: {fault}"] if fault else []


def _read_nothing(path: Path) -> bytes:
    """Refuse to read a file: all fields that name one are forbidden."""
    raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))
