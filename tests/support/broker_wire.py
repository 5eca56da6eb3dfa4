"""A broker on loopback that answers with given octets, whatever it is asked."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

from klutchctl.sandbox import credentials as certificates
from reconciler.api.osb import BrokerSpec
from reconciler.blueprints.offering.messages import Bind, Deprovision, LastOperation, Provision
from reconciler.broker.client import BrokerClient, address_of
from reconciler.core.secret import Secret
from tests.support.listener import Proxy, hang_up

Reply: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass(slots=True)
class Wire:
    """What it was asked: heads and bodies, one for each request; and where it is."""

    port: int = 0
    heads: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    peers: list[Any] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)  # the last one stays
    close: Callable[[], None] = lambda: None  # refuses connections from then on

    def header(self, name: str, number: int = -1) -> str:
        lines = [line.partition(": ") for line in self.heads[number].split("\r\n")[1:]]
        return {key.lower(): value for key, _, value in lines}.get(name.lower(), "")


@asynccontextmanager
async def wire(*replies: Reply, tls: ssl.SSLContext | None = None) -> AsyncIterator[Wire]:
    """Serve these replies, one for each request, and the last for all that follow."""
    made = Wire(replies=list(replies))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip()
            except asyncio.IncompleteReadError:
                return
            made.heads.append(head)
            made.bodies.append(await reader.readexactly(int(made.header("Content-Length") or 0)))
            made.peers.append(writer.get_extra_info("peercert"))
            reply = made.replies.pop(0) if len(made.replies) > 1 else made.replies[0]
            await reply(reader, writer)

    async with Proxy(serve, tls=tls) as proxy:
        made.port, made.close = proxy.port, proxy.refuse
        yield made


def octets(content: bytes, *, then: str = "") -> Reply:
    """Send these, and then go on, or leave with a `fin` or `rst`."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(content)
        await writer.drain()
        if then == "fin":
            hang_up(writer, "fin")
        elif then == "rst":
            hang_up(writer, "rst")

    return reply


def answer(status: str = "200 OK", body: bytes = b"{}", *headers: str, then: str = "") -> Reply:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return octets("\r\n".join(lines).encode() + body, then=then)


def repeated(first: bytes, part: bytes, *, pause: float = 0.0) -> Reply:
    """Send a beginning and then the same part for ever."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        while not writer.is_closing():
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)

    return reply


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say nothing until the peer goes away."""
    await reader.read()


@dataclass(frozen=True, slots=True)
class Certified:
    """A server's side of TLS, and what its clients need."""

    context: ssl.SSLContext
    ca: str
    client: Mapping[str, str]  # a certificate and its key, in a Secret


def certified(folder: Path, *, expired: bool = False, demands: bool = False) -> Certified:
    """Certify a server on loopback; with `demands`, for clients that show a certificate."""
    now = datetime.now(UTC)
    authority = certificates.authority("broker", now=now)
    issued = now - timedelta(days=20 * 365) if expired else now
    pair = certificates.issue(authority, "broker", use=certificates.Use.SERVER, now=issued)
    client = certificates.issue(authority, "client", use=certificates.Use.CLIENT, now=now)
    chain = folder / "broker.pem"
    chain.write_bytes(pair.certificate_pem + pair.key_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain)
    ca = authority.certificate_pem.decode()
    if demands:
        context.load_verify_locations(cadata=ca)
        context.verify_mode = ssl.CERT_REQUIRED
    shown = {"tls.crt": client.certificate_pem.decode(), "tls.key": client.key_pem.decode()}
    return Certified(context, ca, shown)


CANARY: Final = "c4n4ry-pw"
LOGIN: Final = {"username": "me", "password": CANARY}
PUT: Final = Provision("i1", "s1", "p1", "org", "space", parameters={"p": CANARY})
BIND: Final = Bind("i1", "b1", "s1", "p1")
DELETE: Final = Deprovision("i1", "s1", "p1")
POLL: Final = LastOperation("i1", "s1", "p1", Secret(f"key-{CANARY}"))


@asynccontextmanager
async def talking(
    url: str,
    *,
    ca: str | None = None,
    held: Mapping[str, str] = LOGIN,
    insecure: bool = False,
    seconds: float = 5.0,
    **more: Any,
) -> AsyncIterator[BrokerClient]:
    """Yield a client that may do all that a sandbox's may, but for what `more` says.

    Its Secret has `held`, and an authority.
    """
    texts = {**held, **({} if ca is None else {"ca.crt": ca})}
    address = address_of(BrokerSpec("acme", url=url, insecure=insecure), {"stringData": texts})
    allowed = {"allow_plain_http": True, "allow_loopback": True, **more}
    async with BrokerClient(address, timeout=timedelta(seconds=seconds), **allowed) as client:
        yield client


@asynccontextmanager
async def scripted(*replies: Reply, **more: Any) -> AsyncIterator[tuple[BrokerClient, Wire]]:
    """Yield a client of a broker in the clear, and the broker's side."""
    async with wire(*replies) as server, talking(f"http://127.0.0.1:{server.port}", **more) as one:
        yield one, server
