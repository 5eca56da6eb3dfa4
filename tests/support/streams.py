"""An API server of HTTP/2 that does to its watches what a test says."""

import asyncio
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import orjson
from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes

from klutchctl.sandbox import credentials
from reconciler.kube.connection import Connection
from tests.support.listener import Proxy

_CHUNK: Final = 65536


@dataclass
class Session:
    """One connection: its streams by the namespaces that they watch."""

    writer: asyncio.StreamWriter
    h2: H2Connection
    streams: dict[str, int] = field(default_factory=dict)
    resets: set[int] = field(default_factory=set)  # of the client
    asked: list[dict[str, str]] = field(default_factory=list)  # headers
    pings: int = 0  # that the client sent
    is_left: bool = False

    def say(self, namespace: str, octets: bytes, *, end: bool = False) -> None:
        """Send octets of a watch, as far as windows let us all at once."""
        number = self.streams[namespace]
        while len(octets) > self.h2.max_outbound_frame_size:
            self.h2.send_data(number, octets[: self.h2.max_outbound_frame_size])
            octets = octets[self.h2.max_outbound_frame_size :]
        self.h2.send_data(number, octets, end_stream=end)
        self.flush()

    def reset(self, namespace: str) -> None:
        self.h2.reset_stream(self.streams[namespace])
        self.flush()

    def window(self, namespace: str) -> int:
        return self.h2.local_flow_control_window(self.streams[namespace])

    def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())


class Streams(Proxy):
    """Serves watches as `answer` says, at most so many on a connection. Close it by its block."""

    def __init__(self, folder: Path, *, most: int = 100, protocols: tuple[str, ...] = ("h2",)):
        now = datetime.now(UTC)
        authority = credentials.authority("streams", now=now)
        pair = credentials.issue(authority, "streams", use=credentials.Use.SERVER, now=now)
        (folder / "tls.crt").write_bytes(pair.certificate_pem)
        (folder / "tls.key").write_bytes(pair.key_pem)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        tls.set_alpn_protocols(protocols)
        super().__init__(self._serve, tls=tls)
        self._most, self._ca = most, authority.certificate_pem.decode()
        self.sessions: list[Session] = []
        self.greets = asyncio.Event()
        self.greets.set()
        self.answer: tuple[int, bytes] | None = (200, b"")  # None: no answer

    @property
    def connection(self) -> Connection:
        return Connection(name="shop", server=f"https://127.0.0.1:{self.port}", ca=self._ca)

    def watched(self, namespace: str) -> Session:
        """Return the connection over which a namespace was watched last."""
        return next(one for one in reversed(self.sessions) if namespace in one.streams)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if writer.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + event("old"))
            return
        h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        h2.local_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = self._most
        h2.local_settings.acknowledge()
        h2.initiate_connection()
        session = Session(writer, h2)
        self.sessions.append(session)
        await self.greets.wait()
        session.flush()
        try:
            while data := await reader.read(_CHUNK):
                for one in h2.receive_data(data):
                    self._take(session, one)
                session.flush()
        finally:
            session.is_left = True

    def _take(self, session: Session, one: events.Event) -> None:
        if isinstance(one, events.StreamReset):
            session.resets.add(one.stream_id)
        session.pings += isinstance(one, events.PingReceived)
        if not isinstance(one, events.RequestReceived):
            return
        headers = {str(name): str(text) for name, text in one.headers}
        session.asked.append(headers)
        namespace = headers[":path"].split("/namespaces/")[1].split("/")[0]
        session.streams[namespace] = one.stream_id
        if self.answer is not None:
            status, body = self.answer
            session.h2.send_headers(one.stream_id, [(":status", str(status))])
            if status >= 300:
                session.say(namespace, body, end=True)


def event(name: str, *, pad: int = 0) -> bytes:
    """Return the line of a watch about a ConfigMap with so many octets of data."""
    metadata = {"name": name, "namespace": "x", "resourceVersion": "7"}
    body = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": {"a": "a" * pad}}
    return orjson.dumps({"type": "ADDED", "object": body}) + b"\n"
