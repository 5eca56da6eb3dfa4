"""Finds the live objects of each unit in one app cluster."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from reconciler import api
from reconciler.api.leases import Trouble
from reconciler.core import names
from reconciler.core.manifest import Manifest, name_of
from reconciler.core.refs import SECRET, GroupResource, Kind
from reconciler.fleet.values import Mode, UnitKey
from reconciler.health.verdict import UnitFacts
from reconciler.planning import placement
from reconciler.planning.site import Site

Inside: TypeAlias = Callable[[Kind, str], Sequence[Manifest]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """The place of the objects of an app cluster's units.

    `secret` is namespace and name of the Secret that their APIServiceBindings refer to: K in the
    app cluster, or the mirrored one in the space. `kept` holds those of units, by `plural.group`,
    whose binding keeps another that leads to the same space.
    """

    mode: Mode
    space: str
    secret: tuple[str, str]
    kept: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    bindings_cluster_scoped: bool = False
    app_cluster_binding: tuple[str, str] = ("", "")

    @property
    def bindings_namespace(self) -> str:
        """The namespace of its APIServiceBindings; "" where they are cluster-scoped."""
        if self.mode is Mode.APP_CLUSTER_BINDING:
            return self.space
        return "" if self.bindings_cluster_scoped else names.KLUTCH_NAMESPACE


def location_of(site: Site, mode: Mode) -> Location:
    """Return the location at a site, with the Secrets that live bindings rightly keep."""
    own, direct = site.placement, mode is Mode.DIRECT
    secret = (names.KLUTCH_NAMESPACE, own.consumer_secret)
    return Location(
        mode=mode,
        space=own.space,
        secret=secret if direct else (own.space, own.kubeconfig_name),
        kept=_kept(site, secret) if direct else {},
        bindings_cluster_scoped=own.bindings_cluster_scoped,
        app_cluster_binding=own.app_cluster_binding,
    )


def _kept(site: Site, usual: tuple[str, str]) -> Mapping[str, tuple[str, str]]:
    """Return the Secrets that bindings name in place of the usual one, and may keep."""
    own = site.placement
    source = site.control_plane.get(SECRET, own.kubeconfig_namespace, own.kubeconfig_name)
    return {
        name_of(binding): named
        for binding in placement.bindings(site.app)
        if (named := api.secret_of(binding)) != usual
        and named[0] == names.KLUTCH_NAMESPACE
        and _leads_to_space(site, named, source)
    }


def _leads_to_space(site: Site, named: tuple[str, str], source: Manifest | None) -> bool:
    """Return whether a binding's own Secret leads to the space, or nobody here may read that."""
    secret = site.app.get(SECRET, *named)
    unread = site.app.blind and secret is None
    return unread or placement.same_way(secret, source, site.placement.space)


class LiveUnits:
    """The live objects at a location, for the facts of any of its units.

    `on_plane` and `in_app` give the objects of a kind in a namespace of either cluster.
    """

    def __init__(self, location: Location, *, on_plane: Inside, in_app: Inside) -> None:
        direct = location.mode is Mode.DIRECT
        holder = in_app if direct else on_plane
        self.location = location
        self._exports = _by_name(on_plane(api.API_SERVICE_EXPORT, location.space))
        self._bindings = _by_name(holder(api.API_SERVICE_BINDING, location.bindings_namespace))
        self._requests: Mapping[str, Manifest] = {}
        self._app_cluster_binding: Manifest | None = None
        self._listed: frozenset[GroupResource] = frozenset()
        if direct:
            self._requests = _by_name(on_plane(api.API_SERVICE_EXPORT_REQUEST, location.space))
        else:
            namespace, name = location.app_cluster_binding
            self._app_cluster_binding = _by_name(on_plane(api.APP_CLUSTER_BINDING, namespace)).get(
                name
            )
        if self._app_cluster_binding is not None:
            self._listed = api.listed_resources(self._app_cluster_binding)
        cluster_bindings = _by_name(on_plane(api.CLUSTER_BINDING, location.space))
        self._cluster_binding = cluster_bindings.get(names.CLUSTER_BINDING)

    @property
    def beat(self) -> api.Heartbeat | None:
        return api.heartbeat_of(self._cluster_binding)

    def is_bound(self, unit: UnitKey) -> bool:
        return any(unit.name in some for some in (self._exports, self._bindings, self._requests))

    def facts(
        self, unit: UnitKey, definition: Manifest | None = None, trouble: Trouble | None = None
    ) -> UnitFacts:
        """Return the live objects of a unit.

        `definition` is its CRD, where that was read, and `trouble` as in `UnitFacts`.
        """
        listed = GroupResource(unit.group, unit.resource) in self._listed
        return UnitFacts(
            secret=self.location.kept.get(unit.name, self.location.secret),
            export=self._exports.get(unit.name),
            binding=self._bindings.get(unit.name),
            asked=self._app_cluster_binding if listed else self._requests.get(unit.name),
            cluster_binding=self._cluster_binding,
            definition=definition,
            trouble=trouble,
            exported=self._exports.keys(),
        )


def _by_name(objects: Sequence[Manifest]) -> dict[str, Manifest]:
    return {name_of(manifest): manifest for manifest in objects}
