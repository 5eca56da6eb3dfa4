"""Keeps a `Store` equal to an API server's objects of one kind: list, watch, resume, list again.

Correctness rests on three facts of the API: a list without a resourceVersion is a state not older
than any that was read before; a watch sends every change after its resourceVersion, each once and
in order; and what happened before a watch that is too old (410) shows as the difference between
the store and a new list. The place in this history moves on only after the store took the change
in, so a cut at any point loses nothing and repeats nothing.

A slow consumer costs no memory here. Each event is applied before the next is read, nothing is
queued, and while nothing is read the connection's own flow control holds the server back. What a
consumer gets are the index values that changed; its queue holds each at most once, so it is
bounded by the size of the store and not by the number of events.

That something cannot be read says nothing about what exists: the last view is kept through
outages, lost rights and CRDs that vanish, and `trouble` says so.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from reconciler.core.errors import ClusterError, Expired, Forbidden, NotServed, Unreachable
from reconciler.core.manifest import (
    Manifest,
    finalizers_of,
    is_deleting,
    name_of,
    namespace_of,
    put,
    resource_version_of,
)
from reconciler.core.refs import Kind, ObjectKey, Ref
from reconciler.kube.cluster import IN_DOUBT, Port, WatchEvent
from reconciler.kube.limits import USUAL, Budget, pause
from reconciler.kube.requests import ListQuery
from reconciler.kube.store import NO_INDEXES, Index, Packed, Store, Trim, without_managed_fields

log = logging.getLogger(__name__)

OPTIONAL: Final = (NotServed, Forbidden)  # errors that only say that nothing can be there
_PROVEN_AFTER: Final = 1.0  # seconds that a watch lasts from a version that the server has
_WENT_BACK: Final = "the server's history went back"
_PAGE_SIZE: Final = 500
_WELL_AFTER: Final = 5.0  # seconds that a stream lasts where nothing is wrong
_BROKEN_WATCHES: Final = 3  # watches that break off before the first event
_SILENCE: Final = 90.0  # servers send a bookmark every minute, of most kinds
_SOON: Final = 240.0  # seconds; a server that has no reason lets a watch last for longer
_LATELY: Final = 10.0  # seconds for which a server may prune by the schema that it had


class Informer:
    """A view of the objects of one kind in one cluster, all of them or a selection.

    `namespace`, `labels` and `fields` select as in a list; with `metadata_only` the objects are
    PartialObjectMetadata. `trim` returns what of an object is kept. `silence` is how many seconds a
    watch may say nothing, not even a bookmark, until it counts as dead. `deleted` is called with
    each object that a watch saw deleted, and not for one that a list lacks, nor for one that a
    selection lost. `budget` is what the view may keep. There is no object of a kind as long as a
    list fails with an `optional` error; only OPTIONAL hides a kind that is not served.
    `on_synced` is for users that ask `synced` at each look, so that no other waits for the view.
    """

    def __init__(  # noqa: PLR0913 - each is a parameter of the API
        self,
        cluster: Port,
        kind: Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        indexes: Mapping[str, Index] = NO_INDEXES,
        trim: Trim = without_managed_fields,
        silence: float = _SILENCE,
        deleted: Callable[[Manifest], None] = lambda _: None,
        budget: Budget = USUAL,
        optional: tuple[type[ClusterError], ...] = (),
    ) -> None:
        self.store = Store(
            kind, indexes, trim=trim, cluster=cluster.name, partial=metadata_only, budget=budget
        )
        self.ref = Ref(cluster.name, kind, namespace, "")
        self._cluster = cluster
        self._query = ListQuery(
            labels=labels, fields=fields, limit=_PAGE_SIZE, metadata_only=metadata_only
        )
        self._silence, self._deleted, self._optional = silence, deleted, optional
        self._trouble, self._synced = "", asyncio.Event()
        self.on_synced: Callable[[], None] | None = None
        self._version = ""  # where the next watch starts; "" where only a list can start it
        self._failures = 0  # in a row
        self._opened: float | None = None  # when the current stream was
        self._stream: asyncio.Timeout | None = None
        self._received = False  # whether it sent anything
        self._changed: float | None = None  # when an object last changed
        self._ended, self.history = 0, cluster.connectivity.history  # of the view

    def __repr__(self) -> str:
        return f"Informer({self.ref})"

    @property
    def synced(self) -> bool:
        """Whether a complete list of this history was seen; it may be old: see `trouble`."""
        return self._synced.is_set()

    @property
    def trouble(self) -> str:
        """Why the view may be old, as a sentence without secrets; "" while it follows."""
        return self._trouble

    @property
    def restarts(self) -> int:
        """The number of lists and watches that have ended, for any reason."""
        return self._ended

    def has_seen(self, version: str) -> bool:
        """Return whether the view shows a write with this resourceVersion, or a later one.

        True also where the two cannot be compared: nothing better is known then.
        """
        return not _precedes(self._version or "0", version)

    async def is_current(self, written: str = "") -> bool:
        """Compare the view with a new list, which must show the write with this version.

        Nothing of the list is kept. Raises ClusterErrors.
        """
        versions: dict[ObjectKey, str] = {}
        version = ""
        query = replace(self._query, metadata_only=True)
        try:
            async with contextlib.aclosing(self._cluster.pages(self.ref, query)) as pages:
                async for page in pages:
                    versions |= {
                        ObjectKey(namespace_of(item), name_of(item)): resource_version_of(item)
                        for item in page.items
                    }
                    version = page.resource_version
        except self._optional:
            return True
        return not _precedes(version, written) and versions == self.store.versions()

    async def wait_synced(self) -> None:
        """Return once a complete list was seen."""
        await self._synced.wait()

    async def run(self) -> None:
        """Follow the cluster until cancelled. Run it once at a time; a later run resumes."""
        back, connectivity = asyncio.Event(), self._cluster.connectivity

        def reported() -> None:
            back.set()
            is_former = self.history != connectivity.history
            if self.synced and (is_former or (self._version and self._stream is None)):
                connectivity.viewed(self, IN_DOUBT)
                if self._stream is not None and not self._stream.expired():
                    self._stream.reschedule(0)

        unfollow = connectivity.follow(reported)
        try:
            while True:
                back.clear()
                error = await self._attempt()
                self._ended += 1
                # A watch that sends something and is then too old must not become a loop of lists.
                well = self._flowed() and not isinstance(error, Expired)
                self._failures = 0 if well else self._failures + 1
                await self._rest(back, error)
        finally:
            unfollow()
            connectivity.viewed(self, 0)

    async def _rest(self, back: asyncio.Event, error: ClusterError | None) -> None:
        """Wait before the next attempt, until the cluster is back if it was away."""
        asked = None if error is None else error.retry_after
        seconds = pause(self._failures, asked=asked, jitter=random.random())
        if asked:
            await asyncio.sleep(seconds)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await back.wait()

    async def _attempt(self) -> ClusterError | None:
        """List if needed, and watch until that ends; return the reason, if it is not the server."""
        self._opened, self._received = None, False
        try:
            is_of_now = self.history == self._cluster.connectivity.history
            await (self._check_history() if self._version and is_of_now else self._list())
            await self._watch()
        except ClusterError as error:
            is_former = self._cluster.connectivity.doubts(self) and self.on_synced
            if is_former or not self._resumable(error):
                self._version = ""
            if is_former:
                self._synced.clear()
            if isinstance(error, self._optional):
                self._read_all()
            if is_former or isinstance(error, OPTIONAL):  # there is nothing to wait for
                self._cluster.connectivity.viewed(self, 0)
            # A watch that flowed goes on: proxies end streams, and some bookmarks do not come.
            is_unserved = isinstance(error, NotServed) and self._optional == OPTIONAL
            is_fine = is_unserved or (self._flowed() and self._resumable(error))
            self._trouble = "" if is_fine else str(error)
            if not is_fine:
                fields = {"cluster": self.ref.cluster, "ref": self.ref.object, "error": str(error)}
                log.warning("an informer may be out of date", extra=fields)
            return error
        if self._may_be_pruned():
            self._version = ""
        return None

    def _may_be_pruned(self) -> bool:
        """Return whether objects that the watch sent, before it ended, may lack fields.

        A server ends the watches of a custom resource a second or more after its schema changed.
        What changes in between is sent by the old schema, and never again.
        """
        if self._query.metadata_only or "." not in self.ref.kind.group or self._opened is None:
            return False
        now = time.monotonic()
        lately = self._changed is not None and now - self._changed < _LATELY
        return lately and now - self._opened < _SOON

    async def _check_history(self) -> None:
        """Ask for the place at which the server is. Raises Expired as `_require_order` does.

        From a version that is yet to come, a watch is silent, also for bookmarks.
        """
        one = replace(self._query, limit=1, metadata_only=True)
        async with contextlib.aclosing(self._cluster.pages(self.ref, one)) as pages:
            self._require_order((await anext(pages)).resource_version)

    def _require_order(self, version: str) -> None:
        """Raise Expired where the cluster was set back, for example to a backup."""
        if _precedes(version, self._version):
            if self.history == self._cluster.connectivity.history:  # or another view noticed it
                self._cluster.connectivity.set_back()
            raise Expired(_WENT_BACK, ref=self.ref, verb="watch")

    async def _list(self) -> None:
        try:
            await self._read(self._query)
        except Expired:
            # The pages outlived the server's history. One answer with all is slower and safe.
            await self._read(replace(self._query, limit=0))

    async def _read(self, query: ListQuery) -> None:
        # Decoded, all pages would take more memory for a moment than the view does ever after.
        packed: Packed = {}
        version, history = "", self._cluster.connectivity.history
        async with contextlib.aclosing(self._cluster.pages(self.ref, query)) as pages:
            async for page in pages:
                try:
                    self.store.pack(page.items, packed)
                except ValueError as error:
                    message = f"the list contains {error}"
                    raise Unreachable(message, ref=self.ref, verb="list") from None
                version = page.resource_version
                del page
        self.store.take_over(packed)
        self._version, self.history = version, history
        self._cluster.connectivity.viewed(self, history)
        self._read_all()

    def _read_all(self) -> None:
        is_first = not self.synced
        self._synced.set()
        if is_first and self.on_synced is not None:
            self.on_synced()

    async def _watch(self) -> None:
        watching = self._cluster.watch(
            self.ref, self._query, resource_version=self._version, read_timeout=self._silence
        )
        if self.history != self._cluster.connectivity.history:  # by now
            raise Expired(_WENT_BACK, ref=self.ref, verb="watch")
        proven: asyncio.TimerHandle | None = None
        try:
            async with asyncio.timeout(None) as self._stream, watching as events:
                self._opened, self._trouble = time.monotonic(), ""
                # A server that was set back refuses an old watch at once, in its stream.
                prove = partial(self._cluster.connectivity.viewed, self, self.history)
                proven = asyncio.get_running_loop().call_later(_PROVEN_AFTER, prove)
                async for event in events:
                    self._take(event)
        except TimeoutError:
            raise Expired(_WENT_BACK, ref=self.ref, verb="watch") from None
        finally:
            self._stream = None
            if proven is not None:
                proven.cancel()
        if not self._flowed():
            raise Unreachable("the watch ended at once", ref=self.ref, verb="watch")

    def _take(self, event: WatchEvent) -> None:
        manifest = event.object
        metadata = manifest.get("metadata")
        version = metadata.get("resourceVersion") if type(metadata) is dict else None
        if type(version) is not str or not version:
            raise self._garbled("an event without a resourceVersion")
        self._require_order(version)
        try:
            if event.type == "DELETED":
                self.store.remove(manifest)
                if not (self._query.labels or self._query.fields):
                    self._deleted(manifest)
            elif event.type != "BOOKMARK":
                self.store.put(manifest)
                self._changed = time.monotonic()
        except ValueError as error:
            raise self._garbled(str(error)) from None
        self._version, self._received = version, True

    def _garbled(self, problem: str) -> Unreachable:
        return Unreachable(f"the watch sent {problem}", ref=self.ref, verb="watch")

    def _flowed(self) -> bool:
        """Return whether the current watch sent something, or was there for a while."""
        lasted = self._opened is not None and time.monotonic() - self._opened >= _WELL_AFTER
        return self._received or lasted

    def _resumable(self, error: ClusterError) -> bool:
        """Return whether a watch from the same place may go on after this.

        Where one after the other breaks off before it sent anything, the next event may be what
        breaks them. A list goes around that.
        """
        broke_off = self._opened is not None and not self._flowed()
        often = self._failures >= _BROKEN_WATCHES
        return not (isinstance(error, Expired) or (broke_off and often))


def _precedes(version: str, place: str) -> bool:
    """Return whether one resourceVersion is older than another, where both are numbers.

    Numbers as servers write them, without leading zeros, are ordered by length, then as texts.
    """
    earlier = (len(version), version) < (len(place), place)
    return earlier and (version + place).isascii() and version.isdigit() and place.isdigit()


# What a view alone does not show. A decision that is made on a view alone is made twice: between a
# write and its event the object looks as before. Refuses to guess: what is remembered is what the
# API server answered, and it counts until the view has come as far.


class ReadYourWrites:
    """The objects of a view as this process knows them."""

    def __init__(self, view: Informer) -> None:
        self.view, self._history = view, view.history
        self._written: dict[ObjectKey, Manifest] = {}
        self._deleted: dict[ObjectKey, str] = {}  # and the resourceVersion that it had

    def get(self, namespace: str, name: str) -> Manifest | None:
        """Return the object, or None where it is absent.

        One whose deletion was accepted is being deleted, also before the view says so.
        """
        key = ObjectKey(namespace, name)
        live = self._newest(key)
        asked = self._deleted.get(key)
        if asked is None:
            return live
        if live is None or resource_version_of(live) != asked:
            del self._deleted[key]
            return live
        return put(live, "accepted", "metadata", "deletionTimestamp")

    def wrote(self, answer: Manifest) -> None:
        """Take in the API server's answer to a write."""
        kept = self.view.store.trim(answer)
        self._written[ObjectKey(namespace_of(kept), name_of(kept))] = kept

    def deleted(self, namespace: str, name: str, version: str) -> None:
        """Take in that the deletion of an object in this resourceVersion was accepted."""
        self._deleted[ObjectKey(namespace, name)] = version

    def _newest(self, key: ObjectKey) -> Manifest | None:
        if self._history != self.view.history:
            self._written, self._deleted, self._history = {}, {}, self.view.history
        written = self._written.get(key) if self._written else None
        if written is not None:
            if not self.view.has_seen(resource_version_of(written)):
                return None if is_deleting(written) and not finalizers_of(written) else written
            del self._written[key]
        return self.view.store.get(*key)
