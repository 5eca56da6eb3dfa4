"""Acquires, renews and releases a Lease (coordination.k8s.io/v1).

Decides when our own Lease counts as lost, not when another holder's does. Times are compared on
our clock only: those in the object are for people. Every write tests the holder in the same patch,
so a Lease never has two holders, and writers of other fields cause no conflict. A thread of its
own renews the Lease, so a slow answer to another call cannot lose it.

"""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, TypeAlias

from reconciler.controller.tasks import Clock, in_thread
from reconciler.core.errors import AlreadyExists, ClusterError, Conflict, Unreachable
from reconciler.core.manifest import JSON, Manifest, get_int, get_map, get_text, uid_of
from reconciler.core.refs import LEASE, Ref
from reconciler.core.times import moment
from reconciler.kube.cluster import Cluster
from reconciler.kube.requests import Verb

_SILENCE: Final = "no answer"
_NEVER: Final = float("-inf")
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_FOLLOWS: Final = timedelta(minutes=1)  # since the last renewal of the one before
_BREATH: Final = 0.02  # seconds between two tries of a write that others keep crossing


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """In seconds. A lease lives `duration` after its last renewal, as others see it.

    It is renewed every `period`. Its holder counts it as lost when that has failed for
    `deadline`; the rest of `duration` is for writes that are under way.
    """

    duration: int = 15
    deadline: float = 10.0
    period: float = 2.0

    @property
    def request(self) -> float:
        """The time limit of a request: a second one must fit into the deadline."""
        return self.deadline / 2


TIMES: Final = Times()


# Opens a connection of its own to the cluster of a Lease, for another event loop.
Again: TypeAlias = Callable[[], AbstractAsyncContextManager[Cluster]]


@dataclass(slots=True)
class _Hold:
    """Our hold, as far as we know. Read by all threads, written by whichever writes the Lease."""

    uid: str = ""
    renewed: float = _NEVER  # when our last write was sent that succeeded
    taken: bool = False  # by another
    why: str = _SILENCE  # the last renewal failed


def holder_here() -> str:
    """Return a name for this process that no other has had.

    In containers, host name and process number may be those of others.
    """
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


class Lease:
    """A Lease. `holder` names us beyond doubt; `manager` is the field manager.

    `again`: without it, renewals go through `cluster` and this event loop, as all else does.
    Methods raise ClusterErrors, Unreachable also where an answer does not come in time.
    """

    def __init__(  # noqa: PLR0913 - each says one thing about it
        self,
        cluster: Cluster,
        ref: Ref,
        *,
        holder: str,
        manager: str,
        clock: Clock,
        times: Times = TIMES,
        again: Again | None = None,
    ) -> None:
        self.ref, self.holder, self.times = ref, holder, times
        self._cluster, self._manager, self._clock = cluster, manager, clock
        self._again = again
        self._hold = _Hold()
        # By what words others know this holder's term; then that of the one before, where it is
        # known to have ended just now: a Lease that was restored with its cluster is an old one.
        self.terms: tuple[str, ...] = ()

    @property
    def since_renewal(self) -> float:
        """Seconds since others last saw us renew it, at least; infinite where it is not ours."""
        return self._clock.monotonic() - self._hold.renewed

    @property
    def loss(self) -> str:
        """Why it is ours no more; "" while it is."""
        if self._hold.taken:
            return f"{self.ref}: another holder took it over"
        if self.since_renewal < self.times.deadline:
            return ""
        return f"{self.ref}: not renewed for {self.times.deadline:g} s: {self._hold.why}"

    async def look(self) -> Manifest | None:
        """Return the Lease as it is, or None."""
        async with self._in_time("get"):
            return await self._cluster.get(self.ref)

    async def make(self, annotations: Mapping[str, str] = _NONE) -> None:
        """Create it, held by us. Raises AlreadyExists, and Missing without the namespace."""
        lease: Manifest = {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {
                "name": self.ref.name,
                "namespace": self.ref.namespace,
                "annotations": {**annotations},
            },
            "spec": self._spec(transitions=0),
        }
        began = self._clock.monotonic()
        async with self._in_time("create"):
            made = await self._cluster.create(lease, LEASE, manager=self._manager)
        self._hold.uid, self._hold.renewed = uid_of(made), began
        self.terms = self.terms or (_term(uid_of(made), 0),)

    async def take(self, live: Manifest, annotations: Mapping[str, str] = _NONE) -> None:
        """Make it ours, and annotate it, if its hold is still as in `live`. Raises Conflict."""
        transitions = get_int(live, "spec", "leaseTransitions") or 0
        spec = self._spec(transitions=transitions + 1)
        uid = self._hold.uid = uid_of(live)
        noted = _set(
            "/metadata/annotations", {**get_map(live, "metadata", "annotations"), **annotations}
        )
        hold = _test("/spec", get_map(live, "spec"))
        await self._write(hold, _set("/spec", spec), *([noted] if annotations else ()))
        renewed = moment(get_text(live, "spec", "renewTime"))
        follows = renewed is not None and abs(self._clock.now() - renewed) < _FOLLOWS
        before = (_term(uid, transitions),) if follows else ()
        self.terms = (_term(uid, transitions + 1), *before)

    async def keep(self) -> None:
        """Renew it until it is lost: `taken` by another, or not renewed for too long."""
        if self._again is None:
            await self._keep()
        else:
            await in_thread(self._keep_there, name="lease")

    async def _keep_there(self) -> None:
        assert self._again is not None
        async with self._again() as cluster:
            there = Lease(
                cluster,
                self.ref,
                holder=self.holder,
                manager=self._manager,
                clock=self._clock,
                times=self.times,
            )
            there._hold = self._hold
            await there._keep()

    async def _keep(self) -> None:
        pause = self.times.period
        while True:
            await self._clock.sleep(min(pause, self._left))
            if self._left <= 0:
                return
            try:
                async with asyncio.timeout(self._left):
                    if not await self._renew():
                        self._hold.taken = True
                        return
                self._hold.why, pause = _SILENCE, self.times.period
            except (ClusterError, TimeoutError) as error:
                self._hold.why = str(error) or _SILENCE
                pause = self.times.period / 4

    async def release(self) -> None:
        """Give it back, if it is still ours and that can be done; else it runs out by itself."""
        if self._hold.renewed == _NEVER:
            return
        nobody = _set("/spec/holderIdentity", "")
        try:
            await self._write(self._ours(), nobody, _set("/spec/renewTime", self._now()))
        except ClusterError:
            return
        finally:
            self._hold.renewed = _NEVER

    @property
    def _left(self) -> float:
        return self.times.deadline - self.since_renewal

    async def _renew(self) -> bool:
        """Renew it; return False where another holds it. May take for ever."""
        while True:
            try:
                await self._write(self._ours(), _set("/spec/renewTime", self._now()))
                return True
            except Conflict:
                live = await self.look()
            if live is None:
                try:
                    await self.make()  # somebody deleted it
                    return True
                except AlreadyExists:
                    continue
            if holder_of(live) != self.holder:
                return False
            self._hold.uid = uid_of(live)
            await asyncio.sleep(_BREATH)

    def _ours(self) -> Manifest:
        return _test("/spec/holderIdentity", self.holder)

    async def _write(self, *operations: Manifest) -> None:
        patch = [_test("/metadata/uid", self._hold.uid), *operations]
        # Others may see the renewal as soon as it is sent, so that is when our time begins.
        began = self._clock.monotonic()
        async with self._in_time("patch"):
            await self._cluster.json_patch(self.ref, patch, manager=self._manager)
        self._hold.renewed = began

    @asynccontextmanager
    async def _in_time(self, verb: Verb) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.times.request):
                yield
        except TimeoutError as error:
            last = error.__cause__ and error.__cause__.__cause__
            other, but = (
                ("other ", f" but {last.message}") if isinstance(last, ClusterError) else ("", "")
            )
            message = f"no {other}answer within {self.times.request:g} s{but}"
            doubt = verb != "get"
            raise Unreachable(message, ref=self.ref, verb=verb, outcome_unknown=doubt) from error

    def _spec(self, *, transitions: int) -> dict[str, JSON]:
        now = self._now()
        return {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self.times.duration,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    def _now(self) -> str:
        return micro(self._clock.now())


def _test(path: str, value: JSON) -> Manifest:
    return {"op": "test", "path": path, "value": value}


def _set(path: str, value: JSON) -> Manifest:
    return {"op": "add", "path": path, "value": value}


def _term(uid: str, transitions: int) -> str:
    return f"{uid}/{transitions}"


def holder_of(lease: Manifest) -> str:
    """Return the holder, "" for nobody."""
    return get_text(lease, "spec", "holderIdentity")


def duration_of(lease: Manifest) -> int | None:
    """Return how many seconds it lives without a renewal."""
    return get_int(lease, "spec", "leaseDurationSeconds")


def micro(time: datetime) -> str:
    """Return a MicroTime, the form of times in Leases and Events; `time` is in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
