"""What is live, as a file: for planning without the clusters, and for reports of defects.

The same state gives the same bytes. The file holds no time, no credentials and no value of a
Secret, because `Live` has none.
"""

import json
import math
from collections.abc import Mapping
from typing import Final, NoReturn

from reconciler.core.errors import ConfigError
from reconciler.core.live import Address, ClusterState, Live, Unavailable
from reconciler.core.manifest import JSON, Manifest, canonical
from reconciler.core.refs import Kind, Ref

FORMAT: Final = "klutchctl.dev/live"
VERSION: Final = 1


def dump(live: Live) -> bytes:
    """Return the snapshot as JSON, with sorted keys and a line break at the end."""
    document: JSON = {
        "format": FORMAT,
        "version": VERSION,
        "controlPlanes": _dump_part(live.control_planes),
        "clusters": _dump_part(live.clusters),
        "leaving": _dump_part(live.leaving),
    }
    return canonical(document) + b"\n"


def parse(content: bytes, source: str) -> Live:
    """Read what `dump` wrote; `source` names it in errors.

    Raises ConfigError for anything else, and for a version that is not ours.
    """
    root = _Node(_json(content, source), source, "")
    if root.text("format") != FORMAT:
        raise ConfigError("not a snapshot", where=source, hint="`klutchctl snapshot` writes one")
    version = root.count("version")
    if version != VERSION:
        message = f"a snapshot of format version {version}, and this klutchctl reads {VERSION}"
        hint = "Upgrade klutchctl" if version > VERSION else "Take a new snapshot"
        raise ConfigError(message, where=source, hint=hint)
    return Live(
        control_planes=_part(root.node("controlPlanes")),
        clusters=_part(root.node("clusters")),
        leaving=_part(root.node("leaving")),
    )


def _dump_part(part: Mapping[str, ClusterState | Unavailable]) -> JSON:
    return {name: _dump_verdict(verdict) for name, verdict in part.items()}


def _dump_verdict(verdict: ClusterState | Unavailable) -> JSON:
    match verdict:
        case Unavailable():
            return {"unseen": {"reason": verdict.reason, "remedy": verdict.remedy}}
        case ClusterState():
            return {"seen": _dump_seen(verdict)}


def _dump_seen(seen: ClusterState) -> JSON:
    return {
        "uid": seen.uid,
        "address": {
            "server": seen.address.server,
            "ca": seen.address.ca,
            "tlsServerName": seen.address.tls_server_name,
        },
        "bindingsClusterScoped": seen.bindings_cluster_scoped,
        "objects": [
            {"kind": _dump_kind(kind), "items": seen.objects[kind]} for kind in sorted(seen.objects)
        ],
        "unserved": [_dump_kind(kind) for kind in sorted(seen.unserved)],
        "silent": sorted(seen.silent),
        "inUse": [
            {"kind": _dump_kind(kind), "count": seen.in_use[kind]} for kind in sorted(seen.in_use)
        ],
        "bodies": [
            {"ref": _dump_ref(ref), "object": seen.bodies[ref]} for ref in sorted(seen.bodies)
        ],
    }


def _dump_kind(kind: Kind) -> JSON:
    return {
        "group": kind.group,
        "version": kind.version,
        "kind": kind.kind,
        "plural": kind.plural,
        "namespaced": kind.namespaced,
    }


def _dump_ref(ref: Ref) -> JSON:
    return {
        "cluster": ref.cluster,
        "kind": _dump_kind(ref.kind),
        "namespace": ref.namespace,
        "name": ref.name,
    }


class _Node:
    """A value in the file, with readers that refuse any other shape and say where it is."""

    def __init__(self, value: JSON, source: str, path: str) -> None:
        self.value, self._source, self._path = value, source, path

    def node(self, key: str) -> "_Node":
        if not isinstance(self.value, Mapping):
            self._refuse("an object")
        if key not in self.value:
            raise ConfigError(f"{self._at(key)} is missing", where=self._source)
        return self._inner(key, self.value[key])

    def text(self, key: str) -> str:
        value = self.node(key).value
        return value if isinstance(value, str) else self._refuse("text", key)

    def own_text(self) -> str:
        return self.value if isinstance(self.value, str) else self._refuse("text")

    def flag(self, key: str) -> bool:
        value = self.node(key).value
        return value if isinstance(value, bool) else self._refuse("true or false", key)

    def count(self, key: str) -> int:
        value = self.node(key).value
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        return self._refuse("a count", key)

    def entries(self) -> "dict[str, _Node]":
        if not isinstance(self.value, Mapping):
            self._refuse("an object")
        return {key: self._inner(key, value) for key, value in self.value.items()}

    def items(self, key: str) -> "list[_Node]":
        found = self.node(key)
        if not isinstance(found.value, list):
            self._refuse("a list", key)
        return [found._inner(str(index), item) for index, item in enumerate(found.value)]

    def manifest(self) -> Manifest:
        return self.value if isinstance(self.value, Mapping) else self._refuse("an object")

    def one_of(self, *keys: str) -> str:
        """Return the only key of this object, which is one of these."""
        found = list(self.entries())
        if len(found) != 1 or found[0] not in keys:
            self._refuse(f"an object with one key: {' or '.join(keys)}")
        return found[0]

    def _inner(self, key: str, value: JSON) -> "_Node":
        return _Node(value, self._source, self._at(key))

    def _at(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def _refuse(self, wanted: str, key: str = "") -> NoReturn:
        place = self._at(key) if key else self._path or "the document"
        raise ConfigError(f"{place} is not {wanted}", where=self._source)


def _json(content: bytes, source: str) -> JSON:
    try:
        value: JSON = json.loads(content, parse_constant=_not_json, parse_float=_finite)
    except (ValueError, RecursionError):
        raise ConfigError(
            "not a JSON document", where=source, hint="`klutchctl snapshot` writes one"
        ) from None
    return value


def _not_json(constant: str) -> NoReturn:
    raise ValueError(constant)  # NaN, the infinities, and what is too large for a number


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _not_json(text)


def _part(node: _Node) -> dict[str, ClusterState | Unavailable]:
    return {name: _verdict(entry) for name, entry in node.entries().items()}


def _verdict(node: _Node) -> ClusterState | Unavailable:
    if node.one_of("seen", "unseen") == "seen":
        return _seen(node.node("seen"))
    unseen = node.node("unseen")
    return Unavailable(unseen.text("reason"), unseen.text("remedy"))


def _seen(node: _Node) -> ClusterState:
    address = node.node("address")
    return ClusterState(
        uid=node.text("uid"),
        address=Address(address.text("server"), address.text("ca"), address.text("tlsServerName")),
        objects={
            _kind(entry.node("kind")): tuple(item.manifest() for item in entry.items("items"))
            for entry in node.items("objects")
        },
        unserved=frozenset(_kind(entry) for entry in node.items("unserved")),
        silent=frozenset(entry.own_text() for entry in node.items("silent")),
        in_use={_kind(entry.node("kind")): entry.count("count") for entry in node.items("inUse")},
        bodies={_ref(entry.node("ref")): _body(entry) for entry in node.items("bodies")},
        bindings_cluster_scoped=node.flag("bindingsClusterScoped"),
    )


def _body(entry: _Node) -> Manifest | None:
    found = entry.node("object")
    return None if found.value is None else found.manifest()


def _kind(node: _Node) -> Kind:
    return Kind(
        node.text("group"),
        node.text("version"),
        node.text("kind"),
        node.text("plural"),
        node.flag("namespaced"),
    )


def _ref(node: _Node) -> Ref:
    return Ref(
        node.text("cluster"), _kind(node.node("kind")), node.text("namespace"), node.text("name")
    )
