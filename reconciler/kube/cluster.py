"""The port to one API server: small roles, so that callers ask for the least they need.

`KubeCluster` fulfils it over the network; tests wrap a real one to inject faults.
All methods raise only `reconciler.core.errors.ClusterError`s.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple, Protocol

from reconciler.core.manifest import Manifest
from reconciler.core.refs import Kind, Ref
from reconciler.kube.connectivity import Connectivity

Verb = Literal["get", "list", "create", "apply", "patch", "delete", "watch"]


class Propagation(Enum):
    """What happens to the objects that a deleted one owns. There is no default on purpose."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


@dataclass(frozen=True, slots=True)
class Preconditions:
    """What must still be true of an object for its delete to happen.

    None says "whatever it is now", and has to be written out.
    """

    uid: str | None
    resource_version: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """A complete, consistent list. `resource_version` is where a watch may start."""

    items: Sequence[Manifest]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Page:
    """The first page of a list; `remaining` is None where the server does not count."""

    items: Sequence[Manifest]
    resource_version: str
    more: bool
    remaining: int | None


class WatchEvent(NamedTuple):
    """One line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK. A tuple, as they are many."""

    type: str
    object: Manifest


class Reader(Protocol):
    """What may be read. With `metadata_only`, objects are PartialObjectMetadata."""

    @property
    def name(self) -> str:
        """What people call this cluster."""
        ...

    async def get(self, ref: Ref, *, metadata_only: bool = False) -> Manifest | None:
        """Return the object, or None where it is absent."""
        ...

    async def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        page_size: int = 500,
    ) -> Listing:
        """Return all objects, from as many pages as needed: complete, or an error.

        `page_size` is the most that a page holds; 0 = one page.
        """
        ...

    async def first_page(
        self, kind: Kind, *, namespace: str = "", limit: int, metadata_only: bool = False
    ) -> Page:
        """Return up to `limit` objects and how many more there are: a cheap count."""
        ...


class Pager(Protocol):
    """What may be read bit by bit."""

    def pages(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        page_size: int = 500,
    ) -> AsyncGenerator[Listing]:
        """Yield all objects page by page, for whoever cannot hold all at once.

        The list is complete after the last page, and the resource_version is that of all pages.
        Raises Expired where they outlive the server's history. `page_size` is the most that a
        page holds; 0 = one page.
        """
        ...


class Discoverer(Protocol):
    """What is served."""

    async def kind(self, group: str, version: str, plural: str) -> Kind:
        """Return the kind that is served as this resource. Raises NotServed."""
        ...

    async def versions(self, group: str) -> Sequence[str]:
        """Return the versions in which a named group is served; none where it is not."""
        ...


class Writer(Protocol):
    """What may be written. `dry_run` asks the server to check and answer, and to store nothing."""

    async def create(
        self,
        manifest: Manifest,
        kind: Kind,
        *,
        manager: str,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Manifest:
        """POST, also to a subresource such as `token` of a ServiceAccount.

        Raises AlreadyExists, and Missing where the namespace or the object is absent.
        """
        ...

    async def apply(
        self,
        manifest: Manifest,
        kind: Kind,
        *,
        manager: str,
        force: bool,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Manifest:
        """Server-side apply. Creates what is absent, unless the manifest carries a uid.

        Raises Conflict (field owned by another manager, or another resourceVersion) and
        Replaced (the uid is not the live one).
        """
        ...

    async def merge_patch(
        self,
        ref: Ref,
        patch: Manifest,
        *,
        manager: str,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Manifest:
        """RFC 7386. A resourceVersion or uid inside is a precondition. Raises Missing."""
        ...

    async def json_patch(
        self,
        ref: Ref,
        patch: Sequence[Manifest],
        *,
        manager: str,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Manifest:
        """RFC 6902, atomic. Raises Missing; a failed `test` is a Conflict."""
        ...

    async def delete(
        self,
        ref: Ref,
        *,
        preconditions: Preconditions,
        propagation: Propagation,
        dry_run: bool = False,
    ) -> bool:
        """Ask for deletion. False where the object was absent already.

        True means accepted: finalizers may keep the object. Raises Replaced and Conflict.
        """
        ...


class Watcher(Protocol):
    """The raw stream. Resuming, relisting and caching belong to the callers."""

    @property
    def connectivity(self) -> Connectivity:
        """Who tells when the cluster answers again after it did not."""
        ...

    def watch(  # noqa: PLR0913 - each is a parameter of the API
        self,
        kind: Kind,
        *,
        namespace: str = "",
        resource_version: str,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        read_timeout: float | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Stream events after `resource_version`, bookmarks included.

        The stream ends quietly only where the server ends it between two events. Raises
        Expired (410, also inside the stream) and Unreachable (cut, truncated, silent for
        longer than `read_timeout` seconds).
        """
        ...


class Cluster(Reader, Pager, Discoverer, Writer, Watcher, Protocol):
    """All roles of one API server."""

    async def close(self) -> None:
        """Close the connections. The cluster is not usable afterwards."""
        ...
