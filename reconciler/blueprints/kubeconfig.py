"""The kubeconfig that one side gets to reach the other, as text (protocol-bind.md B.4).

Decides its shape, which the originals read. Refuses to know where it is stored.
"""

import base64
from dataclasses import dataclass
from typing import Final

import yaml

from reconciler.core.secret import Secret

_ENTRY: Final = "default"  # the one name of cluster, user and context


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a kubeconfig leads. `ca` is PEM text, "" for the trust of the reader's machine.

    `namespace` is that of the current context: the konnector takes it for its binding space.
    """

    server: str
    ca: str
    tls_server_name: str
    namespace: str


def text(destination: Destination, token: Secret) -> str:
    """Return a kubeconfig whose current context leads there. It holds the token."""
    cluster = {"server": destination.server}
    if destination.ca:
        cluster["certificate-authority-data"] = base64.b64encode(destination.ca.encode()).decode()
    if destination.tls_server_name:
        cluster["tls-server-name"] = destination.tls_server_name
    context = {"cluster": _ENTRY, "namespace": destination.namespace, "user": _ENTRY}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": _ENTRY,
        "clusters": [{"name": _ENTRY, "cluster": cluster}],
        "contexts": [{"name": _ENTRY, "context": context}],
        "users": [{"name": _ENTRY, "user": {"token": token.reveal()}}],
    }
    # Wide, because a folded token is valid YAML that not every reader puts together again.
    return yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False, width=1 << 20)
