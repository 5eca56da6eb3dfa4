"""Deletes the Secrets that a service brought into an app cluster, when it is deleted."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from reconciler.api.bindings import API_SERVICE_BINDING
from reconciler.apply import service_objects
from reconciler.apply.cluster_writer import ClusterWriter
from reconciler.apply.patches import Stale
from reconciler.core import keys, manifest, names
from reconciler.core.errors import Forbidden, NotServed
from reconciler.core.manifest import Manifest
from reconciler.core.refs import SECRET, Ref
from reconciler.fleet.wanted import Placement
from reconciler.kube.requests import Propagation

_ANY = "*"


async def delete(app: ClusterWriter, plane: ClusterWriter, placement: Placement) -> str:
    """Delete the Secrets that the provider owns and no other live binding claims (mapping.md 9).

    Returns a sentence about those that may not be looked for, or "". Looks only into namespaces
    that hold, or held, instances.
    """
    claims = [
        claim for binding in await _bindings(app, plane, placement) for claim in _down(binding)
    ]
    unread = []
    for namespace in sorted(await service_objects.service_namespaces(plane, placement.space)):
        try:
            found = await app.cluster.list(SECRET, namespace=namespace, metadata_only=True)
        except Forbidden:
            unread.append(namespace)
            continue
        for secret in found.items:
            if _is_copy(secret) and not _is_claimed(claims, namespace, manifest.name_of(secret)):
                await _remove(app, namespace, secret)
    if not unread:
        return ""
    places = ", ".join(unread)
    return f"no right to list Secrets in {places}: copies that came down may be left there"


async def _bindings(
    app: ClusterWriter, plane: ClusterWriter, placement: Placement
) -> list[Manifest]:
    """Return the live bindings of an app cluster: there, or in its space (mapping.md 8)."""
    place = "" if placement.bindings_cluster_scoped else names.KLUTCH_NAMESPACE
    found: list[Manifest] = []
    for writer, namespace in ((app, place), (plane, placement.space)):
        # A cluster without the CRD of bindings has none.
        with suppress(NotServed):
            found += (await writer.cluster.list(API_SERVICE_BINDING, namespace=namespace)).items
    return found


async def _remove(app: ClusterWriter, namespace: str, secret: Manifest) -> None:
    ref = Ref(app.cluster.name, SECRET, namespace, manifest.name_of(secret))
    try:
        await app.delete(ref, uid=manifest.uid_of(secret), propagation=Propagation.BACKGROUND)
    except Stale:  # deleted and created again by another: that one is not ours
        return


def _is_copy(secret: Manifest) -> bool:
    return manifest.annotations_of(secret).get(keys.RESOURCE_OWNER) == keys.OWNER_PROVIDER


def _down(binding: Manifest) -> Iterator[Manifest]:
    """Yield the accepted claims by which Secrets of the provider come down."""
    for claim in manifest.get_maps(binding, "spec", "permissionClaims"):
        secrets = (manifest.get_text(claim, "group"), manifest.get_text(claim, "resource")) == (
            "",
            "secrets",
        )
        down = manifest.get_text(claim, "selector", "owner") in ("", keys.OWNER_PROVIDER)
        if secrets and down and manifest.get_text(claim, "state") == "Accepted":
            yield claim


def _is_claimed(claims: Sequence[Manifest], namespace: str, name: str) -> bool:
    return any(
        _selects(manifest.get_texts(claim, "selector", "namespaces"), namespace)
        and _selects(manifest.get_texts(claim, "selector", "names"), name)
        for claim in claims
    )


def _selects(listed: Sequence[str], name: str) -> bool:
    return not listed or _ANY in listed or name in listed
