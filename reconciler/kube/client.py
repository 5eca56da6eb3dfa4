"""`KubeCluster`: the port of cluster.py over the network, honest about every answer.

Repeats only harmless calls: those that the server refused with 429 (it did not execute them), and
reads after a network failure or a 5xx. If the answer to a write is lost, it reports that and does
not repeat the write: only the caller knows the consequence.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from dataclasses import replace
from typing import Final

import orjson

from reconciler.core import errors
from reconciler.core.documents import weight
from reconciler.core.manifest import JSON, Manifest, get_maps, get_text
from reconciler.core.refs import LEASE, Kind, Ref
from reconciler.http.stream import Excess, NoAnswer, Untrusted
from reconciler.kube import answers, limits, requests
from reconciler.kube.answer_stream import Outline, events_of, outline_of, stub_at, value_of
from reconciler.kube.answers import failure, garbled, parse_status
from reconciler.kube.cluster import EVERYTHING, Cluster, Connectivity, Listing, WatchEvent
from reconciler.kube.connection import Connection
from reconciler.kube.credentials import Auth, credential_source
from reconciler.kube.limits import Limits, current_look
from reconciler.kube.requests import ListQuery, Request
from reconciler.kube.transport import Answer, Transport
from reconciler.kube.turns import Places, TokenBucket, current_party

_DEFAULTS: Final = Limits()
_LISTS: Final = 64  # that begin together: each takes a connection, and all informers start at once
_BEGUN: Final = 1.0  # seconds, after which a slow list holds up no other
_TRIES: Final = 3
_FIRST_DELAY: Final = 0.1
_LONGEST_DELAY: Final = 5.0
_AWAY: Final = "it was out of reach, and is read again before anything is written"
_ADVICE: Final = ": check certificate-authority, tls-server-name and the clock of this machine"


class KubeCluster(Cluster):
    """An API server, over pooled connections. Use within one event loop; close at the end.

    `agent` is the User-Agent of all requests. Nothing is sent before the first call.
    """

    def __init__(
        self, connection: Connection, *, limits: Limits = _DEFAULTS, agent: str = "klutchctl"
    ) -> None:
        self._connection, self._limits, self._agent = connection, limits, agent
        self._transport = Transport(
            connection, credentials=credential_source(connection), limits=limits, agent=agent
        )
        self._bucket = TokenBucket(qps=limits.qps, burst=limits.burst, now=time.monotonic)
        self._slots, self._lists = Places(limits.concurrency), Places(_LISTS)
        self.name, self.connectivity = connection.name, Connectivity()

    def again(self) -> "KubeCluster":
        """Return another client of the same server, for use within another event loop."""
        return KubeCluster(self._connection, limits=self._limits, agent=self._agent)

    def __repr__(self) -> str:
        return f"KubeCluster({self.name!r})"

    async def close(self) -> None:
        """Close all connections; calls in flight fail with Unreachable."""
        await self._transport.close()

    def retire(self) -> None:
        """End all watches now, and each connection once its call has ended."""
        self._transport.retire()

    async def send(self, request: Request) -> Manifest:
        """Make one call, with its repetitions, and return the JSON object in its answer."""
        return (await self._decode(await self._call(request), request))[0]

    async def pages(self, ref: Ref, query: ListQuery) -> AsyncGenerator[Listing]:
        """Yield a collection page by page, in pages of about the same size in memory.

        An object that alone is larger than an answer may be is there as a stub.
        """
        count = size = 0
        at_most, growth = query.limit, limits.MORE
        query = replace(query, limit=limits.first_page(at_most))
        while True:
            request, body = requests.list_page(ref, query), b""
            try:
                body = await self._call(request)
                answer, memory = await self._decode(body, request)
            except errors.Oversized as error:
                if query.limit > 1:
                    query, growth = replace(query, limit=1), limits.FEW_MORE
                    continue
                if not query.limit or not body:
                    raise
                answer = _page_of(await outline_of(body), error)
                memory = weight(body, most=self._limits.max_memory)
            items = answers.items(answer, request)
            if len(items) > self._limits.max_items:
                message = f"answered more than {self._limits.max_items} objects to one call"
                raise errors.Oversized(message, ref=ref, verb=request.verb)
            count, size = count + len(items), size + len(body)
            token = get_text(answer, "metadata", "continue")
            yield Listing(items, get_text(answer, "metadata", "resourceVersion"), memory)
            if not token:
                return
            if size > self._limits.max_list or not items:
                message = f"the list does not end (after {count} objects, {size} bytes)"
                raise errors.Unreachable(message, ref=ref, verb=request.verb)
            limit = limits.next_page(
                at_most, items=len(items), memory=memory, page=self._limits.page, growth=growth
            )
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
            self._stream(request, read_timeout=read_timeout) as chunks,
            contextlib.aclosing(events_of(chunks, request, self._limits)) as events,
        ):
            yield events

    async def _call(self, request: Request) -> bytes:
        """Return the body of a successful answer.

        No limit but the deadline holds for a Lease: there are few such calls, and they cannot wait.
        """
        if (look := current_look()) is not None and look.over:
            raise errors.Oversized(look.over, ref=request.ref, verb=request.verb)
        if request.ref.kind == LEASE:
            # A lock that waits its turn behind the work that it guards is renewed too late.
            return await self._served(request)
        await self._bucket.take()
        many = request.verb == "list" and self._limits.concurrency > _LISTS
        begin = many and self._lists.turn(current_party(), longest=_BEGUN)
        async with begin or contextlib.nullcontext(), self._slots.turn(current_party()):
            return await self._served(request)

    async def _decode(self, body: bytes, request: Request) -> tuple[dict[str, JSON], int]:
        """Return the JSON object in a body, and its weight. Raises Unreachable where it is none."""
        excess: Excess | None = None
        try:
            answer, memory = await value_of(body, self._limits)
            if isinstance(answer, dict):
                return answer, memory
        except Excess as error:
            excess = error
        except orjson.JSONDecodeError:
            pass
        if excess is not None:
            raise _error(request, excess)
        raise garbled(request, "the answer is not a JSON object")

    async def _served(self, request: Request) -> bytes:
        try:
            return await self._repeated(request)
        except errors.NotServed as error:
            unserved = error
        raise await self._confirmed(request, unserved)

    @contextlib.asynccontextmanager
    async def _stream(
        self, request: Request, *, read_timeout: float | None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a stream of chunks; they raise NoAnswer where it is cut."""
        await self._bucket.take()
        auth = await _credentials(request, self._transport.auth())
        async with contextlib.AsyncExitStack() as stack:
            chunks, refusal = await self._open(stack, request, auth, read_timeout)
            if refusal is not None and refusal.status == 401:
                auth = await _credentials(request, self._transport.renew(auth))
                chunks, refusal = await self._open(stack, request, auth, read_timeout)
            if refusal is not None:
                error = _error(request, refusal)
                if isinstance(error, errors.NotServed):
                    error = await self._confirmed(request, error)
                raise error
            yield chunks

    async def _open(
        self,
        stack: contextlib.AsyncExitStack,
        request: Request,
        auth: Auth,
        read_timeout: float | None,
    ) -> tuple[AsyncIterator[bytes], Answer | None]:
        opening = self._transport.stream(request, auth=auth, read_timeout=read_timeout)
        try:
            refusal, chunks = await stack.enter_async_context(opening)
            self._note(refusal)
            return chunks, refusal
        except NoAnswer as error:
            failed = _error(request, error)
        except errors.KlutchError as error:
            failed = _unusable(request, error)
        self.connectivity.failed()
        raise failed

    async def _repeated(self, request: Request) -> bytes:
        deadline = time.monotonic() + self._limits.deadline
        auth = await _credentials(request, self._transport.auth())
        renewed = False
        tries = 0
        left: float | None = None  # all of the deadline
        while True:
            is_doubtful = self.connectivity.is_away and request.method != "GET"
            look = Request("get", request.ref, "GET", "/version") if is_doubtful else request
            outcome = await self._try(look, auth, left)
            if is_doubtful and not self.connectivity.is_away:
                if request.ref.kind != LEASE and self.connectivity.doubts():
                    raise errors.Unreachable(_AWAY, ref=request.ref, verb=request.verb)
                continue
            if isinstance(outcome, Answer) and outcome.status < 300:
                return outcome.body
            left = max(deadline - time.monotonic(), 0.0)
            if isinstance(outcome, Answer) and outcome.status == 401 and not renewed:
                renewed, stale = True, auth
                auth = await _credentials(request, self._transport.renew(stale))
                left = max(deadline - time.monotonic(), 0.0)
                if auth != stale and left:
                    continue
            tries += 1
            delay = delay_before_retry(
                request, outcome, tries=tries, left=left, jitter=random.random()
            )
            failed = _error(request, outcome)
            if delay is None:
                raise failed
            try:
                await asyncio.sleep(delay)
            except asyncio.CancelledError as ended:
                raise ended from failed  # for the caller, whose timeout it may be
            left -= delay

    async def _try(self, request: Request, auth: Auth, left: float | None) -> Answer | NoAnswer:
        began = time.monotonic()
        try:
            answer = await self._transport.send(request, auth=auth, within=left)
        except NoAnswer as problem:
            self.connectivity.failed()
            return problem
        except errors.KlutchError as error:
            self.connectivity.failed()
            failed = _unusable(request, error)
        else:
            self._note(answer, time.monotonic() - began)
            return answer
        raise failed

    def _note(self, answer: Answer | None, took: float = 0.0) -> None:
        """Note whether the cluster dealt with a call; None is a stream that was opened."""
        if answer is not None:
            self.connectivity.note_date(answer.headers.get("date", ""))
        if answer is not None and (answer.status == 401 or answer.status >= 500):
            self.connectivity.failed()
        else:
            self.connectivity.answered(took)

    async def _confirmed(self, request: Request, unserved: errors.NotServed) -> errors.ClusterError:
        """Return `unserved` where the cluster's own discovery agrees, else Unreachable.

        A bare 404 also comes from gateways and from API servers that are starting; taking
        it for "the kind does not exist" would turn an outage into an empty cluster.
        """
        kind = request.ref.kind
        try:
            if await self._discovers(request, kind):
                reason = "the path answers 404 although the cluster's discovery lists the kind"
            else:
                message = f"the cluster does not serve {kind.resource}/{kind.version}"
                return errors.NotServed(message, ref=request.ref, verb=request.verb, status=404)
        except errors.ClusterError as error:
            reason = f"404, and discovery does not confirm it: {error.message}"
        return errors.Unreachable(reason, ref=request.ref, verb=request.verb, status=404)

    async def _discovers(self, request: Request, kind: Kind) -> bool:
        """Ask for the kind's group version alone. Raises ClusterError where it is unclear."""
        path = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
        try:
            listed = await self._discover(request, path, "APIResourceList")
        except errors.NotServed:
            groups = await self._discover(request, "/apis", "APIGroupList")
            return any(
                get_text(version, "groupVersion") == kind.api_version
                for group in get_maps(groups, "groups")
                for version in get_maps(group, "versions")
            )
        return any(
            (resource.get("name"), resource.get("namespaced")) == (kind.plural, kind.namespaced)
            for resource in get_maps(listed, "resources")
        )

    async def _discover(self, request: Request, path: str, wanted: str) -> Manifest:
        probe = Request(verb="get", ref=request.ref, method="GET", target=path, repeatable=True)
        answer, _ = await self._decode(await self._repeated(probe), probe)
        if answer.get("kind") != wanted:
            raise garbled(probe, "discovery answers with something else")
        return answer


def _page_of(found: Outline, excess: errors.Oversized) -> dict[str, JSON]:
    """Return a page with a stub of the one object on it. Raises `excess`."""
    version, token = (found.get(("metadata", part)) for part in ("resourceVersion", "continue"))
    return {
        "apiVersion": found.get(("apiVersion",)),
        "kind": found.get(("kind",)),
        "metadata": {"resourceVersion": version, "continue": token},
        "items": [stub_at(found, "items", excess)],
    }


async def _credentials(request: Request, work: Awaitable[Auth]) -> Auth:
    try:
        return await work
    except errors.KlutchError as error:
        failed = _unusable(request, error)
    raise failed


def _error(request: Request, outcome: Answer | NoAnswer) -> errors.ClusterError:
    if isinstance(outcome, Answer):
        return failure(
            request,
            status=outcome.status,
            answer=parse_status(outcome.body),
            retry_after=retry_after_of(outcome),
        )
    kind, message = errors.Unreachable, outcome.message
    if isinstance(outcome, Untrusted):
        message += _ADVICE
    if isinstance(outcome, Excess):
        kind = errors.Oversized
        if (look := current_look()) is not None:
            look.over = outcome.message
    return kind(
        message,
        ref=request.ref,
        verb=request.verb,
        outcome_unknown=outcome.sent and not request.repeatable,
    )


def _unusable(request: Request, error: errors.KlutchError) -> errors.ClusterError:
    """Return the error of a call that could not even be prepared."""
    if isinstance(error, errors.HostError):
        return errors.Unreachable(str(error), ref=request.ref, verb=request.verb)
    message = f"the credentials cannot be used: {error}"
    return errors.Unauthorized(message, ref=request.ref, verb=request.verb)


def retry_after_of(answer: Answer) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110, 10.2.3); dates are not used."""
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None


def delay_before_retry(
    request: Request, outcome: Answer | NoAnswer, *, tries: int, left: float, jitter: float
) -> float | None:
    """Return the seconds to wait before the next try, or None to give up.

    `tries` were made, `left` seconds remain of the deadline, `jitter` is in [0, 1).
    """
    backoff = min(_FIRST_DELAY * 2 ** (tries - 1), _LONGEST_DELAY) * (0.5 + jitter)
    if isinstance(outcome, Answer) and outcome.status == 429:
        named = retry_after_of(outcome)
        delay = backoff if named is None else named + backoff / 4
    elif tries < _TRIES and _harmless(request, outcome):
        named = retry_after_of(outcome) if isinstance(outcome, Answer) else None
        delay = backoff if named is None else named + backoff / 4
    else:
        return None
    return delay if delay < left else None


def _harmless(request: Request, outcome: Answer | NoAnswer) -> bool:
    if isinstance(outcome, NoAnswer):
        return not outcome.permanent and (request.repeatable or not outcome.sent)
    return request.repeatable and outcome.status >= 500
