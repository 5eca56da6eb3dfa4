"""Why a request gets no answer, as an error of the HTTP layer, and its form."""

from collections.abc import Callable
from typing import TypeAlias

from reconciler.inbound.messages import Request, Response


class RequestRefused(Exception):
    """A request gets this status and sentence. `headers` go with it, such as Retry-After."""

    def __init__(
        self, status: int, sentence: str, *, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, headers


# Of a request that was refused before it was read, only what is known is there.
RefusalPage: TypeAlias = Callable[[Request, int, str], Response]


def plain(request: Request, status: int, sentence: str) -> Response:
    """Return a refusal as a line of text."""
    del request
    return Response(status, f"{sentence}\n".encode())
