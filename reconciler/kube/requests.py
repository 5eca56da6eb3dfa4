"""Builds calls to an API server as values: path, query, body. Sends nothing."""

import functools
import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, NamedTuple
from urllib.parse import quote, urlencode

import orjson

from reconciler.core.errors import Rejected
from reconciler.core.manifest import JSON, Manifest, get_map
from reconciler.core.refs import Kind, Ref

Verb = Literal["get", "list", "create", "apply", "patch", "delete", "watch"]

ACCEPT_JSON: Final = "application/json"
ACCEPT_METADATA: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
ACCEPT_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
# Server-side apply takes YAML by its media type; most JSON is YAML.
APPLY_PATCH: Final = "application/apply-patch+yaml"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"

_PLAIN_SEGMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")


class Propagation(Enum):
    """The fate of the objects that a deleted one owns. There is no default on purpose."""

    BACKGROUND = "Background"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True)
class Preconditions:
    """The conditions on an object for its delete to happen.

    None says "whatever it is now", and has to be written out.
    """

    uid: str | None
    resource_version: str | None = None


class Request(NamedTuple):
    """An HTTP request. `target` is the encoded path with its query, below the server's URL.

    `ref.name` is "" for collections and generated names. `repeatable`: sending it twice does no
    more than sending it once. A tuple, as one is made for every call.
    """

    verb: Verb
    ref: Ref
    method: str
    target: str
    body: bytes | None = None
    content_type: str = ""
    accept: str = ACCEPT_JSON
    repeatable: bool = False
    subresource: str = ""
    dry_run: bool = False

    def __repr__(self) -> str:  # the body may hold a Secret
        return f"Request({self.verb} {self.ref})"


def path_of(ref: Ref, *, subresource: str = "") -> str:
    """Return the encoded path of an object, or of a collection where the ref has no name.

    Raises ValueError for names that no path segment can carry (Kubernetes: "", ".", "..",
    and any with "/" or "%").
    """
    kind = ref.kind
    if ref.name and kind.namespaced and not ref.namespace:
        raise ValueError(f"{kind.kind} {ref.name!r} needs a namespace")
    path = _collection(kind.group, kind.version, ref.namespace, kind.plural)
    if ref.name:
        path = f"{path}/{_segment(ref.name)}"
    return f"{path}/{subresource}" if subresource else path


@functools.lru_cache(maxsize=1024)
def _collection(group: str, version: str, namespace: str, plural: str) -> str:
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return f"{root}/namespaces/{_segment(namespace)}/{plural}" if namespace else f"{root}/{plural}"


def _segment(text: str) -> str:
    if _PLAIN_SEGMENT.fullmatch(text):
        return text
    if text in ("", ".", "..") or "/" in text or "%" in text:
        raise ValueError(f"{text!r} cannot be a name")
    return quote(text, safe=":")


def _target(verb: Verb, ref: Ref, *, subresource: str = "") -> str:
    """Return the path for a call. Raises Rejected where no path can name the object."""
    try:
        return path_of(ref, subresource=subresource)
    except ValueError as error:
        raise _no_path(error, ref, verb) from None


def _no_path(error: ValueError, ref: Ref, verb: Verb) -> Rejected:
    reason = str(error) if not isinstance(error, UnicodeError) else "it is not valid text"
    return Rejected(reason, ref=ref, verb=verb)


def _reading(verb: Verb, ref: Ref, accept: str, query: str = "") -> Request:
    target = _target(verb, ref) + query
    return Request(verb=verb, ref=ref, method="GET", target=target, accept=accept, repeatable=True)


def get(ref: Ref, *, metadata_only: bool) -> Request:
    return _reading("get", ref, ACCEPT_METADATA if metadata_only else ACCEPT_JSON)


def resources(cluster: str, kind: Kind) -> Request:
    """Read the resources in the group and version of a kind.

    Raises Rejected where no path can name them.
    """
    ref = Ref(cluster, kind, "", "")
    try:
        root = f"/apis/{_segment(kind.group)}" if kind.group else "/api"
        target = f"{root}/{_segment(kind.version)}"
    except ValueError as error:
        raise _no_path(error, ref, "get") from None
    return Request(verb="get", ref=ref, method="GET", target=target, repeatable=True)


def groups(cluster: str, group: str) -> Request:
    """Read the groups, to find one of them."""
    ref = Ref(cluster, Kind(group, "", "APIGroup", "apigroups"), "", "")
    return Request(verb="get", ref=ref, method="GET", target="/apis", repeatable=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """A part of a collection to read; `limit` 0 = all of it, `token` continues an earlier page."""

    labels: str = ""
    fields: str = ""
    limit: int = 0
    token: str = ""
    metadata_only: bool = False


def list_page(ref: Ref, query: ListQuery) -> Request:
    stated = {
        "labelSelector": query.labels,
        "fieldSelector": query.fields,
        "limit": str(query.limit) if query.limit else "",
        "continue": query.token,
    }
    accept = ACCEPT_METADATA_LIST if query.metadata_only else ACCEPT_JSON
    return _reading("list", ref, accept, _query(stated))


def watch(ref: Ref, query: ListQuery, *, resource_version: str) -> Request:
    """Stream the changes of a collection after `resource_version`."""
    stated = {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": resource_version,
        "labelSelector": query.labels,
        "fieldSelector": query.fields,
    }
    accept = ACCEPT_METADATA if query.metadata_only else ACCEPT_JSON
    return _reading("watch", ref, accept, _query(stated))


def create(
    cluster: str,
    manifest: Manifest,
    kind: Kind,
    *,
    manager: str,
    subresource: str = "",
    dry_run: bool = False,
) -> Request:
    """POST an object to its collection, or to a subresource of the object that it names."""
    ref = _ref(cluster, kind, manifest)
    collection = ref if subresource else Ref(cluster, kind, ref.namespace, "")
    path = _target("create", collection, subresource=subresource)
    return Request(
        verb="create",
        ref=ref,
        method="POST",
        target=path + _write_query(manager, dry_run=dry_run),
        body=_encode(manifest, ref, "create"),
        content_type=ACCEPT_JSON,
        repeatable=dry_run,
        subresource=subresource,
        dry_run=dry_run,
    )


def apply(  # noqa: PLR0913 - each is a parameter of the API
    cluster: str,
    manifest: Manifest,
    kind: Kind,
    *,
    manager: str,
    force: bool,
    subresource: str = "",
    dry_run: bool = False,
) -> Request:
    ref = _ref(cluster, kind, manifest)
    return Request(
        verb="apply",
        ref=ref,
        method="PATCH",
        target=_target("apply", ref, subresource=subresource)
        + _write_query(manager, dry_run=dry_run, force=force),
        body=as_yaml(_encode(manifest, ref, "apply")),
        content_type=APPLY_PATCH,
        repeatable=dry_run,
        subresource=subresource,
        dry_run=dry_run,
    )


def patch(
    ref: Ref,
    body: JSON,
    *,
    content_type: str,
    manager: str,
    subresource: str = "",
    dry_run: bool = False,
) -> Request:
    """Merge patch or JSON patch, by `content_type`."""
    return Request(
        verb="patch",
        ref=ref,
        method="PATCH",
        target=_target("patch", ref, subresource=subresource)
        + _write_query(manager, dry_run=dry_run),
        body=_encode(body, ref, "patch"),
        content_type=content_type,
        repeatable=dry_run,
        subresource=subresource,
        dry_run=dry_run,
    )


def delete(
    ref: Ref, *, preconditions: Preconditions, propagation: Propagation, dry_run: bool
) -> Request:
    conditions: dict[str, JSON] = {}
    if preconditions.uid is not None:
        conditions["uid"] = preconditions.uid
    if preconditions.resource_version is not None:
        conditions["resourceVersion"] = preconditions.resource_version
    options: dict[str, JSON] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": propagation.value,
    }
    if conditions:
        options["preconditions"] = conditions
    if dry_run:
        options["dryRun"] = ["All"]
    return Request(
        verb="delete",
        ref=ref,
        method="DELETE",
        target=_target("delete", ref),
        body=orjson.dumps(options),
        content_type=ACCEPT_JSON,
        # With a uid, a repetition meets the same object or none.
        repeatable=dry_run or preconditions.uid is not None,
        dry_run=dry_run,
    )


def _ref(cluster: str, kind: Kind, manifest: Manifest) -> Ref:
    metadata = get_map(manifest, "metadata")
    name, namespace = metadata.get("name"), metadata.get("namespace")
    return Ref(
        cluster,
        kind,
        namespace if kind.namespaced and isinstance(namespace, str) else "",
        name if isinstance(name, str) else "",
    )


def _encode(body: JSON, ref: Ref, verb: Verb) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError as error:
        raise Rejected(f"cannot be written as JSON: {error}", ref=ref, verb=verb) from None


# Few combinations for very many writes, and urlencode is slow.
@functools.lru_cache(maxsize=64)
def _write_query(manager: str, *, dry_run: bool, force: bool = False) -> str:
    stated = {"fieldManager": manager, "dryRun": "All" if dry_run else ""}
    return _query(stated | {"force": "true" if force else ""})


def _query(parameters: dict[str, str]) -> str:
    stated = {key: value for key, value in parameters.items() if value}
    return f"?{urlencode(stated, errors='surrogatepass')}" if stated else ""


# An API server reads the body of an apply as YAML, of which JSON is nearly a part: YAML knows no
# control characters, ends lines at more characters and makes blanks of that, and a key of more than
# 1024 characters has to be announced.

# DEL and C1 (with NEL, an end of a line), the separators of lines and paragraphs, the byte order
# mark, U+FFFE and U+FFFF, in UTF-8.
_ODD: Final = re.compile(
    rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]|\xef\xbb\xbf|\xef\xbf[\xbe\xbf]"
)
_LONG: Final = 1000  # octets, with quotes
_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"(:?)', re.DOTALL)


def as_yaml(text: bytes) -> bytes:
    """Return compact JSON in a form that has the same meaning in YAML."""
    plain = _ODD.sub(lambda odd: b"\\u%04x" % ord(odd[0].decode()), text)
    # A fast check: a hundredth of the time of a look at each text.
    odd = any(len(part) >= _LONG - 2 or part.endswith(b"\\") for part in plain.split(b'":'))
    return _TEXT.sub(_announced, plain) if odd else plain


def _announced(match: re.Match[bytes]) -> bytes:
    return b"? " + match[0] if match[1] and len(match[0]) > _LONG else match[0]
