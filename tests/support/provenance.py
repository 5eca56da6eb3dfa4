"""The law of uids, by a record of its own: each text belongs to the objects of one life.

Each text of a claim, a status or a Secret is written by hand once, so that its way shows. A service
namespace is paired with the app namespace, app cluster and space from which its first text came, a
cluster-scoped copy likewise. Knows uids, requests and changes of API servers; no marks.
"""

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from reconciler.core.manifest import get_text, is_deleting, name_of, namespace_of, uid_of
from reconciler.core.names import KUBE_SYSTEM
from reconciler.core.refs import ObjectKey
from tests.kit.api_model import ApiModel
from tests.kit.api_store import Change, Object, Resource

PLANE: Final = "control-plane"
NAMESPACES: Final = ("", "namespaces")
_DATA: Final = (("", "secrets"), ("", "configmaps"))
_TEXTS: Final = (("spec", "text"), ("status", "text"), ("data", "key"))
_FACTS: Final = ("origins", "pairs", "claims", "deleted", "fallen", "served", "moved")


class Origin(NamedTuple):
    """A place: the cluster, and the uids of the namespace, with its name, and of the object."""

    cluster: str
    namespace: str
    name: str
    object: str


class Pair(NamedTuple):
    """The consumer's side of a service namespace: a cluster, and uids as they were."""

    cluster: str
    app_cluster: str
    namespace: str
    space: str


@dataclass
class Record:
    """What was written and deleted by hand, and the law that each write of a program meets.

    `spaces` are by app cluster, `kinds` the resources of claims. `claims` has the uid of the last
    claim of each place. `deleted`: uids of what was deleted by hand. `served`: uids of claims
    that had a copy at rest. `confirmed`: a person gave all that is left to what is there now.
    """

    models: Mapping[str, ApiModel]
    spaces: Mapping[str, str]
    kinds: Set[Resource]
    origins: dict[str, Origin] = field(default_factory=dict)
    pairs: dict[str, Pair] = field(default_factory=dict)
    claims: dict[tuple[str, str, Resource, str], str] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    fallen: set[str] = field(default_factory=set)
    served: set[str] = field(default_factory=set)
    moved: set[str] = field(default_factory=set)
    confirmed: bool = False
    breaches: list[str] = field(default_factory=list)
    _path: str = ""
    _by_hand: bool = True

    def copied(self) -> "Record":
        facts: dict[str, Any] = {name: copy(getattr(self, name)) for name in _FACTS}
        return replace(self, **facts, breaches=[])

    @contextmanager
    def request(self, path: str, *, by_hand: bool) -> Iterator[None]:
        self._path, self._by_hand = path, by_hand
        yield
        self._path, self._by_hand = "", True

    def changed(self, cluster: str, change: Change) -> None:
        """Note what was done by hand; judge what a program did."""
        if change.resource not in {NAMESPACES, *_DATA, *self.kinds}:
            return
        if self._by_hand:
            self._note(cluster, change)
        else:
            self._judge(cluster, change)
        self._claim(cluster, change.resource, change.new)

    def restored(self, cluster: str, then: "Record") -> None:
        """Take an API server as it is; `then` is the record of the moment that is back."""
        self.pairs = dict(then.pairs) if cluster == PLANE else self.pairs
        for resource, _, live in self.models[cluster].store.everything():
            self._claim(cluster, resource, live)
            is_asked = is_deleting(live) or uid_of(live) in then.deleted
            (self.deleted.add if is_asked else self.deleted.discard)(uid_of(live))
            if cluster != PLANE and resource in self.kinds and uid_of(live) not in then.served:
                self.served.discard(uid_of(live))

    def unmapped(self, cluster: str, service_namespace: str) -> None:
        """Forget of which app cluster a service namespace is: its mapping alone recorded that.

        Nothing else records it for the cluster-scoped copies of its space.
        """
        self.deleted.add(service_namespace)
        for key, pair in self.pairs.items():
            if key == service_namespace or (pair.cluster, pair.namespace) == (cluster, ""):
                self.pairs[key] = pair._replace(app_cluster="")

    def space(self, app: str) -> str:
        """Return the uid of the space of an app cluster, "" while there is none."""
        return self._uid(PLANE, self.spaces[app])

    def _uid(self, cluster: str, namespace: str) -> str:
        store = self.models[cluster].store
        return uid_of(store.get(NAMESPACES, ObjectKey("", namespace)) or {})

    def _origin(self, cluster: str, live: Object) -> Origin:
        name = namespace_of(live)
        return Origin(cluster, self._uid(cluster, name), name, uid_of(live))

    def _claim(self, cluster: str, resource: Resource, live: Object | None) -> None:
        if cluster == PLANE or resource not in self.kinds or live is None:
            return
        place = (cluster, self._uid(cluster, namespace_of(live)), resource, name_of(live))
        self.claims[place] = uid_of(live)

    def _note(self, cluster: str, change: Change) -> None:
        live = change.last
        for text in _texts(change.new) - _texts(change.old):
            self.origins[text] = self._origin(cluster, live)
        # On the control plane what goes with its namespace or kind was not meant to go.
        is_meant = cluster != PLANE or self._path.endswith(
            f"/{change.resource[1]}/{change.key.name}"
        )
        is_claim = change.resource in self.kinds  # one without a finalizer is lost
        if is_deleting(live) or (change.new is None and not is_claim):
            (self.deleted if is_meant else self.fallen).add(uid_of(live))

    def _judge(self, cluster: str, change: Change) -> None:
        old, new, live = change.old, change.new, change.last
        at = f"{cluster} {change.resource[1]} {'/'.join(change.key)}"
        place = self._origin(cluster, live)
        for text in _texts(new) - _texts(old):
            self._move(text, place, at)
        lost = _texts(old) - _texts(new) if new and change.resource in _DATA else ()
        if any(self.origins[text].object == uid_of(live) for text in lost):
            self.breaches.append(f"{at}: what was written there by hand was overwritten")
        is_copy = cluster == PLANE and change.resource in self.kinds
        if old is None and is_copy and self._claims_of(place, change) & self.served:
            self.breaches += [] if self.confirmed else [f"{at}: a copy that was lost was made anew"]
        ends = old is not None and not is_deleting(old) and (new is None or is_deleting(new))
        if ends and not self._may_end(place, change, old or {}):
            self.breaches.append(f"{at}: ended, and nobody asked for that")

    def _move(self, text: str, to: Origin, at: str) -> None:
        origin = self.origins[text]
        app, there = (origin, to) if to.cluster == PLANE else (to, origin)
        is_given = self.confirmed and origin.cluster == to.cluster
        if origin[:2] == to[:2] or is_given:
            return  # an object that was let go on the control plane brings it back
        if (app.cluster == PLANE) is (there.cluster == PLANE):
            self.breaches.append(f"{at}: {text} came from {origin}")
            return
        uids = self._uid(app.cluster, KUBE_SYSTEM), app.namespace, self.space(app.cluster)
        pair, key = Pair(app.cluster, *uids), there.namespace or there.object
        before = self.pairs.setdefault(key, pair)
        if before == pair._replace(app_cluster=""):
            before = self.pairs[key] = pair
        is_free = self.confirmed or not self._has_moved(there)
        self.moved.add(text)
        if is_free and before.cluster == pair.cluster:
            self.pairs[key] = pair
        elif before != pair:
            self.breaches.append(f"{at}: {text} of {before} came to {pair}")

    def _has_moved(self, there: Origin) -> bool:
        """Return whether a service namespace has anything that was brought to it, or from it."""
        return any(
            key.namespace == there.name and self.moved & _texts(live)
            for resource, key, live in self.models[PLANE].store.everything()
        )

    def _lost(self, place: Origin) -> bool:
        """Return whether a claim beside a Secret in the app cluster lost its copy, and stays."""
        copies = {key for _, key, _ in self.models[PLANE].store.everything()}
        return any(
            uid_of(live) in self.served
            and not is_deleting(live)
            and ObjectKey(f"{self.spaces[place.cluster]}-{place.name}", key.name) not in copies
            for kind in self.kinds
            for key, live in self.models[place.cluster].store.all(kind, place.name)
        )

    def _claims_of(self, copy: Origin, change: Change) -> set[str]:
        """Return the uids of the last claims of a copy's place; two, of a name without a pair."""
        pair = self.pairs.get(copy.namespace or copy.object)
        namespace = pair.namespace if pair else copy.namespace
        prefixes = {
            app: "" if copy.namespace else f"{space}-" for app, space in self.spaces.items()
        }
        return {
            self.claims.get((app, namespace, change.resource, change.key.name[len(prefix) :]), "")
            for app, prefix in prefixes.items()
            if change.key.name.startswith(prefix) and (pair is None or pair.cluster == app)
        }

    def _may_end(self, place: Origin, change: Change, old: Object) -> bool:
        if change.resource == NAMESPACES:
            pair = self.pairs.get(place.object)
            return pair is None or bool({place.object, *pair} & self.deleted)
        if change.resource in _DATA:
            # With a service namespace they go; that is judged for itself.
            is_itself = self._path.endswith(f"/{change.key.name}")
            origins = [self.origins[text] for text in _texts(old)]
            ended = self.deleted | (set() if self._lost(place) else self.fallen)
            return not is_itself or any(one.object in ended for one in origins)
        pair = self.pairs.get(place.namespace or place.object)
        claims, said = self._claims_of(place, change), get_text(old, "spec", "text")
        former = set() if claims & self.served else {self.origins[said].object}
        is_asked = bool((claims | former) & self.deleted)
        space = pair.space if pair else ""
        return place.cluster == PLANE and (is_asked or space in self.deleted)


def _texts(live: Object | None) -> set[str]:
    return {text for path in _TEXTS if (text := get_text(live or {}, *path))}
