"""Whether a kubeconfig really leads to a space."""

from dataclasses import dataclass

from konnector.context import Connect
from reconciler.core.errors import KlutchError
from reconciler.core.manifest import uid_of
from reconciler.core.refs import NAMESPACE, Ref
from reconciler.kube.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Probed:
    """`uid` is that of the Namespace that was asked for; `fault` is why there is none, or ""."""

    uid: str = ""
    fault: str = ""


async def probe(connect: Connect, content: bytes, name: str, namespace: str) -> Probed:
    """Try a kubeconfig: read one Namespace of the cluster, which is called `name`."""
    try:
        cluster = connect(content, name)
    except KlutchError as error:
        return Probed(fault=str(error))
    try:
        return await namespace_of(cluster, namespace)
    finally:
        await cluster.close()


async def namespace_of(cluster: Cluster, namespace: str) -> Probed:
    """Return the uid of a Namespace, or why it cannot be told."""
    try:
        live = await cluster.get(Ref(cluster.name, NAMESPACE, "", namespace), metadata_only=True)
    except KlutchError as error:
        return Probed(fault=str(error))
    if live is None:
        return Probed(fault=f"{cluster.name}: Namespace {namespace} does not exist there")
    uid = uid_of(live)
    if not uid:
        return Probed(fault=f"{cluster.name}: Namespace {namespace} has no uid; no API server?")
    return Probed(uid=uid)
