"""Reads, changes, compares and hashes Kubernetes objects as plain JSON values.

Decides nothing about any kind and does not know what fields mean, but for `metadata`.
Values are read-only by type: every function returns new ones and leaves its input alone.
Readers are tolerant: an absent field, a null and a value of another type read as the empty
value of the wanted type. Code that must tell these apart uses `get`.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

import orjson

from reconciler.core.refs import Kind, Ref

# Covariant on purpose, so that a dict[str, str] of labels is JSON too. At run time objects are
# `dict`s and arrays are `list`s.
JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"
Manifest: TypeAlias = Mapping[str, JSON]

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
KNOWN_AFTER_APPLY: Final = "(known after apply)"  # such as a token that is yet to be made
# What a value may be at run time, for isinstance: a tuple costs a fifth of a union or a Mapping.
_SCALARS: Final = (str, int, float)
_ARRAYS: Final = (list, tuple)
_OBJECTS: Final = (dict, Mapping)
_BEYOND_ASCII: Final = re.compile("[^\n -~]")


def get(value: JSON, *path: str | int) -> JSON:
    """Return the value at `path` (keys of objects, indices of arrays), or None."""
    for step in path:
        if type(value) is dict:  # nearly always, and far cheaper than asking for a Mapping
            value = value.get(step)
        elif value is None:
            return None
        elif isinstance(step, int):
            if not isinstance(value, list | tuple) or not -len(value) <= step < len(value):
                return None
            value = value[step]
        elif isinstance(value, Mapping):
            value = value.get(step)
        else:
            return None
    return value


# The loop of `get` stands in the three readers below once more: a plan of 10,000 units calls them
# over a million times, and a call inside of each would be a third of their time.


def get_text(value: JSON, *path: str | int) -> str:
    """Return the string at `path`, or ""."""
    for step in path:
        value = value.get(step) if type(value) is dict else get(value, step)
    return value if isinstance(value, str) else ""


def get_int(value: JSON, *path: str | int) -> int | None:
    """Return the integer at `path`, or None (0 is a value)."""
    number = get(value, *path)
    return number if isinstance(number, int) and not isinstance(number, bool) else None


def get_bool(value: JSON, *path: str | int) -> bool:
    """Return whether `path` holds true."""
    return get(value, *path) is True


def get_map(value: JSON, *path: str | int) -> Manifest:
    """Return the object at `path`, or {}."""
    for step in path:
        value = value.get(step) if type(value) is dict else get(value, step)
    return value if value is not None and isinstance(value, _OBJECTS) else {}


def get_list(value: JSON, *path: str | int) -> Sequence[JSON]:
    """Return the array at `path`, or []."""
    for step in path:
        value = value.get(step) if type(value) is dict else get(value, step)
    return value if isinstance(value, _ARRAYS) else []


def get_maps(value: JSON, *path: str | int) -> list[Manifest]:
    """Return the objects in the array at `path`, without its other items."""
    return [item for item in get_list(value, *path) if isinstance(item, _OBJECTS)]


def get_texts(value: JSON, *path: str | int) -> list[str]:
    """Return the strings in the array at `path`, without its other items."""
    return [item for item in get_list(value, *path) if isinstance(item, str)]


def get_text_map(value: JSON, *path: str | int) -> dict[str, str]:
    """Return the entries with string values of the object at `path`, such as labels."""
    return {key: item for key, item in get_map(value, *path).items() if isinstance(item, str)}


def put(manifest: Manifest, value: JSON, *path: str) -> dict[str, JSON]:
    """Return the manifest with `value` at `path`; objects on the way are made."""
    key, *rest = path
    return {**manifest, key: put(get_map(manifest, key), value, *rest) if rest else value}


def map_items(manifest: Manifest, change: Callable[[Manifest], JSON], *path: str) -> Manifest:
    """Return the manifest with `change` done to each object in the array at `path`, if any."""
    items = get(manifest, *path)
    if not isinstance(items, list | tuple):
        return manifest
    changed = [change(item) if isinstance(item, Mapping) else item for item in items]
    return put(manifest, changed, *path)


def drop(manifest: Manifest, *path: str) -> dict[str, JSON]:
    """Return the manifest without the value at `path`. Its parent stays, also where empty."""
    (key, *rest), kept = path, dict(manifest)
    if not rest:
        kept.pop(key, None)
    elif isinstance(present := kept.get(key), _OBJECTS):
        kept[key] = drop(present, *rest)
    return kept


def fill(manifest: Manifest, defaults: Manifest) -> dict[str, JSON]:
    """Return the manifest with `defaults` for absent and null fields, at any depth."""
    filled = dict(manifest)
    for key, default in defaults.items():
        present = filled.get(key)
        if present is None:
            filled[key] = default
        elif isinstance(default, dict) and isinstance(present, dict):
            filled[key] = fill(present, default)
    return filled


def name_of(manifest: Manifest) -> str:
    return get_text(manifest, "metadata", "name")


def namespace_of(manifest: Manifest) -> str:
    """Return metadata.namespace, "" for cluster-scoped objects."""
    return get_text(manifest, "metadata", "namespace")


def identity_of(manifest: Manifest) -> tuple[str, str]:
    """Return metadata.namespace and metadata.name: the identity of an object among its kind."""
    metadata = get_map(manifest, "metadata")
    namespace, name = metadata.get("namespace"), metadata.get("name")
    return namespace if isinstance(namespace, str) else "", name if isinstance(name, str) else ""


_STUB: Final = "PartialObjectMetadata"
OF_STUBS: Final = ("namespace", "name", "uid", "resourceVersion", "deletionTimestamp")


def stub_of(manifest: Manifest) -> dict[str, JSON]:
    """Return a stub that names an object, in place of one that is too large to be read."""
    whole = get_map(manifest, "metadata")
    metadata: dict[str, JSON] = {part: whole[part] for part in OF_STUBS if part in whole}
    return {"apiVersion": "meta.k8s.io/v1", "kind": _STUB, "metadata": metadata}


def is_stub(manifest: Manifest) -> bool:
    """Return whether only metadata were read, by the server's mark: no spec is no empty spec."""
    return manifest.get("kind") == _STUB


def uid_of(manifest: Manifest) -> str:
    """Return metadata.uid, "" where the object does not come from a server."""
    return get_text(manifest, "metadata", "uid")


def resource_version_of(manifest: Manifest) -> str:
    """Return metadata.resourceVersion; compare it for equality only."""
    return get_text(manifest, "metadata", "resourceVersion")


def labels_of(manifest: Manifest) -> dict[str, str]:
    return get_text_map(manifest, "metadata", "labels")


def annotations_of(manifest: Manifest) -> dict[str, str]:
    return get_text_map(manifest, "metadata", "annotations")


def finalizers_of(manifest: Manifest) -> list[str]:
    """Return metadata.finalizers, in order."""
    return get_texts(manifest, "metadata", "finalizers")


def is_deleting(manifest: Manifest) -> bool:
    """Return whether deletion was asked for and finalizers still hold the object."""
    return bool(get_text(manifest, "metadata", "deletionTimestamp"))


def ref_of(cluster: str, kind: Kind, manifest: Manifest) -> Ref:
    """Return the identity of an object that was read from `cluster` as `kind`."""
    return Ref(cluster, kind, namespace_of(manifest), name_of(manifest))


def grouped(items: Iterable[T], key: Callable[[T], K]) -> defaultdict[K, list[T]]:
    """Return items by key, in their order."""
    found = defaultdict[K, list[T]](list)
    for one in items:
        found[key(one)].append(one)
    return found


def controller_of(manifest: Manifest) -> Manifest:
    """Return the owner reference of the object's controller, {} without one."""
    owners = get_maps(manifest, "metadata", "ownerReferences")
    return next((one for one in owners if one.get("controller") is True), {})


def controller_to(kind: Kind, manifest: Manifest) -> dict[str, JSON]:
    """Return the owner reference by which an object of `kind` controls others."""
    owner = {"apiVersion": kind.api_version, "kind": kind.kind}
    return {**owner, "name": name_of(manifest), "uid": uid_of(manifest), "controller": True}


def covers(live: JSON, stated: JSON) -> bool:
    """Return whether `live` holds all of `stated` (mapping.md 0, drift).

    An object may hold more than we state, also inside the items of an array: what a server
    defaults is not drift. Arrays agree in length and order. An absent object or array equals an
    empty one, because API servers drop empty ones of their own kinds; a null equals absence.
    """
    if live is stated:  # as with the defaults that `fill` gave to both
        return True
    if stated is None or isinstance(stated, _SCALARS):
        # A bool is an int to Python, and not to JSON.
        return live == stated and isinstance(live, bool) == isinstance(stated, bool)
    if isinstance(stated, _OBJECTS):
        present = {} if live is None else live
        return isinstance(present, _OBJECTS) and _covers_all(present, stated)
    items = [] if live is None else live
    return (
        isinstance(items, _ARRAYS) and len(items) == len(stated) and all(map(covers, items, stated))
    )


def _covers_all(present: Manifest, stated: Manifest) -> bool:
    for key, value in stated.items():
        found = present.get(key)
        if found is value:
            continue
        if type(value) is str:  # most are, and they need no call of their own
            if found != value:
                return False
        elif not covers(found, value):
            return False
    return True


def canonical(value: JSON) -> bytes:
    """Return the one JSON text of a value: sorted keys, no blanks, ASCII, 1 and not 1.0.

    Raises ValueError for NaN and infinities, which JSON does not have.
    """
    quick = _by_orjson(value, orjson.OPT_SORT_KEYS)
    if quick is not None:
        return quick
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode()


def indented(value: JSON) -> bytes:
    """Return the JSON text of a value for people, in ASCII; keys stay in their order.

    Raises ValueError as `canonical` does.
    """
    quick = _by_orjson(value, orjson.OPT_INDENT_2)
    return json.dumps(value, indent=2, allow_nan=False).encode() if quick is None else quick


def digest(value: JSON) -> str:
    """Return the SHA-256 of the canonical JSON in hex, so that equal values are seen as equal."""
    return hashlib.sha256(canonical(value)).hexdigest()


def _by_orjson(value: JSON, option: int) -> bytes | None:
    """Return the output of json, many times faster; None where orjson writes another text.

    A plan of 10,000 units is 12 MB of JSON, which is written three times.
    """
    if not _is_alike(value):
        return None
    try:
        text = orjson.dumps(value, option=option)
    except TypeError:  # integers beyond 64 bits, lone surrogates, very deep nesting
        return None
    if text.isascii() and b"\x7f" not in text:
        return text
    return _BEYOND_ASCII.sub(_escaped, text.decode()).encode()


_LEAVES: Final = frozenset({str, int, bool, type(None)})


def _is_alike(value: JSON) -> bool:
    """Return whether orjson writes a value as json does: floats it may write otherwise."""
    if type(value) is dict:
        items: Iterable[JSON] = value.values()
    elif type(value) is list or type(value) is tuple:
        items = value
    else:
        return value is None or isinstance(value, str | int)
    for item in items:  # noqa: SIM110 - twice as fast as `all`
        if type(item) not in _LEAVES and not _is_alike(item):
            return False
    return True


def _escaped(match: re.Match[str]) -> str:
    """Escape a character as json does; those beyond 16 bits are two, as in UTF-16."""
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _plain(value: JSON) -> JSON:
    # The usual types first: asking for a Mapping costs more than all else here.
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, dict | Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
