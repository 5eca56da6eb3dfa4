"""What the stand-ins of many API servers hold, in memory, and how writes change it.

As real ones do it, as far as klutchctl can see: uids, resourceVersions, managedFields, the
preconditions of writes, and the kinds that a CRD opens. There are no schemas, and lists are owned
as a whole.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import jsonpatch
import orjson

from reconciler.core.refs import NAMESPACE, Kind
from reconciler.core.times import format_time
from tests.kit import json_patch

Object = dict[str, Any]

_KEEPS: Final = ("uid", "name", "namespace", "creationTimestamp", "resourceVersion", "generation")


@dataclass(frozen=True, slots=True)
class Item:
    """One object at the start, as JSON: whole, and as PartialObjectMetadata."""

    namespace: str
    name: str
    body: bytes
    metadata: bytes


@dataclass(frozen=True, slots=True)
class State:
    """What each cluster holds at the start; a kind that is not named is not served there."""

    clusters: Mapping[str, Mapping[Kind, Sequence[Item]]]


class Refusal(Exception):
    """A call is answered with a Status that is no success."""

    def __init__(self, code: int, reason: str, message: str, name: str = "") -> None:
        self.code = code
        self.body = orjson.dumps(
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": message,
                "reason": reason,
                "details": {"name": name},
                "code": code,
            }
        )
        super().__init__(message)


@dataclass(slots=True)
class Stored:
    """One object, as JSON; as PartialObjectMetadata from when somebody asks for that."""

    body: bytes
    metadata: bytes | None = None
    _labels: Mapping[str, str] | None = None

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels, from when somebody asks for them."""
        if self._labels is None:
            self._labels = orjson.loads(self.body)["metadata"].get("labels", {})
        return self._labels

    def shown(self, *, metadata: bool) -> bytes:
        if not metadata:
            return self.body
        if self.metadata is None:
            held = orjson.loads(self.body)["metadata"]
            typed = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata"}
            self.metadata = orjson.dumps({**typed, "metadata": held})
        return self.metadata


class Collection:
    """All objects of a kind in one cluster."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._held: dict[str, dict[str, Stored]] = defaultdict(dict)

    def get(self, namespace: str, name: str) -> Stored | None:
        return self._held.get(namespace, {}).get(name)

    def put(self, namespace: str, name: str, stored: Stored) -> None:
        self._held[namespace][name] = stored

    def remove(self, namespace: str, name: str) -> None:
        del self._held[namespace][name]

    def page(
        self, query: Mapping[str, Sequence[str]], *, namespace: str, version: str, metadata: bool
    ) -> bytes:
        """Return a page of a list, as large and from where the query says."""
        found = list(self._found(namespace, query))
        start = int(query.get("continue", ["0"])[0])
        limit = int(query.get("limit", ["0"])[0]) or len(found)
        facts: Object = {"resourceVersion": version}
        left = len(found) - start - limit
        if left > 0:
            facts |= {"continue": str(start + limit), "remainingItemCount": left}
        head = {"kind": f"{self.kind.kind}List", "apiVersion": self.kind.api_version}
        if metadata:
            head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
        opening = orjson.dumps({**head, "metadata": facts})[:-1]
        shown = [one.shown(metadata=metadata) for one in found[start : start + limit]]
        return opening + b',"items":[' + b",".join(shown) + b"]}"

    def _found(self, namespace: str, query: Mapping[str, Sequence[str]]) -> Iterator[Stored]:
        wanted = query.get("fieldSelector", [""])[0].removeprefix("metadata.name=")
        key, _, value = query.get("labelSelector", [""])[0].partition("=")
        for stored in self._named(namespace, wanted):
            if not key or stored.labels.get(key) == value:
                yield stored

    def _named(self, namespace: str, wanted: str) -> Iterator[Stored]:
        for space in [namespace] if namespace else sorted(self._held):
            held = self._held.get(space, {})
            if wanted:
                yield from (held[name] for name in (wanted,) if name in held)
            else:
                yield from (held[name] for name in sorted(held))


class Store:
    """All clusters, each with its own collections by apiVersion and plural."""

    def __init__(self, state: State) -> None:
        self._versions = itertools.count(200_000)
        self.clusters: dict[str, dict[tuple[str, str], Collection]] = {}
        shared: dict[int, Stored] = {}
        for cluster, kinds in state.clusters.items():
            self.clusters[cluster] = {}
            for kind, items in kinds.items():
                collection = self.open(cluster, kind)
                for item in items:
                    stored = shared.setdefault(id(item), Stored(item.body, item.metadata))
                    collection.put(item.namespace, item.name, stored)

    def open(self, cluster: str, kind: Kind) -> Collection:
        key = kind.api_version, kind.plural
        return self.clusters[cluster].setdefault(key, Collection(kind))

    def of(self, cluster: str, kind: Kind) -> Collection:
        return self.clusters[cluster][kind.api_version, kind.plural]

    def version(self) -> str:
        return str(next(self._versions))

    def read(self, cluster: str, kind: Kind, namespace: str, name: str) -> Object | None:
        """Return one object as a value of its own, or None."""
        stored = self.of(cluster, kind).get(namespace, name)
        return None if stored is None else orjson.loads(stored.body)

    def create(self, cluster: str, kind: Kind, given: Object, *, manager: str) -> bytes:
        """Make an object. Raises Refusal."""
        collection, metadata = self.of(cluster, kind), given["metadata"]
        namespace = metadata.get("namespace", "")
        if "name" not in metadata:
            metadata["name"] = f"{metadata['generateName']}{next(self._versions)}"
        name = metadata["name"]
        if collection.get(namespace, name) is not None:
            raise Refusal(409, "AlreadyExists", f'{kind.plural} "{name}" already exists', name)
        if namespace and self.of(cluster, NAMESPACE).get("", namespace) is None:
            raise Refusal(404, "NotFound", f'namespaces "{namespace}" not found', namespace)
        number = next(self._versions)
        metadata |= {
            "uid": str(UUID(int=number)),
            "resourceVersion": str(number),
            "generation": 1,
            "creationTimestamp": _now(),
            "managedFields": [_entry(manager, "Update", given)],
        }
        return self._keep(collection, given).body

    def replace(self, cluster: str, kind: Kind, live: Object, changed: Object) -> bytes:
        """Keep `changed` in the place of `live`, with a new resourceVersion if it differs."""
        for key in _KEEPS:
            if key in live["metadata"]:
                changed["metadata"][key] = live["metadata"][key]
        if changed == live:
            return orjson.dumps(live)
        changed["metadata"]["resourceVersion"] = self.version()
        if changed.get("spec") != live.get("spec"):
            changed["metadata"]["generation"] = live["metadata"].get("generation", 0) + 1
        return self._keep(self.of(cluster, kind), changed).body

    def _keep(self, collection: Collection, changed: Object) -> Stored:
        stored = Stored(orjson.dumps(changed))
        metadata = changed["metadata"]
        collection.put(metadata.get("namespace", ""), metadata["name"], stored)
        return stored

    def delete(self, cluster: str, kind: Kind, live: Object, options: Object) -> bytes:
        """Remove an object at once. Raises Refusal for other preconditions."""
        _check(live, options.get("preconditions", {}))
        metadata = live["metadata"]
        self.of(cluster, kind).remove(metadata.get("namespace", ""), metadata["name"])
        return orjson.dumps({"kind": "Status", "apiVersion": "v1", "status": "Success"})


def merged(live: Object, patch: Object) -> Object:
    """Return an object after a merge patch (RFC 7386). Raises Refusal."""
    _check(live, patch.get("metadata", {}))
    return json_patch.merged(live, patch)  # type: ignore[no-any-return]


def patched(live: Object, operations: Sequence[Object]) -> Object:
    """Return an object after a JSON patch (RFC 6902). Raises Refusal."""
    try:
        return jsonpatch.apply_patch(live, operations)  # type: ignore[no-any-return]
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise Refusal(422, "Invalid", f"the patch does not fit: {error}") from error


def applied(live: Object, body: Object, *, manager: str) -> Object:
    """Return an object after a server-side apply by force. Raises Refusal."""
    _check(live, body["metadata"])
    stated = {**body, "metadata": {**body["metadata"]}}
    entries = live["metadata"].get("managedFields", [])
    before = [one for one in entries if (one["manager"], one["operation"]) == (manager, "Apply")]
    kept = orjson.loads(orjson.dumps(live))
    entry = _entry(manager, "Apply", stated)
    for one in before:
        _drop(kept, one["fieldsV1"], entry["fieldsV1"])
        if one["fieldsV1"] == entry["fieldsV1"]:
            entry = one
    result: Object = json_patch.merged(kept, stated)
    others = [one for one in entries if one not in before]
    result["metadata"]["managedFields"] = [*others, entry]
    return result


def kind_of(crd: Object) -> Kind:
    spec = crd["spec"]
    name, plural = spec["names"].get("kind", ""), spec["names"]["plural"]
    version = spec["versions"][0]["name"]
    return Kind(spec["group"], version, name, plural, namespaced=spec["scope"] == "Namespaced")


def established(crd: Object) -> Object:
    names = {"conditions": [condition("Established"), condition("NamesAccepted")]}
    return {**crd, "status": {**names, "acceptedNames": crd["spec"]["names"]}}


def condition(name: str) -> Object:
    """Return a condition that is true since now."""
    return {"type": name, "status": "True", "lastTransitionTime": _now()}


def _check(live: Object, known: Object) -> None:
    held = live["metadata"]
    if known.get("uid", held["uid"]) != held["uid"]:
        raise Refusal(409, "Conflict", "Precondition failed: UID in precondition", held["name"])
    if known.get("resourceVersion", held["resourceVersion"]) != held["resourceVersion"]:
        raise Refusal(409, "Conflict", "the object has been modified", held["name"])


def _drop(live: Object, before: Object, after: Object) -> None:
    """Take away what a manager owned and states no longer."""
    for step, parts in before.items():
        key = step.removeprefix("f:")
        if step not in after:
            live.pop(key, None)
        elif parts and isinstance(live.get(key), dict):
            _drop(live[key], parts, after[step])


def _entry(manager: str, operation: str, stated: Object) -> Object:
    metadata = stated.get("metadata", {})
    owned = {key: value for key, value in stated.items() if key not in ("apiVersion", "kind")}
    owned["metadata"] = {
        key: metadata[key]
        for key in ("labels", "annotations", "ownerReferences")
        if key in metadata
    }
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": stated["apiVersion"],
        "time": _now(),
        "fieldsType": "FieldsV1",
        "fieldsV1": _fields({key: value for key, value in owned.items() if value}),
    }


def _fields(value: Any) -> Object:
    if not isinstance(value, dict):
        return {}
    return {f"f:{key}": _fields(item) for key, item in value.items()}


def _now() -> str:
    return format_time(datetime.now(UTC))
