"""A Kubernetes API server in memory, as far as this product needs one.

It is proven: `tests/contract/test_api_model.py` plays the same operations on it and on a
real kube-apiserver, and compares answers, objects and events.
"""

import asyncio
import base64
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote

import orjson
import yaml

from reconciler.core.refs import CRD, SERVICE_ACCOUNT, Kind, ObjectKey
from tests.kit import answers, json_patch, selectors
from tests.kit.answers import Refused
from tests.kit.api_controllers import Controllers, kinds_of, token
from tests.kit.api_store import CRDS, Change, Object, Resource, Snapshot, Store
from tests.kit.api_writes import Write
from tests.kit.served_kinds import Served, built_in

_PATH: Final = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?/(?P<plural>[^/]+)"
    r"(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[^/]+))?"
)
CUT: Final[Object] = {}  # what ends a watch
_METADATA_ONLY: Final = "PartialObjectMetadata"
_VERBS: Final = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}


class Call(NamedTuple):
    """One HTTP request."""

    method: str
    target: str
    body: bytes | None = None
    content_type: str = ""
    accept: str = ""
    agent: str = ""


class Reply(NamedTuple):
    status: int
    body: dict[str, Any] | str

    @property
    def content(self) -> bytes:
        return self.body.encode() if isinstance(self.body, str) else orjson.dumps(self.body)


@dataclass(frozen=True)
class Asked:
    """A call to a resource, taken apart."""

    served: Served
    key: ObjectKey  # its name is "" of a collection
    subresource: str
    query: Mapping[str, str]
    metadata_only: bool

    @property
    def resource(self) -> Resource:
        return self.served.resource

    @property
    def selects(self) -> Callable[[Object], bool]:
        labels = selectors.labels(self.query.get("labelSelector", ""))
        fields = selectors.fields(self.query.get("fieldSelector", ""))
        namespace = self.key.namespace
        return lambda live: (
            namespace in ("", live["metadata"].get("namespace", ""))
            and labels(live)
            and fields(live)
        )


class Written(NamedTuple):
    """A write that the server was asked for, dry runs excluded, and how it ended."""

    agent: str
    verb: str
    resource: Resource
    subresource: str
    key: ObjectKey
    status: int


@dataclass
class ApiModel:
    """One API server with its controllers. `now` is its clock."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    store: Store = field(default_factory=Store)
    writes: list[Written] = field(default_factory=list)
    streams: list[asyncio.Queue[Object | None]] = field(default_factory=list)
    _custom: dict[tuple[str, str, str], Served] = field(default_factory=dict)
    _pages: dict[str, list[Object]] = field(default_factory=dict)
    _settled: int = 0  # the version after which controllers have looked

    def __post_init__(self) -> None:
        self._built_in = {
            (one.kind.group, one.kind.version, one.kind.plural): one for one in built_in()
        }
        self._controllers = Controllers(
            self.store, self._served, lambda: self.kinds.values(), self.now
        )
        for name in ("default", "kube-system", "kube-public"):
            self._begin_with("/api/v1/namespaces", name)

    def _begin_with(self, target: str, name: str) -> None:
        body = orjson.dumps({"metadata": {"name": name}})
        assert self.answer(Call("POST", target, body)).status == 201
        self.writes.clear()

    @property
    def kinds(self) -> dict[tuple[str, str, str], Served]:
        return {**self._built_in, **self._custom}

    def _served(self, resource: Resource) -> Served | None:
        group, plural = resource
        some = (one for one in self.kinds.values() if one.resource == (group, plural))
        return next(some, None)

    def answer(self, call: Call) -> Reply:
        try:
            asked = self._asked(call)
            if asked is None:
                return Reply(200, self._discovery(call.target.partition("?")[0]))
            reply = self._reply(call, asked)
        except Refused as error:
            reply = Reply(error.status, error.body())
        else:
            self._settle()
        self._note(call, reply)
        return reply

    def begin_with(self, crds: Iterable[Object]) -> None:
        """Serve the kinds of another model, each by a CRD with a uid of its own."""
        for crd in crds:
            metadata = {**crd["metadata"], "uid": str(uuid.uuid4())}
            self.store.put(CRDS, ObjectKey("", metadata["name"]), {**crd, "metadata": metadata})
        self._custom, self._settled = kinds_of(self.store), self.store.version

    def restore(self, backup: Snapshot, *, live: bool = False) -> None:
        """Be as at an earlier moment, and cut watches; `live`: versions go back, too."""
        self.store.restore(backup, live=live)
        for lines in self.streams:
            lines.put_nowait(CUT)
        self._custom, self._settled = kinds_of(self.store), self.store.version
        self._pages.clear()
        self.writes.clear()

    def _settle(self) -> None:
        before = self._settled
        self._controllers.settle(before)
        self._settled = self.store.version
        if any(change.resource == CRDS for change in self.store.since(before)):
            self._custom = kinds_of(self.store)

    def _reply(self, call: Call, asked: Asked) -> Reply:
        match call.method:
            case "GET" if asked.key.name:
                return Reply(200, self._shown(asked, self._read(asked)))
            case "GET":
                return Reply(200, self._list(asked))
            case "POST" if asked.subresource == "token":
                return Reply(201, self._token(asked, orjson.loads(call.body or b"{}")))
            case "POST":
                return self._create(call, asked)
            case "PATCH":
                return self._patch(call, asked)
            case "DELETE":
                return Reply(200, self._delete(call, asked))
        raise Refused(405, "MethodNotAllowed", "the server does not allow this method")

    def _asked(self, call: Call) -> Asked | None:
        path, _, query = call.target.partition("?")
        match = _PATH.fullmatch(path)
        if match is None:
            if path in ("/api", "/apis", "/api/v1") or re.fullmatch(r"/apis/[^/]+/[^/]+", path):
                return None
            raise answers.unserved()
        part = {key: unquote(value or "") for key, value in match.groupdict().items()}
        found = self.kinds.get((part["group"], part["core"] or part["version"], part["plural"]))
        key = ObjectKey(part["namespace"], part["name"])
        if found is None or (key.name and found.kind.namespaced != bool(key.namespace)):
            raise answers.unserved()
        stated = {key: values[-1] for key, values in parse_qs(query).items()}
        return Asked(found, key, part["subresource"], stated, _METADATA_ONLY in call.accept)

    def _read(self, asked: Asked) -> Object:
        live = self.store.get(asked.resource, asked.key)
        if live is None:
            raise answers.not_found(asked.served.kind, asked.key.name)
        return live

    def _list(self, asked: Asked) -> Object:
        limit, token = int(asked.query.get("limit", 0)), asked.query.get("continue", "")
        if token:
            version, _, _ = base64.b64decode(token).decode().partition(":")
            if int(version) < self.store.oldest or token not in self._pages:
                raise answers.expired("The provided continue parameter is too old")
            items = self._pages[token]
        else:
            version = str(self.store.version)
            selects = asked.selects
            every = self.store.all(asked.resource, asked.key.namespace)
            items = [live for _, live in every if selects(live)]
        metadata: Object = {"resourceVersion": version}
        if limit and len(items) > limit:
            after = base64.b64encode(f"{version}:{len(self._pages)}".encode()).decode()
            metadata["continue"] = after
            self._pages[after] = items[limit:]
            if not asked.query.keys() & {"labelSelector", "fieldSelector"}:
                metadata["remainingItemCount"] = len(items) - limit
            items = items[:limit]
        kind, api_version = f"{asked.served.kind.kind}List", asked.served.kind.api_version
        if asked.metadata_only:
            kind, api_version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        shown = [self._shown(asked, live) for live in items]
        if asked.served.schema is None and not asked.metadata_only:
            shown = [{k: v for k, v in x.items() if k not in ("kind", "apiVersion")} for x in shown]
        return {"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": shown}

    def _shown(self, asked: Asked, live: Object) -> Object:
        if asked.metadata_only and live.get("kind") != "Status":
            head = {"kind": _METADATA_ONLY, "apiVersion": "meta.k8s.io/v1"}
            return {**head, "metadata": live["metadata"]}
        if live.get("kind") == "Status":
            return live
        kind = asked.served.kind
        shown = asked.served.completed(live)
        return {**shown, "apiVersion": kind.api_version, "kind": kind.kind}

    def _write(self, asked: Asked, name: str = "") -> Write:
        key = ObjectKey(asked.key.namespace, asked.key.name or name)
        manager = asked.query.get("fieldManager", "unknown")
        is_trial = asked.query.get("dryRun") == "All"
        return Write(
            self.store, asked.served, key, manager, self.now(), asked.subresource, dry_run=is_trial
        )

    def _create(self, call: Call, asked: Asked) -> Reply:
        body = orjson.loads(call.body or b"{}")
        metadata = body.get("metadata", {})
        name = metadata.get("name", "")
        if not name:
            raise answers.invalid(
                asked.served.kind, "", [("metadata.name", "Required value: name is required")]
            )
        if metadata.get("namespace", asked.key.namespace) != asked.key.namespace:
            raise answers.bad_request("the namespace of the object does not match the request")
        return Reply(201, self._shown(asked, self._write(asked, name).create(body)))

    def _patch(self, call: Call, asked: Asked) -> Reply:
        write, body = self._write(asked), call.body or b""
        if asked.subresource and not (asked.subresource == "status" and asked.served.has_status):
            if asked.served.schema is not None:
                raise answers.not_found(asked.served.kind, asked.key.name)
            raise answers.unserved()
        is_new = write.live is None
        if call.content_type.startswith("application/apply-patch"):
            try:
                stated = orjson.loads(body)  # most YAML is JSON, which is read much sooner
            except orjson.JSONDecodeError:
                stated = yaml.load(body, yaml.CSafeLoader)
            made = write.apply(stated, force=asked.query.get("force") == "true")
        elif call.content_type.startswith("application/json-patch"):
            operations = orjson.loads(body)
            made = write.patch(lambda live: json_patch.patched(live, operations))
        else:
            change = orjson.loads(body)
            made = write.patch(lambda live: json_patch.merged(live, change))
        return Reply(201 if is_new else 200, self._shown(asked, made))

    def _delete(self, call: Call, asked: Asked) -> Object:
        options = orjson.loads(call.body or b"{}")
        return self._shown(asked, self._write(asked).delete(options.get("preconditions", {})))

    def _token(self, asked: Asked, body: Object) -> Object:
        if asked.served.kind != SERVICE_ACCOUNT:
            raise answers.unserved()
        self._read(asked)
        metadata = {"name": asked.key.name, "namespace": asked.key.namespace}
        seconds = body.get("spec", {}).get("expirationSeconds", 3600)
        until = datetime.fromtimestamp(self.now().timestamp() + seconds, UTC)
        status = {
            "token": token(*asked.key, self.now()),
            "expirationTimestamp": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return {**body, "metadata": {**body.get("metadata", {}), **metadata}, "status": status}

    def _discovery(self, path: str) -> Object:
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": self._groups()}
        group_version = path.removeprefix("/apis/").removeprefix("/api/")
        some = [one for one in self.kinds.values() if one.kind.api_version == group_version]
        if not some:
            raise answers.unserved()
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": group_version,
            "resources": [resource for one in some for resource in _resources(one)],
        }

    def _groups(self) -> list[Object]:
        found: dict[str, list[str]] = {}
        for group, version, _ in self.kinds:
            if group and version not in found.setdefault(group, []):
                found[group].append(version)
        return [
            {
                "name": group,
                "versions": [
                    {"groupVersion": f"{group}/{version}", "version": version}
                    for version in versions
                ],
            }
            for group, versions in found.items()
        ]

    def _note(self, call: Call, reply: Reply) -> None:
        if call.method not in _VERBS or "dryRun=All" in call.target:
            return
        match = _PATH.fullmatch(call.target.partition("?")[0])
        if match is None or match["subresource"] == "token":
            return
        name = match["name"] or ""
        if call.method == "POST":
            name = orjson.loads(call.body or b"{}").get("metadata", {}).get("name", "")
        self.writes.append(
            Written(
                call.agent,
                _VERBS[call.method],
                (match["group"] or "", match["plural"]),
                match["subresource"] or "",
                ObjectKey(match["namespace"] or "", name),
                reply.status,
            )
        )

    def watched(self, call: Call) -> "Watched":
        """Return what a watch of this call tells. Raises Refused."""
        asked = self._asked(call)
        assert asked is not None
        version = asked.query.get("resourceVersion", "")
        return Watched(self, asked, int(version) if version else self.store.version)


@dataclass
class Watched:
    """One watch: which lines follow from changes."""

    model: ApiModel
    asked: Asked
    since: int

    @property
    def is_over(self) -> bool:
        """Whether the server ends it, as the kind is served in another way, or no more."""
        kind = self.asked.served.kind
        return self.model.kinds.get((kind.group, kind.version, kind.plural)) != self.asked.served

    def backlog(self) -> Iterator[Object]:
        if self.since < self.model.store.oldest:
            message = f"too old resource version: {self.since} ({self.model.store.oldest})"
            yield {"type": "ERROR", "object": answers.expired(message).body()}
            return
        for change in self.model.store.since(self.since):
            yield from self.lines(change)

    def lines(self, change: Change) -> Iterator[Object]:
        if change.resource != self.asked.resource or change.version <= self.since:
            return
        selects = self.asked.selects
        was = change.old is not None and selects(change.old)
        is_in = change.new is not None and selects(change.new)
        if not (was or is_in):
            return
        type_ = "DELETED" if not is_in else "MODIFIED" if was else "ADDED"
        live = change.last if is_in or change.new is None else change.old
        assert live is not None
        metadata = {**live["metadata"], "resourceVersion": str(change.version)}
        yield {
            "type": type_,
            "object": self.model._shown(self.asked, {**live, "metadata": metadata}),
        }

    def bookmark(self) -> Object:
        kind = self.asked.served.kind
        metadata = {"resourceVersion": str(self.model.store.version)}
        head = {"kind": kind.kind, "apiVersion": kind.api_version}
        if self.asked.metadata_only:
            head = {"kind": _METADATA_ONLY, "apiVersion": "meta.k8s.io/v1"}
        return {"type": "BOOKMARK", "object": {**head, "metadata": metadata}}


def _resources(served: Served) -> Iterator[Object]:
    kind: Kind = served.kind
    one = {
        "name": kind.plural,
        "singularName": served.singular or kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
    }
    yield one
    if served.has_status or kind == CRD:
        yield {**one, "name": f"{kind.plural}/status", "verbs": ["get", "patch", "update"]}
