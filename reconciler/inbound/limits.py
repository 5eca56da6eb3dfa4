"""How much a client may send, how long each part of an exchange may take, and how often."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a server. Sizes are in bytes, times in seconds.

    `take` is how long a client may take to receive an answer, `stop` how long answers that are
    under way have when the server stops. `rate` and `burst` are for each address of a client.
    """

    line: int = 8 * 1024  # the target, and each header
    head: int = 16 * 1024
    body: int = 64 * 1024
    head_time: float = 10.0
    body_time: float = 10.0
    answer_time: float = 30.0
    take_time: float = 10.0
    stop_time: float = 5.0
    connections: int = 256
    rate: float = 10.0
    burst: int = 40
