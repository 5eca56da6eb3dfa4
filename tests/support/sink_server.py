"""A receiver of notifications on loopback, which answers by a script."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.listener import Proxy


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that came in."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class SinkServer(Proxy):
    """Answers 200, but first by what is in `script`: a status, or "hang", "cut" and "redirect"."""

    def __init__(self, *script: int | str) -> None:
        super().__init__(self._serve)
        self.script = list(script)
        self.received: list[Sent] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = (line.partition(": ") for line in head[1:] if line)
        headers = {name.lower(): value for name, _, value in fields}
        body = await reader.readexactly(int(headers["content-length"]))
        self.received.append(Sent(head[0].split(" ")[1], headers, body))
        answer = self.script.pop(0) if self.script else 200
        if answer == "hang":
            await asyncio.Event().wait()
        if answer == "cut":
            return
        status = 302 if answer == "redirect" else answer
        location = f"Location: {self.url}/elsewhere\r\n" if answer == "redirect" else ""
        rest = "Content-Length: 0\r\nConnection: close\r\n\r\n"
        writer.write(f"HTTP/1.1 {status} X\r\n{location}{rest}".encode())
        await writer.drain()


def notify(folder: Path, host: SinkServer) -> tuple[str, str]:
    """Return the option that has commit statuses sent to a host."""
    (folder / "token").write_text("canary")
    target = "provider: gitea, repository: acme/fleet, tokenFile: token, detail: true"
    status = f"{{{target}, api: '{host.url}'}}"
    head = "apiVersion: notify.klutchctl.dev/v1alpha1\nkind: Notify\n"
    sinks = f"sinks: [{{name: host, commitStatus: {status}}}]\n"
    (folder / "notify.yaml").write_text(head + sinks)
    return "--notify", str(folder / "notify.yaml")
