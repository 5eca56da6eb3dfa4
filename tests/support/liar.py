"""An API server that lies: it says who it is, and answers all else with what harms a reader.

A process of its own, so that it costs the test's event loop nothing: `python -m
tests.support.liar LIE CERTIFICATE KEY` prints its port, and serves until it is ended.
"""

import asyncio
import gzip
import ssl
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Final

import orjson

from klutchctl.sandbox import credentials

MIB: Final = 2**20
_UID: Final = "11111111-2222-4333-8444-555555555555"
_SYSTEM: Final = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "kube-system", "uid": _UID, "resourceVersion": "1"},
}

_Parts = AsyncIterator[bytes]


async def _brackets() -> _Parts:
    for _ in range(48):
        yield b"[" * MIB


async def _items(mebibytes: int) -> _Parts:
    yield b'{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":['
    for _ in range(mebibytes):
        yield b"{}," * (MIB // 3)
    yield b"{}]}"


async def _levels() -> _Parts:
    yield b'{"":' * (2 * MIB)


async def _bombs(lie: str) -> _Parts:
    while True:
        yield _packed(lie)


@cache
def _packed(lie: str) -> bytes:
    """Return what is sent packed. It is made before the first request, which takes a while."""
    match lie:
        case "a gzip bomb":
            return gzip.compress(b"[" * (64 * MIB))
        case "gzip of nothing":
            return gzip.compress(b"") * 50_000
        case _:
            return zlib.compress(b" " * (64 * MIB))


async def _a_byte_a_second() -> _Parts:
    while True:
        yield b" "
        await asyncio.sleep(1)


LIES: Final[dict[str, tuple[Callable[[], _Parts], str]]] = {
    "48 MiB of brackets": (_brackets, ""),
    "200 MiB of items": (partial(_items, 200), ""),
    "15 MiB of items": (partial(_items, 15), ""),
    "2 million levels": (_levels, ""),
    "a gzip bomb": (partial(_bombs, "a gzip bomb"), "gzip"),
    "gzip of nothing": (partial(_bombs, "gzip of nothing"), "gzip"),
    "a deflate bomb": (partial(_bombs, "a deflate bomb"), "deflate"),
    "a byte a second": (_a_byte_a_second, ""),
}


async def _serve(lie: str, certificate: str, key: str) -> None:
    made, encoding = LIES[lie]
    if encoding:
        _packed(lie)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                if b"/namespaces/kube-system" in request.split(b"\r\n", 1)[0]:
                    body = orjson.dumps(_SYSTEM)
                    writer.write(_head(f"Content-Length: {len(body)}") + body)
                    continue
                packed = f"Content-Encoding: {encoding}\r\n" if encoding else ""
                writer.write(_head(f"{packed}Transfer-Encoding: chunked"))
                async for part in made():
                    if writer.is_closing():
                        return
                    writer.write(b"%x\r\n%s\r\n" % (len(part), part))
                    await writer.drain()
                    await asyncio.sleep(0)  # `drain` may give nobody a turn
                writer.write(b"0\r\n\r\n")
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _head(more: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{more}\r\n\r\n".encode()


@contextmanager
def lying(lie: str, folder: Path) -> Iterator[str]:
    """Run the server; yield its URL."""
    now = datetime.now(UTC)
    authority = credentials.authority("liar", now=now)
    pair = credentials.issue(authority, "liar", use=credentials.Use.SERVER, now=now)
    certificate, key = folder / "liar.pem", folder / "liar.key"
    certificate.write_bytes(pair.certificate_pem)
    key.write_bytes(pair.key_pem)
    command = [sys.executable, "-m", __name__, lie, str(certificate), str(key)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"https://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(_serve(*sys.argv[1:]))
