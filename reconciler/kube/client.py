"""`KubeCluster`: the port of cluster.py over the network, honest about every answer."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from dataclasses import replace
from typing import Any, Final

from reconciler.core.errors import Unreachable
from reconciler.core.manifest import Manifest, get_text
from reconciler.core.refs import Ref
from reconciler.kube import answers, limits, requests
from reconciler.kube.calls import Caller, Oversized
from reconciler.kube.cluster import EVERYTHING, Cluster, Listing, WatchEvent
from reconciler.kube.connection import Connection
from reconciler.kube.credentials.source import credential_source
from reconciler.kube.http.answer_stream import events_of
from reconciler.kube.http.transport import Transport
from reconciler.kube.limits import Limits
from reconciler.kube.requests import ListQuery, Request

_DEFAULTS: Final = Limits()


class KubeCluster(Cluster):
    """One API server, over pooled connections. Use within one event loop; close at the end.

    `agent` is the User-Agent of all requests. Nothing is sent before the first call.
    """

    def __init__(
        self, connection: Connection, *, limits: Limits = _DEFAULTS, agent: str = "klutchctl"
    ) -> None:
        self._connection, self._limits, self._agent = connection, limits, agent
        self._transport = Transport(
            connection, credentials=credential_source(connection), limits=limits, agent=agent
        )
        self._caller = Caller(self._transport, limits)
        self.name, self.connectivity = connection.name, self._caller.connectivity

    def again(self) -> "KubeCluster":
        """Return another client of the same server, for use within another event loop."""
        return KubeCluster(self._connection, limits=self._limits, agent=self._agent)

    def __repr__(self) -> str:
        return f"KubeCluster({self.name!r})"

    async def close(self) -> None:
        """Close all connections; calls in flight fail with Unreachable."""
        await self._transport.close()

    def send(self, request: Request) -> Coroutine[Any, Any, Manifest]:
        """Make one call, with its repetitions, and return the JSON object in its answer."""
        return self._caller.answer(request)

    async def pages(self, ref: Ref, query: ListQuery) -> AsyncGenerator[Listing]:
        """Yield a collection page by page, in pages of about the same size in memory."""
        count = size = 0
        at_most = query.limit
        query = replace(query, limit=limits.first_page(at_most))
        while True:
            request = requests.list_page(ref, query)
            try:
                body = await self._caller.call(request)
                answer = await self._caller.decode(body, request)
            except Oversized:
                # Objects of the size that etcd takes make a page that is larger than an answer.
                if query.limit <= limits.FEWEST_A_PAGE:
                    raise
                query = replace(query, limit=limits.FEWEST_A_PAGE)
                continue
            items = answers.items(answer, request)
            if len(items) > self._limits.max_items:
                message = f"answered more than {self._limits.max_items} objects to one call"
                raise Oversized(message, ref=ref, verb=request.verb)
            count, size = count + len(items), size + len(body)
            token = get_text(answer, "metadata", "continue")
            yield Listing(items, get_text(answer, "metadata", "resourceVersion"))
            if not token:
                return
            if size > self._limits.max_list or not items:
                message = f"the list does not end (after {count} objects, {size} bytes)"
                raise Unreachable(message, ref=ref, verb=request.verb)
            limit = limits.next_page(at_most, items=len(items), octets=len(body))
            query = replace(query, token=token, limit=limit)
            del body, answer, items  # nobody needs a page while the next is read

    @contextlib.asynccontextmanager
    async def watch(
        self,
        ref: Ref,
        query: ListQuery = EVERYTHING,
        *,
        resource_version: str,
        read_timeout: float | None = None,
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """Stream the events of a collection after `resource_version`."""
        request = requests.watch(ref, query, resource_version=resource_version)
        async with (
            self._caller.stream(request, read_timeout=read_timeout) as chunks,
            contextlib.aclosing(events_of(chunks, request, self._limits)) as events,
        ):
            yield events
