"""The one CRD that a konnector brings along in default mode: that of its bindings (A.2.3, A.9)."""

from typing import Final

from reconciler.api import API_SERVICE_BINDING, is_established
from reconciler.controller.clock import Clock
from reconciler.controller.fence import WriteFence
from reconciler.core import keys
from reconciler.core.errors import AlreadyExists, NotServed
from reconciler.core.manifest import Manifest, covers, get, get_text, ref_of
from reconciler.core.refs import CRD, Kind, Ref
from reconciler.kube import crds
from reconciler.kube.cluster import Cluster

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0


async def served(cluster: Cluster, fence: WriteFence, clock: Clock) -> Kind:
    """Wait until the cluster serves APIServiceBindings, and return them as it does.

    The CRD is made where there is none, and the versions of a namespaced one are brought up to
    ours. Klutch up to 1.5.0 serves them cluster-scoped, which cannot be changed, and is left as it
    is. Raises ClusterErrors that time does not mend, and Stopped.
    """
    pause = _FIRST_PAUSE
    while True:
        live = await cluster.get(Ref(cluster.name, CRD, "", API_SERVICE_BINDING.resource))
        if live is None or not _is_ours(live):
            await _install(cluster, fence, live)
        elif is_established(live):
            return _kind(namespaced=get_text(live, "spec", "scope") != "Cluster")
        await clock.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


async def discovered(cluster: Cluster, clock: Clock) -> Kind:
    """Wait until the cluster serves APIServiceBindings that somebody else brings along.

    A konnector of the control plane has no right to read CRDs there (A.8). Raises ClusterErrors
    that time does not mend.
    """
    one, pause = API_SERVICE_BINDING, _FIRST_PAUSE
    while True:
        try:
            return await cluster.kind(one.group, one.version, one.plural)
        except NotServed:
            await clock.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _kind(*, namespaced: bool) -> Kind:
    one = API_SERVICE_BINDING
    return Kind(one.group, one.version, one.kind, one.plural, namespaced=namespaced)


def _is_ours(live: Manifest) -> bool:
    (wanted,) = crds.load(API_SERVICE_BINDING.resource)
    scoped_otherwise = get(live, "spec", "scope") != get(wanted, "spec", "scope")
    return scoped_otherwise or covers(live.get("spec"), wanted.get("spec"))


async def _install(cluster: Cluster, fence: WriteFence, live: Manifest | None) -> None:
    (wanted,) = crds.load(API_SERVICE_BINDING.resource)
    manager = keys.MANAGER_KONNECTOR
    try:
        if live is None:
            await fence.write(lambda: cluster.create(wanted, CRD, manager=manager))
            return
    except AlreadyExists:
        return
    metadata = {"uid": get(live, "metadata", "uid")}
    patch: Manifest = {"metadata": metadata, "spec": {"versions": get(wanted, "spec", "versions")}}
    ref = ref_of(cluster.name, CRD, live)
    await fence.write(lambda: cluster.merge_patch(ref, patch, manager=manager))
