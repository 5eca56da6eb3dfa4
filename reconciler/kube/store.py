"""Caches the objects of one kind as JSON text, with indexes, and calls observers on changes.

Objects are kept as the bytes of their JSON, usually without `metadata.managedFields`, and decoded
on each read: a decoded object takes several times the memory, and most objects are read seldom.
Small ones are deflated: objects of one kind differ in little, so a tenth of the bytes is left. This
waits for a pause, as an object that has changed is read and changed several times more.
Everything is synchronous, so that a reader never meets half of a change. Does not know where
objects come from and what their fields mean; indexes are functions of the object.
"""

import marshal
import sys
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import orjson

from reconciler.core.documents import takes
from reconciler.core.errors import oversized
from reconciler.core.manifest import Manifest, get_text, is_stub, stub_of, uid_of
from reconciler.core.refs import Kind, ObjectKey, Ref
from reconciler.kube.limits import USUAL, WIDE, Budget

Value: TypeAlias = Any  # hashable: a name, or an ObjectKey
Index: TypeAlias = Callable[[Manifest], Iterable[Value]]
OnChange: TypeAlias = Callable[[Value], None]
OnObjectChange: TypeAlias = Callable[[ObjectKey], None]
# Returns what of an object is kept; it must not change the object itself.
Trim: TypeAlias = Callable[[Manifest], Manifest]

_Values: TypeAlias = tuple[tuple[Value, ...], ...]  # of each index in turn
_Change: TypeAlias = tuple[_Values, _Values]  # before and after
# JSON, resourceVersion, values, and whether it is wide. A bare tuple: it is made in no time, and
# garbage collection does not look at it again.
_Entry: TypeAlias = tuple[bytes, str, _Values, bool]
# Who has a value of an index: most values are of one object, and a dict for one costs much.
_Holders: TypeAlias = ObjectKey | dict[ObjectKey, None]
# Objects as a store keeps them, which takes a tenth of their memory; only a store reads it.
Packed: TypeAlias = dict[ObjectKey, _Entry]
_NOBODY: Final[_Holders] = {}
_NONE: Final[dict[str, _Entry]] = {}
# Octets that take microseconds to deflate; and the window (2^13) and memory level of zlib.
_SMALL: Final = 8 * 1024
_WINDOW: Final = -13
_LEVEL: Final = 5
_HOT: Final = 2048  # objects of one budget: 5 MiB or so
NO_INDEXES: Final[Mapping[str, Index]] = MappingProxyType({})


class _Deep(bytes):
    """An object that is too deep for JSON, as `marshal` writes it."""


class _Stub(bytes):
    """The rest of an object that is too large: its identity alone."""


class _Small(bytes):
    """The JSON of a small object, deflated by the pattern of its store."""

    __slots__ = ()


def without_managed_fields(manifest: Manifest) -> Manifest:
    """Return an object without its managed fields, which are a third of many."""
    metadata = manifest["metadata"]
    if type(metadata) is not dict or "managedFields" not in metadata:
        return manifest
    kept = metadata.copy()
    del kept["managedFields"]
    return {**manifest, "metadata": kept}


class Store:
    """The objects of one kind, as far as they were read. Returned objects are read-only.

    `indexes` gives the values under which `by` finds an object; an index may give none, and
    must not fail, whatever the object holds. It sees what `trim` leaves. `put`, `remove`, `pack`
    and `take_over` are for the informer, which keeps it.

    Of an object that is a stub, or beyond the `budget`, only its key and its metadata's values in
    indexes are known: it is there, and whatever returns objects raises Oversized for it. A view of
    metadata (`partial`) has none.
    """

    def __init__(
        self,
        kind: Kind,
        indexes: Mapping[str, Index] = NO_INDEXES,
        *,
        trim: Trim = without_managed_fields,
        cluster: str = "",
        partial: bool = False,
        budget: Budget = USUAL,
    ) -> None:
        self.kind = kind
        self.trim = trim
        self._cluster, self._partial, self._budget = cluster, partial, budget
        self.octets = 0  # of what is held
        self._pattern = b""  # the JSON of the first object
        budget.views.add(self)
        self._functions = tuple(indexes.values())
        self._found: dict[str, dict[Value, _Holders]] = {name: {} for name in indexes}
        self._absent: _Values = ((),) * len(indexes)
        self._spaces: dict[str, dict[str, _Entry]] = {}
        self._me = weakref.ref(self)
        self._on_change: list[tuple[int, OnChange]] = []
        self._on_object_change: list[OnObjectChange] = []

    def __repr__(self) -> str:  # objects may be Secrets
        return f"Store({self.kind}, {len(self)} objects)"

    def __len__(self) -> int:
        return sum(map(len, self._spaces.values()))

    def get(self, namespace: str, name: str) -> Manifest | None:
        """Return the object, or None where it is absent. Raises Oversized."""
        entry = self._entry(namespace, name)
        return None if entry is None else self._whole(ObjectKey(namespace, name), entry)

    def state(self, namespace: str, name: str) -> object:
        """Return a value that equals another as long as an object stays as it is."""
        return self._entry(namespace, name)

    def stub(self, namespace: str, name: str) -> Manifest | None:
        """Return the stub of an object that is too large to be read; None for any other."""
        entry = self._entry(namespace, name)
        return None if entry is None or type(entry[0]) is not _Stub else self._decoded(entry[0])

    def is_wide(self, key: ObjectKey) -> bool:
        """Return whether an object is wide, with the parts that are left out of it here."""
        return (entry := self._entry(*key)) is not None and entry[3]

    def keys(self) -> list[ObjectKey]:
        """Return the places of all objects, in order."""
        spaces = sorted(self._spaces.items())
        return [ObjectKey(space, name) for space, entries in spaces for name in sorted(entries)]

    def versions(self) -> dict[ObjectKey, str]:
        return {
            ObjectKey(namespace, name): version
            for namespace, entries in self._spaces.items()
            for name, (_, version, *_) in entries.items()
        }

    def names(self, namespace: str) -> list[str]:
        return list(self._spaces.get(namespace, ()))

    def all(self) -> Iterator[Manifest]:
        """Yield all objects in the order of their keys, as they are when it is their turn.

        Raises Oversized, as `inside` and `by` do.
        """
        return filter(None, (self.get(*key) for key in self.keys()))

    def inside(self, namespace: str) -> list[Manifest]:
        """Return the objects of a namespace, in the order of their names."""
        entries = self._spaces.get(namespace, {})
        return [self._whole(ObjectKey(namespace, name), entries[name]) for name in sorted(entries)]

    def by(self, index: str, value: Value) -> list[Manifest]:
        """Return the objects that have this value in this index, in the order of their keys."""
        keys = self.keys_by(index, value)
        return [self._whole(key, self._spaces[key.namespace][key.name]) for key in keys]

    def keys_by(self, index: str, value: Value) -> list[ObjectKey]:
        """Return the keys of the objects that have this value in this index, in order."""
        holders = self._found[index].get(value, _NOBODY)
        return sorted(holders) if isinstance(holders, dict) else [holders]

    def values(self, index: str) -> list[Value]:
        return list(self._found[index])

    def has(self, index: str, value: Value) -> bool:
        return value in self._found[index]

    def count(self, index: str) -> int:
        """Return how many values objects have in this index; of two objects with one, two."""
        found = self._found[index].values()
        return sum(len(one) if isinstance(one, dict) else 1 for one in found)

    def subscribe(self, index: str, on_change: OnChange) -> None:
        """Have `on_change(value)` called, now for all values there are, then for each change.

        A change concerns the values that the object had before and those it has now, so that one
        that moves concerns both, and one that is deleted what it concerned. The same object in
        the same resourceVersion is no change, as long as it says the same. `on_change` must do no
        more than note the value: the store calls it after it has taken in the whole change.
        """
        self._on_change.append((list(self._found).index(index), on_change))
        for value in self.values(index):
            on_change(value)

    def subscribe_keys(self, on_change: OnObjectChange) -> None:
        """Have `on_change(key)` called, now for all objects, then for each that changes or goes."""
        self._on_object_change.append(on_change)
        for key in self.keys():
            on_change(key)

    def put(self, manifest: Manifest) -> None:
        """Take in one object as the server has it. Raises ValueError where it has no name."""
        key = _key(manifest)
        old = self._entry(*key)
        new = self._made(key, manifest, self.octets - _size(old))
        change = self._exchange(key, new)
        if change is not None and _is_plain(new):
            self._heat(key)
        self._notify(key, change)

    def remove(self, manifest: Manifest) -> None:
        """Take out one object; only its name counts. Raises ValueError where it has none."""
        key = _key(manifest)
        self._notify(key, self._exchange(key, None))

    def pack(self, manifests: Iterable[Manifest], packed: Packed) -> Packed:
        """Add objects as this store would keep them: a list is long, and comes in pages.

        Raises ValueError where one has no name.
        """
        beside = sum(map(_size, packed.values()))
        for manifest in manifests:
            key = _key(manifest)
            packed[key] = self._cold(self._made(key, manifest, beside))
            beside += _size(packed[key])
        return packed

    def take_over(self, packed: Packed) -> None:
        """Take in the list of all objects: what it does not name was deleted."""
        changes = [(key, self._exchange(key, None)) for key in self.keys() if key not in packed]
        changes += [(key, self._exchange(key, entry)) for key, entry in packed.items()]
        for key, change in changes:
            self._notify(key, change)

    def _entry(self, namespace: str, name: str) -> _Entry | None:
        return self._spaces.get(namespace, _NONE).get(name)

    def _whole(self, key: ObjectKey, entry: _Entry) -> Manifest:
        if type(entry[0]) is _Stub:
            ref = Ref(self._cluster, self.kind, *key)
            raise oversized(ref, "get", self._decoded(entry[0]))
        return self._decoded(entry[0])

    def _heat(self, key: ObjectKey) -> None:
        """Keep a small object as it is until so many others of the budget have changed."""
        hot, place = self._budget.hot, (self._me, key)
        hot.pop(place, None)
        hot[place] = None
        if len(hot) > _HOT:
            oldest = next(iter(hot))
            del hot[oldest]
            if (store := oldest[0]()) is not None:
                store.cool(oldest[1])

    def cool(self, key: ObjectKey) -> None:
        """Deflate an object that has not changed for some time."""
        if (entry := self._entry(*key)) is not None:
            cold = self._spaces[key.namespace][key.name] = self._cold(entry)
            self.octets += _size(cold) - _size(entry)

    def _cold(self, entry: _Entry) -> _Entry:
        if not _is_plain(entry):
            return entry
        self._pattern = self._pattern or entry[0]
        deflate = zlib.compressobj(1, zlib.DEFLATED, _WINDOW, _LEVEL, zdict=self._pattern)
        return _Small(deflate.compress(entry[0]) + deflate.flush()), *entry[1:]

    def _made(self, key: ObjectKey, manifest: Manifest, beside: int) -> _Entry:
        kept = self.trim(manifest)
        version = get_text(kept, "metadata", "resourceVersion")
        # Of indexes with the same values.
        shared: dict[Value, Value] = {key.namespace: key.namespace}
        by_index = tuple(
            tuple(dict.fromkeys(shared.setdefault(value, value) for value in function(kept)))
            for function in self._functions
        )
        content = _encoded(kept)
        if not self._partial and (
            is_stub(manifest) or not self._budget.admits(self, content, beside)
        ):
            content = _Stub(orjson.dumps(stub_of(kept)))
        return content, version, by_index, is_stub(manifest) or takes(manifest, limit=WIDE) > WIDE

    def _decoded(self, content: bytes) -> Manifest:
        if type(content) is _Small:
            content = zlib.decompressobj(_WINDOW, self._pattern).decompress(content)
        # orjson takes no _Stub. What is _Deep was made here.
        deep = type(content) is _Deep
        decoded: Manifest = marshal.loads(content) if deep else orjson.loads(bytes(content))
        return decoded

    def _is_known(self, old: _Entry, new: _Entry) -> bool:
        """Return whether two entries with one resourceVersion are one state of one object.

        Another cluster may come to be behind the same address, or another schema, by which less is
        pruned. Lists and watches order fields differently, so texts that differ prove nothing.
        """
        (known, version, *_), (content, other, *_) = old, new
        if not version or version != other or _form(known) is not _form(content):
            return False
        if type(known) is type(content) and known == content:
            return True
        before, after = self._decoded(known), self._decoded(content)
        deep = type(known) is _Deep  # too deep to be compared
        return uid_of(before) == uid_of(after) if deep else before == after

    def _exchange(self, key: ObjectKey, new: _Entry | None) -> _Change | None:
        """Put one entry in the place of another, in the indexes too; return the changed values."""
        namespace, name = key
        old = self._entry(namespace, name)
        if old is new or (old and new and self._is_known(old, new)):
            return None
        if new is not None:
            self._spaces.setdefault(namespace, {})[name] = new
        else:
            del self._spaces[namespace][name]
            if not self._spaces[namespace]:
                del self._spaces[namespace]
        self.octets += _size(new) - _size(old)
        before = self._absent if old is None else old[2]
        after = self._absent if new is None else new[2]
        if before != after:
            self._reindex(key, before, after)
        return before, after

    def _reindex(self, key: ObjectKey, before: _Values, after: _Values) -> None:
        for index, had, has in zip(self._found.values(), before, after, strict=True):
            for value in had:
                if value not in has:
                    _let_go(index, value, key)
            for value in has:
                if value not in had:
                    _hold(index, value, key)

    def _notify(self, key: ObjectKey, change: _Change | None) -> None:
        if change is None:
            return
        for on_object_change in self._on_object_change:
            on_object_change(key)
        before, after = change
        for position, on_change in self._on_change:
            had, has = before[position], after[position]
            for value in had if has == had else dict.fromkeys((*had, *has)):
                on_change(value)


def _hold(index: dict[Value, _Holders], value: Value, key: ObjectKey) -> None:
    holders = index.get(value)
    if holders is None:
        index[value] = key
    elif isinstance(holders, dict):
        holders[key] = None
    else:
        index[value] = {holders: None, key: None}


def _let_go(index: dict[Value, _Holders], value: Value, key: ObjectKey) -> None:
    holders = index[value]
    if isinstance(holders, dict) and len(holders) > 1:
        del holders[key]
    else:
        del index[value]


def _key(manifest: Manifest) -> ObjectKey:
    metadata = manifest.get("metadata")
    if type(metadata) is dict:
        name, namespace = metadata.get("name"), metadata.get("namespace")
        if type(name) is str and name:
            # Thousands of objects share few namespaces.
            return ObjectKey(sys.intern(namespace) if type(namespace) is str else "", name)
    raise ValueError("an object without a name")


def _encoded(manifest: Manifest) -> bytes:
    try:
        text = orjson.dumps(manifest)
    except TypeError:
        # It reads four times the depth that it writes. Nobody's object may end the cache.
        return _Deep(marshal.dumps(manifest))  # type: ignore[arg-type]
    # It leaves several times their length allocated behind its results; a copy is exact.
    return bytes(memoryview(text))


def _is_plain(entry: _Entry) -> bool:
    """Return whether an object is small, and not deflated yet."""
    return type(entry[0]) is bytes and len(entry[0]) <= _SMALL


def _form(content: bytes) -> type[bytes]:
    """Return the form of content; what is deflated is JSON, too."""
    return bytes if type(content) is _Small else type(content)


def _size(entry: _Entry | None) -> int:
    return 0 if entry is None else len(entry[0])
