"""A server of HTTP for anybody: requests as values, within limits, and answers as values."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from aiohttp import web

from reconciler.inbound.addresses import Proxies
from reconciler.inbound.answering import Answering
from reconciler.inbound.connections import Connections
from reconciler.inbound.listener import Certificates, Listener, TlsFiles
from reconciler.inbound.messages import Limits, RefusalPage, Request, Response, plain
from reconciler.inbound.protocol import HttpProtocol

_MOMENT: Final = 0.1  # seconds; to aiohttp, 0 is for ever

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a server listens, and for whom. Port 0 is any free one, the host "" every address."""

    address: tuple[str, int]
    tls: TlsFiles | None = None
    proxies: Proxies = field(default_factory=Proxies)
    limits: Limits = field(default_factory=Limits)


@asynccontextmanager
async def served(
    listening: Listening,
    handler: Handler,
    *,
    clock: Callable[[], float] = time.monotonic,
    refusal_page: RefusalPage = plain,
) -> AsyncIterator[tuple[str, int]]:
    """Serve for as long as the block lasts; what is under way then has a few seconds more.

    Yields where. A handler may raise RequestRefused; anything else is a defect, and answered with
    500. `refusal_page` gives all refusals their form.

    Raises HostError.
    """
    limits = listening.limits
    certificates = Certificates(listening.tls, clock) if listening.tls else None
    answering = Answering(
        handler, refusal_page, limits=limits, proxies=listening.proxies, clock=clock
    )
    connections = Connections(limits)
    server = web.Server(answering.answer)
    listener = Listener(
        listening.address,
        connections,
        lambda connection: HttpProtocol(server, connection, limits),
        certificates,
        handshake_time=limits.head_time,
    )
    try:
        yield listener.address
    finally:
        listener.close()
        connections.cut_all(idle=True)
        await answering.stop(limits.stop_time)
        await server.shutdown(_MOMENT)
        connections.cut_all()
        await listener.closed()
