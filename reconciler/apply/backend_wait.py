"""Waits for what a backend makes: exports for requests, bindings for an AppClusterBinding.

All units of a cluster wait for the same few lists, because a call for each would be too many.
"""

import asyncio
from typing import Final

from reconciler.api.export import API_SERVICE_EXPORT
from reconciler.api.export_request import API_SERVICE_EXPORT_REQUEST
from reconciler.api.service_binding import API_SERVICE_BINDING
from reconciler.apply.step_runner import Unconfirmed
from reconciler.apply.writes import Writes
from reconciler.core import conditions
from reconciler.core.manifest import Manifest, get_list, get_text, name_of
from reconciler.core.refs import Kind

_FAILED: Final = "Failed"
_PERIOD: Final = 0.25  # seconds from one list of a kind to the next


class Refused(Exception):
    """The backend says that it will not serve a request."""


class BackendWait:
    """What a backend has made so far in one binding space. `wait` is in seconds."""

    def __init__(self, plane: Writes, space: str, *, wait: float) -> None:
        self._plane, self._space, self._wait = plane, space, wait
        self._listing: dict[Kind, asyncio.Task[dict[str, Manifest]]] = {}
        self._next: dict[Kind, float] = {}  # when a list may begin, in the loop's time

    async def export(self, name: str) -> None:
        """Wait until an export exists. Raises Refused, Unconfirmed, Stopped, ClusterErrors."""

        async def look() -> bool | None:
            if name in await self._listed(API_SERVICE_EXPORT):
                return True
            request = (await self._listed(API_SERVICE_EXPORT_REQUEST)).get(name)
            if request is not None and get_text(request, "status", "phase") == _FAILED:
                raise Refused(f"the request {name} has failed: {_told(request)}")
            return None

        if await self._plane.gate.until(look, seconds=self._wait) is None:
            request = (await self._listed(API_SERVICE_EXPORT_REQUEST)).get(name)
            raise Unconfirmed(
                f"the backend has made no export {name} within {self._wait:.0f} s: "
                f"{_told(request)}; the next run goes on"
            )

    async def binding(self, name: str) -> Manifest:
        """Wait for an APIServiceBinding of the backend. Raises as `export` does."""

        async def look() -> Manifest | None:
            return (await self._listed(API_SERVICE_BINDING)).get(name)

        found = await self._plane.gate.until(look, seconds=self._wait)
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
        brief = kind == API_SERVICE_EXPORT
        found = await self._plane.cluster.list(kind, namespace=self._space, metadata_only=brief)
        return {name_of(one): one for one in found.items}


def _told(request: Manifest | None) -> str:
    """Return what the backend says of a request."""
    if request is None:
        return "the request is gone"
    found = conditions.find(
        conditions.parse(get_list(request, "status", "conditions")), "ExportsReady"
    )
    if found is None or not found.reason:
        return "it has not answered the request; does it run?"
    return f"{found.reason}: {found.message}"
