"""Keeps a FleetStatus up to date, and reads the records of people and earlier processes.

If somebody deletes the object, it is created again. After the first read, nothing waits for it:
a failed write is repeated later, and the clusters are kept in order in any case.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from typing import Final

from reconciler.api.fleet_status import (
    FLEET_STATUS,
    accepted_commit,
    observed_generation,
    suspension,
)
from reconciler.controller.executor import Recorder
from reconciler.controller.fence import Stopped, WriteFence
from reconciler.controller.tasks import Clock, unless
from reconciler.core import errors, keys
from reconciler.core.decision import Note
from reconciler.core.errors import ClusterError, NotServed
from reconciler.core.manifest import JSON, Manifest, get_map, put, resource_version_of
from reconciler.core.refs import Ref
from reconciler.core.times import format_time
from reconciler.kube.cluster import Cluster
from reconciler.watch.fleet_state import FleetState, SourceProblem
from reconciler.watch.fleet_status.conditions import cut, guards_of, short, verdict_of
from reconciler.watch.fleet_status.document import status_of, tells_more
from reconciler.watch.loop import States

log = logging.getLogger(__name__)

PERIOD: Final = 10.0  # seconds from one look at the object, or write, to the next
_BREATH: Final = 1.0  # between two looks, however much there is to say
_NOTES: Final = 50  # that wait for the object
UNREAD: Final = "its FleetStatus was not read yet, so it may be suspended"


class FleetStatusWriter:
    """Writes one FleetStatus. Use within one event loop; `run` it once, while leading.

    The commit that was accepted is read once. From then on it is what this process knows: nobody
    who edits the object takes it back.
    """

    def __init__(
        self, cluster: Cluster, ref: Ref, *, fence: WriteFence, clock: Clock, recorder: Recorder
    ) -> None:
        self._cluster, self._ref = cluster, ref
        self._fence, self._clock, self._recorder = fence, clock, recorder
        self._accepted: str | None = None  # None: it was never read
        self._suspended: str | None = None  # None: it is unknown
        self._live: Manifest | None = None
        self._written: Manifest = {}  # the status as stated last, and the version it made
        self._version = ""
        self._wrote_at = float("-inf")
        self._failure: Exception | None = None
        self._news, self._graver = asyncio.Event(), asyncio.Event()
        self._shown = 0  # the gravity of it
        self._notes: deque[Note] = deque(maxlen=_NOTES)

    async def load(self) -> None:
        """Read the stored state; nothing where the object is absent. Raises ClusterErrors.

        After an error it is unknown, not empty.
        """
        try:
            self._take(await self._read())
        except ClusterError as error:
            self._failure = error
            raise

    def suspended(self) -> str:
        """Return why nothing is to be written to clusters, as last read, or "".

        Until it could be read, that is why.
        """
        return UNREAD if self._suspended is None else self._suspended

    def accepted(self) -> str:
        """Return the last commit that was accepted, "" where there never was one.

        Raises the error for which it is unknown, or is not written down, most often a ClusterError:
        a process after this one could go back behind it.
        """
        saved = self._accepted is not None and self._accepted == accepted_commit(self._live)
        if self._failure is not None and not saved:
            raise self._failure
        return self._accepted or ""

    async def run(self, states: States) -> None:
        """Write the status of each state, until cancelled or nothing may be written any more."""
        stop_listening = states.listen(self._listen)
        try:
            while True:
                self._news.clear()
                self._graver.clear()
                await self._try(states.now)
                await self._rest()
        except Stopped:
            return
        finally:
            stop_listening()

    def _listen(self, before: FleetState, after: FleetState) -> None:
        self._accept(after)
        self._notes.extend(notes_of(before, after))
        self._record()
        self._news.set()
        if verdict_of(after).gravity > self._shown:
            self._graver.set()

    async def _rest(self) -> None:
        """Wait for the next look: a period, or, that long after a write, until there is news.

        What is worse than what is shown does not wait: others act on a Ready that is not true.
        """
        await self._clock.sleep(_BREATH)
        quiet = self._clock.monotonic() - self._wrote_at
        if quiet < PERIOD:
            await unless(self._graver, self._clock.sleep(PERIOD - quiet))
        else:
            await unless(self._news, self._clock.sleep(PERIOD - _BREATH))

    async def _try(self, state: FleetState) -> None:
        fields = {"ref": str(self._ref)}
        try:
            await self._look(state)
        except Stopped:
            raise
        except Exception as error:  # a defect, too, must not end what hears of suspensions
            if self._failure is None or type(self._failure) is not type(error):
                known = isinstance(error, ClusterError)
                extra = fields | {"error": str(error) if known else errors.origin(error)}
                log.warning("the FleetStatus cannot be written for now", extra=extra)
            self._failure = error
            return
        if self._failure is not None:
            log.info("the FleetStatus can be written again", extra=fields)
        self._failure = None

    async def _look(self, state: FleetState) -> None:
        self._fence.check()
        live = await self._read()
        self._take(live)
        self._accept(state)
        if not tells_more(state, get_map(live, "status")):
            return
        if live is None:
            live = await self._make()
        self._shown = verdict_of(state).gravity
        before = get_map(live, "status")
        known = before or self._written  # one that was made again goes on
        status = status_of(
            state,
            self._clock.now(),
            before=known,
            accepted=self._accepted or "",
            generation=observed_generation(live, state.source.looked.tree),
            docs=self._recorder.docs,
        )
        written = (status, resource_version_of(live)) == (self._written, self._version)
        if before != status and not written:
            await self._write(status)

    async def _read(self) -> Manifest | None:
        try:
            return await self._cluster.get(self._ref)
        except NotServed:
            self._suspended = self._suspended or ""  # no object of its kind can say otherwise
            raise

    def _take(self, live: Manifest | None) -> None:
        """Note the stored object. An absent one ends no suspension: nobody asked for that."""
        self._live = live
        if self._accepted is None:
            self._accepted = accepted_commit(live)
        if live is not None or self._suspended is None:
            self._suspended = suspension(live)
        self._record()

    def _accept(self, state: FleetState) -> None:
        self._accepted = state.source.revision or self._accepted

    def _record(self) -> None:
        while self._live is not None and self._notes:
            self._recorder.record(self._ref, self._live, self._notes.popleft())

    def _body(self, **parts: JSON) -> Manifest:
        metadata: dict[str, JSON] = {"name": self._ref.name, "namespace": self._ref.namespace}
        return {
            "apiVersion": FLEET_STATUS.api_version,
            "kind": FLEET_STATUS.kind,
            "metadata": metadata,
            **parts,
        }

    async def _make(self) -> Manifest:
        body = self._body()
        if self._suspended:
            body = put(body, self._suspended, "metadata", "annotations", keys.SUSPEND)
        made = await self._fence.write(
            lambda: self._cluster.create(body, FLEET_STATUS, manager=keys.MANAGER_CONTROLLER)
        )
        self._take(made)
        return made

    async def _write(self, status: Manifest) -> None:
        """State all of the status, and drop former parts."""
        answer = await self._fence.write(
            lambda: self._cluster.apply(
                self._body(status=status),
                FLEET_STATUS,
                manager=keys.MANAGER_CONTROLLER,
                force=True,
                subresource="status",
            )
        )
        self._wrote_at = self._clock.monotonic()
        self._written, self._version = status, resource_version_of(answer)
        self._take(answer)


_MOST: Final = 10  # of one kind at once
_LONGEST: Final = 900  # bytes of JSON; the API takes 1,024 of text
# What is held has its guards; a lock is that of a run at work.
_NO_FAILURE: Final = frozenset({"done", "nothing", "held", "locked"})


def notes_of(before: FleetState, after: FleetState) -> tuple[Note, ...]:
    """Return the Events from one state to the next, in order. No note holds a Secret."""
    found = (*_source(before, after), *_rounds(before, after), *_guards(before, after))
    return (*found, *_storms(before, after))


def _source(before: FleetState, after: FleetState) -> Iterator[Note]:
    old, new = before.source, after.source
    if new.revision and new.revision != old.revision:
        was = f", after {short(old.revision)}" if old.revision else ""
        by = f", signed by {new.signature.signer}" if new.signature else ""
        yield _note("SourceChanged", f"revision {short(new.revision)}{was}{by}")
    refused = (new.problem, new.refused) != (old.problem, old.refused)
    if new.problem is not SourceProblem.NONE and refused:
        commit = f"revision {short(new.refused)}: " if new.refused else ""
        yield _note("SourceRefused", f"{commit}{new.why}", warning=True)


def _rounds(before: FleetState, after: FleetState) -> Iterator[Note]:
    revision = short(after.source.revision)
    last = after.history[0] if after.history else None
    known = before.history[0].ended_at if before.history else None
    new = last is not None and last.ended_at != known
    if last is not None and new and last.result not in _NO_FAILURE:
        why = f": {last.why}" if last.why else ""
        counts = f"{last.result}, {last.done} done, {last.failed} failed"
        yield _note("ApplyFailed", f"revision {revision}, {counts}{why}", warning=True)
    elif after.applied_at is not None and before.applied_at is None:
        yield _note("Applied", f"revision {revision} is in place")
    elif last is not None and new and last.done:
        why = f": {last.why}" if last.why else ""
        yield _note(
            "Applied", f"revision {revision}: {last.done} done again, as they had changed{why}"
        )


def _guards(before: FleetState, after: FleetState) -> Iterator[Note]:
    known = {(one.guard, one.clusters) for one in guards_of(before.waiting)}
    new = [one for one in guards_of(after.waiting) if (one.guard, one.clusters) not in known]
    for one in new[:_MOST]:
        yield _note("GuardTripped", f"{one.guard}: {one.message}", warning=True)
    if len(new) > _MOST:
        yield _note("GuardTripped", f"and {len(new) - _MOST} more", warning=True)


def _storms(before: FleetState, after: FleetState) -> Iterator[Note]:
    known = {(one.cluster, one.object, one.until) for one in before.storms}
    for one in after.storms[:_MOST]:
        if (one.cluster, one.object, one.until) not in known:
            by = one.manager or "another manager"
            why = f"{one.cluster}: {one.object} was repaired {one.repairs} times and changed back "
            rest = f"by {by}; it rests until {format_time(one.until)}"
            yield _note("DriftStorm", f"{why}{rest}", warning=True)


def _note(reason: str, message: str, *, warning: bool = False) -> Note:
    return Note(reason, cut(message, _LONGEST), "Warning" if warning else "Normal")
