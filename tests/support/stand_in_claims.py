"""How the konnector stand-in carries claimed objects down (protocol-konnector.md E)."""

from typing import TYPE_CHECKING, Final

from reconciler.core import keys
from reconciler.core.manifest import (
    Manifest,
    annotations_of,
    get_map,
    get_maps,
    get_text,
    get_texts,
    is_deleting,
    name_of,
    ref_of,
    uid_of,
)
from reconciler.core.refs import CONFIG_MAP, SECRET, Kind, Ref
from tests.support import stand_in_wire as wire
from tests.support.stand_in_instances import app_namespaces_of
from tests.support.stand_in_process import remove

if TYPE_CHECKING:
    from tests.support.stand_in_konnector import StandInKonnector

_MANAGER: Final = keys.MANAGER_ORIGINAL_KONNECTOR
_KINDS: Final = {kind.plural: kind for kind in (CONFIG_MAP, SECRET)}
_OWNED: Final = {keys.RESOURCE_OWNER: keys.OWNER_PROVIDER}
_NOT_CONTENT: Final = frozenset({"apiVersion", "kind", "metadata", "type"})


class Claims:
    """The accepted claims of one binding on the provider's Secrets and ConfigMaps.

    Nothing is carried up: neither what the provider claims of the app cluster's, nor what the
    original leaks (H1). A selector's names hold in both directions, unlike there (H2).
    """

    def __init__(self, konnector: "StandInKonnector", binding: Manifest) -> None:
        self._konnector, self._binding = konnector, binding
        self._app, self._plane = konnector.app, konnector.plane

    async def sync(self) -> None:
        """Carry what differs down."""
        for claim in get_maps(self._binding, "spec", "permissionClaims"):
            kind = _KINDS.get(get_text(claim, "resource"))
            owner = get_text(claim, "selector", "owner")
            accepted = claim.get("state") == "Accepted" and owner != keys.OWNER_CONSUMER
            if accepted and kind is not None and not get_text(claim, "group"):
                await self._carry(claim, kind)

    async def _carry(self, claim: Manifest, kind: Kind) -> None:
        here = self._konnector.mirror(self._app, kind)
        there = self._konnector.mirror(self._plane, kind)
        if not (here.served and there.served):
            return
        for service, app in app_namespaces_of(self._konnector).items():
            for origin in there.inside(service):
                if _selected(claim, name_of(origin)):
                    copy = here.get(app, name_of(origin))
                    await self._konnector.attempt(self._down(kind, origin, copy, app))
            for copy in here.inside(app):
                gone = there.get(service, name_of(copy)) is None
                if gone and _is_providers(copy) and _selected(claim, name_of(copy)):
                    await self._konnector.attempt(self._collect(kind, copy, service))

    async def _down(
        self, kind: Kind, origin: Manifest, copy: Manifest | None, namespace: str
    ) -> None:
        owner = annotations_of(origin).get(keys.RESOURCE_OWNER, "")
        undecided = not owner and copy is not None and not _is_providers(copy)
        if owner not in ("", keys.OWNER_PROVIDER) or undecided or is_deleting(origin):
            return
        if not owner:
            metadata: Manifest = {"uid": uid_of(origin), "annotations": _OWNED}
            ref = ref_of(self._plane.name, kind, origin)
            await self._plane.merge_patch(ref, {"metadata": metadata}, manager=_MANAGER)
        wanted = wire.moved(origin, namespace, name_of(origin), _OWNED)
        if copy is None:
            await self._app.create(wanted, kind, manager=_MANAGER)
        elif changes := _changes(copy, wanted):
            ref = ref_of(self._app.name, kind, copy)
            await self._app.json_patch(ref, changes, manager=_MANAGER)

    async def _collect(self, kind: Kind, copy: Manifest, service: str) -> None:
        """Delete a copy whose origin is gone."""
        if await self._plane.get(Ref(self._plane.name, kind, service, name_of(copy))) is None:
            await remove(self._app, kind, copy)


def _selected(claim: Manifest, name: str) -> bool:
    listed = get_texts(claim, "selector", "names")
    return not listed or "*" in listed or name in listed


def _is_providers(copy: Manifest) -> bool:
    return annotations_of(copy).get(keys.RESOURCE_OWNER) == keys.OWNER_PROVIDER


def _changes(copy: Manifest, wanted: Manifest) -> list[Manifest]:
    """Return the JSON patch that makes a copy what it should be, [] where it is."""
    found: list[Manifest] = [
        {"op": "add", "path": f"/{key}", "value": value}
        for key, value in wanted.items()
        if key not in _NOT_CONTENT and copy.get(key) != value
    ]
    for key in ("labels", "annotations"):
        value = get_map(wanted, "metadata", key)
        if get_map(copy, "metadata", key) != value:
            found.append({"op": "add", "path": f"/metadata/{key}", "value": value})
    held: Manifest = {"op": "test", "path": "/metadata/uid", "value": uid_of(copy)}
    return [held, *found] if found else []
