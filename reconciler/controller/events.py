"""Writes Kubernetes Events (events.k8s.io/v1) about objects: best effort, with a rate limit.

What is told again counts up one Event instead of making another. Does not know when something
is worth telling; that a note holds no secret is up to whoever makes it.
"""

import asyncio
import contextlib
import logging
import secrets
from collections import Counter, OrderedDict
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from reconciler.controller.fence import Stopped, WriteFence
from reconciler.controller.lease import micro
from reconciler.controller.metrics import Metrics
from reconciler.controller.queue import WorkQueue
from reconciler.controller.tasks import Clock
from reconciler.core import names
from reconciler.core.decision import Note, link_to
from reconciler.core.documents import one_line
from reconciler.core.errors import AlreadyExists, ClusterError, Retry
from reconciler.core.manifest import Manifest, name_of, namespace_of, uid_of
from reconciler.core.refs import EVENT, Ref
from reconciler.kube.cluster import Cluster
from reconciler.kube.turns import NOBODY, Party, TokenBucket

log = logging.getLogger(__name__)

_REMEMBERED: Final = 1_000  # different notes; the oldest is forgotten first
_SERIES_ENDS: Final = 360.0  # seconds of silence after which the same note is news again
_REFRESH: Final = 60.0  # seconds between two counts of one series, where there are few
_QPS: Final = 2.0
_BURST: Final = 50
_TRIES: Final = 3
_LAST_WORDS: Final = 2.0  # seconds for Events that were recorded before the end
_LONGEST_NOTE: Final = 1024  # bytes; the API takes no more
_LONGEST_PREFIX: Final = 230  # of a name, which may have 253 characters


@dataclass(frozen=True, slots=True)
class Source:
    """The reporter: `controller` is a qualified name, `instance` is this process.

    With the site `docs`, each Event has the address of its reason's page.
    """

    controller: str
    instance: str
    docs: str = ""


def event_of(about: Ref, uid: str, note: Note, *, source: Source, now: datetime) -> Manifest:
    """Return a new Event. About an object without a namespace, it lies in `default`."""
    prefix = about.name[:_LONGEST_PREFIX].rstrip(".-")
    if names.subdomain_problem(prefix):  # RBAC objects may be called as they like
        prefix = about.kind.kind.lower()
    link = link_to(note.reason, source.docs)
    text = one_line(note.message).encode()[: _LONGEST_NOTE - len(link)].decode(errors="ignore")
    regarding = {
        "apiVersion": about.kind.api_version,
        "kind": about.kind.kind,
        "name": about.name,
        "uid": uid,
    }
    if about.namespace:
        regarding["namespace"] = about.namespace
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {
            "name": f"{prefix}.{secrets.token_hex(8)}",
            "namespace": about.namespace or "default",
        },
        "eventTime": micro(now),
        "reportingController": source.controller,
        "reportingInstance": source.instance[:128],
        "action": note.action,
        "reason": note.reason,
        "type": note.type,
        "note": text + link,
        "regarding": regarding,
    }


_Key: TypeAlias = tuple[Ref, str, Note]


@dataclass(slots=True)
class _Series:
    """The Events about one thing: `count` of them, of which `written` are in the cluster."""

    event: Manifest
    last: datetime
    last_at: float
    count: int = 1
    written: int = 0
    written_at: float = 0.0
    tries: int = 0


class EventRecorder:
    """Writes Events in the background, in the order of their records, while it runs.

    Events about objects of other clusters than its own are only logged: rights may end there.
    """

    def __init__(
        self,
        cluster: Cluster,
        fence: WriteFence,
        *,
        source: Source,
        manager: str,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._cluster, self._fence = cluster, fence
        self._source, self.docs, self._manager = source, source.docs, manager
        self._clock, self._metrics = clock, metrics
        self._series: OrderedDict[_Key, _Series] = OrderedDict()
        self._queue: WorkQueue[_Key | None] = WorkQueue(
            clock, party=lambda key: NOBODY if key is None else Party(key[0].namespace)
        )
        self._bucket = TokenBucket(qps=_QPS, burst=_BURST, now=clock.monotonic, sleep=clock.sleep)
        self._stop = asyncio.Event()

    @property
    def _pause(self) -> float:
        """The seconds between two counts of a series. News has at least half of the rate."""
        return max(_REFRESH, 2 * len(self._series) / _QPS)

    def record(self, about: Ref, live: Manifest, note: Note) -> None:
        """Record an Event about the object; returns at once and never fails."""
        if about.cluster != self._cluster.name:
            level = logging.WARNING if note.type == "Warning" else logging.INFO
            fields = {"ref": str(about), "reason": note.reason, "note": note.message}
            log.log(level, "an Event about another cluster is only logged", extra=fields)
            return
        key, now = (about, uid_of(live), note), self._clock.monotonic()
        while self._series:
            first = next(iter(self._series.values()))
            if first.written < first.count or now - first.last_at <= _SERIES_ENDS:
                break
            self._series.popitem(last=False)
        series = self._series.get(key)
        if series is None or now - series.last_at > _SERIES_ENDS:
            time = self._clock.now()
            event = event_of(about, uid_of(live), note, source=self._source, now=time)
            self._series[key] = _Series(event, time, now)
            self._queue.enqueue(key)
        else:
            series.count += 1
            series.last, series.last_at = self._clock.now(), now
            self._queue.enqueue_after(key, series.written_at + self._pause - now)
        self._series.move_to_end(key)
        if len(self._series) > _REMEMBERED:
            # Of the namespace with most, so that no other one pays for its flood (law 4).
            ((most, _),) = Counter(one.namespace for one, *_ in self._series).most_common(1)
            oldest = next(key for key in self._series if key[0].namespace == most)
            self._queue.forget(oldest)
            if not self._series.pop(oldest).written:
                self._metrics.event("dropped")

    def stop(self) -> None:
        """Write the recorded Events, if that is quickly done, and end."""
        self._stop.set()
        self._queue.enqueue(None)

    async def run(self) -> None:
        """Write until `stop`, or until nothing may be written any more. Run it once."""
        writing = asyncio.create_task(self._write_all())
        uncounted = self._metrics.activity.queue("events", self._queue)
        try:
            await self._stop.wait()
            await asyncio.wait({writing}, timeout=_LAST_WORDS)
        finally:
            writing.cancel()
            await asyncio.wait({writing})
            uncounted()
            self._queue.close()
        if not writing.cancelled():
            writing.result()

    async def _write_all(self) -> None:
        with contextlib.suppress(Stopped):
            while len(self._queue) or not self._stop.is_set():
                key = await self._queue.take()  # None at the stop
                series = None if key is None else self._series.get(key)
                if key and series is not None and series.count > series.written:
                    await self._bucket.take()
                    await self._write(key, series)
                self._queue.done(key)

    async def _write(self, key: _Key, series: _Series) -> None:
        count = series.count
        try:
            if series.written:
                await self._count(series)
            else:
                await self._make(series.event)
        except ClusterError as error:
            self._fail(key, series, error)
            return
        self._metrics.event("counted" if series.written else "sent")
        series.written, series.written_at, series.tries = count, self._clock.monotonic(), 0
        self._queue.succeeded(key)
        if series.count > count:
            self._queue.enqueue_after(key, self._pause)

    async def _make(self, event: Manifest) -> None:
        with contextlib.suppress(AlreadyExists):  # an answer was lost: the name is ours alone
            await self._fence.write(
                lambda: self._cluster.create(event, EVENT, manager=self._manager)
            )

    async def _count(self, series: _Series) -> None:
        ref = Ref("", EVENT, namespace_of(series.event), name_of(series.event))
        counts: Manifest = {"count": series.count, "lastObservedTime": micro(series.last)}
        await self._fence.write(
            lambda: self._cluster.merge_patch(ref, {"series": counts}, manager=self._manager)
        )

    def _fail(self, key: _Key, series: _Series, error: ClusterError) -> None:
        series.tries += 1
        # An Event to count up may be gone by now: that is a Conflict, and not tried again.
        if error.retry is Retry.LATER and series.tries < _TRIES:
            self._queue.failed(key, at_least=error.retry_after or 0.0)
            return
        log.debug("an Event was not recorded", extra={"ref": str(key[0]), "error": str(error)})
        self._metrics.event("failed")
        self._series.pop(key, None)
        self._queue.succeeded(key)
