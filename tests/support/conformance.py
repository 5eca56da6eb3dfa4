"""The same operations on two API servers, and what each makes of them."""

import asyncio
import contextlib
import copy
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from reconciler.core.errors import ClusterError
from reconciler.core.manifest import Manifest, name_of
from reconciler.core.refs import CONFIG_MAP, NAMESPACE, SECRET, Kind, Ref
from reconciler.kube.cluster import Cluster
from reconciler.kube.requests import Preconditions, Propagation
from tests.support import removal
from tests.support.definitions import definition

WIDGET: Final = Kind("conformance.example", "v1", "Widget", "widgets")
GADGET: Final = Kind("conformance.example", "v1", "Gadget", "gadgets")
KINDS: Final = (CONFIG_MAP, SECRET, WIDGET, GADGET)
MANAGERS: Final = ("anna", "berta", "carl")
_CLUSTERS_OWN: Final = frozenset({"kube-root-ca.crt", "default"})


def crd_of(kind: Kind, *, status: bool) -> Manifest:
    """Return a CRD with lists of all sorts, a default, and a field that holds anything."""
    item = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "port": {"type": "integer", "default": 80},
            "more": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
        "required": ["name"],
    }
    spec: dict[str, Any] = {
        "size": {"type": "string"},
        "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "ports": {
            "type": "array",
            "items": item,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "plain": {"type": "array", "items": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "notes": {"type": "object", "additionalProperties": {"type": "string"}},
        "nested": {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        },
    }
    schema: Manifest = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": spec},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    return definition(kind, schema, status=status)


@dataclass
class Player:
    """Plays operations on one server, and remembers the identities that it gave."""

    cluster: Cluster
    namespace: str
    seen: dict[tuple[str, str], list[Manifest]] = field(default_factory=dict)

    async def play(self, operation: "Operation") -> Any:
        """Return the object that was answered, or how it was refused."""
        try:
            answer = await self._called(operation)
        except ClusterError as error:
            return type(error).__name__, error.status, error.reason
        is_object = isinstance(answer, dict) and answer.get("kind") != "Status"
        if is_object and not operation.dry_run:
            self.seen.setdefault((operation.kind.plural, name_of(answer)), []).append(answer)
        return self.plain(answer)

    async def _called(self, one: "Operation") -> Any:
        cluster, ref = self.cluster, self._ref(one)
        how: Any = {"manager": one.manager, "subresource": one.subresource, "dry_run": one.dry_run}
        match one.verb:
            case "create":
                how.pop("subresource")
                return await cluster.create(self._body(one), one.kind, **how)
            case "apply":
                return await cluster.apply(self._body(one), one.kind, force=one.force, **how)
            case "merge":
                return await cluster.merge_patch(ref, self._patch(one), **how)
            case "json":
                return await cluster.json_patch(ref, self._operations(one), **how)
            case "delete":
                uid, version = self._expected(one)
                return await cluster.delete(
                    ref,
                    preconditions=Preconditions(uid=uid, resource_version=version),
                    propagation=Propagation.BACKGROUND,
                )
        return await cluster.get(ref)

    def _ref(self, one: "Operation") -> Ref:
        return Ref(self.cluster.name, one.kind, self.namespace, one.name)

    def _body(self, one: "Operation") -> Any:
        made: Any = {"apiVersion": one.kind.api_version, "kind": one.kind.kind, **self._patch(one)}
        made["metadata"] = {**made["metadata"], "name": one.name, "namespace": self.namespace}
        return made

    def _patch(self, one: "Operation") -> Any:
        made: Any = copy.deepcopy(one.body)
        metadata = made.setdefault("metadata", {})
        uid, version = self._expected(one)
        if uid is not None:
            metadata["uid"] = uid
        if version is not None:
            metadata["resourceVersion"] = version
        owners = metadata.get("ownerReferences") or []
        for owner in owners:
            owner["uid"] = self._last(("configmaps", owner["name"]), "uid") or "0-0"
        return made

    def _operations(self, one: "Operation") -> Any:
        made = copy.deepcopy(one.body["operations"])
        _, version = self._expected(one)
        if version is not None:
            return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *made]
        return made

    def _expected(self, one: "Operation") -> tuple[str | None, str | None]:
        key = (one.kind.plural, one.name)
        uid = {"": None, "right": self._last(key, "uid"), "wrong": "0-1"}[one.uid]
        version = {"": None, "right": self._last(key, "resourceVersion"), "wrong": "1"}[one.version]
        return uid, version

    def _last(self, key: tuple[str, str], field_: str) -> str | None:
        found: Any = self.seen.get(key, [])
        return found[-1]["metadata"][field_] if found else None

    def plain(self, value: Any) -> Any:
        """Return a value without what differs from server to server."""
        if isinstance(value, list):
            return [self.plain(one) for one in value]
        if not isinstance(value, Mapping):
            return value
        away = ("uid", "resourceVersion", "creationTimestamp", "time", "selfLink")
        made = {
            key: "some" if key == "deletionTimestamp" else self.plain(item)
            for key, item in value.items()
            if key not in away
        }
        if "managedFields" in made:
            entries = [_without_uids(one) for one in made["managedFields"]]
            by = ("manager", "operation", "subresource")
            ordered = sorted(entries, key=lambda one: [one.get(key, "") for key in by])
            made["managedFields"] = ordered
        return made

    async def state(self, *kinds: Kind) -> dict[tuple[str, str], Any]:
        found = {}
        for kind in kinds:
            for one in (await self.cluster.list(kind, namespace=self.namespace)).items:
                if name_of(one) not in _CLUSTERS_OWN:
                    plain = {
                        k: v for k, v in self.plain(one).items() if k not in ("kind", "apiVersion")
                    }
                    found[(kind.plural, name_of(one))] = plain
        return found

    async def events(self, kind: Kind, since: str, count: int) -> dict[str, list[Any]]:
        """Return what a watch tells by object: `count` events, and what follows at once.

        Of events of one object that tell the same, one after the other, only the first.
        """
        found: dict[str, list[Any]] = {}
        ref = Ref(self.cluster.name, kind, self.namespace, "")
        async with self.cluster.watch(ref, resource_version=since) as events:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10) as until:
                    async for event in events:
                        if event.type == "BOOKMARK" or name_of(event.object) in _CLUSTERS_OWN:
                            continue
                        entry = (event.type, self.plain(event.object))
                        count -= 1
                        reported = found.setdefault(name_of(event.object), [])
                        # A server may write again what only it can tell from before, such as the
                        # order of managers, or empty labels.
                        is_same = (
                            reported and reported[-1][1] == entry[1] and event.type != "DELETED"
                        )
                        if not is_same:
                            reported.append(entry)
                        if count <= 0:
                            until.reschedule(asyncio.get_running_loop().time() + 0.2)
        return found


def _without_uids(entry: Any) -> Any:
    """Leave the uid of an owner out of its path."""
    if not isinstance(entry, Mapping):
        return entry
    return {
        "k:uid" if key.startswith('k:{"uid"') else key: _without_uids(item)
        for key, item in entry.items()
    }


@dataclass(frozen=True)
class Operation:
    """One call. `uid` and `version` say what is expected: "", "right" or "wrong"."""

    verb: str
    kind: Kind
    name: str
    body: Any = field(default_factory=dict)
    manager: str = "anna"
    uid: str = ""
    version: str = ""
    force: bool = False
    subresource: str = ""
    dry_run: bool = False


@dataclass
class Operations:
    """Random operations, few names and few values, so that they meet."""

    random: random.Random

    def operation(self) -> Operation:
        verb = self.random.choices(
            ("create", "apply", "merge", "json", "delete", "get"), (3, 8, 6, 3, 2, 1)
        )[0]
        kind = self.random.choice(KINDS)
        subresource = "status" if verb in ("apply", "merge") and self._now_and_then() else ""
        body = self._body(kind, verb, subresource)
        return Operation(
            verb,
            kind,
            self.random.choice("abc"),
            body,
            self.random.choice(MANAGERS),
            uid=self._expectation(),
            version=self._expectation() if verb != "create" else "",
            force=self.random.random() < 0.6,
            subresource=subresource,
            dry_run=self.random.random() < 0.1 and verb not in ("delete", "get"),
        )

    def _now_and_then(self) -> bool:
        return self.random.random() < 0.2

    def _expectation(self) -> str:
        return self.random.choices(("", "right", "wrong"), (12, 3, 1))[0]

    def _body(self, kind: Kind, verb: str, subresource: str) -> Any:
        if verb == "json":
            return {"operations": self._operations(kind)}
        removes = verb == "merge"
        body: dict[str, Any] = {}
        if not subresource:
            body["metadata"] = self._metadata(removes, owned=kind not in (WIDGET, GADGET))
        if kind in (WIDGET, GADGET):
            if not subresource:
                body["spec"] = self._spec(removes)
            if subresource or self._now_and_then():
                body["status"] = self._map(removes)
        else:
            body["data"] = self._data(kind, removes)
        return body

    def _data(self, kind: Kind, removes: bool) -> Any:
        values = ("eA==", "eQ==") if kind == SECRET else ("x", "y")
        return {
            key: None if removes and self._now_and_then() else self.random.choice(values)
            for key in self._some("klm")
        }

    def _metadata(self, removes: bool, *, owned: bool) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key in ("labels", "annotations"):
            if self.random.random() < 0.4:
                made[key] = {
                    f"{one}.example/x": None if removes and self._now_and_then() else one
                    for one in self._some("pq")
                }
        if self.random.random() < 0.25:
            made["finalizers"] = [f"{one}.example/f" for one in self._some("st")]
        if owned and self.random.random() < 0.1:
            made["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": self.random.choice("abc")}
            ]
        return made

    def _spec(self, removes: bool) -> Any:
        made: dict[str, Any] = {}
        choices: dict[str, Any] = {
            "size": lambda: self.random.choice(("1", "2")),
            "mode": lambda: self.random.choice(("a", "b", "b", "c")),
            "ports": lambda: [
                {"name": name}
                | ({"port": self.random.randint(1, 2)} if self._now_and_then() else {})
                | ({"more": self._map(False)} if self._now_and_then() else {})
                for name in self._some("fgh")
            ],
            "tags": lambda: self._some("uvw"),
            "plain": lambda: self._some("uvw"),
            "free": lambda: self._map(removes),
            "notes": lambda: {key: self.random.choice("12") for key in self._some("gh")},
            "nested": lambda: {key: self.random.choice("12") for key in self._some("ab")},
            **({"unknown": lambda: "x"} if self.random.random() < 0.2 else {}),
        }
        for key in self._some(tuple(choices)):
            made[key] = None if removes and self._now_and_then() else choices[key]()
        return made

    def _map(self, removes: bool, depth: int = 2) -> Any:
        made: dict[str, Any] = {}
        for key in self._some("xyz"):
            kind = self.random.random()
            if removes and kind < 0.2:
                made[key] = None
            elif kind < 0.5 and depth:
                made[key] = self._map(removes, depth - 1)
            elif kind < 0.6:
                made[key] = [self.random.choice("12"), {"a": 1}]
            else:
                made[key] = self.random.choice(("1", "2", 3, True))
        return made

    def _operations(self, kind: Kind) -> list[Any]:
        paths = ["/metadata/labels", "/metadata/labels/p.example~1x", "/metadata/finalizers"]
        paths += ["/spec/size", "/spec/free/x"] if kind in (WIDGET, GADGET) else ["/data/k"]
        path = self.random.choice(paths)
        values: dict[str, Any] = {
            "/metadata/labels": {"r": "1"},
            "/metadata/finalizers": ["s.example/f"],
            "/data/k": "eA==",
        }
        value = values.get(path, "x")
        op = self.random.choice(("add", "replace", "remove"))
        return [{"op": op, "path": path, **({} if op == "remove" else {"value": value})}]

    def _some(self, of: Any) -> list[Any]:
        return self.random.sample(list(of), self.random.randint(0, len(of)))


@contextlib.asynccontextmanager
async def namespaced(cluster: Cluster, name: str) -> AsyncIterator[Player]:
    """Make a namespace for a run, and let it go at the end."""
    body: Manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await cluster.create(body, NAMESPACE, manager="tests")
    player = Player(cluster, name)
    try:
        yield player
    finally:
        await _let_go(player)
        ref = Ref(cluster.name, NAMESPACE, "", name)
        await removal.remove(cluster, ref)


async def _let_go(player: Player) -> None:
    for plural, name in await player.state(*KINDS):
        kind = next(one for one in KINDS if one.plural == plural)
        ref = Ref(player.cluster.name, kind, player.namespace, name)
        with contextlib.suppress(ClusterError):
            body: Manifest = {"metadata": {"finalizers": None}}
            await player.cluster.merge_patch(ref, body, manager="tests")
