"""Models of API servers where the product's client looks for real ones.

All of the product runs but for its HTTP: kubeconfigs, retries, errors, decoding.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator
from dataclasses import dataclass, field
from email.utils import format_datetime
from typing import Any, Final

import orjson
import pytest

from reconciler.http.stream import NoAnswer
from reconciler.kube import client
from reconciler.kube.connection import Connection
from reconciler.kube.credentials import Auth, CredentialSource
from reconciler.kube.limits import Limits
from reconciler.kube.requests import Request
from reconciler.kube.transport import Answer
from tests.kit import virtual_time
from tests.kit.answers import Refused
from tests.kit.api_model import CUT, ApiModel, Call, Reply
from tests.kit.api_store import CRDS, Change

_BOOKMARKS: Final = 60.0  # seconds between two of them


@dataclass
class Wires:
    """The models that can be reached, by the URL of their server."""

    models: dict[str, ApiModel] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)  # URLs and targets
    watches: list[tuple[str, str]] = field(default_factory=list)  # those that are open
    revoked: set[str] = field(default_factory=set)  # tokens that no server takes

    @contextlib.contextmanager
    def plugged(self) -> Iterator[None]:
        """Let all clients that are made meanwhile reach the models, and nothing else."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client, "Transport", self._transport)
            yield

    @contextlib.contextmanager
    def away(self, models: Collection[ApiModel]) -> Iterator[None]:
        """Let models be out of reach meanwhile."""
        ids = set(map(id, models))
        gone = {url: model for url, model in self.models.items() if id(model) in ids}
        for url, model in gone.items():
            del self.models[url]
            for lines in model.streams:
                lines.put_nowait(CUT)
        yield
        self.models.update(gone)

    def _transport(
        self, connection: Connection, *, credentials: CredentialSource, limits: Limits, agent: str
    ) -> "ModelTransport":
        return ModelTransport(self, connection.server, credentials, agent)


@dataclass
class ModelTransport:
    """What the product's Transport is to a server, to a model."""

    wires: Wires
    server: str
    credentials: CredentialSource
    agent: str
    _closed: bool = False
    _streams: list[asyncio.Queue[dict[str, Any] | None]] = field(default_factory=list)

    async def close(self) -> None:
        self._closed = True
        self.retire()

    def retire(self) -> None:
        for lines in self._streams:
            lines.put_nowait(CUT)

    async def auth(self) -> Auth:
        return await self.credentials.current()

    async def renew(self, stale: Auth) -> Auth:
        return await self.credentials.renew(stale)

    async def send(self, request: Request, *, auth: Auth, within: float | None) -> Answer:
        await asyncio.sleep(0)  # others may come first, as on a network
        self.wires.calls.append((self.server, request.target))
        return self._refusal(auth) or _answer(self._model().answer(self._call(request)))

    def _refusal(self, auth: Auth) -> Answer | None:
        header = auth.authorization
        if header is None or header.reveal().removeprefix("Bearer ") not in self.wires.revoked:
            return None
        error = Refused(401, "Unauthorized", "Unauthorized")
        return _answer(Reply(error.status, error.body()))

    @contextlib.asynccontextmanager
    async def stream(
        self, request: Request, *, auth: Auth, read_timeout: float | None
    ) -> AsyncIterator[tuple[Answer | None, AsyncIterator[bytes]]]:
        await asyncio.sleep(0)
        model = self._model()
        if (refusal := self._refusal(auth)) is not None:
            yield refusal, _none()
            return
        try:
            watched = model.watched(self._call(request))
        except Refused as error:
            yield _answer(Reply(error.status, error.body())), _none()
            return
        lines: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

        def follow(change: Change) -> None:
            for line in watched.lines(change):
                lines.put_nowait(line)
            if change.resource == CRDS:
                lines.put_nowait(None)  # it may be over now

        for line in watched.backlog():
            lines.put_nowait(line)
        self._streams.append(lines)
        with contextlib.ExitStack() as following:
            model.streams.append(lines)
            following.callback(model.streams.remove, lines)
            following.callback(model.store.follow(follow))
            following.callback(self._streams.remove, lines)
            watch = (self.server, request.target)
            self.wires.watches.append(watch)
            following.callback(self.wires.watches.remove, watch)
            chunks = self._chunks(lines, lambda: watched.is_over, watched.bookmark)
            async with contextlib.aclosing(chunks):
                yield None, chunks

    async def _chunks(
        self,
        lines: asyncio.Queue[dict[str, Any] | None],
        is_over: Callable[[], bool],
        bookmark: Callable[[], dict[str, Any]],
    ) -> AsyncGenerator[bytes]:
        while not (is_over() and lines.empty()):
            try:
                async with asyncio.timeout(_BOOKMARKS):
                    line = await lines.get()
            except TimeoutError:
                line = bookmark()
            if self._closed or line is CUT:
                raise NoAnswer("the connection was closed by us", sent=True)
            if line is not None:
                yield orjson.dumps(line) + b"\n"
                if line["type"] == "ERROR":
                    return

    def _model(self) -> ApiModel:
        if self._closed:
            raise NoAnswer("the connection was closed by us", sent=False, permanent=True)
        model = self.wires.models.get(self.server)
        if model is None:
            raise NoAnswer("no connection: Connection refused", sent=False)
        return model

    def _call(self, request: Request) -> Call:
        return Call(
            request.method,
            request.target,
            request.body,
            request.content_type,
            request.accept,
            self.agent,
        )


async def _none() -> AsyncIterator[bytes]:
    nothing: tuple[bytes, ...] = ()
    for chunk in nothing:
        yield chunk


def _answer(reply: Reply) -> Answer:
    date = format_datetime(virtual_time.now(), usegmt=True)
    return Answer(reply.status, {"date": date}, reply.content)
