"""Waits for exports and bindings of a backend, and for units that become Ready."""

import asyncio
import textwrap
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias

from reconciler import api
from reconciler.api import reports_cut_off
from reconciler.apply import NotReady
from reconciler.apply.object_writer import ClusterWriter
from reconciler.controller.fence import WriteFence
from reconciler.core import conditions, names
from reconciler.core.errors import Missing
from reconciler.core.manifest import Manifest, get_text, name_of, namespace_of
from reconciler.core.refs import SECRET, Kind, Ref
from reconciler.fleet.values import UnitKey
from reconciler.fleet.wanted import Placement
from reconciler.health.live_units import Location
from reconciler.health.survey import health_of
from reconciler.kube.cluster import Cluster, ClusterWrapper, Listing, Reader
from reconciler.kube.requests import ACCEPT_METADATA, ListQuery, Request
from reconciler.observe.objects import observed

_ByPlace: TypeAlias = Mapping[str, Mapping[str, Manifest]]  # namespace, name

_PERIOD: Final = 0.25  # seconds from one list of a kind to the next
_SHOWN: Final = 200  # characters of a reason
_STAGE_PERIOD: Final = 10.0  # seconds from one stage of a wait to the next


class Unconfirmed(Exception):
    """Something did not happen in time. The steps before it are done; the next run continues."""


class Refused(Exception):
    """The backend will not serve a request, by its own report."""


class BackendWait:
    """Waits for exports and bindings in one binding space. `wait` is in seconds.

    All units of a cluster wait for the same few lists: a call for each would be too many.
    """

    def __init__(self, plane: ClusterWriter, space: str, *, wait: float) -> None:
        self._plane, self._space, self._wait = plane, space, wait
        self._listing: dict[Kind, asyncio.Task[dict[str, Manifest]]] = {}
        self._next: dict[Kind, float] = {}  # when a list may begin, in the loop's time

    async def export(self, name: str) -> None:
        """Wait until an export exists. Raises Refused, Unconfirmed, Stopped, ClusterErrors."""

        async def look() -> bool | None:
            if name in await self._listed(api.API_SERVICE_EXPORT):
                return True
            request = (await self._listed(api.API_SERVICE_EXPORT_REQUEST)).get(name)
            if request is not None and get_text(request, "status", "phase") == "Failed":
                raise Refused(f"the request {name} has failed: {_answer_to(request)}")
            return None

        if await self._plane.fence.until(look, seconds=self._wait) is None:
            request = (await self._listed(api.API_SERVICE_EXPORT_REQUEST)).get(name)
            raise Unconfirmed(
                f"the backend has made no export {name} within {self._wait:.0f} s: "
                f"{_answer_to(request)}; the next run continues"
            )

    async def binding(self, name: str) -> Manifest:
        """Wait for an APIServiceBinding of the backend. Raises as `export` does."""

        async def look() -> Manifest | None:
            return (await self._listed(api.API_SERVICE_BINDING)).get(name)

        found = await self._plane.fence.until(look, seconds=self._wait)
        if found is None:
            raise Unconfirmed(
                f"the backend has made no APIServiceBinding {name} within {self._wait:.0f} s: "
                "its claims are accepted by the next run"
            )
        return found

    async def _listed(self, kind: Kind) -> dict[str, Manifest]:
        """List a kind, once for all who ask until the answer has come."""
        task = self._listing.get(kind)
        if task is None or task.done():
            task = self._listing[kind] = asyncio.ensure_future(self._list(kind))
        return await asyncio.shield(task)

    async def _list(self, kind: Kind) -> dict[str, Manifest]:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._next.get(kind, 0.0) - loop.time())
        self._next[kind] = loop.time() + _PERIOD
        brief = kind == api.API_SERVICE_EXPORT
        found = await self._plane.cluster.list(kind, namespace=self._space, metadata_only=brief)
        return {name_of(item): item for item in found.items}


class WaitStages:
    """Names units that are waited for, once that takes longer, and again after each change.

    `stage` gets the sentences: for all clusters together, one in `_STAGE_PERIOD` at most.
    """

    def __init__(self, stage: Callable[[str], None]) -> None:
        self._stage, self._last = stage, ""
        self._late: dict[str, Sequence[NotReady]] = {}
        self._next = asyncio.get_running_loop().time() + _STAGE_PERIOD

    def looked(self, cluster: str, late: Sequence[NotReady]) -> None:
        """Note which units of a cluster are not Ready yet."""
        self._late[cluster] = late
        now = asyncio.get_running_loop().time()
        if now < self._next:
            return
        self._next = now + _STAGE_PERIOD
        text = _waiting_for([unit for some in self._late.values() for unit in some])
        if text and text != self._last:
            self._stage(text)
            self._last = text


def _waiting_for(late: Sequence[NotReady]) -> str:
    """Return how many units are waited for, and the reason of the first; "" for none."""
    if not late:
        return ""
    first = min(late, key=lambda one: one.unit)
    count = "1 unit," if len(late) == 1 else f"{len(late)} units, such as"
    reason = textwrap.shorten(first.reason, _SHOWN, placeholder="...")  # of others, of any length
    return f"waiting for {count} {first.unit}: {reason}"


class MirrorWait:
    """Waits for the konnector of a space to write its kubeconfig again. `wait` is in seconds."""

    def __init__(
        self, plane: ClusterWriter, app: ClusterWriter, placed: Placement, *, wait: float
    ) -> None:
        self._plane, self._app, self._wait = plane, app, wait
        name = plane.cluster.name
        self._source = Ref(name, SECRET, placed.kubeconfig_namespace, placed.kubeconfig_name)
        self._heart = Ref(name, api.CLUSTER_BINDING, placed.space, names.CLUSTER_BINDING)

    async def has_konnector(self, bindings: Iterable[Manifest], now: datetime) -> bool:
        """Return whether to wait for a konnector: none that its bindings report as cut off."""
        beat = api.heartbeat_of(await self._plane.read(self._heart))
        alive = api.liveness(beat, now, timeout=api.SILENCE) is api.Liveness.ALIVE
        return alive and not any(map(reports_cut_off, bindings))

    async def mirrored(self, secret: Ref) -> None:
        """Wait until a Secret in the app cluster leads where its source does.

        Raises Unconfirmed, Stopped and ClusterErrors.
        """
        meant = await _facts(self._plane, self._source)

        async def look() -> bool | None:
            return True if await _facts(self._app, secret) == meant else None

        if meant is None or await self._app.fence.until(look, seconds=self._wait) is None:
            raise Unconfirmed(
                f"its konnector has not written the new address within {self._wait:.0f} s: "
                f"{await self._trouble()}; the old one stays, the next run retries, and --force "
                "writes the new one untried"
            )

    async def _trouble(self) -> str:
        """Return the konnector's report about the new address."""
        live = await self._plane.read(self._heart)
        invalid = conditions.get(live, conditions.SECRET_VALID, conditions.FALSE)
        if invalid is None:
            return "check whether it runs, and is of a version that does"
        return textwrap.shorten(invalid.message.rstrip("."), _SHOWN, placeholder="...")


async def _facts(writer: ClusterWriter, secret: Ref) -> api.KubeconfigFacts | None:
    found = await writer.read(secret)
    return None if found is None else api.kubeconfig_facts_of(observed(SECRET, found))


class Readiness:
    """Waits until units of one app cluster are Ready (mapping.md 11). `now` is the time in UTC.

    The first look at the control plane is made through `shared_reader`, where there is one.
    """

    def __init__(
        self,
        *,
        location: Location | None,
        control_plane: ClusterWriter,
        app: ClusterWriter,
        fence: WriteFence,
        now: Callable[[], datetime],
        shared_reader: Reader | None = None,
    ) -> None:
        self.control_plane, self.fence = control_plane, fence
        self._location, self._app, self._now = location, app, now
        self._shared_reader = shared_reader
        self._ready: set[UnitKey] = set()

    async def wait(
        self,
        units: Collection[UnitKey],
        *,
        seconds: float,
        looked: Callable[[Sequence[NotReady]], None] = lambda _late: None,
    ) -> Sequence[NotReady]:
        """Wait for all of the units; return those that were not Ready in time, and why.

        `looked` gets those that are not Ready yet, after each look. Raises Stopped.
        """
        late: Sequence[NotReady] = ()

        async def look() -> bool | None:
            nonlocal late
            late = await self._not_ready(units)
            looked(late)
            return None if late else True

        await self.fence.until(look, seconds=seconds)
        return late

    async def _not_ready(self, units: Collection[UnitKey]) -> Sequence[NotReady]:
        if self._location is None:
            return [NotReady(str(unit), "its cluster leaves the fleet") for unit in units]
        open_ = [unit for unit in units if unit not in self._ready]
        if not open_:
            return ()
        plane, self._shared_reader = self._shared_reader or self.control_plane.cluster, None
        found = await health_of(
            open_,
            location=self._location,
            control_plane=plane,
            app=self._app.cluster,
            now=self._now,
        )
        self._ready |= {unit for unit, health in found.items() if health.ready}
        return [
            NotReady(str(unit), f"{health.state.value}: {health.message}")
            for unit, health in sorted(found.items())
            if not health.ready
        ]


class SharedListReader(ClusterWrapper):
    """Answers for single namespaces and objects out of lists of the whole cluster, read once.

    Many clusters of one control plane wait at the same time. To learn what changed, ask the
    cluster itself. Needs the right to list what it is asked for in all namespaces, as a plan does.
    Raises the ClusterErrors of the lists, to all who asked. Other lists are left to the cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._lists: dict[tuple[Kind, bool], asyncio.Task[tuple[_ByPlace, str]]] = {}

    async def send(self, request: Request) -> Manifest:
        """Answer a read of one object from the list; other calls are the cluster's."""
        ref = request.ref
        if request.verb != "get" or not ref.name:
            return await self.inner.send(request)
        objects, _ = await self._list_once(ref.kind, request.accept == ACCEPT_METADATA)
        found = objects.get(ref.namespace, {}).get(ref.name)
        if found is None:
            raise Missing("it was not in the list", ref=ref, verb=request.verb)
        return found

    async def pages(self, ref: Ref, query: ListQuery) -> AsyncGenerator[Listing]:
        """Yield the objects of a namespace at once; other lists as the cluster does."""
        if not ref.namespace or query.labels or query.fields:
            async for page in self.inner.pages(ref, query):
                yield page
            return
        objects, version = await self._list_once(ref.kind, query.metadata_only)
        yield Listing(tuple(objects.get(ref.namespace, {}).values()), version)

    async def _list_once(self, kind: Kind, metadata_only: bool) -> tuple[_ByPlace, str]:
        key = kind, metadata_only
        if key not in self._lists:
            self._lists[key] = asyncio.ensure_future(self._list(kind, metadata_only))
        return await asyncio.shield(self._lists[key])

    async def _list(self, kind: Kind, metadata_only: bool) -> tuple[_ByPlace, str]:
        listing = await self.inner.list(kind, metadata_only=metadata_only)
        objects: dict[str, dict[str, Manifest]] = defaultdict(dict)
        for listed in listing.items:
            objects[namespace_of(listed)][name_of(listed)] = listed
        return objects, listing.resource_version


def _answer_to(request: Manifest | None) -> str:
    if request is None:
        return "the request is gone"
    found = conditions.get(request, "ExportsReady")
    if found is None or not found.reason:
        return "it has not answered the request; does it run?"
    return f"{found.reason}: {found.message}"
