"""Reading the body of a request, within limits."""

import asyncio

from aiohttp import web
from aiohttp.web_protocol import RequestPayloadError

from reconciler.inbound.limits import Limits
from reconciler.inbound.refusals import RequestRefused

_TOO_LARGE = "the body of the request is too large"


async def body_of(raw: web.BaseRequest, limits: Limits) -> bytes:
    """Return the whole body. Raises RequestRefused where it is too large, too slow, or packed."""
    _check(raw, limits)
    try:
        async with asyncio.timeout(limits.body_time):
            await _invite(raw)
            return await _read(raw, limits.body)
    except TimeoutError:
        raise RequestRefused(408, "the body of the request took too long") from None
    except (ConnectionError, RequestPayloadError):
        raise RequestRefused(400, "the body of the request cannot be read") from None


def _check(raw: web.BaseRequest, limits: Limits) -> None:
    if raw.headers.get("Transfer-Encoding", "chunked").strip().lower() != "chunked":
        raise RequestRefused(501, "the transfer encoding is not supported")
    if raw.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise RequestRefused(415, "compressed bodies are not supported")
    if (raw.content_length or 0) > limits.body:
        raise RequestRefused(413, _TOO_LARGE)


async def _invite(raw: web.BaseRequest) -> None:
    """Let a client go on that asks before it sends a body, such as curl."""
    if not (expected := raw.headers.get("Expect")):
        return
    if expected.strip().lower() != "100-continue":
        raise RequestRefused(417, "the expectation is not known")
    if raw.can_read_body:
        await raw.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        raw.writer.output_size = 0  # of the answer, nothing is sent yet


async def _read(raw: web.BaseRequest, most: int) -> bytes:
    body = bytearray()
    while chunk := await raw.content.readany():
        body += chunk
        if len(body) > most:
            raise RequestRefused(413, _TOO_LARGE)
    return bytes(body)
