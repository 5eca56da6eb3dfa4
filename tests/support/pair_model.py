"""A claim and its copy on two models of API servers, and a konnector that looks at them."""

from dataclasses import dataclass, field
from typing import Any

from konnector import APP_CLUSTER
from konnector.claim import decide as claim_decide
from konnector.claim.copies import Pair, trimmed_copy
from konnector.claim.decide import MARKED_WITHIN, Read, Seen
from konnector.claim.orphans import Terms
from reconciler.core import keys
from reconciler.core.decision import Apply, Create, Decision, Delete, JsonPatch, Patch
from reconciler.core.manifest import resource_version_of
from reconciler.core.refs import NAMESPACE, Kind, ObjectKey
from tests.kit import json_patch
from tests.kit.api_store import Store
from tests.kit.api_writes import Write
from tests.kit.served_kinds import of_crd
from tests.support.space_objects import NOW

MANAGER = keys.MANAGER_KONNECTOR
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_SCHEMA = {"type": "object", "properties": {"spec": _ANYTHING, "status": _ANYTHING}}


@dataclass
class Server:
    """One cluster, as far as it holds one object."""

    kind: Kind
    key: ObjectKey
    store: Store = field(default_factory=Store)

    def __post_init__(self):
        version = {"name": self.kind.version, "served": True, "subresources": {"status": {}}}
        spec = {
            "group": self.kind.group,
            "names": {"kind": self.kind.kind, "plural": self.kind.plural},
            "scope": "Namespaced" if self.kind.namespaced else "Cluster",
            "versions": [{**version, "schema": {"openAPIV3Schema": _SCHEMA}}],
        }
        (self.served,) = of_crd({"spec": spec})
        if self.kind.namespaced:
            home = ObjectKey("", self.key.namespace)
            self.store.put(("", NAMESPACE.plural), home, {"metadata": {}})

    @property
    def live(self) -> Any:
        return self.store.get(self.served.resource, self.key)

    @live.setter
    def live(self, manifest):
        """Put it in place of what is there, past the API."""
        if manifest is not None or self.live is not None:
            self.store.put(self.served.resource, self.key, manifest)

    def write(self, manager, subresource="") -> Write:
        return Write(self.store, self.served, self.key, manager, NOW, subresource)

    def create(self, manifest, manager):
        self.write(manager).create(manifest)

    def patch(self, body, manager, subresource=""):
        self.write(manager, subresource).patch(lambda live: json_patch.merged(live, body))

    def delete(self, uid):
        self.write("").delete({"uid": uid})


@dataclass
class Both:
    """A claim and its copy, and a konnector that looks at them until nothing follows."""

    pair: Pair
    place: ObjectKey
    copy_place: ObjectKey
    app: Any = None
    plane: Any = None

    def __post_init__(self):
        self.app = self.app or Server(self.pair.kind, self.place)
        self.plane = self.plane or Server(self.pair.kind, self.copy_place)

    def look(self, **more) -> tuple[Decision, Seen]:
        """Decide as the controller does, with what has to be read for that."""
        copy = self.plane.live and trimmed_copy(self.plane.live)
        more = {"terms": Terms(self.pair.kind.resource), "now": NOW + MARKED_WITHIN, **more}
        seen = Seen(self.place, self.copy_place, self.app.live, copy, **more)
        for _ in range(3):
            found = claim_decide.decide(self.pair, seen)
            if isinstance(found, Decision):
                return found, seen
            if found is Read.CLAIM:
                more |= {"claim_gone": self.app.live is None}
            else:
                more["copy_whole"], copy = True, self.plane.live
            seen = Seen(self.place, self.copy_place, self.app.live, copy, **more)
        raise AssertionError("it reads for ever")

    def perform(self, decision: Decision) -> None:
        moved: dict[Any, str] = {}
        for task in decision.tasks:
            for step in task.steps:
                self._do(step, moved)

    def _do(self, step, moved):
        match step:
            case Create(_, manifest, cluster):
                self._server(cluster).create(manifest, MANAGER)
            case Apply(_, manifest, cluster):
                server = self._server(cluster)
                server.write(MANAGER).apply(_following(manifest, moved, cluster), force=True)
            case Patch(ref, body, subresource):
                server = self._server(ref.cluster)
                stated = resource_version_of(body)
                if stated:
                    body = _following(body, moved, ref.cluster)
                server.patch(body, MANAGER, subresource)
                if stated and server.live is not None:
                    moved[ref.cluster] = server.live["metadata"]["resourceVersion"]
            case JsonPatch(ref, operations, subresource):
                server, now = self._server(ref.cluster), {"value": moved.get(ref.cluster)}
                follows = [
                    {**one, **now} if now["value"] and one["op"] == "test" else one
                    for one in operations
                ]
                write = server.write(MANAGER, subresource)
                write.patch(lambda live: json_patch.patched(live, follows))
                moved[ref.cluster] = server.live["metadata"]["resourceVersion"]
            case Delete(ref, uid):
                self._server(ref.cluster).delete(uid)
            case _:
                raise AssertionError(step)

    def _server(self, cluster):
        return self.app if cluster == APP_CLUSTER else self.plane


def _following(manifest, moved, cluster):
    if cluster not in moved:
        return manifest
    return {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": moved[cluster]}}
