"""Where the objects of a cluster's units are, and the facts of each unit among what was listed.

Pure. Refuses to know whether the objects come from a poll or from what `observe` saw.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from reconciler.api.app_cluster_binding import APP_CLUSTER_BINDING
from reconciler.api.cluster_binding import CLUSTER_BINDING
from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.api.export_request import API_SERVICE_EXPORT_REQUEST
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.blueprints.binding import Resource
from reconciler.core import names
from reconciler.core.manifest import Manifest, name_of
from reconciler.core.refs import SECRET, Kind
from reconciler.fleet.values import Mode, UnitKey
from reconciler.fleet.wanted import Placement
from reconciler.health.verdict import UnitFacts
from reconciler.planning import app_cluster_bindings, placement
from reconciler.planning.units import Site

Inside: TypeAlias = Callable[[Kind, str], Sequence[Manifest]]

_NONE: Final[Mapping[str, tuple[str, str]]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one app cluster's units live.

    `secret` is namespace and name of the Secret that their APIServiceBindings refer to: K in the
    app cluster, or the mirrored one in the space. `kept` holds those of units, by `plural.group`,
    whose binding keeps another that leads to the same space.
    """

    mode: Mode
    space: str
    secret: tuple[str, str]
    kept: Mapping[str, tuple[str, str]] = field(default_factory=lambda: _NONE)
    bindings_cluster_scoped: bool = False
    app_cluster_binding: tuple[str, str] = ("", "")

    @property
    def bindings_namespace(self) -> str:
        """The namespace of its APIServiceBindings; "" where they are cluster-scoped."""
        if self.mode is Mode.APP_CLUSTER_BINDING:
            return self.space
        return "" if self.bindings_cluster_scoped else names.KLUTCH_NAMESPACE


def place_of(own: Placement, mode: Mode) -> Place:
    """Return the place of a placement, where no binding keeps another Secret."""
    direct = mode is Mode.DIRECT
    return Place(
        mode=mode,
        space=own.space,
        secret=(names.KLUTCH_NAMESPACE, own.consumer_secret)
        if direct
        else (own.space, own.kubeconfig_name),
        bindings_cluster_scoped=own.bindings_cluster_scoped,
        app_cluster_binding=own.app_cluster_binding,
    )


def place_at(site: Site, mode: Mode) -> Place:
    """Return the place of a site, with the Secrets that live bindings rightly keep."""
    place = place_of(site.placement, mode)
    if mode is not Mode.DIRECT:
        return place
    source = site.control_plane.get(
        SECRET, site.placement.kubeconfig_namespace, site.placement.kubeconfig_name
    )
    kept = {
        name_of(binding): held
        for binding in placement.bindings(site.app)
        if (held := placement.secret_of(binding)) != place.secret
        and held[0] == names.KLUTCH_NAMESPACE
        and _is_kept(site, held, source)
    }
    return replace(place, kept=kept)


def _is_kept(site: Site, held: tuple[str, str], source: Manifest | None) -> bool:
    """Tell whether a binding's own Secret leads to the space, or nobody here may read that."""
    secret = site.app.get(SECRET, *held)
    unread = site.app.blind and secret is None
    return unread or placement.same_way(secret, source, site.placement.space)


class Found:
    """What is live around one place, for the facts of any of its units.

    `on_plane` and `in_app` give the objects of a kind in a namespace of either cluster.
    """

    def __init__(self, place: Place, *, on_plane: Inside, in_app: Inside) -> None:
        direct = place.mode is Mode.DIRECT
        holder = in_app if direct else on_plane
        self._place = place
        self._exports = _by_name(on_plane(API_SERVICE_EXPORT, place.space))
        self._bindings = _by_name(holder(API_SERVICE_BINDING, place.bindings_namespace))
        self._requests: Mapping[str, Manifest] = {}
        self._whole: Manifest | None = None
        self._listed: frozenset[Resource] = frozenset()
        if direct:
            self._requests = _by_name(on_plane(API_SERVICE_EXPORT_REQUEST, place.space))
        else:
            namespace, name = place.app_cluster_binding
            self._whole = _by_name(on_plane(APP_CLUSTER_BINDING, namespace)).get(name)
        if self._whole is not None:
            self._listed = app_cluster_bindings.resources_of(self._whole)
        beats = _by_name(on_plane(CLUSTER_BINDING, place.space))
        self._cluster_binding = beats.get(names.CLUSTER_BINDING)

    def facts(self, unit: UnitKey, definition: Manifest | None = None) -> UnitFacts:
        """Return what is live of a unit; `definition` is its CRD, where that was read."""
        listed = Resource(unit.group, unit.resource) in self._listed
        return UnitFacts(
            secret=self._place.kept.get(unit.name, self._place.secret),
            export=self._exports.get(unit.name),
            binding=self._bindings.get(unit.name),
            asked=self._whole if listed else self._requests.get(unit.name),
            cluster_binding=self._cluster_binding,
            definition=definition,
        )


def _by_name(objects: Sequence[Manifest]) -> dict[str, Manifest]:
    return {name_of(one): one for one in objects}
