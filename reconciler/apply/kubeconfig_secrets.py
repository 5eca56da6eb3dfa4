"""Makes the content of kubeconfigs, and notes what they are.

The note is on the ClusterBinding or AppClusterBinding that names the kubeconfig, for those
without the right to read Secrets (trust.md T2).
"""

import base64
from typing import Final

from reconciler import api
from reconciler.apply.cluster_writer import Clusters, ClusterWriter
from reconciler.apply.patches import annotate
from reconciler.blueprints import objects as spaces
from reconciler.core import keys, names
from reconciler.core.errors import ConfigError
from reconciler.core.live import Address
from reconciler.core.manifest import Manifest, get_map, get_text, namespace_of, uid_of
from reconciler.core.refs import SECRET, Ref
from reconciler.core.secret import Secret
from reconciler.fleet.wanted import KubeconfigSource, Placement
from reconciler.kube.kubeconfig import from_secret
from reconciler.kube.registry import address_of
from reconciler.observe.objects import observed
from reconciler.planning.changes import Action, Change

TOKEN_WAIT: Final = 10.0  # seconds until a token Secret is filled (mapping.md 3, row 4)


class Unfilled(Exception):
    """A service account token Secret stays empty, so there is no kubeconfig to write."""


async def content(source: KubeconfigSource, clusters: Clusters, *, live: Manifest | None) -> bytes:
    """Return a kubeconfig with all that was known only after the apply. Raises Unfilled."""
    token = await _token(source, clusters)
    address = source.address(_held(live))
    assert address is not None, source
    return spaces.kubeconfig(address, token, namespace=source.token.namespace).encode()


def carrier_after(change: Change) -> Ref | None:
    """Return what has to note a kubeconfig once a line is done, or None."""
    if change.ref.kind == api.APP_CLUSTER_BINDING and change.action is Action.CREATE:
        return change.ref
    wanted = change.wanted
    here = wanted is not None and wanted.kubeconfig is not None and change.ref.kind == SECRET
    if not here or change.ref.cluster == change.cluster or change.placement is None:
        return None
    return _carrier(change.ref.cluster, change.placement)


def _carrier(plane: str, placement: Placement) -> Ref:
    if placement.app_cluster_binding != ("", ""):
        return Ref(plane, api.APP_CLUSTER_BINDING, *placement.app_cluster_binding)
    return Ref(plane, api.CLUSTER_BINDING, placement.space, names.CLUSTER_BINDING)


async def note(plane: ClusterWriter, ref: Ref) -> None:
    """Note what the kubeconfig is that an object names; nothing where either is absent."""
    live = await plane.read(ref)
    if live is None:
        return
    reference = get_map(live, "spec", "kubeconfigSecretRef")
    namespace = get_text(reference, "namespace") or namespace_of(live)
    name = get_text(reference, "name") or names.KUBECONFIG
    secret = await plane.read(Ref(ref.cluster, SECRET, namespace, name))
    facts = None if secret is None else api.kubeconfig_facts_of(observed(SECRET, secret))
    if facts is None:
        return

    def decide(found: Manifest) -> Manifest | None:
        return annotate(keys.CREDENTIAL, api.credential_note(facts, uid_of(found)))(found)

    await plane.change(ref, decide, manager=keys.MANAGER_NOTES)


async def _token(source: KubeconfigSource, clusters: Clusters) -> Secret:
    """Return the token once a controller of the cluster has filled the Secret."""
    writer, ref = clusters(source.token.cluster), source.token

    async def look() -> Secret | None:
        found = await writer.read(ref)
        token = get_text(found or {}, "data", api.TOKEN_KEY)
        filled = token and get_text(found or {}, "data", api.CA_KEY)
        return Secret(base64.b64decode(token).decode()) if filled else None

    token = await writer.fence.until(look, seconds=TOKEN_WAIT)
    if token is None:
        raise Unfilled(
            f"{ref}: no controller has filled it within {TOKEN_WAIT:.0f} s; does the "
            "kube-controller-manager run there, with the service account token controller?"
        )
    return token


def _held(live: Manifest | None) -> Address | None:
    """Return where a live kubeconfig leads, or None where there is no readable one."""
    encoded = get_text(live or {}, "data", names.KUBECONFIG)
    try:
        content = base64.b64decode(encoded)
        return address_of(from_secret(content, name=names.KUBECONFIG, environ={}))
    except (ConfigError, ValueError):
        return None
