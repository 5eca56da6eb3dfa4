"""The reasons for refusals of the door, as one exception with a code."""

from typing import Final, Literal, TypeAlias

from reconciler.core.errors import KlutchError

Code: TypeAlias = Literal[
    "invalid_request",
    "invalid_token",
    "forbidden",
    "not_found",
    "conflict",
    "unprocessable",
    "too_many_requests",
    "bad_gateway",
    "unavailable",
]
STATUS: Final[dict[Code, int]] = {
    "invalid_request": 400,
    "invalid_token": 401,
    "forbidden": 403,
    "not_found": 404,
    "conflict": 409,
    "unprocessable": 422,
    "too_many_requests": 429,
    "bad_gateway": 502,
    "unavailable": 503,
}


class Refused(KlutchError):
    """The door refuses. `reason` is one word for audit lines; the sentence is for the client.

    `retry_after` is in seconds.
    """

    def __init__(
        self, code: Code, sentence: str, *, reason: str = "", retry_after: float | None = None
    ) -> None:
        self.code, self.reason, self.retry_after = code, reason or code, retry_after
        super().__init__(sentence)

    @property
    def status(self) -> int:
        return STATUS[self.code]
