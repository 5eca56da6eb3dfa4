"""The kubeconfigs that the sandbox writes, as text. Pure."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import yaml


@dataclass(frozen=True, slots=True)
class Entry:
    """One context: where the cluster is, and the client certificate to show there (PEM)."""

    context: str
    server: str
    authority: bytes
    certificate: bytes
    key: bytes


def render(entries: Sequence[Entry]) -> bytes:
    """Return a kubeconfig with one context per entry; the first is the current one.

    It is complete in itself, so it can be copied elsewhere. It holds private keys.
    """
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": entry.context,
                "cluster": {
                    "server": entry.server,
                    "certificate-authority-data": _base64(entry.authority),
                },
            }
            for entry in entries
        ],
        "users": [
            {
                "name": entry.context,
                "user": {
                    "client-certificate-data": _base64(entry.certificate),
                    "client-key-data": _base64(entry.key),
                },
            }
            for entry in entries
        ],
        "contexts": [
            {"name": entry.context, "context": {"cluster": entry.context, "user": entry.context}}
            for entry in entries
        ],
        "current-context": entries[0].context,
    }
    return yaml.safe_dump(document, sort_keys=False, width=1000).encode()


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
