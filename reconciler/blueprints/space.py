"""A binding space and what it holds, and the kubeconfig Secrets of both sides.

The objects of protocol-bind.md B.4 and mapping.md 3, 8. Refuses to know how the names were found
and whether such an object exists.
"""

import base64
from typing import Final

import yaml

from reconciler.api.bindings import CLUSTER_BINDING
from reconciler.blueprints.objects import UNMARKED, Marks, build
from reconciler.core import keys, names
from reconciler.core.live import Address
from reconciler.core.manifest import KNOWN_AFTER_APPLY, Manifest
from reconciler.core.refs import NAMESPACE, SECRET, SERVICE_ACCOUNT
from reconciler.core.secret import Secret

_ENTRY: Final = "default"  # the one name of cluster, user and context


def namespace(name: str, *, marks: Marks = UNMARKED) -> Manifest:
    """Return a Namespace."""
    return build(NAMESPACE, name, marks=marks)


def service_account(namespace: str, name: str, *, marks: Marks) -> Manifest:
    """Return a ServiceAccount: an identity without any right yet."""
    return build(SERVICE_ACCOUNT, name, namespace=namespace, marks=marks)


def token_secret(namespace: str, account: str, *, marks: Marks) -> Manifest:
    """Return the Secret, named like the account, that a controller fills with its token."""
    annotations = {**marks.annotations, keys.SERVICE_ACCOUNT_NAME: account}
    return build(
        SECRET,
        account,
        namespace=namespace,
        marks=Marks(marks.labels, annotations),
        type="kubernetes.io/service-account-token",
    )


def cluster_binding(space: str, *, kubeconfig_name: str, spec: Manifest, marks: Marks) -> Manifest:
    """Return the ClusterBinding of a space. The Secret that it names cannot be changed later."""
    secret = {"name": kubeconfig_name, "key": names.KUBECONFIG}
    return build(
        CLUSTER_BINDING,
        names.CLUSTER_BINDING,
        namespace=space,
        marks=marks,
        spec={**spec, "kubeconfigSecretRef": secret},
    )


def kubeconfig_secret(namespace: str, name: str, *, content: str | None, marks: Marks) -> Manifest:
    """Return the Secret with a kubeconfig; None is known after apply."""
    data = KNOWN_AFTER_APPLY if content is None else base64.b64encode(content.encode()).decode()
    return build(SECRET, name, namespace=namespace, marks=marks, data={names.KUBECONFIG: data})


def kubeconfig(address: Address, token: Secret, *, namespace: str = "") -> str:
    """Return a kubeconfig whose current context leads to an address. It holds the token.

    Without a CA, the trust of the reader's machine counts. The konnector takes `namespace`, that of
    the context, for its binding space.
    """
    cluster = {"server": address.server}
    if address.ca:
        cluster["certificate-authority-data"] = base64.b64encode(address.ca.encode()).decode()
    if address.tls_server_name:
        cluster["tls-server-name"] = address.tls_server_name
    context = {"cluster": _ENTRY, "namespace": namespace, "user": _ENTRY}
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
