"""`KubeCluster`: the port of cluster.py over the network, honest about every answer."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from reconciler.core.errors import Expired, Missing, NotServed, Unreachable
from reconciler.core.manifest import Manifest, get, get_bool, get_int, get_maps, get_text
from reconciler.core.refs import Kind, Ref
from reconciler.kube import requests
from reconciler.kube.calls import Caller, Oversized, garbled
from reconciler.kube.cluster import Listing, Page, Preconditions, Propagation, WatchEvent
from reconciler.kube.connection import Connection
from reconciler.kube.connectivity import Connectivity
from reconciler.kube.credentials.source import credential_source
from reconciler.kube.http import paging
from reconciler.kube.http.transport import Transport
from reconciler.kube.http.watch_stream import events_of
from reconciler.kube.limits import Limits
from reconciler.kube.requests import ListQuery, Request

_DEFAULTS: Final = Limits()


class KubeCluster:
    """One API server, over pooled connections. Use within one event loop; close at the end.

    `agent` is the User-Agent of all requests. Nothing is sent before the first call.
    """

    def __init__(
        self, connection: Connection, *, limits: Limits = _DEFAULTS, agent: str = "klutchctl"
    ) -> None:
        self._name = connection.name
        self._connection, self._limits, self._agent = connection, limits, agent
        self._transport = Transport(
            connection, credentials=credential_source(connection), limits=limits, agent=agent
        )
        self._caller = Caller(self._transport, limits)

    @property
    def name(self) -> str:
        """What people call this cluster; errors carry it."""
        return self._name

    @property
    def connectivity(self) -> Connectivity:
        """Who tells when the cluster answers again after it did not."""
        return self._caller.connectivity

    def again(self) -> "KubeCluster":
        """Return another client of the same server, for use within another event loop."""
        return KubeCluster(self._connection, limits=self._limits, agent=self._agent)

    def __repr__(self) -> str:
        return f"KubeCluster({self._name!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; calls in flight fail with Unreachable."""
        await self._transport.close()

    async def get(self, ref: Ref, *, metadata_only: bool = False) -> Manifest | None:
        """Return the object, or None where it is absent."""
        try:
            return await self._object(requests.get(ref, metadata_only=metadata_only))
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
        """Return all objects, from as many pages as needed: complete, or an error."""
        ref = Ref(self._name, kind, namespace, "")
        query = ListQuery(
            labels=labels, fields=fields, limit=page_size, metadata_only=metadata_only
        )
        try:
            return await self._all_of(ref, query)
        except Expired:
            # The pages outlived the server's history. One answer with all is slower and safe.
            return await self._all_of(ref, replace(query, limit=0))

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
        """Yield all objects page by page. Raises Expired where the pages take too long."""
        query = ListQuery(
            labels=labels, fields=fields, limit=page_size, metadata_only=metadata_only
        )
        return self._pages(Ref(self._name, kind, namespace, ""), query)

    async def first_page(
        self, kind: Kind, *, namespace: str = "", limit: int, metadata_only: bool = False
    ) -> Page:
        """Return up to `limit` objects and how many more there are: a cheap count."""
        ref = Ref(self._name, kind, namespace, "")
        query = ListQuery(limit=limit, metadata_only=metadata_only)
        request = requests.list_page(ref, query)
        answer = await self._caller.answer(request)
        return Page(
            items=_items(answer, request),
            resource_version=get_text(answer, "metadata", "resourceVersion"),
            more=bool(get_text(answer, "metadata", "continue")),
            remaining=get_int(answer, "metadata", "remainingItemCount"),
        )

    async def kind(self, group: str, version: str, plural: str) -> Kind:
        """Return the kind that is served as this resource. Raises NotServed."""
        asked = Kind(group, version, plural, plural)
        request = requests.resources(self._name, asked)
        answer = await self._caller.answer(request)
        for one in get_maps(answer, "resources"):
            if get_text(one, "name") == plural:
                namespaced = get_bool(one, "namespaced")
                return Kind(group, version, get_text(one, "kind"), plural, namespaced=namespaced)
        message = f"the cluster does not serve {asked.resource}/{version}"
        raise NotServed(message, ref=request.ref, verb=request.verb)

    async def versions(self, group: str) -> Sequence[str]:
        """Return the versions in which a named group is served; none where it is not."""
        request = requests.groups(self._name, group)
        answer = await self._caller.answer(request)
        if answer.get("kind") != "APIGroupList":
            raise garbled(request, "discovery answers with something else")
        return [
            get_text(version, "version")
            for one in get_maps(answer, "groups")
            if get_text(one, "name") == group
            for version in get_maps(one, "versions")
        ]

    async def create(
        self,
        manifest: Manifest,
        kind: Kind,
        *,
        manager: str,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Manifest:
        """POST, also to a subresource such as `token`. Raises AlreadyExists."""
        request = requests.create(
            self._name, manifest, kind, manager=manager, subresource=subresource, dry_run=dry_run
        )
        return await self._object(request)

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
        """Server-side apply; see cluster.Writer for what it raises."""
        request = requests.apply(
            self._name,
            manifest,
            kind,
            manager=manager,
            force=force,
            subresource=subresource,
            dry_run=dry_run,
        )
        return await self._object(request)

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
        request = requests.patch(
            ref,
            patch,
            content_type=requests.MERGE_PATCH,
            manager=manager,
            subresource=subresource,
            dry_run=dry_run,
        )
        return await self._object(request)

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
        request = requests.patch(
            ref,
            patch,
            content_type=requests.JSON_PATCH,
            manager=manager,
            subresource=subresource,
            dry_run=dry_run,
        )
        return await self._object(request)

    async def delete(
        self,
        ref: Ref,
        *,
        preconditions: Preconditions,
        propagation: Propagation,
        dry_run: bool = False,
    ) -> bool:
        """Ask for deletion. False where the object was absent already."""
        request = requests.delete(
            ref, preconditions=preconditions, propagation=propagation, dry_run=dry_run
        )
        try:
            answer = await self._caller.answer(request)
        except Missing:
            return False
        done = (get_text(answer, "kind"), get_text(answer, "status")) == ("Status", "Success")
        if not done and get_text(answer, "metadata", "name") != ref.name:
            raise garbled(request, "the answer is neither success nor the object")
        return True

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
        """Stream the events after `resource_version`; see cluster.Watcher."""
        query = ListQuery(labels=labels, fields=fields, metadata_only=metadata_only)
        ref = Ref(self._name, kind, namespace, "")
        request = requests.watch(ref, query, resource_version=resource_version)
        return self._watch(request, read_timeout)

    @contextlib.asynccontextmanager
    async def _watch(
        self, request: Request, read_timeout: float | None
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        async with (
            self._caller.stream(request, read_timeout=read_timeout) as chunks,
            contextlib.aclosing(events_of(chunks, request, self._limits)) as events,
        ):
            yield events

    async def _object(self, request: Request) -> Manifest:
        """Make a call that answers with the object it is about."""
        answer = await self._caller.answer(request)
        wanted = request.ref.name
        if wanted and get_text(answer, "metadata", "name") != wanted:
            raise garbled(request, "the answer is another object")
        return answer

    async def _all_of(self, ref: Ref, query: ListQuery) -> Listing:
        items: list[Manifest] = []
        version = ""
        async for page in self._pages(ref, query):
            items += page.items
            version = page.resource_version
        return Listing(items, version)

    async def _pages(self, ref: Ref, query: ListQuery) -> AsyncGenerator[Listing]:
        count = size = 0
        at_most = query.limit
        query = replace(query, limit=paging.first(at_most))
        while True:
            request = requests.list_page(ref, query)
            try:
                body = await self._caller.call(request)
                answer = await self._caller.decode(body, request)
            except Oversized:
                # Objects of the size that etcd takes make a page that is larger than an answer.
                if query.limit <= paging.FEWEST:
                    raise
                query = replace(query, limit=paging.FEWEST)
                continue
            items = _items(answer, request)
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
            limit = paging.following(at_most, items=len(items), octets=len(body))
            query = replace(query, token=token, limit=limit)
            del body, answer, items  # nobody needs a page while the next is read


def _items(answer: Manifest, request: Request) -> list[Manifest]:
    """Return the objects of a list. An answer that is no list is an error, never empty."""
    kind, items = request.ref.kind, answer.get("items", ())
    token = get(answer, "metadata", "continue")
    if (
        not _is_list_of(kind, answer)
        or not get_text(answer, "metadata", "resourceVersion")
        or not (token is None or isinstance(token, str))
        or not (items is None or isinstance(items, list))
        or not all(isinstance(item, dict) for item in items or ())
    ):
        raise garbled(request, "the answer is not a list of such objects")
    # Lists of built-in kinds leave the type of their items out.
    types = {"apiVersion": kind.api_version, "kind": kind.kind}
    return [item if "kind" in item else types | item for item in items or []]


def _is_list_of(kind: Kind, answer: Manifest) -> bool:
    named, version = get_text(answer, "kind"), get_text(answer, "apiVersion")
    if named == "PartialObjectMetadataList":
        return version.startswith("meta.k8s.io/")
    # A CRD may call its lists as it likes.
    custom = "." in kind.group and not kind.group.endswith(".k8s.io")
    right = named not in ("", "Status") if custom else named == f"{kind.kind}List"
    return right and version == kind.api_version
