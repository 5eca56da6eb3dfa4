"""Writes digests of kubeconfigs, so that a plan compares them without the Secrets (trust.md T2).

The note is on the ClusterBinding or AppClusterBinding that names the kubeconfig. In Direct mode,
what the Secret in the app cluster is stands on our APIServiceBindings: where no konnector mirrors
it any more, a plan compares both.
"""

from collections.abc import Sequence
from contextlib import suppress

from reconciler import api
from reconciler.api import mirrored_facts
from reconciler.apply.object_writer import Clusters, ClusterWriter
from reconciler.apply.patches import annotate
from reconciler.core import keys, manifest, names
from reconciler.core.errors import NotServed
from reconciler.core.manifest import Manifest
from reconciler.core.refs import SECRET, Ref
from reconciler.fleet.wanted import Placement
from reconciler.observe.objects import observed
from reconciler.planning.changes import Action, Change
from reconciler.planning.placement import secret_of


def carrier_after(change: Change) -> Ref | None:
    """Return the object that notes a kubeconfig once a line is done, or None."""
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


async def note_kubeconfig(plane: ClusterWriter, ref: Ref) -> None:
    """Note the facts of the kubeconfig that an object names; nothing where either is absent."""
    live = await plane.read(ref)
    if live is None:
        return
    reference = manifest.get_map(live, "spec", "kubeconfigSecretRef")
    namespace = manifest.get_text(reference, "namespace") or manifest.namespace_of(live)
    name = manifest.get_text(reference, "name") or names.KUBECONFIG
    secret = await plane.read(Ref(ref.cluster, SECRET, namespace, name))
    facts = None if secret is None else api.kubeconfig_facts_of(observed(SECRET, secret))
    if facts is None:
        return

    def decide(found: Manifest) -> Manifest | None:
        return annotate(keys.CREDENTIAL, api.credential_note(facts, manifest.uid_of(found)))(found)

    await plane.change(ref, decide, manager=keys.MANAGER_NOTES)


async def binding_note(app: ClusterWriter, secret: Ref, plane: ClusterWriter, space: str) -> str:
    """Return the note on APIServiceBindings about their Secret; "" where there is none to make."""
    bound = await plane.read(
        Ref(plane.cluster.name, api.CLUSTER_BINDING, space, names.CLUSTER_BINDING)
    )
    kubeconfig = await app.read(secret)
    source = api.noted_facts(manifest.annotations_of(bound or {}).get(keys.CREDENTIAL, ""))
    facts = None if kubeconfig is None else mirrored_facts(observed(SECRET, kubeconfig), source)
    return (
        "" if facts is None or bound is None else api.credential_note(facts, manifest.uid_of(bound))
    )


async def note_binding(app: ClusterWriter, ref: Ref, plane: ClusterWriter, space: str) -> None:
    live = await app.read(ref)
    if live is not None:
        secret = Ref(ref.cluster, SECRET, *secret_of(live))
        await put_note(app, ref, await binding_note(app, secret, plane, space))


async def put_note(app: ClusterWriter, binding: Ref, note: str) -> None:
    await app.change(binding, annotate(keys.CREDENTIAL, note), manager=keys.MANAGER_NOTES)


async def note_bindings(change: Change, clusters: Clusters, plane: str) -> None:
    """Note the facts of a changed Secret on those of our APIServiceBindings that name it."""
    assert change.wanted is not None, change
    assert change.placement is not None, change
    secret, placed, app = change.ref, change.placement, clusters(change.ref.cluster)
    fleet = manifest.labels_of(change.wanted.manifest)[keys.FLEET]
    place = "" if placed.bindings_cluster_scoped else secret.namespace
    note = await binding_note(app, secret, clusters(plane), placed.space)
    for binding in await list_bindings(app, place):
        is_ours = manifest.labels_of(binding).get(keys.FLEET) == fleet
        if is_ours and secret_of(binding) == (secret.namespace, secret.name):
            ref = Ref(secret.cluster, api.API_SERVICE_BINDING, place, manifest.name_of(binding))
            await put_note(app, ref, note)


async def list_bindings(writer: ClusterWriter, namespace: str) -> Sequence[Manifest]:
    """Return the live APIServiceBindings; a cluster without their CRD has none."""
    with suppress(NotServed):
        return (await writer.cluster.list(api.API_SERVICE_BINDING, namespace=namespace)).items
    return ()
