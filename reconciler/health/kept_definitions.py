"""Keeps which CRDs of app clusters were found established, so that each look reads only others.

A CRD stays established for as long as it is the same object. There are thousands, each with long
schemas, so little is kept of each.
"""

from collections.abc import Mapping
from typing import Final

from reconciler.core import conditions
from reconciler.core.conditions import TRUE
from reconciler.core.live import ClusterState, Live
from reconciler.core.manifest import Manifest, get_map, get_maps, is_deleting, name_of, uid_of
from reconciler.core.refs import CRD
from reconciler.health.verdict import ESTABLISHED

_KEPT: Final = ("name", "uid", "creationTimestamp")


class KeptDefinitions:
    """CRDs that were established when they were read last, by app cluster and name."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Manifest]] = {}

    def of(self, cluster: str, live: Live) -> Mapping[str, Manifest]:
        """Return those of an app cluster that are still there, by what was seen just now."""
        seen, kept = live.clusters.get(cluster), self._kept.get(cluster, {})
        if not isinstance(seen, ClusterState):
            return {}
        return {
            name: kept[name]
            for one in seen.objects.get(CRD, ())
            if (name := name_of(one)) in kept
            and uid_of(one) == uid_of(kept[name])
            and not is_deleting(one)
        }

    def keep(self, cluster: str, read: Mapping[str, Manifest | None]) -> None:
        """Keep of CRDs that were read those that are established."""
        for name, one in read.items():
            said = conditions.said(one or {}, ESTABLISHED)
            if one is not None and said is not None and said.status == TRUE:
                self._kept.setdefault(cluster, {})[name] = _slim(one)


def _slim(definition: Manifest) -> Manifest:
    metadata = get_map(definition, "metadata")
    return {
        "metadata": {key: metadata[key] for key in _KEPT if key in metadata},
        "status": {"conditions": [*get_maps(definition, "status", "conditions")]},
    }
