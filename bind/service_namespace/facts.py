"""The facts for decisions about an app namespace: live objects, owners of Namespaces.

The uid of a space is its identity (rule S1): names and marks prove nothing about an earlier life.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from bind.bounds import NONE_COUNTED, Countable
from reconciler.core import identity, keys, manifest, names
from reconciler.core.manifest import Manifest
from reconciler.core.times import created


@dataclass(frozen=True, slots=True)
class Mapped:
    """The binding space and the name of an APIServiceNamespace, which is an app namespace's."""

    space: str
    name: str

    @property
    def mark(self) -> str:
        """The value of the annotation on its service namespace."""
        return f"{self.space}/{self.name}"

    @property
    def target(self) -> str:
        """The name of its service namespace, unless its status names another of its own."""
        return names.service_namespace(self.space, self.name)

    def hashed(self, space_uid: str) -> Sequence[str]:
        """Return the hashed names (rule T19): that of new ones, and an earlier one's."""
        return names.hashed_service_namespaces(self.space, self.name, space_uid)


def key_of(mark: str) -> Mapped | None:
    """Return the mapping of a service namespace, by an annotation, or None."""
    space_name, slash, name = mark.partition("/")
    return Mapped(space_name, name) if slash and space_name and name and "/" not in name else None


@dataclass(frozen=True, slots=True)
class Contents:
    """The content of a service namespace.

    `released` is whether any object there carries the annotation `klutchctl.dev/released`.
    `bound` is a copy that nobody deletes, as its annotation says: a konnector lets none go but by
    deleting it, or marking it as released. `hidden` is a resource of which nobody could tell. Each
    is "" where there is none, or none was found before something else that keeps the Namespace.
    """

    released: bool
    hidden: str = ""
    bound: str = ""


@dataclass(frozen=True, slots=True)
class Removal:
    """The reads, not from a cache, before a service namespace goes.

    `mapping` and `crd` are the APIServiceNamespace and the CRD of its kind, None where they are
    absent. `contents` is there only if `needs_search` asked for it: it takes a call for each kind.
    """

    mapping: Manifest | None = field(repr=False)
    crd: Manifest | None = field(repr=False)
    contents: Contents | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """All that concerns one app namespace; objects are whole, None where they are not there.

    `space` is the Namespace of the binding space, `account` the uid of its ServiceAccount, "" while
    none is seen. `namespaces` are those that carry its mark, and those of the names that it may
    have: plain, hashed (which new ones get if `hashing`), of the mapping's `status.namespace`.
    `role_bindings` are those called `klutch-binder` in them, and `quota` is ours in
    `chosen(seen)`; `counted` of the
    resources that the konnector may write there. `unsure` says why the view of the
    APIServiceNamespaces may be incomplete, "" where it is not. `removal` is there only if
    `leaving(seen)` asked for it and all of it could be read. `witnessed`
    tells whether this backend saw the APIServiceNamespace beside this very Namespace. `cluster`
    names the control plane in a Ref.
    """

    cluster: str
    key: Mapped
    mapping: Manifest | None = field(default=None, repr=False)
    space: Manifest | None = field(default=None, repr=False)
    account: str = ""
    namespaces: Sequence[Manifest] = field(default=(), repr=False)
    hashing: bool = False
    role_bindings: Sequence[Manifest] = field(default=(), repr=False)
    quota: Manifest | None = field(default=None, repr=False)
    counted: Countable = NONE_COUNTED
    unsure: str = ""
    removal: Removal | None = None
    witnessed: bool = False


def chosen(seen: Seen) -> str:
    """Return the name of the service namespace: the status counts only where it is ours (F6)."""
    if (live := own(seen)) is not None:
        return manifest.name_of(live)
    stated, hashed = named(seen), hashed_names(seen.key, seen.space)
    # A deleted one is created again with its old name, even if new ones get other names now.
    if stated in hashed:
        return stated
    plain = seen.key.target
    is_long = len(plain) > names.MAX_SERVICE_NAMESPACE and stated != plain
    return hashed[0] if hashed and (is_long or (seen.hashing and not stated)) else plain


def target(seen: Seen) -> Manifest | None:
    """Return the Namespace of the `chosen` name, of any owner."""
    name = chosen(seen)
    return next((one for one in seen.namespaces if manifest.name_of(one) == name), None)


def hashed_names(key: Mapped, space_: Manifest | None) -> Sequence[str]:
    """Return the hashed names of a service namespace, none while its space is not there."""
    return () if space_ is None else key.hashed(manifest.uid_of(space_))


def own(seen: Seen) -> Manifest | None:
    """Return the service namespace of the space as it lives."""
    return next((one for one in marked(seen) if is_of_space(one, seen)), None)


def marked(seen: Seen) -> Sequence[Manifest]:
    """Return the Namespaces with its mark at one of its places, that of the status first.

    A copy under another name, as backups make it, is none, whatever its annotations say.
    """
    stated, lives = named(seen), identity.lives(seen.space or {})

    def is_at_place(live: Manifest) -> bool:
        # One that a person gave away has the name that its former space gave to it.
        recorded = identity.recorded(live, keys.SPACE_UID)
        known = map(seen.key.hashed, lives if recorded in lives else [recorded])
        hashed = chain.from_iterable(known)
        return manifest.name_of(live) in {stated, seen.key.target, *hashed}

    found = (
        one
        for one in seen.namespaces
        if manifest.annotations_of(one).get(keys.API_SERVICE_NAMESPACE) == seen.key.mark
        and is_at_place(one)
    )
    return sorted(found, key=lambda one: (name := manifest.name_of(one)) != stated or name)


def is_of_space(live: Manifest, seen: Seen) -> bool:
    """Return whether a marked Namespace is of the space as it lives, or of a life given to it.

    One without a uid, of an installation before uids, is where both say so: its status, and ages.
    """
    if seen.space is None:
        return False
    recorded = identity.recorded(live, keys.SPACE_UID)
    if recorded != identity.NONE or recorded in identity.lives(seen.space):
        return recorded in identity.lives(seen.space)
    born, made = created(seen.space), created(live)
    is_younger = born is not None and made is not None and born <= made
    return is_younger and named(seen) == manifest.name_of(live)


def named(seen: Seen) -> str:
    """Return the name in the status, "" without one."""
    return manifest.get_text(seen.mapping, "status", "namespace")


def leaving(seen: Seen) -> Manifest | None:
    """Return the Namespace that `decide` would delete, so that `removal` is read; else None."""
    if seen.mapping is not None:
        return None
    staying = [one for one in marked(seen) if not manifest.is_deleting(one)]
    return min(staying, key=lambda one: not is_of_space(one, seen), default=None)
