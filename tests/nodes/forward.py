"""`python forward.py ADDRESS PORT ...`: lead TLS port 443 of addresses to ports of loopback."""

import asyncio
import contextlib
import sys
from functools import partial

_CHUNK = 1 << 16


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    writer.close()


async def _lead(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        inner, outer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        writer.close()
        return
    await asyncio.gather(_pump(reader, outer), _pump(inner, writer))


async def main(words: list[str]) -> None:
    for address, port in zip(words[::2], words[1::2], strict=True):
        await asyncio.start_server(partial(_lead, int(port)), address, 443)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
