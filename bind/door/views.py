"""Reads the control plane for the front door, through the backend's informers."""

from typing import Final

from bind.door.catalogue import Offer, offered, offers, shown
from bind.door.identity import Identity, Refused, owner_key
from bind.export.decide import resources
from bind.informers import SUBJECT, Informers, index_key
from reconciler import api
from reconciler.blueprints.export import Scope
from reconciler.core import manifest, names
from reconciler.core.errors import ClusterError
from reconciler.core.manifest import Manifest
from reconciler.core.refs import GroupResource

_MOST: Final = 1_000


class Views:
    """Templates with their CRDs, and binding spaces, as new as the views of this process."""

    def __init__(self, informers: Informers, *, consumer_scope: Scope) -> None:
        self._informers, self._scope = informers, consumer_scope
        self._namespaces = informers.recent(informers.namespaces)
        # The offer of each CRD: hundreds of whole CRDs would take too much memory.
        self._known: dict[str, tuple[tuple[str, str], Manifest]] = {}

    async def offers(self) -> list[Offer]:
        """Return the offers to app clusters, by the names of the CRDs. Raises Refused."""
        self._require_read()
        templates = list(self._informers.templates.all())
        selected = api.by_resource(templates)
        crds = [crd for one in selected if (crd := await self._crd(one.name)) is not None]
        return offers(templates, crds, consumer_scope=self._scope)

    async def offer(self, group: str, resource: str) -> Offer:
        """Return the offer of one resource. Raises Refused: absent, or of another scope."""
        self._require_read()
        wanted = GroupResource(group, resource)
        templates = list(self._informers.templates.all())
        crd = await self._crd(wanted.name)
        return offered(templates, [] if crd is None else [crd], wanted, consumer_scope=self._scope)

    def namespaces_of(self, identity: Identity) -> list[Manifest]:
        """Return the Namespaces of an identity's app clusters, also those of a namesake.

        A provider that was exchanged may have had a user of the same subject.
        """
        return self._informers.namespaces.by(SUBJECT, owner_key(identity))

    def namespaces(self) -> list[Manifest]:
        """Return the Namespaces of all spaces of signed-in identities."""
        view = self._informers.namespaces
        found = (one for owner in view.values(SUBJECT) for one in view.by(SUBJECT, owner))
        return sorted(found, key=manifest.name_of)

    def cluster_binding(self, space: str) -> Manifest | None:
        """Return the ClusterBinding of a space, as far as the backend keeps it."""
        return self._informers.cluster_bindings.get(space, names.CLUSTER_BINDING)

    def role_binding(self, space: str) -> Manifest | None:
        """Return the RoleBinding that gives the konnector of a space its rights there."""
        return self._informers.role_bindings.get(space, names.BINDER)

    def exports(self, space: str) -> list[Manifest]:
        return self._informers.exports.inside(space)

    def resources_of(self, space: str) -> frozenset[str]:
        """Return the resources that a space has, and those that it asked for and will get."""
        known = set(map(index_key, api.by_resource(self._informers.templates.all())))
        pending = (
            name
            for one in self._informers.requests.inside(space)
            if manifest.get_text(one, "status", "phase") in ("", "Pending")
            for name in resources(one)
        )
        exported = map(manifest.name_of, self.exports(space))
        return frozenset(exported) | known.intersection(pending)

    async def left_in(self, space: Manifest) -> str:
        """Return the leavings of an earlier space of that name, or "". Raises ClusterErrors."""
        return await self._informers.left_in(space)

    def has_namespace(self, name: str) -> bool:
        """Return whether a Namespace is there, also one that this process made just now."""
        return self._namespaces.get("", name) is not None

    def wrote_namespace(self, answer: Manifest) -> None:
        """Take in the API server's answer to the write of a Namespace."""
        self._namespaces.wrote(answer)

    def _require_read(self) -> None:
        """Raise Refused while views are not there: an empty one would show that all is absent."""
        seen = self._informers
        views = (seen.templates, seen.crds, seen.namespaces, seen.exports, seen.requests)
        if not all(seen.recent(view).view.synced for view in views):
            raise Refused("unavailable", "The front door is starting", retry_after=1)

    async def _crd(self, name: str) -> Manifest | None:
        live = self._informers.crds.get("", name)
        if live is None:
            self._known.pop(name, None)
            return None
        state = manifest.uid_of(live), manifest.resource_version_of(live)
        known = self._known.get(name)
        if known is not None and known[0] == state:
            return known[1]
        try:
            whole = await self._informers.crd(name)
        except ClusterError as error:
            raise Refused("unavailable", "The control plane does not answer") from error
        if whole is None:
            return None
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[name] = state, shown(whole)
        return self._known[name][1]
