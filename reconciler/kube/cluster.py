"""The port to one API server: `send`, `pages` and `watch`. All other calls are made of these.

`KubeCluster` fulfils it over the network; a `ClusterWrapper` stands before another cluster, to
exchange its connection, to share its answers or, in tests, to inject faults.
All methods raise only `reconciler.core.errors.ClusterError`s.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple, Required, Self, TypeAlias, TypedDict, Unpack

from reconciler.core.documents import cut, takes
from reconciler.core.errors import Expired, Missing, oversized
from reconciler.core.keys import KLUTCH_GROUP
from reconciler.core.manifest import Manifest, get_int, get_text, is_stub, ref_of
from reconciler.core.refs import Kind, Ref
from reconciler.kube import answers, requests
from reconciler.kube.host import uptime
from reconciler.kube.limits import MEMORY
from reconciler.kube.requests import ListQuery, Preconditions, Propagation, Request


@dataclass(frozen=True, slots=True)
class Listing:
    """A consistent list, or a page of one. `resource_version` is where a watch may start.

    `memory` is about what its objects take, in octets, where that is known.
    """

    items: Sequence[Manifest]
    resource_version: str
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Page:
    """The first page of a list; `remaining` is None where the server does not count."""

    items: Sequence[Manifest]
    resource_version: str
    more: bool
    remaining: int | None


class WatchEvent(NamedTuple):
    """A line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK. A tuple, as they are many."""

    type: str
    object: Manifest


Watching: TypeAlias = AbstractAsyncContextManager[AsyncIterator[WatchEvent]]
EVERYTHING: Final = ListQuery()
_LARGEST: Final = MEMORY // 8  # of an object in a list of what tenants write
_SMALL: Final = 128 * 1024  # which is never cut
_SMALL_PART: Final = 4 * 1024
# Shorter gaps are what pauses begin with. It is also how often a cluster that answers some calls
# and not others can make everybody try again.
IN_DOUBT: Final = -1  # the history of a view after an outage, until that is proven
_OUTAGE: Final = 5.0  # seconds
_FORGETS: Final = 1.0001  # with each call


class Connectivity:
    """Notes whether calls to one cluster are answered, and reports when it is back."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed = False
        self._answered = clock()  # when it did last
        self._followers: list[Callable[[], None]] = []
        self.round_trip = 0.0  # seconds of a quick call lately
        # Its last Date, our time of day then, and `uptime`.
        self._date = ""
        self.dated: tuple[datetime, float, float] | None = None
        self.history = 1  # counts up where the server is set back, say to a backup
        self._former, self._viewed = set[object](), asyncio.Event()  # views of a former history
        self._viewed.set()

    def note_date(self, text: str) -> None:
        """Note the header Date of an answer, which has whole seconds."""
        if text and text != self._date:
            self._date, self.dated = text, None
            with suppress(ValueError, OverflowError):
                self.dated = parsedate_to_datetime(text).astimezone(UTC), time.time(), uptime()

    @property
    def ahead(self) -> float | None:
        """By how many seconds our clock is ahead of the cluster's; None: it gave no time."""
        return None if self.dated is None else self.dated[1] - self.dated[0].timestamp()

    def now(self, here: datetime, passed: float) -> datetime:
        """Return the cluster's time of day, which no step of our clock changes.

        `here` is ours, for a cluster that gave none; `passed` as `uptime`.
        """
        return self.dated[0] + timedelta(seconds=passed - self.dated[2]) if self.dated else here

    def answered(self, took: float = 0.0) -> None:
        """Note that the cluster dealt with a call, with any outcome, and how long it took."""
        was_away = self.is_away
        # One that was quick counts for long: the others were kept waiting somewhere.
        self.round_trip = min(took or _OUTAGE, self.round_trip * _FORGETS or took)
        self._failed, self._answered = False, self._clock()
        if was_away:
            self.report()

    def failed(self) -> None:
        self._failed = True

    def follow(self, on_back: Callable[[], None]) -> Callable[[], None]:
        """Call `on_back()` when the cluster is back; return a function that ends that."""
        self._followers.append(on_back)
        return lambda: self._followers.remove(on_back)

    def report(self) -> None:
        for on_back in list(self._followers):
            on_back()

    def set_back(self) -> None:
        """Note that the server's history went back, so that all views are read again."""
        self.history += 1
        self.report()

    @property
    def is_away(self) -> bool:
        """Whether the cluster did not answer for so long that it may have been set back."""
        return self._failed and self._clock() - self._answered >= _OUTAGE

    def viewed(self, view: object, history: int) -> None:
        """Note the history of a view; 0: it is not followed any more."""
        (self._former.discard if history in (0, self.history) else self._former.add)(view)
        (self._viewed.clear if self._former else self._viewed.set)()

    def doubts(self, view: object = None) -> bool:
        """Return whether a view is of a former history; None: any one."""
        return bool(self._former) if view is None else view in self._former

    async def wait_viewed(self) -> None:
        """Return once no view is of a former history: two of them prove nothing together."""
        await self._viewed.wait()


class Port(ABC):
    """The calls that an API server, or a stand-in, implements itself.

    `name` is what people call the cluster. `connectivity` reports when it answers again.
    """

    name: str
    connectivity: Connectivity

    @abstractmethod
    async def send(self, request: Request) -> Manifest:
        """Make one call and return the JSON object in its answer."""

    @abstractmethod
    def pages(self, ref: Ref, query: ListQuery) -> AsyncGenerator[Listing]:
        """Yield a collection page by page, where it is too much to be held at once.

        The list is complete after the last page, and the resource_version is that of all pages.
        Raises Expired where they outlive the server's history. `query.limit` is the most that a
        page holds; 0 = one page. Objects that are too large to be read are stubs.
        """

    @abstractmethod
    def watch(
        self,
        ref: Ref,
        query: ListQuery = EVERYTHING,
        *,
        resource_version: str,
        read_timeout: float | None = None,
    ) -> Watching:
        """Stream the events of a collection after `resource_version`, bookmarks included.

        Resuming, relisting and caching belong to the callers. The stream ends quietly only where
        the server ends it between two events. Raises Expired (410, also inside the stream) and
        Unreachable (cut, truncated, silent for longer than `read_timeout` seconds).
        """

    @abstractmethod
    async def close(self) -> None:
        """Close the connections. The cluster is not usable afterwards."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class Reader(Port):
    """The reads of a cluster. With `metadata_only`, objects are PartialObjectMetadata."""

    async def get(self, ref: Ref, *, metadata_only: bool = False) -> Manifest | None:
        """Return the object, or None where it is absent."""
        request = requests.get(ref, metadata_only=metadata_only)
        try:
            return answers.named(await self.send(request), request)
        except Missing:
            return None

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

        Of Klutch's kinds, which tenants write, large parts are cut (`core.documents.cut`) beyond a
        share of the memory. Raises Oversized for an object that is too large to be read.
        `page_size` is the most that a page holds; 0 = one page.
        """
        ref = Ref(self.name, kind, namespace, "")
        query = ListQuery(
            labels=labels, fields=fields, limit=page_size, metadata_only=metadata_only
        )
        try:
            return await self._whole(ref, query)
        except Expired:
            # The pages outlived the server's history. One answer with all is slower and safe.
            return await self._whole(ref, replace(query, limit=0))

    async def _whole(self, ref: Ref, query: ListQuery) -> Listing:
        items: list[Manifest] = []
        version, left = "", MEMORY // 2
        async for page in self.pages(ref, query):
            if not query.metadata_only:
                for item in filter(is_stub, page.items):
                    raise oversized(ref_of(ref.cluster, ref.kind, item), "list", item)
            most = max(_SMALL, min(left, _LARGEST))
            if ref.kind.group != KLUTCH_GROUP:
                most = page.memory
            items += (
                cut(item, most=_SMALL_PART) if page.memory > most and takes(item) > most else item
                for item in page.items
            )
            left -= page.memory
            version = page.resource_version
        return Listing(items, version)

    async def first_page(
        self, kind: Kind, *, namespace: str = "", limit: int, metadata_only: bool = False
    ) -> Page:
        """Return up to `limit` objects and how many more there are: a cheap count."""
        query = ListQuery(limit=limit, metadata_only=metadata_only)
        request = requests.list_page(Ref(self.name, kind, namespace, ""), query)
        answer = await self.send(request)
        return Page(
            items=answers.items(answer, request),
            resource_version=get_text(answer, "metadata", "resourceVersion"),
            more=bool(get_text(answer, "metadata", "continue")),
            remaining=get_int(answer, "metadata", "remainingItemCount"),
        )

    async def count(self, kind: Kind) -> int:
        """Return how many objects of a kind there are now, in all namespaces."""
        page = await self.first_page(kind, limit=1, metadata_only=True)
        if page.more and page.remaining is None:  # the server does not count
            return len((await self.list(kind, metadata_only=True)).items)
        return len(page.items) + (page.remaining or 0)

    async def kind(self, group: str, version: str, plural: str) -> Kind:
        """Return the kind that is served as this resource. Raises NotServed."""
        request = requests.resources(self.name, Kind(group, version, plural, plural))
        return answers.kind(await self.send(request), request)

    async def versions(self, group: str) -> Sequence[str]:
        """Return the versions in which a named group is served; none where it is not."""
        request = requests.groups(self.name, group)
        return answers.versions(await self.send(request), request)


class WriteOptions(TypedDict, total=False):
    """The field manager, the subresource, and whether the server only checks and answers."""

    manager: Required[str]
    subresource: str
    dry_run: bool


class Writer(Port):
    """The writes of a cluster."""

    async def create(
        self, manifest: Manifest, kind: Kind, **options: Unpack[WriteOptions]
    ) -> Manifest:
        """POST, also to a subresource such as `token` of a ServiceAccount.

        Raises AlreadyExists, and Missing where the namespace or the object is absent.
        """
        request = requests.create(self.name, manifest, kind, **options)
        return answers.named(await self.send(request), request)

    async def apply(
        self, manifest: Manifest, kind: Kind, *, force: bool, **options: Unpack[WriteOptions]
    ) -> Manifest:
        """Server-side apply. Creates an absent object, unless the manifest carries a uid.

        Raises Conflict (field owned by another manager, or another resourceVersion) and
        Replaced (the uid is not the live one).
        """
        request = requests.apply(self.name, manifest, kind, force=force, **options)
        return answers.named(await self.send(request), request)

    async def merge_patch(
        self, ref: Ref, patch: Manifest, **options: Unpack[WriteOptions]
    ) -> Manifest:
        """RFC 7386. A resourceVersion inside is a precondition. Raises Missing.

        So is a uid, but not in a patch of the status of a custom resource, which ignores it.
        """
        request = requests.patch(ref, patch, content_type=requests.MERGE_PATCH, **options)
        return answers.named(await self.send(request), request)

    async def json_patch(
        self, ref: Ref, patch: Sequence[Manifest], **options: Unpack[WriteOptions]
    ) -> Manifest:
        """RFC 6902, atomic. Raises Missing; a failed `test` is a Conflict."""
        request = requests.patch(ref, patch, content_type=requests.JSON_PATCH, **options)
        return answers.named(await self.send(request), request)

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
        request = requests.delete(
            ref, preconditions=preconditions, propagation=propagation, dry_run=dry_run
        )
        try:
            answers.require_deletion(await self.send(request), request)
        except Missing:
            return False
        return True


class Cluster(Reader, Writer):
    """All roles of one API server."""

    @abstractmethod
    def retire(self) -> None:
        """End all watches now, and each connection once its call has ended."""


class ClusterWrapper(Cluster):
    """A cluster that stands before another one: calls pass through, unchanged."""

    def __init__(self, inner: Cluster) -> None:
        self.inner = inner
        self.name, self.connectivity = inner.name, inner.connectivity

    async def send(self, request: Request) -> Manifest:
        return await self.inner.send(request)

    def pages(self, ref: Ref, query: ListQuery) -> AsyncGenerator[Listing]:
        return self.inner.pages(ref, query)

    def watch(
        self,
        ref: Ref,
        query: ListQuery = EVERYTHING,
        *,
        resource_version: str,
        read_timeout: float | None = None,
    ) -> Watching:
        """Stream the events of the cluster behind."""
        return self.inner.watch(
            ref, query, resource_version=resource_version, read_timeout=read_timeout
        )

    def retire(self) -> None:
        self.inner.retire()

    async def close(self) -> None:
        await self.inner.close()
