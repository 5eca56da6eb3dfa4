"""Caches the objects of one kind as JSON text, with indexes, and calls observers on changes.

Objects are kept as the bytes of their JSON, usually without `metadata.managedFields`, and decoded
on each read: a decoded object takes several times the memory, and most objects are read seldom.
Everything is synchronous, so that a reader never meets half of a change. Does not know where
objects come from and what their fields mean; indexes are functions of the object.
"""

import marshal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import orjson

from reconciler.core.documents import takes
from reconciler.core.errors import oversized
from reconciler.core.manifest import Manifest, get_text, is_stub, stub_of, uid_of
from reconciler.core.refs import Kind, ObjectKey, Ref
from reconciler.kube.budgets import USUAL, WIDE, Budget

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
NO_INDEXES: Final[Mapping[str, Index]] = MappingProxyType({})


class _Deep(bytes):
    """An object that is too deep for JSON, as `marshal` writes it."""


class _Stub(bytes):
    """The rest of an object that is too large: its identity alone."""


def without_managed_fields(manifest: Manifest) -> Manifest:
    """Return all of an object but who wrote which field, which is a third of many."""
    metadata = manifest["metadata"]
    if type(metadata) is not dict or "managedFields" not in metadata:
        return manifest
    kept = metadata.copy()
    del kept["managedFields"]
    return {**manifest, "metadata": kept}


class Store:
    """The objects of one kind, as far as they were read. What is returned is read-only.

    `indexes` gives the values under which `by` finds an object; an index may give none, and
    must not fail, whatever the object holds. It sees what `trim` leaves. `put`, `remove` and
    `replace` are for the informer, which keeps it.

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
        budget.views.add(self)
        self._functions = tuple(indexes.values())
        self._positions = {name: position for position, name in enumerate(indexes)}
        self._found: tuple[dict[Value, _Holders], ...] = tuple({} for _ in indexes)
        self._absent: _Values = ((),) * len(indexes)
        self._spaces: dict[str, dict[str, _Entry]] = {}
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

    def stub(self, namespace: str, name: str) -> Manifest | None:
        """Return the stub of an object that is too large to be read; None for any other."""
        entry = self._entry(namespace, name)
        return _decoded(entry[0]) if entry is not None and type(entry[0]) is _Stub else None

    def is_wide(self, key: ObjectKey) -> bool:
        """Return whether an object is wide, with what is left out of it here."""
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
        holders = self._found[self._positions[index]].get(value, _NOBODY)
        return sorted(holders) if isinstance(holders, dict) else [holders]

    def values(self, index: str) -> list[Value]:
        return list(self._found[self._positions[index]])

    def has(self, index: str, value: Value) -> bool:
        return value in self._found[self._positions[index]]

    def count(self, index: str) -> int:
        """Return how many values objects have in this index."""
        return len(self._found[self._positions[index]])

    def subscribe(self, index: str, on_change: OnChange) -> None:
        """Have `on_change(value)` called, now for all values there are, then for each change.

        A change concerns the values that the object had before and those it has now, so that one
        that moves concerns both, and one that is deleted what it concerned. The same object in
        the same resourceVersion is no change, as long as it says the same. `on_change` must do no
        more than note the value: the store calls it after it has taken in the whole change.
        """
        position = self._positions[index]
        self._on_change.append((position, on_change))
        for value in list(self._found[position]):
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
        beside = self.octets - _size(old)
        self._notify(key, self._exchange(key, self._made(manifest, beside)))

    def remove(self, manifest: Manifest) -> None:
        """Take out one object; only its name counts. Raises ValueError where it has none."""
        key = _key(manifest)
        self._notify(key, self._exchange(key, None))

    def replace(self, manifests: Iterable[Manifest]) -> None:
        """Take in the list of all objects: what it does not name was deleted.

        Raises ValueError where one has no name, and then changes nothing.
        """
        packed: Packed = {}
        self.pack(manifests, packed)
        self.take_over(packed)

    def pack(self, manifests: Iterable[Manifest], packed: Packed) -> None:
        """Add objects as this store would keep them: a list is long, and comes in pages.

        Raises ValueError where one has no name.
        """
        beside = sum(map(_size, packed.values()))
        for manifest in manifests:
            key = _key(manifest)
            packed[key] = self._made(manifest, beside)
            beside += _size(packed[key])

    def take_over(self, packed: Packed) -> None:
        changes = [(key, self._exchange(key, None)) for key in self.keys() if key not in packed]
        changes += [(key, self._exchange(key, entry)) for key, entry in packed.items()]
        for key, change in changes:
            self._notify(key, change)

    def _entry(self, namespace: str, name: str) -> _Entry | None:
        entries = self._spaces.get(namespace)
        return None if entries is None else entries.get(name)

    def _whole(self, key: ObjectKey, entry: _Entry) -> Manifest:
        if type(entry[0]) is _Stub:
            ref = Ref(self._cluster, self.kind, *key)
            raise oversized(ref, "get", _decoded(entry[0]))
        return _decoded(entry[0])

    def _made(self, manifest: Manifest, beside: int) -> _Entry:
        kept = self.trim(manifest)
        version = get_text(kept, "metadata", "resourceVersion")
        by_index = []
        shared: dict[Value, Value] = {}  # of indexes that have the same to say
        for function in self._functions:
            values = tuple(shared.setdefault(value, value) for value in function(kept))
            by_index.append(values if len(values) < 2 else tuple(dict.fromkeys(values)))
        content = _encoded(kept)
        if not self._partial and (
            is_stub(manifest) or not self._budget.admits(self, content, beside)
        ):
            content = _Stub(orjson.dumps(stub_of(kept)))
        return content, version, tuple(by_index), is_stub(manifest) or takes(manifest) > WIDE

    def _exchange(self, key: ObjectKey, new: _Entry | None) -> _Change | None:
        """Put one entry in the place of another, in the indexes too; return what that changes."""
        namespace, name = key
        entries = self._spaces.get(namespace)
        old = None if entries is None else entries.get(name)
        if old is not None and new is not None and old[1] == new[1] and _is_known(old, new):
            return None
        if new is not None:
            if entries is None:
                entries = self._spaces[namespace] = {}
            entries[name] = new
        elif old is not None and entries is not None:
            del entries[name]
            if not entries:
                del self._spaces[namespace]
        else:
            return None
        self.octets += _size(new) - _size(old)
        before = self._absent if old is None else old[2]
        after = self._absent if new is None else new[2]
        if before != after:
            self._reindex(key, before, after)
        return before, after

    def _reindex(self, key: ObjectKey, before: _Values, after: _Values) -> None:
        for index, had, has in zip(self._found, before, after, strict=True):
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
            for value in had:
                on_change(value)
            if has != had:
                for value in has:
                    if value not in had:
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


def _size(entry: _Entry | None) -> int:
    return 0 if entry is None else len(entry[0])


def _decoded(content: bytes) -> Manifest:
    # orjson takes no _Stub. What is _Deep was made here.
    deep = type(content) is _Deep
    decoded: Manifest = marshal.loads(content) if deep else orjson.loads(bytes(content))
    return decoded


def _is_known(old: _Entry, new: _Entry) -> bool:
    """Return whether two entries with one resourceVersion are one state of one object.

    Another cluster may come to be behind the same address, or another schema, by which less is
    pruned. Lists and watches order fields differently, so texts that differ prove nothing.
    """
    (known, version, *_), (content, *_) = old, new
    if not version or type(known) is not type(content):
        return False
    if type(known) is _Deep:
        return uid_of(_decoded(known)) == uid_of(_decoded(content))  # too deep to be compared
    return known == content or _decoded(known) == _decoded(content)
