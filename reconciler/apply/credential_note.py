"""What a kubeconfig of ours is, noted where those who may not read Secrets find it (trust.md T2).

Whoever writes the kubeconfig that a ClusterBinding or AppClusterBinding names notes it there.
"""

from reconciler.api.app_cluster_binding import APP_CLUSTER_BINDING
from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.apply.writes import Patch, Writes, annotate
from reconciler.core import keys, names
from reconciler.core.kubeconfig_facts import facts_of, note_of
from reconciler.core.manifest import Manifest, get_map, get_text, namespace_of, uid_of
from reconciler.core.refs import SECRET, Ref
from reconciler.fleet.wanted import Placement
from reconciler.observe.objects import observed
from reconciler.planning.changes import Action, Change


def carrier_after(change: Change) -> Ref | None:
    """Return what has to note a kubeconfig once a line is done, or None."""
    if change.ref.kind == APP_CLUSTER_BINDING and change.action is Action.CREATE:
        return change.ref
    wanted = change.wanted
    here = wanted is not None and wanted.kubeconfig is not None and change.ref.kind == SECRET
    if not here or change.ref.cluster == change.cluster or change.placement is None:
        return None
    return _carrier(change.ref.cluster, change.placement)


def _carrier(plane: str, placement: Placement) -> Ref:
    if placement.app_cluster_binding != ("", ""):
        return Ref(plane, APP_CLUSTER_BINDING, *placement.app_cluster_binding)
    return Ref(plane, CLUSTER_BINDING, placement.space, names.CLUSTER_BINDING)


async def note(plane: Writes, ref: Ref) -> None:
    """Note what the kubeconfig is that an object names; nothing where either is absent."""
    live = await plane.read(ref)
    if live is None:
        return
    reference = get_map(live, "spec", "kubeconfigSecretRef")
    namespace = get_text(reference, "namespace") or namespace_of(live)
    name = get_text(reference, "name") or names.KUBECONFIG
    secret = await plane.read(Ref(ref.cluster, SECRET, namespace, name))
    facts = None if secret is None else facts_of(observed(SECRET, secret))
    if facts is None:
        return

    def decide(found: Manifest) -> Patch | None:
        return annotate(keys.CREDENTIAL, note_of(facts, uid_of(found)))(found)

    await plane.change(ref, decide, manager=keys.MANAGER_NOTES)
