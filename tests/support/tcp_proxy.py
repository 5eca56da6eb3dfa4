"""A bad line in front of one server: forwards bytes blindly, late, in part or not at all."""

import asyncio
from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from tests.support.listener import Proxy, hang_up, let_go

_CHUNK = 65536

Direction: TypeAlias = Literal["up", "down"]


@dataclass(frozen=True, slots=True)
class Flow:
    """What befalls the bytes of one direction.

    `delay` is in seconds, for each chunk. After `limit` bytes of a connection, counted from its
    start, the direction stalls for as long as this holds, or the connection is cut.
    """

    delay: float = 0.0
    limit: int | None = None
    then: Literal["stall", "fin", "rst"] = "stall"


CLEAR = Flow()
STALLED = Flow(limit=0)


class TcpProxy(Proxy):
    """`async with TcpProxy("https://127.0.0.1:6443") as line:` then talk to `line.url`."""

    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream)
        super().__init__(self._serve)
        self._flows: dict[Direction, Flow] = {"up": CLEAR, "down": CLEAR}
        self._changed = asyncio.Event()

    @property
    def url(self) -> str:
        return self._upstream._replace(netloc=f"127.0.0.1:{self._listener.port}").geturl()

    def let(self, *, up: Flow | None = None, down: Flow | None = None) -> None:
        """Change what befalls requests (`up`) and answers (`down`), open connections included.

        A limit that is already passed acts with the next bytes; `cut` acts at once.
        """
        self._flows = {"up": up or self._flows["up"], "down": down or self._flows["down"]}
        self._changed.set()
        self._changed = asyncio.Event()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._upstream.hostname, self._upstream.port
        upstream_reader, upstream_writer = await asyncio.open_connection(host, port)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump("up", reader, upstream_writer, client=writer))
                group.create_task(self._pump("down", upstream_reader, writer, client=writer))
        finally:
            await let_go(upstream_writer)

    async def _pump(
        self,
        direction: Direction,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        client: asyncio.StreamWriter,
    ) -> None:
        passed, pending = 0, b""
        while True:
            flow = self._flows[direction]
            if flow.limit is not None and passed >= flow.limit:
                await self._stop(flow, client)
            elif not pending:
                pending = await reader.read(_CHUNK)
                if not pending:
                    break
            else:
                await asyncio.sleep(flow.delay)
                end = None if flow.limit is None else flow.limit - passed
                part = pending[:end]
                writer.write(part)
                await writer.drain()
                passed, pending = passed + len(part), pending[len(part) :]
        writer.write_eof()

    async def _stop(self, flow: Flow, client: asyncio.StreamWriter) -> None:
        if flow.then == "stall":
            await self._changed.wait()
            return
        hang_up(client, flow.then)
        raise ConnectionAbortedError("cut on cue")
