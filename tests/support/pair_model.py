"""Two API servers that hold one object each, a claim and its copy: enough of them for laws.

Who wrote which field is kept as servers do it: maps field by field, lists as one value.
"""

import copy as copying
import json
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from konnector import APP_CLUSTER
from konnector.claim import decide as claim_decide
from konnector.claim.copies import Pair, trimmed_copy
from konnector.claim.decide import Read, Seen
from konnector.claim.orphans import Terms
from reconciler.core import keys
from reconciler.core.decision import Apply, Create, Decision, Delete, JsonPatch, Patch
from reconciler.core.manifest import resource_version_of
from reconciler.core.refs import ObjectKey
from tests.support.space_objects import NOW

MANAGER = keys.MANAGER_KONNECTOR
_SERVERS = ("name", "namespace", "uid", "resourceVersion", "deletionTimestamp", "managedFields")
_IDENTITY = ("apiVersion", "kind")


@dataclass
class Server:
    """One cluster, as far as it holds one object."""

    live: Any = None
    versions: Any = field(default_factory=lambda: count(1))

    def create(self, manifest, manager):
        assert self.live is None, "409 AlreadyExists"
        self.live = copying.deepcopy(dict(manifest))
        self.live.pop("status", None)
        self.live["metadata"] |= {"uid": f"uid-{next(self.versions)}", "managedFields": []}
        self._entry(manager, "Update")["fieldsV1"] = _tree(_stated(self.live), created=True)
        self._touch()

    def apply(self, manifest, manager):
        self._expect(manifest)
        new, mine = _stated(manifest), self._entry(manager, "Apply")
        before = _leaves(mine["fieldsV1"])
        fields = _tree(new)
        others = [one for one in self.live["metadata"]["managedFields"] if one is not mine]
        for path in before - _leaves(fields):
            theirs = {leaf[: len(path)] for one in others for leaf in _leaves(one["fieldsV1"])}
            if path not in theirs:
                _delete(self.live, path)
                _delete_emptied(self.live, path, new, [one["fieldsV1"] for one in others])
        for path, value in _values(new):
            held = _get(self.live, path)
            if value == {} and not held:
                inside = [one for one in before if one[: len(path)] == path and one != path]
                assert not inside, "kube-apiserver makes null of this map"
            if not _same(held, value) and not (value == {} and isinstance(held, dict)):
                _set(self.live, path, value)
                for one in others:
                    _disown(one["fieldsV1"], path)
        mine["fieldsV1"] = fields
        self._touch()

    def patch(self, body, manager, subresource=""):
        """Patch as RFC 7386 says, where one half of an object cannot change with the other."""
        self._expect(body)
        before = dict(_values(_stated(self.live)))
        said = {key: value for key, value in body.items() if (key == "status") == bool(subresource)}
        if "metadata" in said:
            said["metadata"] = {k: v for k, v in said["metadata"].items() if k not in _SERVERS}
        _merge(self.live, said)
        after = dict(_values(_stated(self.live)))
        changed = {path for path in after if not _same(before.get(path), after[path])}
        for one in self.live["metadata"]["managedFields"]:
            for path in changed | (before.keys() - after.keys()):
                _disown(one["fieldsV1"], path)
        mine = self._entry(manager, "Update")["fieldsV1"]
        for path in changed:
            _own(mine, path)
        self._touch()
        self._end()

    def json_patch(self, operations):
        test, *changes = operations
        assert test["value"] == self.live["metadata"]["resourceVersion"], "409 Conflict"
        for change in changes:
            if change["op"] == "replace":
                self.live["metadata"]["managedFields"] = copying.deepcopy(change["value"])
            else:
                path = _path(change["path"])
                _delete(self.live, path)
                for one in self.live["metadata"]["managedFields"]:
                    _disown(one["fieldsV1"], path)
        self._touch()

    def delete(self, uid):
        assert self.live is not None, "404"
        assert uid == self.live["metadata"]["uid"], "409 Conflict"
        self.live["metadata"]["deletionTimestamp"] = "2026-06-01T12:00:00Z"
        self._touch()
        self._end()

    def _end(self):
        metadata = self.live["metadata"]
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            self.live = None

    def _expect(self, body):
        assert self.live is not None, "404"
        stated = body["metadata"]
        for key in ("uid", "resourceVersion"):
            assert stated.get(key) in (None, self.live["metadata"][key]), "409 Conflict"

    def _touch(self):
        self.live["metadata"]["resourceVersion"] = str(next(self.versions))
        entries = self.live["metadata"]["managedFields"]
        self.live["metadata"]["managedFields"] = [one for one in entries if one["fieldsV1"]]

    def _entry(self, manager, operation):
        entries = self.live["metadata"]["managedFields"]
        for one in entries:
            if (one["manager"], one["operation"]) == (manager, operation):
                return one
        entries.append({"manager": manager, "operation": operation, "fieldsV1": {}})
        return entries[-1]


@dataclass
class Both:
    """A claim and its copy, and a konnector that looks at them until nothing follows."""

    pair: Pair
    place: ObjectKey
    copy_place: ObjectKey
    app: Server = field(default_factory=Server)
    plane: Server = field(default_factory=Server)

    def look(self, **more) -> tuple[Decision, Seen]:
        """Decide as the controller does, with what has to be read for that."""
        copy = self.plane.live and trimmed_copy(self.plane.live)
        more = {"terms": Terms(self.pair.kind.resource), "now": NOW, **more}
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
                server.apply(_following(manifest, moved, cluster), MANAGER)
            case Patch(ref, body, subresource):
                server = self._server(ref.cluster)
                stated = resource_version_of(body)
                if stated:
                    body = _following(body, moved, ref.cluster)
                server.patch(body, MANAGER, subresource)
                if stated and server.live is not None:
                    moved[ref.cluster] = server.live["metadata"]["resourceVersion"]
            case JsonPatch(ref, operations):
                server = self._server(ref.cluster)
                server.json_patch(operations)
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
    metadata = {**manifest["metadata"], "resourceVersion": moved[cluster]}
    return {**manifest, "metadata": metadata}


def _path(pointer):
    return tuple(key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:])


def _stated(manifest):
    metadata = {k: v for k, v in manifest.get("metadata", {}).items() if k not in _SERVERS}
    rest = {k: v for k, v in manifest.items() if k not in (*_IDENTITY, "metadata", "status")}
    return {**rest, **({"metadata": metadata} if metadata else {})}


def _tree(value, *, created=False):
    if not isinstance(value, dict):
        return {}
    fields = {f"f:{key}": _tree(item, created=created) for key, item in value.items()}
    return {".": {}, **fields} if created and fields else fields


def _leaves(fields, at=()):
    found: set[tuple[str, ...]] = set()
    for step, below in fields.items():
        if step != ".":
            path = (*at, step[2:])
            found |= _leaves(below, path) or {path}
    return found


def _values(value, at=()):
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _values(item, (*at, key))
    else:
        yield at, value


def _same(one, other):
    """Tell whether two values are one in JSON, where true is not 1."""
    return json.dumps(one) == json.dumps(other)


def _own(fields, path):
    for key in path:
        fields = fields.setdefault(f"f:{key}", {})


def _disown(fields, path):
    step, *rest = (f"f:{key}" for key in path)
    if step not in fields:
        return
    if rest:
        _disown(fields[step], path[1:])
    if not rest or not fields[step].keys() - {"."}:
        del fields[step]


def _get(value, path):
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _set(value, path, leaf):
    *above, last = path
    for key in above:
        if not isinstance(value.get(key), dict):
            value[key] = {}
        value = value[key]
    value[last] = copying.deepcopy(leaf)


def _delete(value, path):
    *above, last = path
    parents = [value]
    for key in above:
        value = value.get(key) if isinstance(value, dict) else None
        parents.append(value)
    if isinstance(value, dict):
        value.pop(last, None)


def _delete_emptied(value, path, stated, others):
    """Delete the maps above a path that hold nothing any more, and that nobody wants."""
    for end in range(len(path) - 1, 0, -1):
        above, owned = path[:end], [f"f:{key}" for key in path[:end]]
        wanted = _get(stated, above) is not None or any(
            _get(one, owned) is not None for one in others
        )
        if wanted or _get(value, above) != {}:
            return
        _delete(value, above)


def _merge(into, patch):
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = copying.deepcopy(value)
