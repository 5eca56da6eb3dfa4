"""What an answer says, as values: judged before it is read, and without keeping others waiting."""

import asyncio
from typing import Final

import orjson

from reconciler.core.manifest import JSON
from reconciler.kube.http.deep_json import loads, weight
from reconciler.kube.http.transport_errors import Excess
from reconciler.kube.limits import Limits, current_look

_QUICK: Final = 256 * 2**10  # octets that take a millisecond or two


async def value_of(text: bytes, limits: Limits) -> JSON:
    """Return what `json_text.loads` does. Raises orjson.JSONDecodeError, and Excess."""
    if len(text) <= _QUICK:
        _admit(text, limits)
        try:
            value: JSON = orjson.loads(text)
            return value
        except orjson.JSONDecodeError:
            pass  # perhaps it is only too deep, which takes long
        return await asyncio.to_thread(loads, text)
    return await asyncio.to_thread(_admitted, text, limits)


def _admitted(text: bytes, limits: Limits) -> JSON:
    _admit(text, limits)
    return loads(text)


def _admit(text: bytes, limits: Limits) -> None:
    memory = weight(text, most=limits.max_memory)
    if memory > limits.max_memory:
        raise Excess("answered more values than are read at once")
    look = current_look()
    if look is not None:
        look.hold(memory)
